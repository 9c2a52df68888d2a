//! What can be wrong with an analyzer's definition.

/// Why an analyzer's definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No analyzer has this name.
    #[error("{0} is not a valid analyzer name")]
    UnknownAnalyzer(String),
    /// Neither a name nor an object with one.
    #[error("an analyzer is a name, or an object with a name")]
    NoName,
    /// Options of `edge_ngram` that are none.
    #[error("min_gram and max_gram are whole numbers from 1 to 50, min_gram not above max_gram")]
    Grams,
    /// `perfield` where one analyzer is asked for.
    #[error("perfield is not an analyzer of one text")]
    PerField,
}
