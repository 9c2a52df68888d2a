//! The other end of a connection.

use std::net::SocketAddr;

use crate::connection::places::Ticket;
use crate::reply::ahead::Ahead;

/// The protocol of a connection. With TLS it was negotiated; otherwise the first bytes show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Unknown,
    Http1,
    Http2,
}

/// The other end of a connection.
#[derive(Clone)]
pub(crate) struct Client {
    pub peer: SocketAddr,
    pub spoken: Spoken,
    pub place: Ticket,
    /// The bytes of its responses, over HTTP/2.
    pub ahead: Ahead,
}
