//! An open directory.

use std::path::PathBuf;
use std::sync::Arc;

use embedded::Result;
use rustler::{Atom, Encoder, Env, LocalPid, Resource, ResourceArc, Term};

use crate::answer::{long_blocking, ok, ok_with, spawn, spawn_blocking};
use crate::database::Database;
use crate::opened::{self, Opened};
use crate::terms::Shape;

/// An open directory.
pub struct Directory(pub Arc<Opened>);

#[rustler::resource_impl]
impl Resource for Directory {}

/// Opens a directory; `options` are JSON text, or empty. It is closed when the process `owner` ends;
/// another term than a process stands for none.
#[rustler::nif]
fn open<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    path: String,
    options: String,
    owner: Term<'a>,
    null: Atom,
) -> Term<'a> {
    let owner = owner.decode::<LocalPid>().ok();
    spawn(
        env,
        tag,
        long_blocking(move || opened::open(&PathBuf::from(path), &options, owner, null)),
        |env, opened| Ok(ok_with(env, ResourceArc::new(Directory(opened)))),
    )
}

/// The path of the store.
#[rustler::nif]
fn path(directory: ResourceArc<Directory>) -> String {
    directory.0.directory.path().display().to_string()
}

/// Names of databases.
#[rustler::nif]
fn names<'a>(env: Env<'a>, tag: Term<'a>, directory: ResourceArc<Directory>) -> Term<'a> {
    spawn_blocking(
        env,
        tag,
        move || directory.0.directory.names(),
        |env, names| Ok(ok_with(env, names)),
    )
}

/// Whether there is a database of this name.
#[rustler::nif]
fn has<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    directory: ResourceArc<Directory>,
    name: String,
) -> Term<'a> {
    spawn_blocking(
        env,
        tag,
        move || directory.0.directory.has(&name),
        |env, has| Ok(ok_with(env, has)),
    )
}

fn answered<'a>(env: Env<'a>, (db, opened): (embedded::Database, Arc<Opened>)) -> Result<Term<'a>> {
    Ok(ok_with(env, ResourceArc::new(Database { db, opened })))
}

/// Makes a database.
#[rustler::nif]
fn create<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    directory: ResourceArc<Directory>,
    name: String,
    options: String,
) -> Term<'a> {
    let work = async move {
        let opened = directory.0.clone();
        let db = opened.directory.create(&name, &options).await?;
        Ok((db, opened))
    };
    spawn(env, tag, work, answered)
}

/// The database of this name.
#[rustler::nif]
fn database<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    directory: ResourceArc<Directory>,
    name: String,
) -> Term<'a> {
    let work = move || {
        let opened = directory.0.clone();
        Ok((opened.directory.database(&name)?, opened))
    };
    spawn_blocking(env, tag, work, answered)
}

/// Deletes a database.
#[rustler::nif]
fn delete_database<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    directory: ResourceArc<Directory>,
    name: String,
) -> Term<'a> {
    let work = async move { directory.0.directory.delete(&name).await };
    spawn(env, tag, work, ok)
}

/// Compactions and index builds under way.
#[rustler::nif]
fn tasks<'a>(env: Env<'a>, tag: Term<'a>, directory: ResourceArc<Directory>) -> Term<'a> {
    let null = directory.0.null;
    spawn_blocking(
        env,
        tag,
        move || directory.0.directory.tasks(),
        move |env, tasks| {
            let tasks = Shape::Term { null }.value(env, tasks.as_bytes())?;
            Ok(ok_with(env, tasks))
        },
    )
}

/// Whether it was closed.
#[rustler::nif]
fn is_closed<'a>(env: Env<'a>, directory: ResourceArc<Directory>) -> Term<'a> {
    directory.0.directory.is_closed().encode(env)
}
