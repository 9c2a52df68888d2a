//! Why a query text is refused.

/// Why a query text is refused. The texts are close to Lucene's, which clients may show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `_search`: the text is not a query.
    #[error("Cannot parse '{query}': {reason}")]
    Classic {
        /// The text.
        query: String,
        /// The problem.
        reason: String,
    },
    /// `_nouveau`: the text is not a query.
    #[error("Syntax Error, cannot parse {query}: {reason}")]
    Flexible {
        /// The text.
        query: String,
        /// The problem.
        reason: String,
    },
    /// `_nouveau`: the text is a query that is not allowed.
    #[error("{0}")]
    NotAllowed(String),
    /// More clauses, or words, than [`super::MAX_CLAUSES`].
    #[error("maxClauseCount is set to 1024")]
    TooManyClauses,
    /// More parentheses within each other than [`super::MAX_DEPTH`].
    #[error("the query is nested deeper than 100 parentheses")]
    TooDeep,
    /// A name of a field with more bytes than [`super::MAX_FIELD_LEN`].
    #[error("the query has a field name of more than 4096 bytes")]
    LongField,
    /// More bytes than [`super::MAX_QUERY_LEN`].
    #[error("the query is longer than a megabyte")]
    TooLong,
    /// [`super::ParseOptions::go_on`] returned false.
    #[error("parsing the query was stopped")]
    Stopped,
}
