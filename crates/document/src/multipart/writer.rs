//! The bytes between the parts.

use super::{BOUNDARY_LENGTH_MAX, MultipartError};

/// The headers of a part to be written, as CouchDB writes those of documents and attachments.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartHead<'a> {
    /// Id and revision of the part's document: `X-Doc-Id` and `X-Rev-Id`.
    pub doc: Option<(&'a str, &'a str)>,
    /// `Content-Type`, unchanged. An attachment may have an empty one.
    pub content_type: &'a str,
    /// An attachment's name: the file name in `Content-Disposition`.
    pub filename: Option<&'a str>,
    /// Bytes of the part's content.
    pub length: Option<u64>,
    /// `Content-Encoding`.
    pub encoding: Option<&'a str>,
}

/// Writes a multipart body: the bytes before the content of each part, and those after the last.
///
/// ```
/// use document::multipart::{PartHead, Writer};
/// let mut writer = Writer::new("b").unwrap();
/// let mut body = Vec::new();
/// writer.part(&PartHead { content_type: "text/plain", ..PartHead::default() }, &mut body);
/// body.extend_from_slice(b"hello");
/// writer.end(&mut body);
/// assert_eq!(body, b"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b--");
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    boundary: String,
    begun: bool,
}

impl Writer {
    /// # Errors
    /// [`MultipartError::Boundary`]. A boundary must not occur in any part's content: make it of
    /// random characters.
    pub fn new(boundary: &str) -> Result<Writer, MultipartError> {
        let length = boundary.len();
        if length == 0 || length > BOUNDARY_LENGTH_MAX || !boundary.is_ascii() {
            return Err(MultipartError::Boundary);
        }
        Ok(Writer {
            boundary: boundary.to_owned(),
            begun: false,
        })
    }

    /// Returns the boundary.
    pub fn boundary(&self) -> &str {
        &self.boundary
    }

    /// Returns the body's content type: `subtype` is `related` or `mixed`.
    pub fn content_type(&self, subtype: &str) -> String {
        format!("multipart/{subtype}; boundary=\"{}\"", self.boundary)
    }

    /// Ends the part before, if there is one, and starts the next.
    pub fn part(&mut self, head: &PartHead<'_>, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"--");
        out.extend_from_slice(self.boundary.as_bytes());
        if let Some(name) = head.filename {
            out.extend_from_slice(b"\r\nContent-Disposition: attachment; filename=\"");
            write_quoted(name, out);
            out.push(b'"');
        }
        if let Some((id, rev)) = head.doc {
            write_header("X-Doc-Id", id, out);
            write_header("X-Rev-Id", rev, out);
        }
        write_header("Content-Type", head.content_type, out);
        if let Some(length) = head.length {
            write_header("Content-Length", &length.to_string(), out);
        }
        if let Some(encoding) = head.encoding {
            write_header("Content-Encoding", encoding, out);
        }
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Ends the body.
    pub fn end(&self, out: &mut Vec<u8>) {
        if self.begun {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"--");
        out.extend_from_slice(self.boundary.as_bytes());
        out.extend_from_slice(b"--");
    }
}

/// Line breaks cannot be escaped, and would end the header.
fn printable(c: char) -> char {
    match c {
        '\r' | '\n' | '\0' => ' ',
        c => c,
    }
}

fn write_header(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend(value.chars().map(printable).collect::<String>().bytes());
}

fn write_quoted(value: &str, out: &mut Vec<u8>) {
    for c in value.chars().map(printable) {
        if matches!(c, '"' | '\\') {
            out.push(b'\\');
        }
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
