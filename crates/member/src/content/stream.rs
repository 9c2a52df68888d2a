//! Contents as bodies of calls, in pieces.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peers::{Body, BodyError};
use storage::{Content, Contents};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::{ContentError, ContentName};
use crate::counters::{CONTENT_BYTES_RECEIVED, CONTENT_BYTES_SENT};

/// Pieces buffered for sending, and for writing.
const PIECES_MAX: usize = 2;
/// A content of which nothing arrives for this time has failed.
const SILENT_TIME_MAX: Duration = Duration::from_secs(15);

/// Returns a content as a body. It is read as fast as the other node receives it.
pub fn send(content: Content, room: OwnedSemaphorePermit) -> Body {
    let (to, mut pieces) = mpsc::channel(PIECES_MAX);
    tokio::task::spawn_blocking(move || {
        let mut at = 0;
        while at < content.length() {
            let piece = content.read(at).map(Bytes::from);
            let piece = piece.map_err(|e| BodyError::Source(Box::new(e)));
            let length = piece.as_ref().map_or(0, |piece| piece.len() as u64);
            // An error ends it, and so does a receiver that is gone.
            if to.blocking_send(piece).is_err() || length == 0 {
                break;
            }
            CONTENT_BYTES_SENT.add(length);
            at += length;
        }
        drop(room);
    });
    let pieces = futures_util::stream::poll_fn(move |cx| pieces.poll_recv(cx));
    Body::stream(pieces)
}

/// Stores a content that another node sends.
pub async fn receive(
    contents: Arc<Contents>,
    name: &ContentName,
    mut body: Body,
) -> Result<Content, ContentError> {
    let (to, mut pieces) = mpsc::channel::<Bytes>(PIECES_MAX);
    let name = *name;
    let work = tokio::task::spawn_blocking(move || {
        let mut upload = contents.upload();
        while let Some(piece) = pieces.blocking_recv() {
            let length = upload.length() + piece.len() as u64;
            if length > name.length {
                return Err(odd("the content is longer than announced"));
            }
            upload.write(&piece)?;
        }
        if upload.length() < name.length {
            return Err(odd("the content was cut short"));
        }
        let content = upload.finish()?;
        match content.id == name.id {
            true => Ok(content),
            false => Err(odd("the content has another id")),
        }
    });
    let mut cut = None;
    loop {
        match timeout(SILENT_TIME_MAX, body.next()).await {
            Ok(Some(Ok(piece))) => {
                CONTENT_BYTES_RECEIVED.add(piece.len() as u64);
                // The thread reports what is wrong.
                if to.send(piece).await.is_err() {
                    break;
                }
            }
            Ok(Some(Err(e))) => {
                cut = Some(e.to_string());
                break;
            }
            Ok(None) => break,
            Err(_) => {
                cut = Some("the content stalled".to_owned());
                break;
            }
        }
    }
    drop(to);
    let done = work.await;
    let done = done.unwrap_or_else(|_| Err(odd("the server is shutting down")));
    done.map_err(|e| cut.map_or(e, ContentError::Failed))
}

fn odd(why: &str) -> ContentError {
    ContentError::Failed(why.to_owned())
}
