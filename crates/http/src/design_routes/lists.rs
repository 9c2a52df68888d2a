//! List functions: the rows of a view, turned into an answer piece by piece.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use database::{ContentPlacement, DesignDoc, ViewRows};
use functions::{Error as FunctionError, Lane, ListIo, Place};
use futures_util::stream;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::function_call::{self, DesignFunction, FunctionRequest, args, read_body};
use super::response::{self, Head};
use crate::app::App;
use crate::database_routes::listing::AllDocsRows;
use crate::database_routes::views;
use crate::errors::ApiError;
use crate::reply::answers::{Answers, Held};
use crate::reply::stream::{CHUNK_BYTES, LONG_BYTES, Piece as PieceOut};
use crate::reply::{Body, Reply, StreamError};
use crate::request::Request;
use crate::settings::Settings;
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
    /// Fetches rows unless [`ListRows::next`] has some; returns whether it must be called again,
    /// since no row was found in the time of a piece.
    fn fetch(&mut self) -> Result<bool, ApiError>;
    /// The next fetched row's JSON text.
    fn next(&mut self) -> Option<Vec<u8>>;
    /// Memory of the rows that were fetched last, in bytes.
    fn fetched_bytes(&self) -> usize;
    /// A text that differs when the rows may.
    fn version(&self) -> String;
}

/// Opens the rows of `_all_docs`, or of a view of the design document `design`. `posted` is the body of a POST.
async fn open_rows(
    app: &App,
    req: &mut Request,
    access: &Access,
    design: &str,
    view: &str,
    posted: Option<serde_json::Map<String, Value>>,
) -> Result<Box<dyn ListRows>, ApiError> {
    if view == "_all_docs" {
        let rows = AllDocsRows::open(app, req, access, posted).await?;
        return Ok(Box::new(rows));
    }
    let mut query = views::query_of(app.settings(), req, posted).await?;
    req.keep(query.sort_key_bytes()).await?;
    let shows_seq = std::mem::replace(&mut query.update_seq, true);
    let view = views::View::find(access, design, view).await?;
    let mut rows = view.open(app, access, &req.answers, query).await?;
    while !rows.is_placed() {
        let place = move || rows.place().map(|_| rows);
        rows = req.answers.apart(place).await??;
    }
    rows.place_contents(whole_contents(&app.settings()));
    // The state of the index: with `update=false` it differs from that of the database.
    let version = rows.update_seq.clone().unwrap_or_default();
    if !shows_seq {
        rows.update_seq = None;
    }
    Ok(Box::new(ViewListRows {
        version,
        rows,
        ahead: VecDeque::new(),
        ahead_bytes: 0,
        more: true,
    }))
}

/// A function gets a row with the contents of its attachments. Its heap has their text about four
/// times: longer ones have no place in it.
pub fn whole_contents(settings: &Settings) -> ContentPlacement {
    ContentPlacement::Whole {
        bytes_max: settings.functions.memory_limit_bytes as u64 / 4,
    }
}

/// Most rows of a view that are fetched together; fewer if they are long.
const ROWS_AHEAD: usize = 100;

/// The rows of a view.
struct ViewListRows {
    version: String,
    rows: ViewRows,
    ahead: VecDeque<Vec<u8>>,
    /// Bytes of the rows in `ahead` when they were fetched.
    ahead_bytes: usize,
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

    fn fetch(&mut self) -> Result<bool, ApiError> {
        if self.ahead.is_empty() && self.more {
            let (ahead, mut bytes) = (&mut self.ahead, 0);
            self.more = self.rows.next_rows(&mut |_, row| {
                ahead.push_back(row.to_vec());
                bytes += row.len();
                ahead.len() < ROWS_AHEAD && bytes < CHUNK_BYTES
            })?;
            self.ahead_bytes = bytes;
        }
        Ok(self.ahead.is_empty() && self.more)
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.ahead.pop_front()
    }

    fn fetched_bytes(&self) -> usize {
        self.ahead_bytes
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
    let function = DesignFunction::of(access, &ddoc, &["lists", name])?;
    let (design, rev) = (ddoc.id.clone(), ddoc.rev.clone());
    drop(ddoc);
    let body = read_body(req).await?;
    let posted = match is_post {
        true => Some(req.json_object().await?),
        false => None,
    };
    let (view_design, view_rev) = match of {
        Some(of) => {
            let of = node::design_doc_of_list(access, of).await?;
            (of.id.clone(), of.rev.clone())
        }
        None => (design, rev.clone()),
    };
    // It is among what the function is called with, as long as that runs.
    req.keep_body();
    let mut rows = open_rows(app, req, access, &view_design, view, posted).await?;
    let (version, accept) = (rows.version(), req.accept());
    let parts = ["list", &rev, &view_rev, &version, accept];
    let etag = response::etag(&parts, &req.user);
    if req.none_match(&etag) {
        return Ok(Reply::empty(304).etag(&etag));
    }
    // Without a thread.
    let place = function_call::place(app, access, Lane::Lists).await?;
    let (to, pieces) = mpsc::unbounded_channel();
    let heads = Heads::new(etag, req);
    let heads_of_function = heads.clone();
    let stall_time_max = STALL_TIME_MAX.min(app.silence_max());
    let call = ListCall {
        function,
        request: FunctionRequest::of(app, req, body),
        access: access.clone(),
    };
    let answers = req.answers.clone();
    tokio::task::spawn_blocking(move || {
        let mut io = Io {
            rows: &mut *rows,
            fetched: (0, None),
            answers,
            to,
            heads: heads_of_function,
            room: Arc::new(Semaphore::new(WAITING_BYTES_MAX)),
            stall_time_max,
            waited: Cell::default(),
            given: Cell::default(),
            failed: None,
        };
        call.run(&place, &mut io);
        drop(place);
    });
    answer(pieces, &req.answers, &heads).await
}

/// Reads the heads of a list's response.
#[derive(Clone)]
struct Heads {
    etag: String,
    settings: Arc<Settings>,
}

impl Heads {
    fn new(etag: String, req: &Request) -> Heads {
        Heads {
            etag,
            settings: req.settings.clone(),
        }
    }

