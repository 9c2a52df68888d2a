//! Rows and changes, some at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use embedded::{Batch, Error, Piece, Result};
use parking_lot::Mutex;
use rustler::{Encoder, Env, NifResult, Resource, ResourceArc, Term};

use crate::answer::{Process, atoms, blocking, ok_with, spawn, spawn_blocking};
use crate::later::Later;
use crate::opened::Opened;
use crate::terms::Shape;

/// Rows of a listing, of a view or of a query.
pub struct Rows {
    /// The rows.
    pub rows: Later<embedded::Rows>,
    shape: Shape,
    /// The shape of members that are not rows.
    texts: Shape,
    _opened: Arc<Opened>,
}

#[rustler::resource_impl]
impl Resource for Rows {}

impl Rows {
    /// Rows of a database of this directory.
    pub fn new(rows: embedded::Rows, shape: Shape, texts: Shape, opened: Arc<Opened>) -> Rows {
        Rows {
            rows: Later::new(rows),
            shape,
            texts,
            _opened: opened,
        }
    }
}

/// A feed of changes.
pub struct Feed {
    feed: Later<Mutex<embedded::Feed>>,
    /// A second handle of the feed, for calls that need no lock.
    pub shared: embedded::Feed,
    shape: Shape,
    _opened: Arc<Opened>,
}

#[rustler::resource_impl]
impl Resource for Feed {}

impl Feed {
    /// A feed of a database of this directory.
    pub fn new(feed: embedded::Feed, shape: Shape, opened: Arc<Opened>) -> Feed {
        Feed {
            shared: feed.clone(),
            feed: Later::new(Mutex::new(feed)),
            shape,
            _opened: opened,
        }
    }
}

/// The outcome of a wait for changes.
enum Next {
    Rows(Batch),
    End,
    TimedOut,
}

/// Interval at which a waiting call checks whether its process still runs: what it would return is
/// lost otherwise.
const LOOK_EVERY: Duration = Duration::from_secs(1);

async fn next_changes(
    feed: ResourceArc<Feed>,
    timeout: Option<Duration>,
    process: Process,
) -> Result<Next> {
    // As good as for ever, if the sum is too large.
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        if !process.is_alive() {
            return Err(Error::cancelled());
        }
        let held = feed.clone();
        match blocking(move || held.feed.lock().next_piece()).await? {
            Piece::Rows(batch) => return Ok(Next::Rows(batch)),
            Piece::End => return Ok(Next::End),
            Piece::Wait => {}
        }
        let waiting = feed.feed.lock().clone();
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let slice = left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY));
            if let Ok(changed) = tokio::time::timeout(slice, waiting.wait()).await {
                changed?;
                break;
            }
            if left.is_some_and(|left| left <= slice) {
                return Ok(Next::TimedOut);
            }
            if !process.is_alive() {
                return Err(Error::cancelled());
            }
        }
    }
}

/// The next rows of a cursor or a feed, `{ok, Rows}`; `done` at the end. A feed that waits returns
/// `timeout` when no change comes within this number of milliseconds; another term than an integer
/// stands for any time.
#[rustler::nif]
fn next<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    cursor: Term<'a>,
    timeout_ms: Term<'a>,
) -> NifResult<Term<'a>> {
    if let Ok(rows) = cursor.decode::<ResourceArc<Rows>>() {
        let shape = rows.shape;
        let work = move || rows.rows.next();
        return Ok(spawn_blocking(env, tag, work, move |env, batch| {
            Ok(match batch {
                Some(batch) => ok_with(env, shape.rows(env, batch)?),
                None => atoms::done().encode(env),
            })
        }));
    }
    let feed: ResourceArc<Feed> = cursor.decode()?;
    let timeout = timeout_ms.decode().ok().map(Duration::from_millis);
    let shape = feed.shape;
    let work = next_changes(feed, timeout, Process::calling(env));
    Ok(spawn(env, tag, work, move |env, next| {
        Ok(match next {
            Next::Rows(batch) => ok_with(env, shape.rows(env, batch)?),
            Next::End => atoms::done().encode(env),
            Next::TimedOut => atoms::timeout().encode(env),
        })
    }))
}

/// The members that are known before the rows.
#[rustler::nif]
fn head<'a>(env: Env<'a>, tag: Term<'a>, rows: ResourceArc<Rows>) -> Term<'a> {
    let texts = rows.texts;
    let work = move || Ok(rows.rows.head());
    spawn_blocking(env, tag, work, move |env, head| {
        Ok(ok_with(env, texts.value(env, head.as_bytes())?))
    })
}

/// The members that are known after the rows.
#[rustler::nif]
fn tail<'a>(env: Env<'a>, tag: Term<'a>, rows: ResourceArc<Rows>) -> Term<'a> {
    let texts = rows.texts;
    let work = move || rows.rows.tail();
    spawn_blocking(env, tag, work, move |env, tail| {
        Ok(ok_with(env, texts.value(env, tail.as_bytes())?))
    })
}

/// The seq to resume a feed from later.
#[rustler::nif]
fn last_seq<'a>(env: Env<'a>, tag: Term<'a>, feed: ResourceArc<Feed>) -> Term<'a> {
    let work = move || feed.shared.last_seq();
    spawn_blocking(env, tag, work, |env, seq| Ok(ok_with(env, seq)))
}
