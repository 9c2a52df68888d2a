//! `/_cluster_setup`: CouchDB's set-up wizard.

use node::setup;
use serde_json::{Value, json};

use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

type Answer = Result<Reply, ApiError>;

pub async fn route(app: &App, req: &mut Request) -> Answer {
    match req.method.as_str() {
        "GET" | "HEAD" => state(app, req),
        "POST" => act(app, req).await,
        _ => Err(ApiError::method_not_allowed("GET,POST")),
    }
}

fn state(app: &App, req: &Request) -> Answer {
    let wanted = req.query.json("ensure_dbs_exist")?;
    let state = setup::state(&app.node, wanted.as_ref())?;
    Ok(Reply::json(200, &json!({"state": state})))
}

async fn act(app: &App, req: &mut Request) -> Answer {
    req.require_json()?;
    let body = match req.json().await {
        Err(e) if e.status == 413 => return Err(e),
        body => body,
    };
    let Ok(Value::Object(wanted)) = body else {
        return Err(ApiError::bad_request("Missing JSON body'"));
    };
    setup::act(&app.node, &wanted).await?;
    Ok(Reply::json(201, &json!({"ok": true})))
}
