//! PostgreSQL's full-text search: a column of type `tsvector` with a GIN index, by the
//! configuration `simple`, which like Lucene's standard analyzer splits texts into words without
//! stemming.

/// Hits of an answer.
pub(super) const HITS: usize = 25;

/// The table of the texts.
pub(super) fn make(table: &str) -> String {
    format!(
        "DROP TABLE IF EXISTS {table}_texts, {table}_search;
         CREATE TABLE {table}_texts (id text PRIMARY KEY, words text NOT NULL);"
    )
}

/// Builds everything that a search needs of the texts, in one transaction.
pub(super) fn build(table: &str) -> String {
    format!(
        "BEGIN;
         DROP TABLE IF EXISTS {table}_search;
         CREATE TABLE {table}_search AS SELECT id, to_tsvector('simple', words) AS words FROM {table}_texts;
         CREATE INDEX ON {table}_search USING gin (words);
         COMMIT;"
    )
}

/// The best hits.
pub(super) fn search(table: &str) -> String {
    format!(
        "SELECT id, ts_rank(words, query) AS rank FROM {table}_search, to_tsquery('simple', $1) AS query \
         WHERE words @@ query ORDER BY rank DESC LIMIT {HITS}"
    )
}

/// How many hits there are.
pub(super) fn count(table: &str) -> String {
    format!("SELECT count(*) FROM {table}_search WHERE words @@ to_tsquery('simple', $1)")
}

/// One more text, which is kept under its id and can be found: one transaction.
pub(super) fn insert(table: &str) -> String {
    format!(
        "WITH kept AS (INSERT INTO {table}_texts VALUES ($1::text, $2::text)) \
         INSERT INTO {table}_search VALUES ($1::text, to_tsvector('simple', $2::text))"
    )
}
