//! Errors of an analyzer's definition.

/// Why an analyzer's definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No analyzer has this name.
    #[error("{0} is not a valid analyzer name")]
    UnknownAnalyzer(String),
    /// Neither a name nor an object with one.
    #[error("an analyzer is a name, or an object with a name")]
    NoName,
    /// Invalid options of `edge_ngram`.
    #[error("min_gram and max_gram are whole numbers from 1 to 50, min_gram not above max_gram")]
    Grams,
    /// `perfield` where a single analyzer is required.
    #[error("perfield is not an analyzer of one text")]
    PerField,
}
