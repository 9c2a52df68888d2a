//! Errors, as text from which `index.js` makes an exception.

use embedded::Error;
use napi::Status;

/// The prefix of the message of such an exception; status, `error` and `reason` follow, separated
/// by line feeds.
const MARK: &str = "settee";

/// An exception with CouchDB's three words.
pub fn exception(e: Error) -> napi::Error {
    let words = format!("{MARK}\n{}\n{}\n{}", e.status, e.error, e.reason);
    napi::Error::new(Status::GenericFailure, words)
}

/// Runs blocking work on a thread for it.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> embedded::Result<T> + Send + 'static,
) -> napi::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    let failed =
        |e: tokio::task::JoinError| Error::new(500, "internal_server_error", e.to_string());
    done.map_err(failed).flatten().map_err(exception)
}

/// Text that a database gave.
pub fn text(bytes: Vec<u8>) -> napi::Result<String> {
    let failed =
        |e: std::string::FromUtf8Error| Error::new(500, "internal_server_error", e.to_string());
    String::from_utf8(bytes).map_err(failed).map_err(exception)
}
