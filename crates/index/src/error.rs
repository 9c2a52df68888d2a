/// Why an index could not be built or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// From the store.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// From a function.
    #[error(transparent)]
    Function(#[from] functions::Error),
    /// The index was dropped, or its database is.
    #[error("the index was dropped")]
    Dropped,
    /// The server stops.
    #[error("the index build was stopped")]
    Stopped,
    /// The caller's time is over: the next call continues.
    #[error("the reduction was interrupted")]
    Paused,
    /// An invalid design document.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Returns a word for the kind of the error; for a function's failure CouchDB's `error`.
    pub fn name(&self) -> &str {
        match self {
            Error::Storage(_) => "storage",
            Error::Function(e) => e.name(),
            Error::Dropped => "dropped",
            Error::Stopped => "stopped",
            Error::Paused => "paused",
            Error::Invalid(_) => "invalid",
        }
    }
}
