//! Answers that are put together of text and of attachments' bytes, which are read as the client takes them.

use bytes::Bytes;
use database::AttachmentReader;
use futures_util::stream::{self, Stream};
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::errors::ApiError;
use crate::reply::stream::CHUNK_BYTES;
use crate::reply::{Body, Reply, StreamError};

/// An answer in parts.
#[derive(Default)]
pub struct Parts {
    parts: Vec<Part>,
    /// Bytes of all, while they are known.
    length: Length,
}

struct Length(Option<u64>);

impl Default for Length {
    fn default() -> Self {
        Length(Some(0))
    }
}

impl Length {
    fn add(&mut self, bytes: Option<u64>) {
        self.0 = self.0.zip(bytes).map(|(a, b)| a.saturating_add(b));
    }
}

enum Part {
    Text(Vec<u8>),
    Raw(AttachmentReader),
    /// In Base64, after up to two bytes that are left of the piece before.
    Base64(AttachmentReader, Vec<u8>),
}

impl Parts {
    pub fn push_text(&mut self, text: &[u8]) {
        self.length.add(Some(text.len() as u64));
        match self.parts.last_mut() {
            Some(Part::Text(last)) => last.extend_from_slice(text),
            _ => self.parts.push(Part::Text(text.to_vec())),
        }
    }

    /// `length`: how many bytes the reader gives, if that is known.
    pub fn push_raw(&mut self, reader: AttachmentReader, length: Option<u64>) {
        self.length.add(length);
        self.parts.push(Part::Raw(reader));
    }

    pub fn push_base64(&mut self, reader: AttachmentReader) {
        self.length.add(None);
        self.parts.push(Part::Base64(reader, Vec::new()));
    }

    /// The answer. What is of text alone is whole at once.
    pub fn reply(self, content_type: &str) -> Reply {
        let mut reply = reply_of(content_type);
        let length = self.length.0;
        let mut parts = self.parts;
        if let [] | [Part::Text(_)] = parts.as_slice() {
            let text = match parts.pop() {
                Some(Part::Text(text)) => text,
                _ => Vec::new(),
            };
            reply.body = Body::Full(text.into());
            return reply;
        }
        let pieces = pieces(parts, |_| Ok(false));
        reply.body = match length {
            Some(length) => Body::Sized(Box::pin(pieces), length),
            None => Body::Stream(Box::pin(pieces)),
        };
        reply
    }

    /// An answer that is made as the client takes it: each call of `more` appends some parts, until it answers false.
    pub fn reply_as_made(
        content_type: &str,
        mut more: impl FnMut(&mut Parts) -> Result<bool, ApiError> + Send + 'static,
    ) -> Result<Reply, ApiError> {
        let mut first = Parts::default();
        while first.text_bytes() < CHUNK_BYTES {
            if !more(&mut first)? {
                return Ok(first.reply(content_type));
            }
        }
        let mut reply = reply_of(content_type);
        reply.body = Body::Stream(Box::pin(pieces(first.parts, more)));
        Ok(reply)
    }

    fn text_bytes(&self) -> usize {
        let bytes = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.len(),
            Part::Raw(_) | Part::Base64(..) => 0,
        });
        bytes.sum()
    }
}

fn reply_of(content_type: &str) -> Reply {
    let mut reply = Reply::empty(200);
    // A content type is what the uploader said; one that cannot be a header is left out, as CouchDB's empty one is not.
    if let Ok(value) = HeaderValue::from_bytes(content_type.as_bytes()) {
        reply.headers.push((CONTENT_TYPE, value));
    }
    reply
}

/// The bytes of `parts`, and of those that `more` appends.
fn pieces(
    parts: Vec<Part>,
    more: impl FnMut(&mut Parts) -> Result<bool, ApiError> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, StreamError>> + Send {
    let start = (parts.into_iter(), Some(more));
    stream::unfold(start, |(mut parts, mut more)| async move {
        loop {
            let next = match parts.as_mut_slice().first_mut() {
                Some(part) => next_piece(part).await,
                None => {
                    let mut made = Parts::default();
                    let going_on = more.as_mut()?(&mut made);
                    parts = made.parts.into_iter();
                    match going_on {
                        Ok(true) => {}
                        Ok(false) => more = None,
                        Err(e) => return Some((Err(cut_short(e)), (Vec::new().into_iter(), None))),
                    }
                    // Others on this thread get their turn.
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            match next {
                Ok(Some(piece)) => return Some((Ok(piece), (parts, more))),
                Ok(None) => drop(parts.next()),
                Err(e) => return Some((Err(cut_short(e)), (Vec::new().into_iter(), None))),
            }
        }
    })
}

fn cut_short(e: ApiError) -> StreamError {
    tracing::error!(reason = %e.reason, "an answer was cut short");
    e.reason.into_owned().into()
}

async fn next_piece(part: &mut Part) -> Result<Option<Bytes>, ApiError> {
    if let Part::Text(text) = part {
        let text = std::mem::take(text);
        return Ok((!text.is_empty()).then(|| text.into()));
    }
    let mut taken = std::mem::replace(part, Part::Text(Vec::new()));
    let read = tokio::task::spawn_blocking(move || {
        let piece = match &mut taken {
            Part::Text(_) => Ok(None),
            Part::Raw(reader) => reader.next_piece(),
            Part::Base64(reader, left) => next_base64(reader, left),
        };
        (piece, taken)
    });
    let (piece, taken) = read.await.map_err(ApiError::worker_failed)?;
    *part = taken;
    Ok(piece?)
}

fn next_base64(
    reader: &mut AttachmentReader,
    left: &mut Vec<u8>,
) -> Result<Option<Bytes>, database::Error> {
    use base64::Engine as _;
    let engine = base64::engine::general_purpose::STANDARD;
    loop {
        let Some(piece) = reader.next_piece()? else {
            let last = engine.encode(std::mem::take(left));
            return Ok((!last.is_empty()).then(|| last.into()));
        };
        left.extend_from_slice(&piece);
        let rest = left.split_off(left.len() / 3 * 3);
        let whole = std::mem::replace(left, rest);
        if !whole.is_empty() {
            return Ok(Some(engine.encode(whole).into()));
        }
    }
}
