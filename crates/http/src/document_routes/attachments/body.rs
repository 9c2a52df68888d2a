//! Responses that consist of text and of attachments' bytes, which are read as the client takes
//! them.

use bytes::Bytes;
use database::{AttachmentReader, Base64Reader, LateContents};
use futures_util::stream::{self, Stream};
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::errors::ApiError;
use crate::reply::answers::{Answers, Held};
use crate::reply::late::read_content;
use crate::reply::stream::{CHUNK_BYTES, LONG_BYTES, Piece, PieceMaker};
use crate::reply::{Body, Reply, StreamError};

/// Room behind a long text for the short ones that follow it, in bytes.
const CLOSING_BYTES: usize = 256;

/// An answer in parts.
#[derive(Default)]
pub struct Parts {
    parts: Vec<Part>,
    /// Bytes of all, while they are known.
    length: Length,
    /// Bytes of the texts.
    text_bytes: usize,
    /// Stored bytes of the contents that are in the texts.
    decoded_bytes: usize,
}

/// The maker of an answer in parts, which appends some at a time.
pub trait PartsMaker: Send + 'static {
    /// Appends about as many parts as a piece of an answer holds; false when these were the last ones.
    ///
    /// # Errors
    /// An error, which ends the response.
    fn more(&mut self, parts: &mut Parts) -> Result<bool, ApiError>;

    /// Whether the next parts are too slow to make on a thread that serves requests.
    fn is_long(&self) -> bool {
        false
    }
}

/// A maker whose parts are all texts, as a maker of pieces.
pub struct TextOf<M>(pub M);

impl<M: PartsMaker> PieceMaker for TextOf<M> {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let mut parts = Parts {
            text_bytes: out.len(),
            parts: vec![Part::Text(std::mem::take(out))],
            ..Parts::default()
        };
        let more = self.0.more(&mut parts);
        *out = parts.into_text();
        more
    }

    fn is_long(&self) -> bool {
        self.0.is_long()
    }
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
    Base64(Base64Reader),
}

impl Parts {
    pub fn push_text(&mut self, text: &[u8]) {
        self.length.add(Some(text.len() as u64));
        self.text_bytes += text.len();
        match self.parts.last_mut() {
            // To grow a long text would double what it takes.
            Some(Part::Text(last))
                if last.len() < CHUNK_BYTES || last.capacity() - last.len() >= text.len() =>
            {
                if text.len() > CHUNK_BYTES {
                    // For what closes it, too.
                    last.reserve_exact(text.len() + CLOSING_BYTES);
                }
                last.extend_from_slice(text);
            }
            _ => self.parts.push(Part::Text(text.to_vec())),
        }
    }

    /// Bytes of the texts.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Notes that a content of this number of stored bytes is in the texts.
    pub fn note_decoded(&mut self, stored_bytes: usize) {
        self.decoded_bytes += stored_bytes;
    }

    /// Bytes that were read or written to make the texts: gzip of empty members decodes to nothing.
    pub fn work_bytes(&self) -> usize {
        self.text_bytes.max(self.decoded_bytes)
    }

    /// How many parts there are: texts, and attachments between them.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// The texts, one after another.
    fn into_text(mut self) -> Vec<u8> {
        let mut text = match self.parts.first_mut() {
            Some(Part::Text(first)) => std::mem::take(first),
            _ => Vec::new(),
        };
        text.reserve(self.text_bytes - text.len());
        for part in self.parts {
            if let Part::Text(more) = part {
                text.extend_from_slice(&more);
            }
        }
        text
    }

    /// `length`: how many bytes the reader gives, if that is known.
    pub fn push_raw(&mut self, reader: AttachmentReader, length: Option<u64>) {
        self.length.add(length);
        self.parts.push(Part::Raw(reader));
    }

    pub fn push_base64(&mut self, reader: Base64Reader) {
        self.length.add(None);
        self.parts.push(Part::Base64(reader));
    }

    /// Memory of the parts before any content is read, in bytes.
    fn memory_bytes(&self) -> usize {
        self.text_bytes + self.parts.len() * LateContents::CONTENT_BYTES
    }

    /// The response. A response of text alone is made in one piece.
    pub fn reply(self, answers: &Answers, content_type: &str) -> Reply {
        self.reply_holding(answers, content_type, None)
    }

    /// The response, once there is memory for its texts.
    ///
    /// # Errors
    /// 503 without free memory.
    pub async fn settled_reply(
        self,
        answers: &Answers,
        content_type: &str,
    ) -> Result<Reply, ApiError> {
        let held = match self.is_text() {
            true => None,
            false => settle(self.memory_bytes(), answers).await?,
        };
        Ok(self.reply_holding(answers, content_type, held))
    }

    /// The response, if there is memory for its texts.
    ///
    /// # Errors
    /// 503 without free memory.
    pub fn reply_now(self, answers: &Answers, content_type: &str) -> Result<Reply, ApiError> {
        let bytes = self.memory_bytes();
        let held = match self.is_text() || bytes <= LONG_BYTES {
            true => None,
            false => Some(answers.settle_now(bytes)?),
        };
        Ok(self.reply_holding(answers, content_type, held))
    }

