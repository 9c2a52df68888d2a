//! How does a connection live? Accepting, TLS, heads of requests that are odd or slow, and the end.

pub mod head_timeout;
pub mod lenient;
pub mod linger;
pub mod metrics_port;
pub mod places;
mod repoll;
pub mod room;
pub mod seat;
pub mod server;
pub mod spelling;
pub mod tls;
pub mod wrapper;
