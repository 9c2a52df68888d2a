//! List functions: the rows of a view, turned into an answer piece by piece.

use std::sync::Arc;

use bytes::Bytes;
use database::DesignDoc;
use functions::{Error as FunctionError, ListIo};
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::{calls, response};
use crate::access::Access;
use crate::app::App;
use crate::errors::ApiError;
use crate::feed::CHUNK_BYTES;
use crate::reply::{Body, Reply};
use crate::request::Request;

type Answer = Result<Reply, ApiError>;

/// Pieces of output on their way to the client; when it takes none, the function waits.
const PIECES_MAX: usize = 16;

/// Appends rows with `,\r\n` before all but the first; false when there are no more.
pub type NextRows = Box<dyn FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send>;

/// The rows that a list function asks for, one by one. Taking them may block.
pub struct ListRows {
    /// The function's `head`: `{"total_rows":…,"offset":…}`, or `{}` when the rows are reduced.
    head: Value,
    /// A text that differs when the rows may.
    version: String,
    next: NextRows,
    chunk: Vec<u8>,
    /// Where the next row begins in the chunk.
    at: usize,
}

/// What stands between two rows; no row has a line break in it.
const SEPARATOR: &[u8] = b",\r\n";

impl ListRows {
    pub fn new(counts: (Option<u64>, Option<u64>), version: String, next: NextRows) -> ListRows {
        ListRows {
            head: match counts {
                (None, None) => json!({}),
                (total_rows, offset) => json!({"total_rows": total_rows, "offset": offset}),
            },
            version,
            next,
            chunk: vec![],
            at: 0,
        }
    }

    fn row(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        while self.at >= self.chunk.len() {
            self.chunk.clear();
            let more = (self.next)(&mut self.chunk)?;
            self.at = if self.chunk.starts_with(SEPARATOR) { SEPARATOR.len() } else { 0 };
            if !more && self.chunk.is_empty() {
                return Ok(None);
            }
        }
        let rest = &self.chunk[self.at..];
        let end = memchr::memmem::find(rest, SEPARATOR).unwrap_or(rest.len());
        let row = rest[..end].to_vec();
        self.at += end + SEPARATOR.len();
        Ok(Some(row))
    }
}

/// Opens the rows of `_all_docs`, or of a view of the design document `ddoc`. `posted` is the body of a POST.
async fn open_rows(
    app: &App,
    req: &Request,
    access: &Access,
    ddoc: &str,
    view: &str,
    posted: Option<&Map<String, Value>>,
) -> Result<ListRows, ApiError> {
    if view == "_all_docs" {
        crate::listing::list_rows(app, req, access, posted)
    } else {
        crate::views::list_rows(app, req, access, ddoc, view, posted).await
    }
}

/// `_list/{name}/{view}`, or `_list/{name}/{of}/{view}` with a view of another design document.
pub async fn list(
    app: &App,
    req: &mut Request,
    access: &Access,
    ddoc: Arc<DesignDoc>,
    name: &str,
    of: Option<&str>,
    view: &str,
) -> Answer {
    let posted = match req.method.as_str() {
        "POST" => {
            req.require_json()?;
            Some(())
        }
        _ => None,
    };
    let body = calls::read_body(app, req).await?;
    let posted = match posted {
        Some(()) => Some(req.json_object(app).await?),
        None => None,
    };
    let view_ddoc = match of {
        Some(of) => calls::design_doc(access, &format!("_design/{of}"))?.id,
        None => ddoc.id.clone(),
    };
    let request = calls::request_json(app, req, access, None, body.as_deref())?;
    let mut rows = open_rows(app, req, access, &view_ddoc, view, posted.as_ref()).await?;
    let etag = response::etag(&["list", &ddoc.rev, &rows.version, req.accept()], &req.user);
    if req.none_match(&etag) {
        return Ok(Reply::empty(304).etag(&etag));
    }
    let policy = app.limits().showlist_policy.clone();
    let (to, pieces) = mpsc::channel(PIECES_MAX);
    let languages = access.db.languages().clone();
    let name = name.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut io = Io {
            rows: &mut rows,
            to,
            failed: None,
        };
        let args = format!("[{},{request}]", io.rows.head).into_bytes();
        let done = languages
            .designs(&ddoc.language)
            .and_then(|mut designs| designs.list(&ddoc, &["lists", &name], &args, &mut io));
        if let Err(e) = done {
            let e = io.failed.take().unwrap_or_else(|| e.into());
            // Nobody hears it when the client is gone.
            let _ = io.to.blocking_send(Piece::Failed(e));
        }
    });
    answer(pieces, &etag, policy.as_deref()).await
}

/// What a list function gives.
enum Piece {
    Start(Vec<u8>),
    Text(String),
    Failed(ApiError),
}

struct Io<'r> {
    rows: &'r mut ListRows,
    to: mpsc::Sender<Piece>,
    /// Why the rows ended.
    failed: Option<ApiError>,
}

impl Io<'_> {
    /// Keeps an error that the function's runner has no words for.
    fn fail(&mut self, e: ApiError) -> FunctionError {
        let error = FunctionError::Process(e.reason.to_string());
        self.failed = Some(e);
        error
    }

    fn send(&self, piece: Piece) -> Result<(), FunctionError> {
        self.to
            .blocking_send(piece)
            .map_err(|_| FunctionError::Process("the client went away".to_owned()))
    }
}

impl ListIo for Io<'_> {
    fn start(&mut self, response: &[u8]) -> Result<(), FunctionError> {
        self.send(Piece::Start(response.to_vec()))
    }

    fn chunk(&mut self, text: &str) -> Result<(), FunctionError> {
        self.send(Piece::Text(text.to_owned()))
    }

    fn row(&mut self) -> Result<Option<Vec<u8>>, FunctionError> {
        self.rows.row().map_err(|e| self.fail(e))
    }
}

/// The head as soon as it is known; a short body whole, a long one as it comes.
async fn answer(mut pieces: mpsc::Receiver<Piece>, etag: &str, policy: Option<&str>) -> Answer {
    let mut first = Vec::new();
    let head = match pieces.recv().await {
        Some(Piece::Start(head)) => response::list(&head, etag, policy)?,
        Some(Piece::Failed(e)) => return Err(e),
        Some(Piece::Text(text)) => {
            first.extend_from_slice(text.as_bytes());
            response::list(b"{}", etag, policy)?
        }
        None => response::list(b"{}", etag, policy)?,
    };
    if gather(&mut pieces, &mut first).await {
        return Ok(head.with_body(Body::Full(first.into())));
    }
    let rest = stream::unfold((Some(first), pieces), |(first, mut pieces)| async move {
        if let Some(first) = first {
            return Some((Ok(Bytes::from(first)), (None, pieces)));
        }
        let mut piece = Vec::new();
        gather(&mut pieces, &mut piece).await;
        (!piece.is_empty()).then(|| (Ok(piece.into()), (None, pieces)))
    });
    Ok(head.with_body(Body::Stream(Box::pin(rest))))
}

/// Appends output until there is a good deal of it; true at its end. A failure is part of it, as in CouchDB.
async fn gather(pieces: &mut mpsc::Receiver<Piece>, out: &mut Vec<u8>) -> bool {
    while out.len() < CHUNK_BYTES {
        match pieces.recv().await {
            None => return true,
            Some(Piece::Text(text)) => out.extend_from_slice(text.as_bytes()),
            Some(Piece::Failed(e)) => {
                out.extend_from_slice(format!("{}\n", e.to_json()).as_bytes())
            }
            Some(Piece::Start(_)) => {}
        }
    }
    false
}
