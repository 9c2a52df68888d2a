//! PostgreSQL: documents as jsonb under their ids, by its own protocol with prepared statements.

use std::fmt::Write as _;
use std::pin::pin;
use std::time::Instant;

use bytes::Bytes;
use futures_util::SinkExt as _;
use serde_json::{Value, json};
use tokio_postgres::{Client, Config, NoTls, Statement};
use url::Url;

use super::documents::{BULK_DOCS, Documents, body};
use super::drive::Operation;
use super::durability::durability;
use super::row::Row;
use super::text_table;
use crate::error::BenchError;
use crate::slice::Slice;
use crate::words;

/// Rows of one COPY while documents are loaded.
pub(super) const FILL_ROWS: u64 = 10_000;
/// Settings that decide how durable writes are and how fast it all is.
const SETTINGS: [&str; 10] = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "wal_buffers",
    "work_mem",
    "max_connections",
    "max_parallel_workers_per_gather",
    "jit",
];

/// A PostgreSQL, with two tables of this run.
pub(super) struct Postgres {
    config: Config,
    label: String,
    /// The table with the documents; that for new ones has `_new` behind it.
    table: String,
    control: Client,
    settings: Vec<(&'static str, String)>,
}

impl Postgres {
    /// Connects and makes the tables. The second value is the product with its version.
    pub(super) async fn open(
        url: &Url,
        label: &str,
        table: String,
    ) -> Result<(Self, String), BenchError> {
        let fail = |reason: String| BenchError::Competitor {
            competitor: label.to_owned(),
            reason,
        };
        let config: Config = url.as_str().parse().map_err(|e| fail(told(&e)))?;
        let control = connect(&config).await.map_err(fail)?;
        let mut settings = Vec::new();
        for name in SETTINGS {
            let row = control
                .query_one(format!("SHOW {name}").as_str(), &[])
                .await;
            settings.push((name, row.map_err(|e| fail(told(&e)))?.get::<_, String>(0)));
        }
        let row = control.query_one("SHOW server_version", &[]).await;
        let version: String = row.map_err(|e| fail(told(&e)))?.get(0);
        let make = format!(
            "CREATE TABLE {table} (id text PRIMARY KEY, doc jsonb NOT NULL);
             CREATE TABLE {table}_new (id text PRIMARY KEY, doc jsonb NOT NULL);"
        );
        control
            .batch_execute(&make)
            .await
            .map_err(|e| fail(told(&e)))?;
        let postgres = Self {
            config,
            label: label.to_owned(),
            table,
            control,
            settings,
        };
        Ok((postgres, format!("PostgreSQL, version {version}")))
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let wanted = [("fsync", "on"), ("synchronous_commit", "on")];
        durability("PostgreSQL", &self.settings, &wanted)
    }

    fn fail(&self, reason: String) -> BenchError {
        BenchError::Competitor {
            competitor: self.label.clone(),
            reason,
        }
    }

    /// Writes the documents, builds the index of `peer_find`, and has statistics made, as autovacuum would in time.
    pub(super) async fn fill(&self, documents: &Documents) -> Result<(), BenchError> {
        let table = &self.table;
        let begin = format!("TRUNCATE {table}, {table}_new; DROP INDEX IF EXISTS {table}_find;");
        self.execute(&begin).await?;
        let copy = format!("COPY {table} FROM STDIN");
        let copy = self
            .control
            .prepare(&copy)
            .await
            .map_err(|e| self.fail(told(&e)))?;
        let mut from = 0;
        while from < documents.count {
            let to = documents.count.min(from + FILL_ROWS);
            let mut rows = String::new();
            for number in from..to {
                push_row(&mut rows, &documents.id(number), &body(number));
            }
            copy_in(&self.control, &copy, rows)
                .await
                .map_err(|reason| self.fail(reason))?;
            from = to;
        }
        self.execute(&format!(
            "CREATE INDEX {table}_find ON {table} ((doc->>'customer'), ((doc->>'amount')::float8));"
        ))
        .await?;
        // It cannot be in one batch with others.
        self.execute(&format!("VACUUM ANALYZE {table}")).await
    }

    /// Writes the documents' texts, and builds an index of them.
    pub(super) async fn fill_texts(&self, documents: &Documents) -> Result<(), BenchError> {
        self.execute(&text_table::make(&self.table)).await?;
        let copy = format!("COPY {}_texts FROM STDIN", self.table);
        let copy = self.control.prepare(&copy).await;
        let copy = copy.map_err(|error| self.fail(told(&error)))?;
        let mut from = 0;
        while from < documents.count {
            let to = documents.count.min(from + FILL_ROWS);
            let mut rows = String::new();
            for number in from..to {
                push_row(&mut rows, &documents.id(number), &words::text(number));
            }
            let copied = copy_in(&self.control, &copy, rows).await;
            copied.map_err(|reason| self.fail(reason))?;
            from = to;
        }
        self.build(documents).await.map(drop)
    }

