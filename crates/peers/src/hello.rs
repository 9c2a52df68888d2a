//! The greeting of a connection: which protocol, which program, which process.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::NodeId;

/// The version of the protocol between nodes. Nodes of two versions do not talk.
pub const PROTOCOL: u32 = 1;

const VERSION: HeaderName = HeaderName::from_static("peers-protocol");
const PROGRAM: HeaderName = HeaderName::from_static("peers-program");
const INSTANCE: HeaderName = HeaderName::from_static("peers-instance");
const CONNECTION: HeaderName = HeaderName::from_static("peers-connection");
/// Marks responses of the server itself that are not those of the handler.
pub(crate) const REFUSED: HeaderName = HeaderName::from_static("peers-refused");

/// The greeting of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub protocol: u32,
    /// The program's version, for logs.
    pub program: String,
    /// A random number of the process.
    pub instance: u64,
    /// Counts the connections that the process has made.
    pub connection: u64,
}

impl Hello {
    pub fn new(protocol: u32, instance: u64, connection: u64) -> Hello {
        Hello {
            protocol,
            program: env!("CARGO_PKG_VERSION").into(),
            instance,
            connection,
        }
    }

    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(VERSION, self.protocol.into());
        if let Ok(program) = HeaderValue::from_str(&self.program) {
            headers.insert(PROGRAM, program);
        }
        headers.insert(INSTANCE, self.instance.into());
        headers.insert(CONNECTION, self.connection.into());
    }

    /// Returns the other side's greeting, if it sent one.
    pub fn read(headers: &HeaderMap) -> Option<Hello> {
        let text = |name| headers.get(name)?.to_str().ok();
        let number = |name| text(name)?.parse().ok();
        Some(Hello {
            protocol: text(VERSION)?.parse().ok()?,
            program: text(PROGRAM)?.to_owned(),
            instance: number(INSTANCE)?,
            connection: number(CONNECTION)?,
        })
    }

    /// Why this node does not talk to a node that said this, if so.
    pub fn mismatch(&self, node: NodeId, ours: u32) -> Option<String> {
        if self.protocol == ours {
            return None;
        }
        let older = match self.protocol < ours {
            true => format!("node {node}"),
            false => "this node".into(),
        };
        Some(format!(
            "node {node} (program {}) speaks version {} of the peers' protocol, this node version {ours}: update {older}",
            self.program, self.protocol
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_back() {
        let hello = Hello::new(1, u64::MAX, 3);
        let mut headers = HeaderMap::new();
        assert_eq!(Hello::read(&headers), None);
        hello.write(&mut headers);
        assert_eq!(Hello::read(&headers), Some(hello));
    }

    #[test]
    fn the_older_side_is_to_be_updated() {
        let hello = Hello::new(2, 0, 0);
        assert_eq!(hello.mismatch(3, 2), None);
        let here = hello.mismatch(3, 1).unwrap();
        assert!(here.contains("speaks version 2 of the peers' protocol, this node version 1"));
        assert!(here.ends_with("update this node"), "{here}");
        let there = hello.mismatch(3, 4).unwrap();
        assert!(there.ends_with("update node 3"), "{there}");
    }
}
