//! A request that is over, as the counters see it.

use routes::Class;

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has all of it.
    Whole,
    /// The client disconnected before.
    Aborted,
    /// An error in the middle: the connection was cut.
    Cut,
}

impl End {
    /// The end as logs name it.
    pub fn name(self) -> &'static str {
        match self {
            End::Whole => "whole",
            End::Aborted => "aborted",
            End::Cut => "cut",
        }
    }
}

/// The counted properties of a request that is over.
#[derive(Clone, Copy, Debug)]
pub struct CompletedRequest<'a> {
    /// The class of its route.
    pub class: Class,
    /// Its method.
    pub method: &'a str,
    /// The response's status; 0 when the client disconnected before there was one.
    pub status: u16,
    /// How the response ended.
    pub end: End,
    /// Time to the end of the response's body, in microseconds.
    pub us: u64,
    /// Bytes of the response's body that were sent.
    pub bytes_sent: u64,
    /// Bytes of the request's body.
    pub bytes_received: u64,
    /// Documents that it read by their ids.
    pub document_reads: u64,
    /// Documents of a `_bulk_docs` request.
    pub bulk_docs: Option<u64>,
    /// It reads a partition only.
    pub is_of_partition: bool,
    /// The database that it used.
    pub database: Option<&'a str>,
    /// The view or text index that it used, with its design document; needs a database.
    pub view: Option<&'a str>,
}