    /// The head that the argument of `start` means.
    fn of(&self, response: &[u8]) -> Result<Head, ApiError> {
        response::list(response, &self.etag, self.settings.showlist_policy())
    }

    /// The head of a function that has not called `start`.
    fn default(&self) -> Result<Head, ApiError> {
        self.of(b"{}")
    }
}

/// A call of a list function, whose arguments are made in its place.
struct ListCall {
    function: DesignFunction,
    request: FunctionRequest,
    access: Access,
}

impl ListCall {
    /// Runs the function to its end; its output goes to `io`.
    fn run(&self, place: &Place, io: &mut Io<'_>) {
        if let Err(e) = self.start(place, io) {
            let e = io.failed.take().unwrap_or(e);
            // The error is lost when the client is gone.
            let _ = io.to.send(Piece::Failed(e));
        }
    }

    fn start(&self, place: &Place, io: &mut Io<'_>) -> Result<(), ApiError> {
        let ddoc = self.function.design()?;
        let (head, request) = (io.rows.head()?, self.request.json(&self.access, None)?);
        let args = args(&head, &request);
        drop((head, request));
        let languages = self.access.db.languages();
        let mut designs = languages.designs(place, &ddoc.language)?;
        Ok(designs.list(&ddoc, &self.function.path(), &args, io)?)
    }
}

/// A piece of a list function's output.
enum Piece {
    /// It is read on the function's thread: its text may be long.
    Start(Result<Head, ApiError>),
    /// A text, and its room until the client has it.
    Text(String, Room),
    Failed(ApiError),
    /// The client took nothing for too long.
    Stalled,
}

/// Room of a text, and memory of responses if it is as long as a piece.
struct Room {
    _waiting: OwnedSemaphorePermit,
    held: Option<Held>,
}

struct Io<'r> {
    rows: &'r mut dyn ListRows,
    /// Bytes of the rows that were fetched last, with their memory when they are long.
    fetched: (usize, Option<Held>),
    answers: Answers,
    to: mpsc::UnboundedSender<Piece>,
    heads: Heads,
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

    /// Waits until there is room for these bytes.
    fn wait_for_room(&mut self, bytes: usize) -> Result<Room, FunctionError> {
        let waiting = self.wait_for_client(bytes)?;
        // Such a text is a piece of its own: `gather` waits for nothing after it, and its memory for
        // nothing but the client.
        let held = match bytes >= CHUNK_BYTES {
            true => Some(self.wait_for_memory(bytes)?),
            false => None,
        };
        Ok(Room {
            _waiting: waiting,
            held,
        })
    }

    /// Takes memory of responses for a long text.
    fn wait_for_memory(&mut self, bytes: usize) -> Result<Held, FunctionError> {
        let waiting = async {
            tokio::select! {
                held = self.answers.settle(bytes) => Some(held),
                () = self.to.closed() => None,
            }
        };
        match tokio::runtime::Handle::current().block_on(waiting) {
            Some(held) => held.map_err(|e| self.fail(e)),
            None => Err(gone()),
        }
    }

    /// Waits until the client has taken enough of the output before.
    fn wait_for_client(&self, bytes: usize) -> Result<OwnedSemaphorePermit, FunctionError> {
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
        self.send(Piece::Start(self.heads.of(response)))
    }

    fn chunk(&mut self, text: &str) -> Result<(), FunctionError> {
        let room = self.wait_for_room(text.len())?;
        self.send(Piece::Text(text.to_owned(), room))
    }

    fn row(&mut self) -> Result<Option<Vec<u8>>, FunctionError> {
        while self.rows.fetch().map_err(|e| self.fail(e))? {
            if self.to.is_closed() {
                return Err(gone());
            }
        }
        let row = self.rows.next();
        let bytes = self.rows.fetched_bytes();
        if bytes != self.fetched.0 {
            // Those before are gone.
            self.fetched = (bytes, None);
            self.fetched.1 = (bytes > LONG_BYTES).then(|| self.answers.count(bytes as u64));
        }
        Ok(row)
    }
}

