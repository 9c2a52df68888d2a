//! How does a connection live? Accepting, TLS, heads of requests that are odd or slow, and the end.

use std::time::Duration;

pub mod arrival;
pub mod client;
mod first_read;
pub mod head_timeout;
pub mod lenient;
pub mod linger;
pub mod listen;
pub mod metrics_port;
pub mod places;
mod protocol;
mod repoll;
pub mod room;
pub mod seat;
pub mod spelling;
pub mod tls;
pub mod wrapper;

/// When a connection could not be accepted, the next one is after this time.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(50);
