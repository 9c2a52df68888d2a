//! Responses whose texts name contents of attachments by placeholders: each content is read,
//! decoded and sent piece by piece when its turn comes, on threads that do not serve requests.

use bytes::{Buf, Bytes};
use database::{Base64Reader, ContentPlacement, LateContents};
use futures_util::{StreamExt, stream};

use crate::errors::ApiError;
use crate::reply::answers::{Answers, Held};
use crate::reply::stream::{LONG_BYTES, Piece};
use crate::reply::{Body, Pieces, Reply, StreamError};

/// The contents of attachments that a response shows, if it shows any.
pub struct Late(Option<LateContents>);

impl Late {
    /// No contents yet, of a response that shows some or none.
    ///
    /// # Errors
    /// A failure of the system's random numbers.
    pub fn of(shows_contents: bool) -> Result<Late, ApiError> {
        let contents = shows_contents.then(LateContents::new);
        Ok(Late(contents.transpose()?))
    }

    /// How the texts of the response get contents.
    pub fn placement(&self) -> ContentPlacement {
        self.0
            .clone()
            .map_or_else(ContentPlacement::default, ContentPlacement::Late)
    }

    /// Replaces the placeholders of the response by their contents.
    pub fn fill(self, reply: Reply, answers: &Answers) -> Reply {
        match self.0 {
            Some(late) => with_contents(reply, late, answers),
            None => reply,
        }
    }
}

/// Reads a piece of a content on another thread. One that `is_slow` to decode is read by few threads
/// with a lower priority, in the user's turn: its client receives hardly anything, and could
/// otherwise occupy the threads that read all contents.
///
/// # Errors
/// 500 when it panics.
pub async fn read_content<T: Send + 'static>(
    answers: &Answers,
    is_slow: bool,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    match is_slow {
        true => answers.apart(read).await,
        false => {
            let read = tokio::task::spawn_blocking(read);
            read.await.map_err(ApiError::worker_failed)
        }
    }
}

/// A response that is one text without placeholders stays as it is.
fn with_contents(reply: Reply, late: LateContents, answers: &Answers) -> Reply {
    let pieces: Pieces = match reply.body {
        Body::Full(text) if !late.is_empty() => {
            Box::pin(stream::iter([Ok::<_, StreamError>(text)]))
        }
        Body::Stream(pieces) => pieces,
        body => return Reply { body, ..reply },
    };
    let start = Filling {
        pieces: Some(pieces),
        text: Bytes::new(),
        content: None,
        piece: Piece::none(answers),
        late,
        waiting: None,
        answers: answers.clone(),
    };
    let pieces = stream::unfold(start, |mut filling| async move {
        let next = filling.next().await.transpose()?;
        if next.is_err() {
            filling.end();
        }
        Some((next, filling))
    });
    Reply {
        body: Body::Stream(Box::pin(pieces)),
        ..reply
    }
}

/// A response whose placeholders are being replaced.
struct Filling {
    /// None at the end.
    pieces: Option<Pieces>,
    /// The rest of a text.
    text: Bytes,
    /// The content that is being sent.
    content: Option<Base64Reader>,
    /// The rest of a piece of it.
    piece: Piece,
    late: LateContents,
    /// Memory of the contents whose turn has not come.
    waiting: Option<Held>,
    answers: Answers,
}

impl Filling {
    /// Returns the next piece; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            if !self.piece.is_empty() {
                return Ok(Some(self.piece.split_off()));
            }
            if let Some(content) = self.content.take() {
                self.read(content).await.map_err(ApiError::cut_short)?;
                continue;
            }
            let (before, number) = self.late.find(&self.text);
            if before > 0 {
                return Ok(Some(self.text.split_to(before)));
            }
            if let Some(number) = number {
                self.text.advance(LateContents::PLACEHOLDER_BYTES);
                let content = self.late.take(number);
                let missing = || ApiError::internal("The server failed.", "a content is missing");
                self.content = Some(content.ok_or_else(missing).map_err(ApiError::cut_short)?);
                continue;
            }
            if !self.fetch().await? {
                let rest = std::mem::take(&mut self.text);
                return Ok((!rest.is_empty()).then_some(rest));
            }
        }
    }

    /// Appends the next text to the rest of the one before, which may be the beginning of a
    /// placeholder. Returns false at the end.
    async fn fetch(&mut self) -> Result<bool, StreamError> {
        let Some(pieces) = &mut self.pieces else {
            return Ok(false);
        };
        // A feed may wait for long.
        self.waiting = None;
        let Some(next) = pieces.next().await.transpose()? else {
            self.pieces = None;
            return Ok(false);
        };
        self.text = match self.text.is_empty() {
            true => next,
            false => {
                let bytes = Bytes::from([&self.text[..], &next[..]].concat());
                match bytes.len() > LONG_BYTES {
                    true => self.answers.count(bytes.len() as u64).with(bytes),
                    false => bytes,
                }
            }
        };
        let bytes = self.late.len() * LateContents::CONTENT_BYTES;
        self.waiting = (bytes > LONG_BYTES).then(|| self.answers.count(bytes as u64));
        Ok(true)
    }

    /// Reads the next piece of a content.
    async fn read(&mut self, mut content: Base64Reader) -> Result<(), ApiError> {
        self.answers.admit().await?;
        let is_slow = content.is_slow();
        let read = move || (content.next_piece(), content);
        let (piece, content) = read_content(&self.answers, is_slow, read).await?;
        if let Some(piece) = piece? {
            self.piece.set(piece);
            self.content = Some(content);
        }
        Ok(())
    }

    fn end(&mut self) {
        (self.pieces, self.content, self.text) = (None, None, Bytes::new());
    }
}
