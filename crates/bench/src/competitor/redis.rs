//! Redis: documents as strings under their ids.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, cmd};
use serde_json::Value;
use url::Url;

use super::documents::{BULK_DOCS, Documents, body};
use super::drive::Operation;
use super::durability::durability;
use super::row::Row;
use crate::error::BenchError;

/// Longest wait for a response; the library's own limit is shorter than a slow disk's sync.
const PATIENCE: Duration = Duration::from_secs(60);
const SETTINGS: [&str; 6] = [
    "appendonly",
    "appendfsync",
    "save",
    "maxmemory",
    "maxmemory-policy",
    "io-threads",
];
/// Keys that are written or read in one request.
const BATCH: u64 = 1_000;

/// A Redis, and the prefix of this run's keys.
pub(super) struct Redis {
    client: Client,
    label: String,
    prefix: String,
    settings: Vec<(&'static str, String)>,
}

impl Redis {
    /// Connects. The second value is the product with its version.
    pub(super) async fn open(
        url: &Url,
        label: &str,
        prefix: String,
    ) -> Result<(Self, String), BenchError> {
        let fail = |error: redis::RedisError| BenchError::Competitor {
            competitor: label.to_owned(),
            reason: error.to_string(),
        };
        let client = Client::open(url.as_str()).map_err(fail)?;
        let mut connection = connect(&client).await.map_err(fail)?;
        let mut settings = Vec::new();
        for name in SETTINGS {
            let mut ask = cmd("CONFIG");
            ask.arg("GET").arg(name);
            let pair: Vec<String> = ask.query_async(&mut connection).await.map_err(fail)?;
            settings.push((name, pair.into_iter().nth(1).unwrap_or_default()));
        }
        let mut ask = cmd("INFO");
        let about: String = ask
            .arg("server")
            .query_async(&mut connection)
            .await
            .map_err(fail)?;
        let version = about
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        let product = format!("Redis, version {}", version.unwrap_or("?").trim());
        let redis = Self {
            client,
            label: label.to_owned(),
            prefix,
            settings,
        };
        Ok((redis, product))
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let wanted = [("appendonly", "yes"), ("appendfsync", "always")];
        durability("Redis", &self.settings, &wanted)
    }

    fn fail(&self, error: &redis::RedisError) -> BenchError {
        BenchError::Competitor {
            competitor: self.label.clone(),
            reason: error.to_string(),
        }
    }

    async fn connected(&self) -> Result<MultiplexedConnection, BenchError> {
        connect(&self.client)
            .await
            .map_err(|error| self.fail(&error))
    }

    pub(super) async fn fill(&self, documents: &Documents) -> Result<(), BenchError> {
        let mut connection = self.connected().await?;
        let mut from = 0;
        while from < documents.count {
            let to = documents.count.min(from + BATCH);
            let mut set = cmd("MSET");
            for number in from..to {
                set.arg(self.key(&documents.id(number))).arg(body(number));
            }
            let done = set.exec_async(&mut connection).await;
            done.map_err(|error| self.fail(&error))?;
            from = to;
        }
        Ok(())
    }

    fn key(&self, id: &str) -> String {
        format!("{}:{id}", self.prefix)
    }

    /// See [`Competitor::answer`](super::Competitor::answer).
    pub(super) async fn answer(
        &self,
        row: Row,
        documents: &Documents,
    ) -> Result<Value, BenchError> {
        if row.writes() || !row.is_by_key() {
            return Ok(Value::Null);
        }
        let mut connection = self.connected().await?;
        let key = self.key(&documents.id(documents.count / 2));
        let text: Option<String> = cmd("GET")
            .arg(key)
            .query_async(&mut connection)
            .await
            .map_err(|error| self.fail(&error))?;
        Ok(serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default())
    }

    /// Clients with a connection each.
    pub(super) async fn operations(
        &self,
        row: Row,
        documents: &Documents,
        clients: usize,
    ) -> Result<Vec<RedisOperation>, BenchError> {
        let mut operations = Vec::with_capacity(clients);
        for _ in 0..clients {
            operations.push(RedisOperation {
                connection: self.connected().await?,
                row,
                documents: documents.clone(),
                prefix: self.prefix.clone(),
            });
        }
        Ok(operations)
    }

    /// Removes the keys of this run, those of inserts among them.
    pub(super) async fn clean_up(&self) -> Result<(), BenchError> {
        let mut connection = self.connected().await?;
        let mut cursor = 0_u64;
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor)
                .arg("MATCH")
                .arg(format!("{}:*", self.prefix));
            scan.arg("COUNT").arg(BATCH);
            let scanned = scan.query_async(&mut connection).await;
            let (next, keys): (u64, Vec<String>) = scanned.map_err(|error| self.fail(&error))?;
            if !keys.is_empty() {
                let done = cmd("UNLINK").arg(keys).exec_async(&mut connection).await;
                done.map_err(|error| self.fail(&error))?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }
}

async fn connect(client: &Client) -> Result<MultiplexedConnection, redis::RedisError> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// One client.
pub(super) struct RedisOperation {
    connection: MultiplexedConnection,
    row: Row,
    documents: Documents,
    prefix: String,
}

impl Operation for RedisOperation {
    async fn once(&mut self) -> Result<u64, String> {
        let documents = &self.documents;
        let mut command;
        match self.row {
            Row::Get | Row::GetRandom => {
                let number = match self.row {
                    Row::Get => documents.count / 2,
                    _ => fastrand::u64(..documents.count),
                };
                command = cmd("GET");
                command.arg(format!("{}:{}", self.prefix, documents.id(number)));
                let found: Option<Vec<u8>> = command
                    .query_async(&mut self.connection)
                    .await
                    .map_err(|error| error.to_string())?;
                return found.map(|_| 1).ok_or_else(|| "no such key".to_owned());
            }
            Row::Bulk => {
                command = cmd("MSET");
                for _ in 0..BULK_DOCS {
                    let (id, text) = documents.next();
                    command.arg(format!("{}:{id}", self.prefix)).arg(text);
                }
            }
            _ => {
                let (id, text) = documents.next();
                command = cmd("SET");
                command.arg(format!("{}:{id}", self.prefix)).arg(text);
            }
        }
        let done = command.exec_async(&mut self.connection).await;
        done.map_err(|error| error.to_string())?;
        Ok(match self.row {
            Row::Bulk => BULK_DOCS,
            _ => 1,
        })
    }
}
