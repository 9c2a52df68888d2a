//! List functions: the rows of a view, turned into an answer piece by piece.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use database::{DesignDoc, ViewRows};
use functions::{Error as FunctionError, Lane, Languages, ListIo, Place};
use futures_util::stream;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::{calls, response};
use crate::app::App;
use crate::database_routes::listing::AllDocsRows;
use crate::database_routes::views;
use crate::errors::ApiError;
use crate::reply::stream::CHUNK_BYTES;
use crate::reply::{Body, Reply, StreamError};
use crate::request::Request;
use crate::request::parameters::Params;
use node::Access;

type Answer = Result<Reply, ApiError>;

/// About 256 KiB of output may wait for the client; then the function waits.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Memory of a piece without its text, in bytes.
const PIECE_BYTES: usize = 128;
/// When a client takes nothing for 60 s its function ends, since a thread and a process wait with
/// it; the answer is cut short.
const STALL_TIME_MAX: Duration = Duration::from_secs(60);
/// A client must take 1 KiB per second on average, besides the time that it may stall.
const BYTES_PER_SECOND_MIN: u64 = 1 << 10;

/// The rows for a list function. Called on a blocking thread, one after another.
pub trait ListRows: Send {
    /// The function's `head`: `{"total_rows":…,"offset":…}`, or `{}` when the rows are reduced.
    fn head(&mut self) -> Result<Vec<u8>, ApiError>;
    /// The next row's JSON text.
    fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError>;
    /// A text that differs when the rows may.
    fn version(&self) -> String;
}

/// Opens the rows of `_all_docs`, or of a view of the design document `ddoc`. `posted` is the body of a POST.
async fn open_rows(
    app: &App,
    req: &Request,
    access: &Access,
    ddoc: &DesignDoc,
    view: &str,
    posted: Option<&serde_json::Map<String, Value>>,
) -> Result<Box<dyn ListRows>, ApiError> {
    if view == "_all_docs" {
        return Ok(Box::new(AllDocsRows::open(app, req, access, posted)?));
    }
    let mut query = views::query_of(app, &Params::of(req, posted))?;
    let shows_seq = std::mem::replace(&mut query.update_seq, true);
    let view = views::View::find(access, &ddoc.id, view).await?;
    let mut rows = view.open(app, access, query).await?;
    // The state of the index: with `update=false` it differs from that of the database.
    let version = rows.update_seq.clone().unwrap_or_default();
    if !shows_seq {
        rows.update_seq = None;
    }
    Ok(Box::new(ViewListRows {
        version,
        rows,
        ahead: VecDeque::new(),
        more: true,
    }))
}

/// Rows of a view that are fetched together.
const ROWS_AHEAD: usize = 100;

/// The rows of a view.
struct ViewListRows {
    version: String,
    rows: ViewRows,
    ahead: VecDeque<Vec<u8>>,
    more: bool,
}

impl ListRows for ViewListRows {
    fn head(&mut self) -> Result<Vec<u8>, ApiError> {
        let head = match (self.rows.total_rows, self.rows.offset) {
            (Some(total), Some(offset)) => {
                let seq = self.rows.update_seq.as_ref();
                let seq = seq.map_or(String::new(), |s| format!(",\"update_seq\":\"{s}\""));
                format!("{{\"total_rows\":{total},\"offset\":{offset}{seq}}}")
            }
            _ => "{}".to_owned(),
        };
        Ok(head.into_bytes())
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        if self.ahead.is_empty() && self.more {
            let ahead = &mut self.ahead;
            self.more = self.rows.next_rows(&mut |_, row| {
                ahead.push_back(row.to_vec());
                ahead.len() < ROWS_AHEAD
            })?;
        }
        Ok(self.ahead.pop_front())
    }

    fn version(&self) -> String {
        self.version.clone()
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
    let is_post = req.method == "POST";
    if is_post {
        req.require_json()?;
    }
    let body = calls::read_body(req).await?;
    let posted = match is_post {
        true => Some(req.json_object().await?),
        false => None,
    };
    let view_ddoc = match of {
        Some(of) => node::design_doc_of_list(access, of).await?,
        None => ddoc.clone(),
    };
    let request = calls::request_json(app, req, access, None, body.as_deref())?;
    // It is among what the function is called with, as long as that runs.
    req.keep_body();
    let mut rows = open_rows(app, req, access, &view_ddoc, view, posted.as_ref()).await?;
    let parts = [
        "list",
        &ddoc.rev,
        &view_ddoc.rev,
        &rows.version(),
        req.accept(),
    ];
    let etag = response::etag(&parts, &req.user);
    if req.none_match(&etag) {
        return Ok(Reply::empty(304).etag(&etag));
    }
    let settings = req.settings.clone();
    let languages = access.db.languages().clone();
    // Without a thread.
    let of_user = calls::in_time(app, app.lists.admission(&req.user, req.peer)).await?;
    let place = calls::place(app, access, Lane::Lists).await?;
    let (to, pieces) = mpsc::unbounded_channel();
    let stall_time_max = STALL_TIME_MAX.min(app.silence_max());
    let name = name.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut io = Io {
            rows: &mut *rows,
            to,
            room: Arc::new(Semaphore::new(WAITING_BYTES_MAX)),
            stall_time_max,
            waited: Cell::default(),
            given: Cell::default(),
            failed: None,
        };
        let path = ["lists", name.as_str()];
        run(
            &mut io,
            &*languages,
            &place,
            &ddoc,
            &path,
            &request.to_string(),
        );
        drop((place, of_user));
    });
    answer(pieces, &etag, settings.showlist_policy()).await
}

