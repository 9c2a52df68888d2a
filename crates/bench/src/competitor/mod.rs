//! PostgreSQL, Redis and SQLite in comparison with the server, for the rows where they do the same
//! work: the group `peers`.
//!
//! Both get the same documents and ids from one client process, over the same number of connections, in
//! interleaved rounds. Responses are compared before anything is measured. A competitor's settings for
//! durability are read and shown.

mod documents;
mod drive;
mod durability;
mod fts5;
mod postgres;
mod redis;
mod row;
mod search;
mod server;
mod text_table;

use std::time::Duration;

use command_line::PEER_CREDENTIALS;
use url::Url;

use crate::error::BenchError;
use crate::pace::Pace;
use crate::procfs;
use crate::report::Server;
use crate::system::{Watch, WorkloadPart};
use crate::target::without_credentials;

pub(crate) use documents::Documents;
pub(crate) use row::Row;
pub(crate) use server::HttpRows;

use self::fts5::Fts5;
use self::postgres::Postgres;
use self::redis::Redis;

/// The kinds of competitors.
enum Kind {
    Postgres(Box<Postgres>),
    Redis(Box<Redis>),
    Fts5(Box<Fts5>),
}

/// A competitor, and the objects that this run has created in it.
pub(crate) struct Competitor {
    kind: Kind,
    label: String,
    product: String,
    port: u16,
    is_local: bool,
    /// How many documents are there already, and how many texts.
    filled: u64,
    filled_texts: u64,
}

impl Competitor {
    /// Connects to `postgres://…`, `redis://…`, or `fts5://…`, which is SQLite behind `scripts/bench/fts5.py`.
    pub(crate) async fn open(text: &str) -> Result<Self, BenchError> {
        let mut url = Url::parse(text).map_err(|error| BenchError::Url {
            url: "--peer".to_owned(),
            reason: error.to_string(),
        })?;
        let label = without_credentials(&url);
        let refuse = |reason: &str| BenchError::Url {
            url: label.clone(),
            reason: reason.to_owned(),
        };
        add_credentials(&mut url).map_err(|()| refuse("it can have no credentials"))?;
        let name = format!("settee_bench_{:08x}", fastrand::u32(..));
        let (kind, product, port) = match url.scheme() {
            "postgres" | "postgresql" => {
                let (postgres, product) = Postgres::open(&url, &label, name).await?;
                (Kind::Postgres(Box::new(postgres)), product, 5432)
            }
            "redis" => {
                let (redis, product) = Redis::open(&url, &label, name).await?;
                (Kind::Redis(Box::new(redis)), product, 6379)
            }
            "fts5" => {
                let (fts5, product) = Fts5::open(&url, &label).await?;
                (Kind::Fts5(Box::new(fts5)), product, 0)
            }
            _ => {
                return Err(refuse(
                    "only postgres://, redis:// and fts5:// can be peers",
                ));
            }
        };
        let host = url.host_str().unwrap_or_default();
        Ok(Self {
            kind,
            product,
            port: url.port().unwrap_or(port),
            is_local: matches!(host, "127.0.0.1" | "localhost" | "[::1]"),
            label,
            filled: 0,
            filled_texts: 0,
        })
    }

    /// As a server of the report.
    pub(crate) fn server(&self) -> Server {
        Server {
            url: self.label.clone(),
            nodes: 1,
            product: self.product.clone(),
            pids: self.listener().into_iter().collect(),
        }
    }

    /// Notes on its settings.
    pub(crate) fn notes(&self) -> Vec<String> {
        match &self.kind {
            Kind::Postgres(postgres) => postgres.notes(),
            Kind::Redis(redis) => redis.notes(),
            Kind::Fts5(fts5) => fts5.notes(),
        }
    }

    /// Does it do this work?
    pub(crate) fn does(&self, row: Row) -> bool {
        match &self.kind {
            Kind::Postgres(_) => true,
            Kind::Redis(_) => row.is_by_key(),
            // It has one connection.
            Kind::Fts5(_) => row.is_search() && row.clients(2) == 1,
        }
    }

    /// Writes the documents, once, and the other data that the row needs.
    pub(crate) async fn prepare(
        &mut self,
        row: Row,
        documents: &Documents,
    ) -> Result<(), BenchError> {
        let filled = match row.is_search() {
            true => &mut self.filled_texts,
            false => &mut self.filled,
        };
        if *filled == documents.count {
            return Ok(());
        }
        match &self.kind {
            Kind::Postgres(postgres) if row.is_search() => postgres.fill_texts(documents).await?,
            Kind::Postgres(postgres) => postgres.fill(documents).await?,
            Kind::Redis(redis) => redis.fill(documents).await?,
            Kind::Fts5(fts5) => fts5.fill(documents).await?,
        }
        *filled = documents.count;
        Ok(())
    }