    /// Rebuilds the index of the texts.
    pub(super) async fn build(&self, documents: &Documents) -> Result<Slice, BenchError> {
        let began = Instant::now();
        self.execute(&text_table::build(&self.table)).await?;
        let built = Slice::of_one(documents.count, began.elapsed());
        // As autovacuum would in time.
        self.execute(&format!("VACUUM ANALYZE {}_search", self.table))
            .await?;
        Ok(built)
    }

    async fn execute(&self, sql: &str) -> Result<(), BenchError> {
        let done = self.control.batch_execute(sql).await;
        done.map_err(|error| self.fail(told(&error)))
    }

    fn sql(&self, row: Row) -> String {
        let table = &self.table;
        match row {
            Row::Get | Row::GetRandom => format!("SELECT doc::text FROM {table} WHERE id = $1"),
            Row::InsertOne | Row::Insert => {
                format!("INSERT INTO {table}_new VALUES ($1, $2::text::jsonb)")
            }
            Row::Bulk => format!("COPY {table}_new FROM STDIN"),
            Row::Find => format!(
                "SELECT id, doc::text FROM {table} WHERE doc->>'customer' = $1 AND (doc->>'amount')::float8 > $2 \
                 ORDER BY doc->>'customer', (doc->>'amount')::float8 LIMIT 10"
            ),
            Row::Scan => format!(
                "SELECT id, doc::text FROM {table} WHERE doc->'number' = to_jsonb($1::int8) OR doc->'absent' = to_jsonb($1::int8) LIMIT 2"
            ),
            Row::Aggregate => format!(
                "SELECT doc->>'customer', sum((doc->>'amount')::float8) FROM {table} GROUP BY 1"
            ),
            Row::SearchBuild | Row::Search { .. } | Row::SearchFresh => text_table::search(table),
        }
    }

    /// See [`Competitor::answer`](super::Competitor::answer).
    pub(super) async fn answer(
        &self,
        row: Row,
        documents: &Documents,
    ) -> Result<Value, BenchError> {
        let sql = self.sql(row);
        let sql = sql.as_str();
        let control = &self.control;
        let rows = match row {
            Row::InsertOne | Row::Insert | Row::Bulk | Row::SearchBuild | Row::SearchFresh => {
                return Ok(Value::Null);
            }
            Row::Search { wanted, .. } => {
                let query = wanted.in_postgres(&wanted.fixed());
                let counted = control
                    .query_one(text_table::count(&self.table).as_str(), &[&query])
                    .await;
                let counted = counted.map_err(|error| self.fail(told(&error)))?;
                return Ok(json!({"hits": counted.get::<_, i64>(0)}));
            }
            Row::Get | Row::GetRandom => {
                let id = documents.id(documents.count / 2);
                control.query(sql, &[&id]).await
            }
            Row::Find => control.query(sql, &[&"customer-7", &100.0_f64]).await,
            Row::Scan => {
                let last = documents.count.cast_signed() - 1;
                control.query(sql, &[&last]).await
            }
            Row::Aggregate => control.query(sql, &[]).await,
        };
        let rows = rows.map_err(|error| self.fail(told(&error)))?;
        let document = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        Ok(match row {
            Row::Get | Row::GetRandom => {
                rows.first().map_or(Value::Null, |row| document(row.get(0)))
            }
            Row::Aggregate => {
                let sum: f64 = rows.iter().map(|row| row.get::<_, f64>(1)).sum();
                json!({"groups": rows.len(), "sum": sum})
            }
            _ => rows
                .iter()
                .map(|row| document(row.get(1))["number"].clone())
                .collect(),
        })
    }

    /// Clients with a connection and a prepared statement each.
    pub(super) async fn operations(
        &self,
        row: Row,
        documents: &Documents,
        clients: usize,
    ) -> Result<Vec<PostgresOperation>, BenchError> {
        let sql = self.sql(row);
        let write = text_table::insert(&self.table);
        let mut operations = Vec::with_capacity(clients);
        for _ in 0..clients {
            let connected = connect(&self.config).await;
            let client = connected.map_err(|reason| self.fail(reason))?;
            let prepared = client.prepare(&sql).await;
            let write = match row {
                Row::SearchFresh => {
                    let prepared = client.prepare(&write).await;
                    Some(prepared.map_err(|error| self.fail(told(&error)))?)
                }
                _ => None,
            };
            operations.push(PostgresOperation {
                statement: prepared.map_err(|error| self.fail(told(&error)))?,
                write,
                client,
                row,
                documents: documents.clone(),
                fixed: documents.id(documents.count / 2),
            });
        }
        Ok(operations)
    }

