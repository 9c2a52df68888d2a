//! One multipart body, without nested ones.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem::Finder;

use super::{BOUNDARY_LENGTH_MAX, Headers, Limits, MultipartError};

/// Maximum number of blanks between a delimiter and the end of its line.
const PADDING_MAX: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// After a delimiter; the buffer starts with the CRLF of its line.
    Headers,
    Content,
    /// After the closing delimiter.
    Epilogue,
}

/// The next item of a level.
#[derive(Debug)]
pub(super) enum Step {
    Part(Headers),
    Data(Bytes),
    PartEnd,
    End,
    /// More bytes are needed.
    Hungry,
}

/// The text after a delimiter.
enum Follower {
    /// A part, after this many bytes of blanks.
    Part(usize),
    Close,
    /// The text only starts like a delimiter.
    None,
    Unknown,
}

#[derive(Debug)]
pub(super) struct Level {
    buffer: BytesMut,
    /// CRLF, two hyphens and the boundary.
    delimiter: Finder<'static>,
    state: State,
    /// Bytes at the start of the buffer that are not content, though a delimiter may start in them.
    lead: usize,
    /// The part's end was reported; the end of the body is next.
    closing: bool,
    /// Length of the text before the first part, in bytes.
    preamble_bytes: usize,
}

/// A longer text before the first part is refused, in bytes. It has no use.
const PREAMBLE_BYTES_MAX: usize = 1 << 20;

impl Level {
    pub fn new(boundary: &str) -> Result<Level, MultipartError> {
        let length = boundary.len();
        if length == 0 || length > BOUNDARY_LENGTH_MAX || boundary.contains(['\r', '\n', '\0']) {
            return Err(MultipartError::Boundary);
        }
        let delimiter = format!("\r\n--{boundary}");
        Ok(Level {
            // So that a delimiter at the very start is like the others.
            buffer: BytesMut::from(&b"\r\n"[..]),
            delimiter: Finder::new(delimiter.as_bytes()).into_owned(),
            state: State::Preamble,
            preamble_bytes: 0,
            lead: 2,
            closing: false,
        })
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.state != State::Epilogue {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Returns whether the closing delimiter was seen.
    pub fn ended(&self) -> bool {
        self.state == State::Epilogue && !self.closing
    }

    pub fn step(&mut self, limits: &Limits) -> Result<Step, MultipartError> {
        match self.state {
            State::Preamble => match self.content()? {
                Step::PartEnd if self.closing => self.epilogue(),
                Step::PartEnd => self.headers(limits),
                _ if self.preamble_bytes > PREAMBLE_BYTES_MAX => {
                    Err(MultipartError::PreambleTooLong)
                }
                step => Ok(step),
            },
            State::Headers => self.headers(limits),
            State::Content => self.content(),
            State::Epilogue => self.epilogue(),
        }
    }

    fn epilogue(&mut self) -> Result<Step, MultipartError> {
        self.buffer.clear();
        Ok(match std::mem::take(&mut self.closing) {
            true => Step::End,
            false => Step::Hungry,
        })
    }

    fn headers(&mut self, limits: &Limits) -> Result<Step, MultipartError> {
        let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") else {
            return match self.buffer.len() > limits.header_bytes_max + 4 {
                true => Err(MultipartError::HeadersTooLong),
                false => Ok(Step::Hungry),
            };
        };
        if end > limits.header_bytes_max {
            return Err(MultipartError::HeadersTooLong);
        }
        let block = self.buffer.split_to(end);
        let headers = Headers::parse(block.get(2..).unwrap_or_default(), limits)?;
        // The blank line's own CRLF stays: in a part without content, it belongs to the delimiter.
        self.buffer.advance(2);
        self.lead = 2;
        self.state = State::Content;
        Ok(Step::Part(headers))
    }

    /// Reads content up to the next delimiter. Before the first one everything is discarded.
    fn content(&mut self) -> Result<Step, MultipartError> {
        loop {
            let Some(at) = self.delimiter.find(&self.buffer) else {
                // Keeps what may be the start of a delimiter.
                let keep = self.delimiter.needle().len() - 1;
                let upto = self.buffer.len().saturating_sub(keep);
                match self.take(upto) {
                    Some(data) => return Ok(Step::Data(data)),
                    None => return Ok(Step::Hungry),
                }
            };
            if let Some(data) = self.take(at) {
                return Ok(Step::Data(data));
            }
            // Now the buffer starts with the delimiter.
            let length = self.delimiter.needle().len();
            match follower(&self.buffer[length..]) {
                Follower::Unknown => return Ok(Step::Hungry),
                Follower::Part(blanks) => {
                    self.buffer.advance(length + blanks);
                    self.state = State::Headers;
                    self.lead = 0;
                    return Ok(Step::PartEnd);
                }
                Follower::Close => {
                    self.buffer.clear();
                    self.state = State::Epilogue;
                    self.closing = true;
                    return Ok(Step::PartEnd);
                }
                // A delimiter may start within this text, but not at its first byte.
                Follower::None => {
                    let lead = std::mem::take(&mut self.lead);
                    if lead > 0 {
                        self.buffer.advance(lead);
                    } else if let Some(data) = self.take(2) {
                        return Ok(Step::Data(data));
                    }
                }
            }
        }
    }

    /// Takes the buffer's first `upto` bytes; `None` when they contain nothing for the reader.
    fn take(&mut self, upto: usize) -> Option<Bytes> {
        let lead = self.lead.min(upto);
        self.buffer.advance(lead);
        self.lead -= lead;
        let data = self.buffer.split_to(upto - lead);
        if self.state == State::Preamble {
            self.preamble_bytes += data.len();
        }
        (!data.is_empty() && self.state == State::Content).then(|| data.freeze())
    }
}

fn follower(after: &[u8]) -> Follower {
    if after.starts_with(b"--") {
        return Follower::Close;
    }
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let blanks = after.iter().take_while(is_blank).count();
    match &after[blanks..] {
        _ if blanks > PADDING_MAX => Follower::None,
        [b'\r', b'\n', ..] => Follower::Part(blanks),
        [] | [b'\r'] => Follower::Unknown,
        [b'-'] if blanks == 0 => Follower::Unknown,
        _ => Follower::None,
    }
}
