//! Closing whatever can be closed.

use rustler::{Env, NifResult, ResourceArc, Term};

use crate::answer::{long_blocking, ok, spawn, spawn_blocking};
use crate::attachments::{Reader, Writer};
use crate::bulk::Bulk;
use crate::directory::Directory;
use crate::rows::{Feed, Rows};

/// Closes a directory with everything that was opened in it, or lets go of rows, a feed, a reader, a
/// writer or a bulk.
#[rustler::nif]
fn close<'a>(env: Env<'a>, tag: Term<'a>, handle: Term<'a>) -> NifResult<Term<'a>> {
    if let Ok(directory) = handle.decode::<ResourceArc<Directory>>() {
        let work = long_blocking(move || directory.0.close());
        return Ok(spawn(env, tag, work, ok));
    }
    let close = release(handle)?;
    let work = move || {
        close();
        Ok(())
    };
    Ok(spawn_blocking(env, tag, work, ok))
}

/// Returns what lets go of a handle.
fn release(handle: Term<'_>) -> NifResult<Box<dyn FnOnce() + Send>> {
    if let Ok(rows) = handle.decode::<ResourceArc<Rows>>() {
        return Ok(Box::new(move || rows.rows.close()));
    }
    if let Ok(feed) = handle.decode::<ResourceArc<Feed>>() {
        return Ok(Box::new(move || feed.shared.close()));
    }
    if let Ok(reader) = handle.decode::<ResourceArc<Reader>>() {
        return Ok(Box::new(move || reader.reader.close()));
    }
    if let Ok(writer) = handle.decode::<ResourceArc<Writer>>() {
        return Ok(Box::new(move || writer.writer.close()));
    }
    let bulk: ResourceArc<Bulk> = handle.decode()?;
    Ok(Box::new(move || bulk.bulk.close()))
}
