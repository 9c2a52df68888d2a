//! `_session`: who am I, log in, log out.

use auth::{Basic, UserCtx};
use hyper::header::{CONTENT_TYPE, SET_COOKIE};
use serde_json::{Value, json};

use crate::app::App;
use crate::errors::ApiError;
use crate::query::Query;
use crate::reply::Reply;
use crate::request::Request;
use crate::router::require_method;

/// Longest body of a login, in bytes.
const LOGIN_BYTES_MAX: u64 = 64 << 10;

type Answer = Result<Reply, ApiError>;

pub async fn route(app: &App, req: &mut Request) -> Answer {
    require_method(req, "GET,HEAD,POST,DELETE")?;
    match req.method.as_str() {
        "POST" => login(app, req).await,
        "DELETE" => logout(app, req),
        _ => info(req),
    }
}

fn info(req: &Request) -> Answer {
    if req.query.is_true("basic") && req.user.name.is_none() {
        return Err(ApiError::unauthorized("Please login."));
    }
    let mut info = json!({"authentication_handlers": ["cookie", "default"]});
    if let Some(how) = req.authenticated {
        info["authenticated"] = how.into();
    }
    Ok(Reply::json(
        200,
        &json!({
            "ok": true,
            "userCtx": {"name": req.user.name, "roles": req.user.roles},
            "info": info,
        }),
    ))
}

async fn credentials(req: &mut Request) -> Result<(String, String), ApiError> {
    let kind = req.header(&CONTENT_TYPE).unwrap_or("").to_owned();
    // Anybody may try to log in: nobody needs much room for it.
    let bytes = req.bytes("the size of a login", LOGIN_BYTES_MAX).await?;
    let (name, password) = if kind.starts_with("application/x-www-form-urlencoded") {
        let form = Query::parse(std::str::from_utf8(&bytes).ok());
        let name = form.get("name").or(form.get("username"));
        (
            name.map(str::to_owned),
            form.get("password").map(str::to_owned),
        )
    } else if kind.starts_with("application/json") {
        let body: Value = serde_json::from_slice(&bytes).map_err(|_| ApiError::invalid_json())?;
        let text = |m: &str| body.get(m).and_then(Value::as_str).map(str::to_owned);
        (text("name").or(text("username")), text("password"))
    } else {
        return Err(ApiError::bad_content_type(
            "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'",
        ));
    };
    let name = name
        .filter(|n| !n.is_empty())
        .ok_or_else(|| ApiError::bad_request("request body must contain a username"))?;
    Ok((name, password.unwrap_or_default()))
}

async fn login(app: &App, req: &mut Request) -> Answer {
    let (name, password) = credentials(req).await?;
    match verify(app, req, &name, &password).await {
        Ok(user) => {
            let name = user.name.clone().unwrap_or_default();
            let now = std::time::SystemTime::now();
            let cookie = app
                .auth
                .set_cookie(&name, now, req.https)
                .ok_or_else(|| ApiError::unauthorized("Name or password is incorrect."))?;
            let body = json!({"ok": true, "name": name, "roles": user.roles});
            let reply = match redirect(req, "next") {
                Some(url) => Reply::json(302, &body).location(&url),
                None => Reply::json(200, &body),
            };
            Ok(reply.header(SET_COOKIE, &cookie))
        }
        Err(e) if e.status == 401 => {
            let cleared = app.auth.clear_cookie(req.https);
            let mut reply = Reply::from(e).header(SET_COOKIE, &cleared);
            if let Some(url) = redirect(req, "fail") {
                reply.status = 302;
                reply = reply.location(&url);
            }
            Ok(reply)
        }
        Err(e) => Err(e),
    }
}

async fn verify(
    app: &App,
    req: &Request,
    name: &str,
    password: &str,
) -> Result<std::sync::Arc<UserCtx>, ApiError> {
    match app.auth.login(name, password) {
        Basic::Anonymous => Err(ApiError::unauthorized("Name or password is incorrect.")),
        Basic::Hit(user) => Ok(user),
        Basic::Miss(pending) => {
            let peer = req.peer;
            let done = tokio::task::spawn_blocking(move || pending.verify(peer)).await;
            Ok(done.map_err(|e| ApiError::new(500, "internal_server_error", e.to_string()))??)
        }
    }
}

/// A path of this server to send the browser to; never another server.
fn redirect(req: &Request, param: &str) -> Option<String> {
    let path = req.query.get(param)?;
    (path.starts_with('/') && !path.starts_with("//") && !path.contains('\\'))
        .then(|| format!("{}{path}", req.base_url()))
}

fn logout(app: &App, req: &Request) -> Answer {
    let cleared = app.auth.clear_cookie(req.https);
    let reply = match redirect(req, "next") {
        Some(url) => Reply::json(302, &json!({"ok": true})).location(&url),
        None => Reply::ok(),
    };
    Ok(reply.header(SET_COOKIE, &cleared))
}
