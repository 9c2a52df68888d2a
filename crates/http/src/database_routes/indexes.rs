//! `_index`: creating, listing and deleting Mango's indexes, which live in design documents.

use std::sync::Arc;

use database::{EditMode, FindIndexes};
use document::EditDoc;
use mango::index::{
    DesignMembers, design_members, parse_bulk_delete, remove_all_from, write_design,
};
use mango::{FindError, NewIndex, TextKind};
use serde_json::{Value, json};

use crate::database_routes::find::{apart_if_long, selector_limits};
use crate::document_routes::documents::write;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::stream::{CHUNK_BYTES, pull};
use crate::request::Request;
use node::Access;

type Answer = Result<Reply, ApiError>;

/// How often a change of a design document is tried again that another one came before.
const TRIES_MAX: usize = 4;

/// Most design documents whose indexes one request deletes: each may be a write.
const DELETED_MAX: usize = 10_000;

/// `_index`
pub async fn route(req: &mut Request, access: &Access) -> Answer {
    match req.method.as_str() {
        "POST" => create(req, access).await,
        _ => list(req, access).await,
    }
}

async fn list(req: &mut Request, access: &Access) -> Answer {
    let number = |name: &str| match req.query.get(name) {
        None => Ok(None),
        Some(text) => match text.parse::<i64>() {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(FindError::InvalidListParams),
        },
    };
    let (limit, skip) = (number("limit")?, number("skip")?.unwrap_or(0));
    if limit.is_some_and(|n| n < 1) || skip < 0 {
        return Err(FindError::InvalidListParams.into());
    }
    let all = access.db.find_indexes_async().await?;
    req.keep_indexes(&all).await?;
    let first = (skip as usize).min(all.len());
    let limit = limit.map_or(usize::MAX, |n| n as usize);
    let mut left = first..first.saturating_add(limit).min(all.len());
    let (mut is_begun, mut is_ended) = (false, false);
    pull(
        &req.answers,
        "application/json",
        move |out: &mut Vec<u8>| {
            if is_ended {
                return Ok(false);
            }
            if !std::mem::replace(&mut is_begun, true) {
                let head = format!("{{\"total_rows\":{},\"indexes\":[", all.len());
                out.extend_from_slice(head.as_bytes());
            }
            while out.len() < CHUNK_BYTES
                && let Some(next) = left.next()
            {
                if next > first {
                    out.push(b',');
                }
                out.extend_from_slice(&all[next].index.to_json());
            }
            if left.is_empty() {
                out.extend_from_slice(b"]}\n");
                is_ended = true;
            }
            Ok(true)
        },
    )
    .await
}

async fn create(req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    // A larger one would not be used.
    let limits = selector_limits(&req.settings.mango).and(mango::Limits::OF_INDEXES);
    let body = req.bytes().await?;
    let index = apart_if_long(req, body, move |body| {
        Ok(NewIndex::parse(&document::normalise(body)?, &limits)?)
    })
    .await?;
    let index = Arc::new(index);
    let mut result = "exists";
    for left in (0..TRIES_MAX).rev() {
        let (db, of) = (access.db.clone(), index.clone());
        let added = read_long(req, move || {
            let (rev, members) = split(db.design_text(&of.ddoc)?);
            let new = of.add_to(members.as_ref())?;
            let edit = new.map(|new| edit_of(&of.ddoc, rev, Some(new)));
            edit.transpose()
        });
        let Some(edit) = added.await? else {
            break;
        };
        // An application may request its existing index as any user; only creating it is for
        // admins.
        access.require_design_admin(&req.user)?;
        if save(req, access, edit, left).await? {
            result = "created";
            break;
        }
    }
    let answer = json!({"result": result, "id": index.ddoc, "name": index.name});
    Ok(Reply::json(200, &answer))
}

/// `_index/_design/{ddoc}/{kind}/{name}`
pub async fn delete(req: &Request, access: &Access, ddoc: &str, kind: &str, name: &str) -> Answer {
    let kind = mango::index::text_kind(kind).map_err(|_| ApiError::missing())?;
    access.require_design_admin(&req.user)?;
    remove(req, access, ddoc, vec![(kind, name.to_owned())]).await?;
    Ok(Reply::ok())
}

