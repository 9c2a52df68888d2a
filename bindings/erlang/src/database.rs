//! A database: JSON text in, terms out.

use std::sync::Arc;

use embedded::{Database as Embedded, Result};
use rustler::{Encoder, Env, Resource, ResourceArc, Term};

use crate::answer::{Kept, ok, ok_with, spawn, spawn_blocking, written};
use crate::bulk::Bulk;
use crate::opened::Opened;
use crate::rows::{Feed, Rows};
use crate::terms::Shape;

/// A database.
pub struct Database {
    /// The database.
    pub db: Embedded,
    /// Its directory.
    pub opened: Arc<Opened>,
}

#[rustler::resource_impl]
impl Resource for Database {}

type Db = ResourceArc<Database>;

impl Database {
    /// Returns the shape of its answers.
    pub fn shape(&self, is_raw: bool) -> Shape {
        match is_raw {
            true => Shape::Text,
            false => Shape::Term {
                null: self.opened.null,
            },
        }
    }
}

/// Returns an answer of `{ok, Value}` for a JSON text.
fn value<T: AsRef<[u8]> + 'static>(
    shape: Shape,
) -> impl for<'a> FnOnce(Env<'a>, T) -> Result<Term<'a>> + Send + 'static {
    move |env, text| Ok(ok_with(env, shape.value(env, text.as_ref())?))
}

/// Its name.
#[rustler::nif]
fn name(db: Db) -> String {
    db.db.name().to_owned()
}

/// Counts and sizes.
#[rustler::nif]
fn info<'a>(env: Env<'a>, tag: Term<'a>, db: Db) -> Term<'a> {
    let answer = value(db.shape(false));
    spawn_blocking(env, tag, move || db.db.info(), answer)
}

/// Starts a compaction.
#[rustler::nif]
fn compact<'a>(env: Env<'a>, tag: Term<'a>, db: Db) -> Term<'a> {
    spawn_blocking(env, tag, move || db.db.compact(), ok)
}

/// A document.
#[rustler::nif]
fn get<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    db: Db,
    id: String,
    options: String,
    is_raw: bool,
) -> Term<'a> {
    let answer = value(db.shape(is_raw));
    // A read is short; only what holds attachments is not.
    match options.is_empty() {
        true => spawn(env, tag, async move { db.db.document(&id, "") }, answer),
        false => spawn_blocking(env, tag, move || db.db.document(&id, &options), answer),
    }
}

/// Writes a document, JSON text.
#[rustler::nif]
fn put<'a>(env: Env<'a>, tag: Term<'a>, db: Db, document: Term<'a>, options: String) -> Term<'a> {
    let document = Kept::of(document);
    let work = async move {
        let text = document.bytes()?;
        db.db.put(&text, &options).await
    };
    spawn(env, tag, work, written)
}

/// Deletes a document.
#[rustler::nif]
fn delete<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    db: Db,
    id: String,
    rev: String,
    options: String,
) -> Term<'a> {
    let work = async move { db.db.delete(&id, &rev, &options).await };
    spawn(env, tag, work, written)
}

/// Writes documents, a list of JSON texts, and returns their outcomes.
#[rustler::nif(schedule = "DirtyCpu")]
fn bulk<'a>(env: Env<'a>, tag: Term<'a>, db: Db, documents: Term<'a>, options: String) -> Term<'a> {
    let answer = value(db.shape(false));
    let documents = Kept::of(documents);
    let work = async move {
        let texts = documents.list()?;
        db.db.bulk(&texts, &options).await
    };
    spawn(env, tag, work, answer)
}

/// Begins a bulk whose attachments come in pieces.
#[rustler::nif]
fn begin_bulk<'a>(env: Env<'a>, tag: Term<'a>, db: Db, options: String) -> Term<'a> {
    let (opened, shape) = (db.opened.clone(), db.shape(false));
    spawn_blocking(
        env,
        tag,
        move || db.db.begin_bulk(&options),
        move |env, bulk| {
            let bulk = Bulk::new(bulk, shape, opened);
            Ok(ok_with(env, ResourceArc::new(bulk)))
        },
    )
}

