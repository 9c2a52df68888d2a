//! Attachments in pieces.

use std::sync::Arc;

use bytes::Bytes;
use rustler::{Encoder, Env, Resource, ResourceArc, Term};

use crate::answer::{Kept, atoms, ok, ok_with, spawn, spawn_blocking, written};
use crate::database::Database;
use crate::later::Later;
use crate::opened::Opened;
use crate::terms::binary;

type Db = ResourceArc<Database>;

/// The bytes of an attachment.
pub struct Reader {
    /// The reader.
    pub reader: Later<embedded::Reader>,
    _opened: Arc<Opened>,
}

#[rustler::resource_impl]
impl Resource for Reader {}

/// An attachment that is being written.
pub struct Writer {
    /// The writer.
    pub writer: Later<embedded::Writer>,
    _opened: Arc<Opened>,
}

#[rustler::resource_impl]
impl Resource for Writer {}

/// Opens an attachment: `{ok, {Reader, ContentType, Length, Digest}}`.
#[rustler::nif]
fn attachment<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    db: Db,
    id: String,
    name: String,
    options: String,
) -> Term<'a> {
    let opened = db.opened.clone();
    spawn_blocking(
        env,
        tag,
        move || db.db.attachment(&id, &name, &options),
        move |env, reader| {
            let info = reader.info().clone();
            let reader = ResourceArc::new(Reader {
                reader: Later::new(reader),
                _opened: opened,
            });
            let answer = (reader, info.content_type, info.length, info.digest);
            Ok(ok_with(env, answer))
        },
    )
}

/// The next bytes: `{ok, Bytes}`, not empty; `eof` at the end.
#[rustler::nif]
fn read<'a>(env: Env<'a>, tag: Term<'a>, reader: ResourceArc<Reader>) -> Term<'a> {
    let work = move || reader.reader.next();
    spawn_blocking(env, tag, work, |env, piece| {
        Ok(match piece {
            Some(piece) => ok_with(env, binary(env, &piece)),
            None => atoms::eof().encode(env),
        })
    })
}

/// Begins to write an attachment.
#[rustler::nif]
fn put_attachment<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    db: Db,
    id: String,
    name: String,
    options: String,
) -> Term<'a> {
    let opened = db.opened.clone();
    spawn_blocking(
        env,
        tag,
        move || db.db.put_attachment(&id, &name, &options),
        move |env, writer| {
            let writer = ResourceArc::new(Writer {
                writer: Later::new(writer),
                _opened: opened,
            });
            Ok(ok_with(env, writer))
        },
    )
}

/// Takes the next bytes.
#[rustler::nif]
fn write<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    writer: ResourceArc<Writer>,
    bytes: Term<'a>,
) -> Term<'a> {
    let bytes = Kept::of(bytes);
    let work = async move {
        let bytes = Bytes::from(bytes.bytes()?);
        writer.writer.write(bytes).await
    };
    spawn(env, tag, work, ok)
}

/// Ends the upload, and writes the document's new revision.
#[rustler::nif]
fn finish<'a>(env: Env<'a>, tag: Term<'a>, writer: ResourceArc<Writer>) -> Term<'a> {
    let work = async move { writer.writer.finish().await };
    spawn(env, tag, work, written)
}

/// Removes an attachment.
#[rustler::nif]
fn delete_attachment<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    db: Db,
    id: String,
    name: String,
    rev: String,
) -> Term<'a> {
    let work = async move { db.db.delete_attachment(&id, &name, &rev).await };
    spawn(env, tag, work, written)
}
