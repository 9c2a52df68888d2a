//! MIME multipart bodies: documents with their attachments (`multipart/related`), and several of
//! those (`multipart/mixed`).
//!
//! Nothing here does I/O: bytes go in by [`Parser::push`], events come out of
//! [`Parser::next_event`]; the [`Writer`] writes the bytes between the parts. Neither holds a
//! part's content: a parser holds pushed bytes that were not taken yet, and at most one block of
//! headers and one delimiter more.
//!
//! ```
//! use document::multipart::{ContentType, Event, Limits, Parser};
//! let content_type = ContentType::parse("multipart/related; boundary=\"b\"").unwrap();
//! let mut parser = Parser::new(content_type.boundary().unwrap(), Limits::default()).unwrap();
//! parser.push(b"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b--");
//! assert!(matches!(parser.next_event().unwrap(), Some(Event::Part(h)) if h.get("content-type") == Some("text/plain")));
//! assert!(matches!(parser.next_event().unwrap(), Some(Event::Data(d)) if d == "hello"));
//! assert!(matches!(parser.next_event().unwrap(), Some(Event::PartEnd)));
//! assert!(matches!(parser.next_event().unwrap(), Some(Event::End)));
//! parser.finish().unwrap();
//! ```
//!
//! The grammar is that of RFC 2046, section 5.1, and of RFC 2045 and 2183 for the headers' values.

mod header;
mod level;
mod parser;
#[cfg(test)]
mod tests;
mod writer;

pub use header::{ContentType, Headers};
pub use parser::{Event, Parser};
pub use writer::{PartHead, Writer};

/// The longest boundary that RFC 2046 allows, in bytes.
pub const BOUNDARY_LENGTH_MAX: usize = 70;

/// The limits of a parser.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum bytes of one part's headers.
    pub header_bytes_max: usize,
    /// Maximum number of one part's headers.
    pub headers_max: usize,
    /// Maximum nesting of multiparts; 1 allows none within the body.
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            header_bytes_max: 16 * 1024,
            headers_max: 64,
            depth_max: 2,
        }
    }
}

/// The reason why a body is not a multipart body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipartError {
    /// Empty, longer than [`BOUNDARY_LENGTH_MAX`], or with a line break.
    #[error("Bad multipart boundary")]
    Boundary,
    /// A part's headers are longer than [`Limits::header_bytes_max`], or more than
    /// [`Limits::headers_max`].
    #[error("Multipart headers are too long")]
    HeadersTooLong,
    /// The text before the first part is longer than 1 MiB.
    #[error("Multipart preamble is too long")]
    PreambleTooLong,
    /// A line of a part's headers is invalid.
    #[error("Bad multipart header")]
    Header,
    /// Multiparts are nested deeper than [`Limits::depth_max`].
    #[error("Multiparts are nested too deeply")]
    TooDeep,
    /// The body, or a multipart within it, ended before its closing delimiter.
    #[error("Multipart body ended too early")]
    Truncated,
    /// [`Parser::enter`] was called other than right after a part's headers.
    #[error("Not at the beginning of a part")]
    NotAtPart,
}