/// Runs a list function to its end; its output goes to `io`.
fn run(
    io: &mut Io<'_>,
    languages: &dyn Languages,
    place: &Place,
    ddoc: &DesignDoc,
    path: &[&str],
    request: &str,
) {
    let done = io.rows.head().map_err(|e| io.fail(e)).and_then(|head| {
        let mut args = vec![b'['];
        args.extend_from_slice(&head);
        args.push(b',');
        args.extend_from_slice(request.as_bytes());
        args.push(b']');
        let mut designs = languages.designs(place, &ddoc.language)?;
        designs.list(ddoc, path, &args, io)
    });
    if let Err(e) = done {
        let e = io.failed.take().unwrap_or_else(|| e.into());
        // The error is lost when the client is gone.
        let _ = io.to.send(Piece::Failed(e));
    }
}

/// A piece of a list function's output.
enum Piece {
    Start(Vec<u8>),
    /// With the room that it takes until the client has it.
    Text(String, OwnedSemaphorePermit),
    Failed(ApiError),
    /// The client took nothing for too long.
    Stalled,
}

struct Io<'r> {
    rows: &'r mut dyn ListRows,
    to: mpsc::UnboundedSender<Piece>,
    /// Bytes that may yet wait for the client.
    room: Arc<Semaphore>,
    stall_time_max: Duration,
    /// How long the client was waited for in all, and how many bytes it was given.
    waited: Cell<Duration>,
    given: Cell<u64>,
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
        self.to.send(piece).map_err(|_| gone())
    }

    /// Waits until the client has taken enough to leave room for these bytes.
    fn wait_for_room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, FunctionError> {
        self.given.set(self.given.get() + bytes as u64);
        let bytes = (bytes + PIECE_BYTES).min(WAITING_BYTES_MAX);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Ok(room) = self.room.clone().try_acquire_many_owned(bytes) {
            return Ok(room);
        }
        // A client that takes a few bytes at a time holds a place and a process as one that takes
        // nothing does.
        let pace = Duration::from_secs(self.given.get() / BYTES_PER_SECOND_MIN);
        let left = (self.stall_time_max + pace).saturating_sub(self.waited.get());
        let began = Instant::now();
        let waiting = async {
            tokio::select! {
                room = self.room.clone().acquire_many_owned(bytes) => room.ok(),
                () = self.to.closed() => None,
                () = tokio::time::sleep(left.min(self.stall_time_max)) => {
                    let _ = self.to.send(Piece::Stalled);
                    None
                }
            }
        };
        let room = tokio::runtime::Handle::current().block_on(waiting);
        self.waited.set(self.waited.get() + began.elapsed());
        room.ok_or_else(gone)
    }
}

fn gone() -> FunctionError {
    FunctionError::Process("the client went away".to_owned())
}

impl ListIo for Io<'_> {
    fn start(&mut self, response: &[u8]) -> Result<(), FunctionError> {
        self.send(Piece::Start(response.to_vec()))
    }

    fn chunk(&mut self, text: &str) -> Result<(), FunctionError> {
        let room = self.wait_for_room(text.len())?;
        self.send(Piece::Text(text.to_owned(), room))
    }

    fn row(&mut self) -> Result<Option<Vec<u8>>, FunctionError> {
        self.rows.next().map_err(|e| self.fail(e))
    }
}

type Pieces = mpsc::UnboundedReceiver<Piece>;

/// The head as soon as it is known; a short body whole, a long one in pieces.
async fn answer(mut pieces: Pieces, etag: &str, policy: Option<&str>) -> Answer {
    let mut first = Vec::new();
    let head = match pieces.recv().await {
        Some(Piece::Start(head)) => response::list(&head, etag, policy)?,
        Some(Piece::Failed(e)) => return Err(e),
        Some(Piece::Text(text, _room)) => {
            first.extend_from_slice(text.as_bytes());
            response::list(b"{}", etag, policy)?
        }
        None | Some(Piece::Stalled) => response::list(b"{}", etag, policy)?,
    };
    if gather(&mut pieces, &mut first).await == Gathered::End {
        return Ok(head.with_body(Body::Full(first.into())));
    }
    let rest = stream::unfold((Some(first), Some(pieces)), |(first, pieces)| async move {
        if let Some(first) = first {
            return Some((Ok(Bytes::from(first)), (None, pieces)));
        }
        let mut pieces = pieces?;
        let mut piece = Vec::new();
        match gather(&mut pieces, &mut piece).await {
            Gathered::Stalled => {
                let cut: StreamError = "the client took nothing for too long".into();
                Some((Err(cut), (None, None)))
            }
            _ => (!piece.is_empty()).then(|| (Ok(piece.into()), (None, Some(pieces)))),
        }
    });
    Ok(head.with_body(Body::Stream(Box::pin(rest))))
}

#[derive(PartialEq, Eq)]
enum Gathered {
    More,
    End,
    /// The response is not complete, but its function has ended.
    Stalled,
}

/// Appends output until there is a good deal of it. A failure is part of it, as in CouchDB.
async fn gather(pieces: &mut Pieces, out: &mut Vec<u8>) -> Gathered {
    while out.len() < CHUNK_BYTES {
        match pieces.recv().await {
            None => return Gathered::End,
            Some(Piece::Text(text, _room)) => out.extend_from_slice(text.as_bytes()),
            Some(Piece::Failed(e)) => {
                out.extend_from_slice(format!("{}\n", e.to_json()).as_bytes())
            }
            Some(Piece::Stalled) => return Gathered::Stalled,
            Some(Piece::Start(_)) => {}
        }
    }
    Gathered::More
}