    pub(super) async fn clean_up(&self) -> Result<(), BenchError> {
        let table = &self.table;
        self.execute(&format!(
            "DROP TABLE IF EXISTS {table}, {table}_new, {table}_texts, {table}_search"
        ))
        .await
    }
}

/// One client.
pub(super) struct PostgresOperation {
    client: Client,
    statement: Statement,
    /// The write of `peer_search_fresh`.
    write: Option<Statement>,
    row: Row,
    documents: Documents,
    /// The id that `peer_get` reads.
    fixed: String,
}

impl Operation for PostgresOperation {
    async fn once(&mut self) -> Result<u64, String> {
        let (client, statement) = (&self.client, &self.statement);
        let documents = &self.documents;
        let (found, expected, units) = match self.row {
            Row::Get | Row::GetRandom => {
                let any;
                let id = match self.row {
                    Row::Get => &self.fixed,
                    _ => {
                        any = documents.id(fastrand::u64(..documents.count));
                        &any
                    }
                };
                (client.query(statement, &[id]).await, 1..=1, 1)
            }
            Row::InsertOne | Row::Insert => {
                let (id, text) = documents.next();
                let inserted = client.execute(statement, &[&id, &text]).await;
                return inserted.map_err(|error| told(&error));
            }
            Row::Bulk => {
                let mut rows = String::new();
                for _ in 0..BULK_DOCS {
                    let (id, text) = documents.next();
                    push_row(&mut rows, &id, &text);
                }
                return copy_in(client, statement, rows).await;
            }
            Row::Find => {
                let customer = format!("customer-{}", fastrand::u64(..1_000));
                let above = fastrand::f64() * 500.0;
                let found = client.query(statement, &[&customer, &above]).await;
                (found, 0..=10, 1)
            }
            Row::Scan => {
                let last = documents.count.cast_signed() - 1;
                (
                    client.query(statement, &[&last]).await,
                    1..=1,
                    documents.count,
                )
            }
            Row::SearchBuild | Row::Search { .. } | Row::SearchFresh => {
                return self.search().await;
            }
            Row::Aggregate => {
                let found = client.query(statement, &[]).await;
                (found, 1..=usize::MAX, documents.count)
            }
        };
        let found = found.map_err(|error| told(&error))?.len();
        match expected.contains(&found) {
            true => Ok(units),
            false => Err(format!("{found} rows came")),
        }
    }
}

impl PostgresOperation {
    /// The best hits of a query, or of a word that was written just before.
    async fn search(&self) -> Result<u64, String> {
        let (query, expected) = match self.row {
            Row::Search { wanted, .. } => {
                let query = wanted.in_postgres(&wanted.any(self.documents.count));
                (query, 0..=text_table::HITS)
            }
            _ => {
                let (id, _) = self.documents.next();
                let word = words::unheard_of();
                if let Some(write) = &self.write {
                    let written = self.client.execute(write, &[&id, &word]).await;
                    written.map_err(|error| told(&error))?;
                }
                (word, 1..=1)
            }
        };
        let found = self.client.query(&self.statement, &[&query]).await;
        let found = found.map_err(|error| told(&error))?.len();
        match expected.contains(&found) {
            true => Ok(1),
            false => Err(format!("{found} rows came")),
        }
    }
}

async fn connect(config: &Config) -> Result<Client, String> {
    let (client, connection) = config.connect(NoTls).await.map_err(|error| told(&error))?;
    tokio::task::spawn_local(async move {
        // A waiting call gets the error of the connection.
        let _ = connection.await;
    });
    Ok(client)
}

async fn copy_in(client: &Client, copy: &Statement, rows: String) -> Result<u64, String> {
    let sink = client.copy_in(copy).await.map_err(|error| told(&error))?;
    let mut sink = pin!(sink);
    sink.send(Bytes::from(rows))
        .await
        .map_err(|error| told(&error))?;
    sink.finish().await.map_err(|error| told(&error))
}

/// A row of COPY's text format, in which backslashes, tabs and line ends are escaped.
fn push_row(out: &mut String, id: &str, text: &str) {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('\t', "\\t")
        .replace('\n', "\\n")
        .replace('\r', "\\r");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{id}\t{escaped}");
}

/// The server's message, which its error alone does not show.
fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => said.to_string(),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_copy_are_escaped() {
        let mut out = String::new();
        push_row(&mut out, "a", "{\"x\":\"\\\\ \\n\"}");
        push_row(&mut out, "b", "1\t2\n3\r");
        assert_eq!(out, "a\t{\"x\":\"\\\\\\\\ \\\\n\"}\nb\t1\\t2\\n3\\r\n");
    }
}
