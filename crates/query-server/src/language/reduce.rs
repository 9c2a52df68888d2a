//! Custom reduce functions.

use super::error::Error;

/// One row for a custom reduce: key, document id and value, as JSON text.
#[derive(Clone, Copy, Debug)]
pub struct ReduceRow<'a> {
    /// The row's key.
    pub key: &'a [u8],
    /// The document's id: a JSON string with its quotes.
    pub id: &'a [u8],
    /// The row's value.
    pub value: &'a [u8],
}

/// Runs a custom reduce function.
pub trait Reducer: Send {
    /// `function(keys, values, false)`, keys being `[key, id]` pairs. Answers compact JSON text.
    ///
    /// # Errors
    /// The exception of the function, or the limit that it hit.
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error>;

    /// `function(null, values, true)`.
    ///
    /// # Errors
    /// Errors of [`Reducer::reduce`].
    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error>;
}
