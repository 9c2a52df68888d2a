//! Bulks whose attachments come in pieces.

use std::sync::Arc;

use bytes::Bytes;
use rustler::{Env, Resource, ResourceArc, Term};

use crate::answer::{Kept, ok, ok_with, spawn, spawn_blocking};
use crate::later::Later;
use crate::opened::Opened;
use crate::terms::Shape;

/// A bulk that is being gathered.
pub struct Bulk {
    /// The bulk.
    pub bulk: Later<embedded::Bulk>,
    shape: Shape,
    _opened: Arc<Opened>,
}

#[rustler::resource_impl]
impl Resource for Bulk {}

impl Bulk {
    /// A bulk for a database of this directory.
    pub fn new(bulk: embedded::Bulk, shape: Shape, opened: Arc<Opened>) -> Bulk {
        Bulk {
            bulk: Later::new(bulk),
            shape,
            _opened: opened,
        }
    }
}

/// Adds a document, JSON text, and returns the names of its attachments whose content follows.
#[rustler::nif]
fn bulk_add<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    bulk: ResourceArc<Bulk>,
    document: Term<'a>,
) -> Term<'a> {
    let document = Kept::of(document);
    let work = move || bulk.bulk.add(&document.bytes()?);
    spawn_blocking(env, tag, work, |env, names| Ok(ok_with(env, names)))
}

/// Begins the content of the next attachment.
#[rustler::nif]
fn bulk_begin<'a>(env: Env<'a>, tag: Term<'a>, bulk: ResourceArc<Bulk>) -> Term<'a> {
    spawn_blocking(env, tag, move || bulk.bulk.begin(), ok)
}

/// Takes the next bytes of the content.
#[rustler::nif]
fn bulk_write<'a>(
    env: Env<'a>,
    tag: Term<'a>,
    bulk: ResourceArc<Bulk>,
    bytes: Term<'a>,
) -> Term<'a> {
    let bytes = Kept::of(bytes);
    let work = async move {
        let bytes = Bytes::from(bytes.bytes()?);
        bulk.bulk.write(bytes).await
    };
    spawn(env, tag, work, ok)
}

/// Ends the content.
#[rustler::nif]
fn bulk_end<'a>(env: Env<'a>, tag: Term<'a>, bulk: ResourceArc<Bulk>) -> Term<'a> {
    let work = async move { bulk.bulk.end().await };
    spawn(env, tag, work, ok)
}

/// Writes all documents, and returns their outcomes.
#[rustler::nif]
fn bulk_commit<'a>(env: Env<'a>, tag: Term<'a>, bulk: ResourceArc<Bulk>) -> Term<'a> {
    let shape = bulk.shape;
    let work = async move { bulk.bulk.commit().await };
    spawn(env, tag, work, move |env, outcomes| {
        Ok(ok_with(env, shape.value(env, &outcomes)?))
    })
}