/// Removes indexes of a design document, in one write.
async fn remove(
    req: &Request,
    access: &Access,
    ddoc: &str,
    indexes: Vec<(Option<TextKind>, String)>,
) -> Result<(), ApiError> {
    let indexes = Arc::new(indexes);
    for left in (0..TRIES_MAX).rev() {
        let (db, id, indexes) = (access.db.clone(), ddoc.to_owned(), indexes.clone());
        let removed = read_long(req, move || {
            let (rev, Some(members)) = split(db.design_text(&id)?) else {
                return Err(ApiError::missing());
            };
            let names = indexes.iter().map(|(kind, name)| (*kind, name.as_str()));
            let names: Vec<(Option<TextKind>, &str)> = names.collect();
            let new = remove_all_from(&members, &names).map_err(|()| ApiError::missing())?;
            if !mango::index::is_of_indexes(&members) {
                return Err(ApiError::missing());
            }
            edit_of(&id, rev, new)
        });
        if save(req, access, removed.await?, left).await? {
            break;
        }
    }
    Ok(())
}

/// `_index/_bulk_delete`
pub async fn bulk_delete(req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    let body = req.json_object().await?;
    let ids = body.get("docids").and_then(Value::as_array);
    if ids.is_some_and(|ids| ids.len() > DELETED_MAX) {
        return Err(ApiError::bad_request(format!(
            "`docids` must have at most {DELETED_MAX} elements: send several requests"
        )));
    }
    let ids = parse_bulk_delete(&body)?;
    access.require_design_admin(&req.user)?;
    // Read once, as each removal changes the design documents that they are read from: unless some had
    // no room in memory, for which removals make it.
    let mut all = access.db.find_indexes_async().await?;
    req.keep_indexes(&all).await?;
    let mut is_removed = false;
    let (mut success, mut fail) = (vec![], vec![]);
    for id in ids {
        // Where nothing is removed, nothing below waits.
        tokio::task::yield_now().await;
        let mut removed = remove_all(req, access, &all, &id).await;
        if is_removed && removed.as_ref().is_err_and(|e| e.status == 404) {
            (all, is_removed) = (access.db.find_indexes_async().await?, false);
            removed = remove_all(req, access, &all, &id).await;
        }
        match removed {
            Ok(()) => {
                is_removed = true;
                success.push(json!({"id": id, "ok": true}));
            }
            Err(e) => fail.push(json!({"id": id, "error": e.error})),
        }
    }
    // CouchDB lists them from the last one to the first.
    success.reverse();
    fail.reverse();
    Ok(Reply::json(200, &json!({"success": success, "fail": fail})))
}

/// Removes every index of a design document. (CouchDB fails when there are several.)
async fn remove_all(
    req: &Request,
    access: &Access,
    all: &FindIndexes,
    id: &str,
) -> Result<(), ApiError> {
    let own = all
        .iter()
        .filter(|index| index.index.ddoc.as_deref() == Some(id));
    let own = own.map(|index| {
        let kind = index.index.text.as_ref().map(|text| text.kind);
        (kind, index.index.name.clone())
    });
    let own: Vec<_> = own.collect();
    if own.is_empty() {
        return Err(ApiError::missing());
    }
    remove(req, access, id, own).await
}

/// The revision, as JSON text, and the members that a write keeps.
fn split(ddoc: Option<Vec<u8>>) -> (Option<Vec<u8>>, Option<DesignMembers>) {
    let Some(ddoc) = ddoc else {
        return (None, None);
    };
    let mut members = design_members(&ddoc);
    let rev = members.iter().find(|(name, _)| name == "_rev");
    let rev = rev.map(|(_, rev)| rev.clone());
    members.retain(|(name, _)| name != "_id" && name != "_rev");
    (rev, Some(members))
}

/// Reads and changes a design document, which may be long, on one of few threads.
async fn read_long<T: Send + 'static>(
    req: &Request,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    req.answers.apart(work).await?
}

/// The edit of a design document; its deletion when it has no members left.
fn edit_of(
    id: &str,
    rev: Option<Vec<u8>>,
    members: Option<DesignMembers>,
) -> Result<EditDoc, ApiError> {
    Ok(document::parse_document(&write_design(id, rev, members))?)
}

/// Writes a design document; false when another write came before and the change can be tried again.
async fn save(
    req: &Request,
    access: &Access,
    edit: EditDoc,
    tries_left: usize,
) -> Result<bool, ApiError> {
    let _held = req.hold_edit(&edit, 0).await?;
    match write(req, access, edit, EditMode::Interactive).await {
        Ok(_) => Ok(true),
        Err(e) if e.status == 409 && tries_left > 0 => Ok(false),
        Err(e) if e.status == 409 => Err(ApiError::new(
            500,
            "error_saving_ddoc",
            "Encountered a conflict while saving the design document.",
        )),
        Err(e) => Err(e),
    }
}