    fn is_text(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    fn reply_holding(self, answers: &Answers, content_type: &str, held: Option<Held>) -> Reply {
        let mut reply = reply_of(content_type);
        if self.is_text() {
            reply.body = Body::Full(self.into_text().into());
            return reply;
        }
        let length = self.length.0;
        let pieces = pieces(answers, self.parts, None::<NoMore>, held);
        reply.body = match length {
            Some(length) => Body::Sized(Box::pin(pieces), length),
            None => Body::Stream(Box::pin(pieces)),
        };
        reply
    }

    /// A response that is made as the client takes it, by threads that give way.
    ///
    /// # Errors
    /// Errors of the first parts.
    pub async fn reply_made_apart(
        answers: &Answers,
        content_type: &str,
        maker: impl PartsMaker,
    ) -> Result<Reply, ApiError> {
        let (first, maker) = more_apart(answers, maker).await?;
        first.continued(answers, content_type, maker).await
    }

    /// The answer that begins with these parts.
    async fn continued(
        self,
        answers: &Answers,
        content_type: &str,
        maker: Option<impl PartsMaker>,
    ) -> Result<Reply, ApiError> {
        if maker.is_none() {
            return self.settled_reply(answers, content_type).await;
        }
        let held = settle(self.memory_bytes(), answers).await?;
        let mut reply = reply_of(content_type);
        reply.body = Body::Stream(Box::pin(pieces(answers, self.parts, maker, held)));
        Ok(reply)
    }
}

/// Takes memory for parts, if they are long.
async fn settle(bytes: usize, answers: &Answers) -> Result<Option<Held>, ApiError> {
    if bytes <= LONG_BYTES {
        return Ok(None);
    }
    answers.settle(bytes).await.map(Some)
}

/// The maker of nothing.
struct NoMore;

impl PartsMaker for NoMore {
    fn more(&mut self, _parts: &mut Parts) -> Result<bool, ApiError> {
        Ok(false)
    }
}

/// Makes some parts on a thread that gives way; returns the maker if there are more.
async fn more_apart<M: PartsMaker>(
    answers: &Answers,
    mut maker: M,
) -> Result<(Parts, Option<M>), ApiError> {
    let made = answers.apart(move || {
        let mut parts = Parts::default();
        let more = maker.more(&mut parts)?;
        Ok::<_, ApiError>((parts, more.then_some(maker)))
    });
    made.await?
}

fn reply_of(content_type: &str) -> Reply {
    let mut reply = Reply::empty(200);
    // A content type is what the uploader said; one that cannot be a header is left out, as CouchDB's empty one is not.
    if let Ok(value) = HeaderValue::from_bytes(content_type.as_bytes()) {
        reply.headers.push((CONTENT_TYPE, value));
    }
    reply
}

/// The bytes of `parts`, and of those that `maker` makes.
fn pieces<M: PartsMaker>(
    answers: &Answers,
    parts: Vec<Part>,
    maker: Option<M>,
    held: Option<Held>,
) -> impl Stream<Item = Result<Bytes, StreamError>> + Send + use<M> {
    let start = Under {
        parts: parts.into_iter(),
        piece: Piece::none(answers),
        held,
        maker,
        answers: answers.clone(),
    };
    stream::unfold(start, |mut under| async move {
        match under.next().await {
            Ok(None) => None,
            Ok(Some(piece)) => Some((Ok(piece), under)),
            Err(e) => {
                let e = e.cut_short();
                under.parts = Vec::new().into_iter();
                under.maker = None;
                Some((Err(e), under))
            }
        }
    })
}

/// An answer in parts that is being sent.
struct Under<M> {
    parts: std::vec::IntoIter<Part>,
    /// The rest of a piece.
    piece: Piece,
    /// Memory of the first parts.
    held: Option<Held>,
    maker: Option<M>,
    answers: Answers,
}

impl<M: PartsMaker> Under<M> {
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        while self.piece.is_empty() {
            if let Some(part) = self.parts.as_mut_slice().first_mut() {
                if !matches!(part, Part::Text(_)) {
                    self.answers.admit().await?;
                }
                match next_piece(part, &self.answers).await? {
                    Some(piece) => self.piece.set(piece),
                    None => drop(self.parts.next()),
                }
                continue;
            }
            let Some(maker) = self.maker.take() else {
                return Ok(None);
            };
            self.held = None;
            self.answers.admit().await?;
            let (made, maker) = more_apart(&self.answers, maker).await?;
            (self.parts, self.maker) = (made.parts.into_iter(), maker);
        }
        Ok(Some(self.piece.split_off()))
    }
}

/// Returns the next piece of a part, which is empty if much of a content decodes to nothing; `None`
/// at its end.
async fn next_piece(part: &mut Part, answers: &Answers) -> Result<Option<Bytes>, ApiError> {
    if let Part::Text(text) = part {
        let text = std::mem::take(text);
        return Ok((!text.is_empty()).then(|| text.into()));
    }
    let is_slow = match part {
        Part::Text(_) => false,
        Part::Raw(reader) => reader.is_slow(),
        Part::Base64(reader) => reader.is_slow(),
    };
    let mut taken = std::mem::replace(part, Part::Text(Vec::new()));
    let read = move || {
        let piece = match &mut taken {
            Part::Text(_) => Ok(None),
            Part::Raw(reader) => reader.next_piece(),
            Part::Base64(reader) => reader.next_piece(),
        };
        (piece, taken)
    };
    let (piece, taken) = read_content(answers, is_slow, read).await?;
    *part = taken;
    Ok(piece?)
}
