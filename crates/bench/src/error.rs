//! Errors of a measurement.

use std::io;

/// Why a benchmark could not be run, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The options contradict each other or are out of range.
    #[error("{0}")]
    Options(String),
    /// A `--url` that cannot be used.
    #[error("{url}: {reason}")]
    Url {
        /// The URL as given, without its password.
        url: String,
        /// The problem with it.
        reason: String,
    },
    /// A server that cannot be used: its host and port, and the mistake.
    #[error("{0}")]
    Server(String),
    /// A requested workload does not exist.
    #[error("there is no workload {name:?}; the workloads are: {known}")]
    UnknownWorkload {
        /// The requested name.
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// No connection to the server could be made.
    #[error("cannot connect to {address}: {source}{}", remedy(.source))]
    Connect {
        /// Host and port.
        address: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The server refused a request that the workload cannot do without.
    #[error("{what}: the server answered {status}: {body}")]
    Refused {
        /// Method and path.
        what: String,
        /// HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// A request that the workload cannot do without got no usable reply.
    #[error("{what}: {source}")]
    Exchange {
        /// Method and path.
        what: String,
        /// The error of the connection.
        source: ClientError,
    },
    /// The embedded database reported an error.
    #[error("embedded database: {0}")]
    Embedded(String),
    /// A setting that a sweep has changed could not be restored.
    #[error(
        "{setting} on {node} was not restored ({reason}): it was {before} before; set it by hand, or restart the server"
    )]
    NotPutBack {
        /// SECTION/KEY.
        setting: String,
        /// The node's URL.
        node: String,
        /// Its former value.
        before: String,
        /// Why it failed.
        reason: String,
    },
    /// A saved run, or a picture for the report, that cannot be used.
    #[error("{file}: {reason}")]
    File {
        /// Its name.
        file: String,
        /// The problem with it.
        reason: String,
    },
    /// A recording cannot be written or replayed.
    #[error(transparent)]
    Recording(#[from] crate::traffic::RecordingError),
    /// A competitor, PostgreSQL or Redis, refused, or cannot be reached.
    #[error("{competitor}: {reason}")]
    Competitor {
        /// Its URL, without its password.
        competitor: String,
        /// Its message.
        reason: String,
    },
    /// Ctrl-C or SIGTERM; the databases of the run have been deleted.
    #[error("interrupted")]
    Interrupted,
    /// The report could not be written, or a local file could not be used.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why an exchange over a connection of the load client failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket failed.
    #[error("connection: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection in the middle of a reply.
    #[error("the server closed the connection before the reply was complete")]
    Closed,
    /// The reply is not HTTP/1.
    #[error("malformed HTTP reply: {0}")]
    Malformed(String),
}

/// How to fix an error of connecting, for those that the machine of the client causes.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            ". All local ports are in use, or were until a minute ago (TIME_WAIT): use fewer new connections, or widen \
             net.ipv4.ip_local_port_range"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_local_ports_is_told_what_to_do() {
        let error = |kind: io::ErrorKind| {
            let address = "127.0.0.1:5984".to_owned();
            let source = kind.into();
            BenchError::Connect { address, source }.to_string()
        };
        assert!(error(io::ErrorKind::AddrNotAvailable).ends_with("net.ipv4.ip_local_port_range"));
        assert!(!error(io::ErrorKind::ConnectionRefused).contains("TIME_WAIT"));
    }
}