type Pieces = mpsc::UnboundedReceiver<Piece>;

/// The head as soon as it is known; a short body whole, a long one in pieces.
async fn answer(mut pieces: Pieces, answers: &Answers, heads: &Heads) -> Answer {
    let (mut first, mut rooms) = (Vec::new(), vec![]);
    let head = match pieces.recv().await {
        Some(Piece::Start(head)) => head?,
        Some(Piece::Failed(e)) => return Err(e),
        Some(Piece::Text(text, room)) => {
            add(text, room, &mut first, &mut rooms);
            heads.default()?
        }
        None | Some(Piece::Stalled) => heads.default()?,
    };
    if gather(&mut pieces, &mut first, &mut rooms).await == Gathered::End {
        return Ok(head.with_body(Body::Full(first.into())));
    }
    let mut start = PieceOut::none(answers);
    set(&mut start, first, rooms);
    let rest = stream::unfold((start, Some(pieces)), |(mut out, pieces)| async move {
        if !out.is_empty() {
            return Some((Ok(out.split_off()), (out, pieces)));
        }
        let mut pieces = pieces?;
        let (mut piece, mut rooms) = (Vec::new(), vec![]);
        match gather(&mut pieces, &mut piece, &mut rooms).await {
            Gathered::Stalled => {
                let cut: StreamError = "the client took nothing for too long".into();
                Some((Err(cut), (out, None)))
            }
            _ if piece.is_empty() => None,
            _ => {
                set(&mut out, piece, rooms);
                Some((Ok(out.split_off()), (out, Some(pieces))))
            }
        }
    });
    Ok(head.with_body(Body::Stream(Box::pin(rest))))
}

/// Sets a piece, which keeps the rooms of its long texts until the connection has written it: the
/// function sends the next long text afterwards.
fn set(out: &mut PieceOut, piece: Vec<u8>, rooms: Vec<Room>) {
    match rooms.is_empty() {
        true => out.set(piece.into()),
        false => out.set_counted(Bytes::from_owner(LongPiece {
            bytes: piece,
            _rooms: rooms,
        })),
    }
}

/// A piece with long texts.
struct LongPiece {
    bytes: Vec<u8>,
    _rooms: Vec<Room>,
}

impl AsRef<[u8]> for LongPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(PartialEq, Eq)]
enum Gathered {
    More,
    End,
    /// The response is not complete, but its function has ended.
    Stalled,
}

/// Appends a text to a piece, whose long texts keep their rooms.
fn add(text: String, room: Room, piece: &mut Vec<u8>, rooms: &mut Vec<Room>) {
    piece.extend_from_slice(text.as_bytes());
    if room.held.is_some() {
        rooms.push(room);
    }
}

/// Appends output until there is a good deal of it. A failure is part of it, as in CouchDB.
async fn gather(pieces: &mut Pieces, out: &mut Vec<u8>, rooms: &mut Vec<Room>) -> Gathered {
    while out.len() < CHUNK_BYTES {
        match pieces.recv().await {
            None => return Gathered::End,
            Some(Piece::Text(text, room)) => add(text, room, out, rooms),
            Some(Piece::Failed(e)) => {
                out.extend_from_slice(format!("{}\n", e.to_json()).as_bytes())
            }
            Some(Piece::Stalled) => return Gathered::Stalled,
            Some(Piece::Start(_)) => {}
        }
    }
    Gathered::More
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_text_is_a_piece_that_keeps_its_room_until_it_is_written() {
        let answers = Answers::new(10 << 20);
        let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
        let (to, mut pieces) = mpsc::unbounded_channel();
        for length in [10, CHUNK_BYTES, 20] {
            let waiting = room.clone().try_acquire_many_owned(100).expect("room");
            let held = (length >= CHUNK_BYTES).then(|| answers.count(length as u64));
            let room = Room {
                _waiting: waiting,
                held,
            };
            assert!(to.send(Piece::Text("x".repeat(length), room)).is_ok());
        }
        drop(to);
        let (mut piece, mut rooms) = (vec![], vec![]);
        let gathered = gather(&mut pieces, &mut piece, &mut rooms).await;
        assert!(gathered == Gathered::More, "it does not wait for the next");
        assert_eq!((piece.len(), rooms.len()), (CHUNK_BYTES + 10, 1));
        let mut out = PieceOut::none(&answers);
        set(&mut out, piece, rooms);
        assert_eq!(answers.used_bytes().0, CHUNK_BYTES as u64);
        // Those of the long text, and of the one after it.
        assert_eq!(room.available_permits(), WAITING_BYTES_MAX - 200);
        drop(out.split_off());
        assert_eq!(answers.used_bytes().0, 0);
        assert_eq!(room.available_permits(), WAITING_BYTES_MAX - 100);
        let (mut piece, mut rooms) = (vec![], vec![]);
        let gathered = gather(&mut pieces, &mut piece, &mut rooms).await;
        assert!(gathered == Gathered::End);
        assert_eq!((piece.len(), rooms.len()), (20, 0));
        assert_eq!(room.available_permits(), WAITING_BYTES_MAX);
    }
}
