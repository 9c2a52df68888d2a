//! `_session`: the current user, login and logout.

use auth::{Basic, CookieScope, Login};
use hyper::header::{CONTENT_TYPE, SET_COOKIE};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::clustered::{self, Accounts};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::Query;

type Answer = Result<Reply, ApiError>;

pub async fn route(app: &App, req: &mut Request) -> Answer {
    match req.method.as_str() {
        "POST" => login(app, req).await,
        "DELETE" => logout(app, req),
        _ => info(app, req),
    }
}

fn info(app: &App, req: &Request) -> Answer {
    if req.query.is_true("basic") && req.user.name.is_none() {
        return Err(ApiError::unauthorized("Please login."));
    }
    let handlers: Vec<&str> = app.node.auth.handlers().iter().map(|h| h.name()).collect();
    let mut info = json!({"authentication_handlers": handlers});
    // Returned only when it was configured, as in CouchDB.
    if let Some(db) = app.node.config.get("chttpd_auth", "authentication_db") {
        info["authentication_db"] = db.into();
    }
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

/// The contents of a login request.
struct Credentials {
    name: String,
    password: String,
    /// The second factor.
    token: String,
}

enum Form {
    Query(Query),
    Json(Map<String, Value>),
}

impl Form {
    fn member(&self, name: &str) -> Option<String> {
        let member = match self {
            Form::Query(query) => query.get(name),
            Form::Json(members) => members.get(name).and_then(Value::as_str),
        };
        member.map(str::to_owned)
    }
}

async fn credentials(req: &mut Request) -> Result<Credentials, ApiError> {
    let kind = req.header(&CONTENT_TYPE).unwrap_or("").to_owned();
    let bytes = req.bytes().await?;
    // Another node of a cluster may have to answer.
    req.put_back(bytes.clone());
    let form = if kind.starts_with("application/x-www-form-urlencoded") {
        Form::Query(Query::parse(std::str::from_utf8(&bytes).ok()))
    } else if kind.starts_with("application/json") {
        match req.parsed(&bytes).await? {
            Value::Object(members) => Form::Json(members),
            _ => return Err(ApiError::bad_request("Request body must be a JSON object")),
        }
    } else {
        return Err(ApiError::bad_content_type(
            "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'",
        ));
    };
    let member = |name| form.member(name);
    let name = match (member("name"), member("username")) {
        (Some(name), Some(username)) if name != username => {
            return Err(ApiError::bad_request(
                "request body contains different usernames",
            ));
        }
        (name, username) => name.or(username),
    };
    Ok(Credentials {
        name: name
            .filter(|name| !name.is_empty())
            .ok_or_else(|| ApiError::bad_request("request body must contain a username"))?,
        password: member("password").unwrap_or_default(),
        token: member("token").unwrap_or_default(),
    })
}

async fn login(app: &App, req: &mut Request) -> Answer {
    let credentials = credentials(req).await?;
    let verified = match verify_current(app, req, &credentials).await {
        Ok(verified) => verified,
        Err(e) => return clustered::elsewhere_than(app, req, &e).await,
    };
    match verified {
        Ok(login) => {
            let now = std::time::SystemTime::now();
            let cookie = app.node.auth.set_cookie(&login, now, reached(req));
            let user = login.user();
            let body = json!({"ok": true, "name": user.name, "roles": user.roles});
            let reply = match redirect(req, "next")? {
                Some(url) => Reply::json(302, &body).location(&url),
                None => Reply::json(200, &body),
            };
            Ok(reply.header(SET_COOKIE, &cookie))
        }
        Err(e) if e.status == 401 => {
            let cleared = app.node.auth.clear_cookie(reached(req));
            let mut reply = Reply::from(e).header(SET_COOKIE, &cleared);
            if let Some(url) = redirect(req, "fail")? {
                reply.status = 302;
                reply = reply.location(&url);
            }
            Ok(reply)
        }
        Err(e) => Err(e),
    }
}

/// How its client reaches the server, for the cookie's attributes.
pub fn reached(req: &Request) -> CookieScope<'_> {
    CookieScope {
        https: req.is_https(),
        prefix: req.prefix(),
    }
}

/// Verifies credentials against users who are current, or were at most 2 s ago.
///
/// # Errors
/// [`member::Error::NotNow`] if this node cannot know.
async fn verify_current(
    app: &App,
    req: &Request,
    said: &Credentials,
) -> Result<Result<Login, ApiError>, member::Error> {
    // Before the user is read: a second factor can be verified only once.
    let accounts = Accounts::hold(app, std::slice::from_ref(&said.name)).await?;
    let verified = verify(app, req, said).await;
    match (&verified, accounts) {
        (Err(e), Some(accounts)) if e.status == 401 && accounts.are_newer(app).await? => {
            Ok(verify(app, req, said).await)
        }
        _ => Ok(verified),
    }
}

async fn verify(app: &App, req: &Request, said: &Credentials) -> Result<Login, ApiError> {
    let origin = app.origin_of(req);
    let basic = app
        .node
        .auth
        .login(&said.name, &said.password, &said.token, origin.as_ref())?;
    Ok(match basic {
        Basic::Anonymous => return Err(auth::AuthError::BadCredentials.into()),
        Basic::Hit(login) => login,
        Basic::Miss(pending) => pending.verify_in_turn(origin).await?,
    })
}

/// A path of this server to send the browser to; never another server.
///
/// # Errors
/// 400 when it is not absolute.
fn redirect(req: &Request, param: &str) -> Result<Option<String>, ApiError> {
    let Some(path) = req.query.get(param) else {
        return Ok(None);
    };
    if !path.starts_with('/') {
        return Err(ApiError::bad_request("path must begin with a /."));
    }
    let is_plain = !path.contains(|c: char| c == '\\' || c.is_control());
    Ok(is_plain.then(|| format!("{}{path}", req.root_url())))
}

fn logout(app: &App, req: &Request) -> Answer {
    let cleared = app.node.auth.clear_cookie(reached(req));
    let reply = match redirect(req, "next")? {
        Some(url) => Reply::json(302, &json!({"ok": true})).location(&url),
        None => Reply::ok(),
    };
    Ok(reply.header(SET_COOKIE, &cleared))
}