/// Returns an answer of `{ok, Rows}`.
fn rows(
    db: &Database,
    is_raw: bool,
) -> impl for<'a> FnOnce(Env<'a>, embedded::Rows) -> Result<Term<'a>> + Send + use<> {
    let (opened, shape, texts) = (db.opened.clone(), db.shape(is_raw), db.shape(false));
    move |env, rows| {
        let rows = Rows::new(rows, shape, texts, opened);
        Ok(ok_with(env, ResourceArc::new(rows)))
    }
}

/// Documents by id.
#[rustler::nif]
fn all_docs<'a>(env: Env<'a>, tag: Term<'a>, db: Db, options: Term<'a>, is_raw: bool) -> Term<'a> {
    let (answer, options) = (rows(&db, is_raw), Kept::of(options));
    let work = move || db.db.all_docs(&options.text()?);
    spawn_blocking(env, tag, work, answer)
}

/// Rows of a view.
#[rustler::nif]
fn view<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    db: Db,
    design: String,
    name: String,
    options: Term<'a>,
    is_raw: bool,
) -> Term<'a> {
    let (answer, options) = (rows(&db, is_raw), Kept::of(options));
    let work = async move {
        let options = options.text()?;
        db.db.view(&design, &name, &options).await
    };
    spawn(env, tag, work, answer)
}

/// Updates an index.
#[rustler::nif]
fn build_index<'a>(env: Env<'a>, tag: Term<'a>, db: Db, design: String) -> Term<'a> {
    let work = async move { db.db.build_index(&design).await };
    spawn(env, tag, work, ok)
}

/// Progress of an index's builds: `{Done, Total}`, or `idle`.
#[rustler::nif]
fn progress<'a>(env: Env<'a>, tag: Term<'a>, db: Db, design: String) -> Term<'a> {
    spawn_blocking(
        env,
        tag,
        move || db.db.progress(&design),
        |env, progress| {
            let progress = progress.map(|pair| pair.encode(env));
            let progress = progress.unwrap_or_else(|| atoms::idle().encode(env));
            Ok(ok_with(env, progress))
        },
    )
}

mod atoms {
    rustler::atoms! { idle }
}

/// Opens a feed.
#[rustler::nif]
fn changes<'a>(env: Env<'a>, tag: Term<'a>, db: Db, options: Term<'a>, is_raw: bool) -> Term<'a> {
    let (opened, shape, options) = (db.opened.clone(), db.shape(is_raw), Kept::of(options));
    spawn_blocking(
        env,
        tag,
        move || db.db.changes(&options.text()?),
        move |env, feed| {
            let feed = Feed::new(feed, shape, opened);
            Ok(ok_with(env, ResourceArc::new(feed)))
        },
    )
}

/// Documents that match a query, JSON text.
#[rustler::nif]
fn find<'a>(env: Env<'a>, tag: Term<'a>, db: Db, query: Term<'a>, is_raw: bool) -> Term<'a> {
    let (answer, query) = (rows(&db, is_raw), Kept::of(query));
    let work = async move {
        let query = query.bytes()?;
        db.db.find(&query).await
    };
    spawn(env, tag, work, answer)
}

/// Which index would answer a query.
#[rustler::nif]
fn explain<'a>(env: Env<'a>, tag: Term<'a>, db: Db, query: Term<'a>) -> Term<'a> {
    let (answer, query) = (value(db.shape(false)), Kept::of(query));
    let work = move || db.db.explain(&query.bytes()?);
    spawn_blocking(env, tag, work, answer)
}

/// The indexes.
#[rustler::nif]
fn indexes<'a>(env: Env<'a>, tag: Term<'a>, db: Db) -> Term<'a> {
    let answer = value(db.shape(false));
    spawn_blocking(env, tag, move || db.db.indexes(), answer)
}

/// Makes an index.
#[rustler::nif]
fn create_index<'a>(env: Env<'a>, tag: Term<'a>, db: Db, definition: Term<'a>) -> Term<'a> {
    let (answer, definition) = (value(db.shape(false)), Kept::of(definition));
    let work = async move {
        let definition = definition.bytes()?;
        db.db.create_index(&definition).await
    };
    spawn(env, tag, work, answer)
}

/// Deletes an index.
#[rustler::nif]
fn delete_index<'a>(env: Env<'a>, tag: Term<'a>, db: Db, design: String, name: String) -> Term<'a> {
    let work = async move { db.db.delete_index(&design, &name).await };
    spawn(env, tag, work, ok)
}
