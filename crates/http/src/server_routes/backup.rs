//! `/_settee/backup`: starts backups, and reports their state.

use std::time::{SystemTime, UNIX_EPOCH};

use node::{FinishedBackup, RunningBackup};
use serde_json::{Value, json};

use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

type Answer = Result<Reply, ApiError>;

/// - `POST` with `{"target": …}`: a URL, or the path of a directory, gets an incremental backup in the
///   background: 202 with its id. A directory that does not exist is created.
/// - `POST` with `{"directory": path}`: a path that does not exist yet becomes a plain copy of the
///   store: 201 once it is made.
/// - With `"permit"`, the name of a file that the client made in the directory, any directory will do;
///   without, those that the server's files allow.
/// - `GET`: the known backups of targets.
pub async fn route(app: &App, req: &mut Request) -> Answer {
    if req.method != "POST" {
        return Ok(Reply::json(200, &known(app)));
    }
    req.require_json()?;
    let body = req.json_object().await?;
    let permit = body.get("permit").and_then(Value::as_str);
    let directory = match (body.get("target"), body.get("directory")) {
        (Some(Value::String(target)), None) => {
            if !target.contains("://") && !target.starts_with('/') {
                return Err(ApiError::bad_request(
                    "`target` must be an absolute path or a URL",
                ));
            }
            let id = app.node.backups.start(target, permit)?;
            return Ok(Reply::json(202, &json!({"ok": true, "id": id})));
        }
        (None, Some(Value::String(directory))) => directory,
        _ => {
            return Err(ApiError::bad_request(
                "`target` must name a place of backups, or `directory` a directory that does not exist yet",
            ));
        }
    };
    let copied = app.node.backups.copy_to(directory.into(), permit);
    copied.await?;
    Ok(Reply::json(
        201,
        &json!({"ok": true, "directory": directory}),
    ))
}

fn known(app: &App) -> Value {
    let backups = &app.node.backups;
    let known = backups.history();
    json!({
        "running": known.running.as_deref().map(running),
        "ended": known.ended.iter().map(|of| ended(of)).collect::<Vec<_>>(),
        "last_success": known.last_success.as_deref().map(ended),
        "last_failure": known.last_failure.as_deref().map(ended),
        "scheduled": backups.scheduled_target().map(|target| json!({
            "target": target,
            "next": known.next.map(unix_s),
        })),
    })
}

fn running(of: &RunningBackup) -> Value {
    let progress = &of.progress;
    json!({
        "id": of.id,
        "target": of.target.to_string(),
        "started_on": unix_s(of.started),
        "phase": of.phase().name(),
        "bytes": progress.bytes(),
        "done_bytes": progress.done_bytes(),
        "copied_bytes": progress.copied_bytes(),
        "copied_files": progress.copied_files(),
    })
}

fn ended(of: &FinishedBackup) -> Value {
    let mut told = json!({
        "id": of.id,
        "target": of.target.to_string(),
        "started_on": unix_s(of.started),
        "ended_on": unix_s(of.ended),
        "seconds": of.took().as_secs_f64(),
    });
    match &of.result {
        Ok(made) => {
            told["name"] = made.name.as_str().into();
            told["time"] = made.time.as_str().into();
            told["files"] = made.files.into();
            told["bytes"] = made.bytes.into();
            told["copied_files"] = made.copied_files.into();
            told["copied_bytes"] = made.copied_bytes.into();
        }
        Err(reason) => told["reason"] = reason.as_str().into(),
    }
    told
}

/// The backup under way, as `_active_tasks` lists it.
pub fn task(app: &App) -> Option<Value> {
    let running = app.node.backups.history().running?;
    let progress = &running.progress;
    let (done, total) = (progress.done_bytes(), progress.bytes());
    Some(json!({
        "type": "backup",
        "database": "",
        "node": app.node.name,
        "pid": "<0.1.0>",
        "target": running.target.to_string(),
        "phase": running.phase().name(),
        "changes_done": done,
        "total_changes": total,
        "copied_bytes": progress.copied_bytes(),
        "progress": (done * 100).checked_div(total).unwrap_or(0),
        "started_on": unix_s(running.started),
        "updated_on": unix_s(SystemTime::now()),
    }))
}

pub fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