    /// Marks the texts as changed, so that they are written again when they are needed.
    pub(crate) fn forget_texts(&mut self) {
        self.filled_texts = 0;
    }

    /// The response to the row, in a form that is the same for all systems that do the same work.
    pub(crate) async fn answer(
        &self,
        row: Row,
        documents: &Documents,
    ) -> Result<serde_json::Value, BenchError> {
        match &self.kind {
            Kind::Postgres(postgres) => postgres.answer(row, documents).await,
            Kind::Redis(redis) => redis.answer(row, documents).await,
            Kind::Fts5(fts5) => fts5.answer(row).await,
        }
    }

    /// Measures a row for about `length`, or as `pace` defines; the clock starts when all
    /// connections are open.
    pub(crate) async fn round(
        &self,
        row: Row,
        documents: &Documents,
        connections: usize,
        length: Duration,
        pace: Pace,
    ) -> Result<WorkloadPart, BenchError> {
        let clients = row.clients(connections);
        let (slice, watch) = match &self.kind {
            Kind::Postgres(postgres) if row == Row::SearchBuild => {
                let watch = Watch::start(&self.processes());
                (postgres.build(documents).await?, watch)
            }
            Kind::Fts5(fts5) => {
                let watch = Watch::start(&self.processes());
                (fts5.round(row, documents, length, pace).await?, watch)
            }
            Kind::Postgres(postgres) => {
                let operations = postgres.operations(row, documents, clients).await?;
                let watch = Watch::start(&self.processes());
                (drive::drive(operations, length, pace).await?, watch)
            }
            Kind::Redis(redis) => {
                let operations = redis.operations(row, documents, clients).await?;
                let watch = Watch::start(&self.processes());
                (drive::drive(operations, length, pace).await?, watch)
            }
        };
        Ok(watch.part(row.name(), row.unit(), slice))
    }

    /// Removes the objects that this run has created.
    pub(crate) async fn clean_up(&self) -> Result<(), BenchError> {
        match &self.kind {
            Kind::Postgres(postgres) => postgres.clean_up().await,
            Kind::Redis(redis) => redis.clean_up().await,
            // Its data is in a separate directory, which is removed with it.
            Kind::Fts5(_) => Ok(()),
        }
    }

    fn listener(&self) -> Option<u32> {
        self.is_local.then(|| procfs::listener(self.port)).flatten()
    }

    /// Its processes on this machine: PostgreSQL has one a connection.
    fn processes(&self) -> Vec<u32> {
        let Some(listener) = self.listener() else {
            return Vec::new();
        };
        let mut processes = procfs::descendants(listener);
        processes.push(listener);
        processes
    }
}

/// Name and password of the environment, unless the URL has its own: all users of the machine can
/// read a command line.
fn add_credentials(url: &mut Url) -> Result<(), ()> {
    let Ok(credentials) = std::env::var(PEER_CREDENTIALS) else {
        return Ok(());
    };
    if let Some((name, password)) = credentials.split_once(':')
        && url.username().is_empty()
        && url.password().is_none()
    {
        url.set_username(name)?;
        url.set_password(Some(password))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::documents::body;
    use super::*;
    use crate::documents::{Ids, Order, Shape};

    #[tokio::test]
    async fn what_is_no_peer_is_refused_without_showing_a_password() {
        for url in [
            "http://a:secret@127.0.0.1:1/",
            "mysql://a:secret@127.0.0.1/x",
        ] {
            let error = Competitor::open(url).await.err().unwrap().to_string();
            assert!(error.contains("only postgres://, redis://"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(Competitor::open("no url").await.is_err());
    }

    #[tokio::test]
    async fn a_peer_that_is_not_there_is_named_without_its_password() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        for scheme in ["postgres", "redis"] {
            let url = format!("{scheme}://anna:secret@127.0.0.1:{port}/0");
            let error = Competitor::open(&url).await.err().unwrap().to_string();
            assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn both_sides_write_the_same_documents() {
        let documents = Documents {
            ids: Ids::new(Order::Sequential),
            count: 3,
            new: Ids::new(Order::Sequential),
        };
        let mut bulk = Vec::new();
        Shape::Bytes300.push_bulk(&mut bulk, &documents.ids, 3);
        let bulk: serde_json::Value = serde_json::from_slice(&bulk).unwrap();
        for number in 0..3 {
            let mut of_server = bulk["docs"][number as usize].clone();
            let id = of_server.as_object_mut().unwrap().remove("_id").unwrap();
            assert_eq!(id, documents.id(number));
            let of_peer: serde_json::Value = serde_json::from_str(&body(number)).unwrap();
            assert_eq!(of_server, of_peer);
        }
    }
}
