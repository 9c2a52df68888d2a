//! Which route a path is. CouchDB's paths are peculiar: methods are checked by each route, segments are decoded
//! after they are split, doubled slashes count as one.

use crate::app::App;
use crate::clustered;
use crate::database_routes::{
    bulk, bulk_get, changes, database as db, find, listing, nouveau, partition, preview, search,
    texts, views,
};
use crate::document_routes::documents;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use crate::server_routes::{
    db_updates, replication, reshard, root, session, setup, this_node, utils,
};
use node::setup::SYSTEM_DATABASES;
use node::{Access, SERVER_ADMINS};
use node::{require_login, require_server_admin};

type Answer = Result<Reply, ApiError>;

pub async fn route(app: &App, req: &mut Request) -> Answer {
    if let Some(rewritten) = &req.rewritten {
        rewritten.check(&app.node.auth, &req.method, &req.segments)?;
    }
    let Some(first) = req.segments.first() else {
        return root::welcome(app, req);
    };
    let Ok(first) = std::str::from_utf8(first).map(str::to_owned) else {
        return Err(no_database());
    };
    if !first.starts_with('_') || SYSTEM_DATABASES.contains(&first.as_str()) {
        if first == "favicon.ico" && req.segments.len() == 1 {
            return Err(ApiError::missing());
        }
        return database(app, req, &first).await;
    }
    // On the heap, as what is long elsewhere: else each request would be as long as the longest.
    Box::pin(server(app, req, &first)).await
}

/// What is of the server.
async fn server(app: &App, req: &mut Request, first: &str) -> Answer {
    match first {
        "_up" => root::up(app, req),
        "_all_dbs" => root::all_dbs(app, req).await,
        "_dbs_info" => root::dbs_info(app, req).await,
        "_uuids" => root::uuids(app, req),
        "_active_tasks" => root::active_tasks(app, req),
        "_membership" => root::membership(app, req),
        "_db_updates" => db_updates::route(app, req).await,
        "_session" => session::route(app, req).await,
        "_node" => this_node::route(app, req).await,
        "_settee" => root::settee(app, req).await,
        "_cluster_setup" => setup::route(app, req).await,
        "_utils" => utils::route(req),
        "_replicate" => {
            require_login(&req.user)?;
            replication::replicate(app, req).await
        }
        "_scheduler" => replication::scheduler(app, req),
        "_reshard" => reshard::route(req),
        "_search_analyze" => search::analyze(req).await,
        "_nouveau_analyze" => nouveau::analyze(req).await,
        _ => database(app, req, first).await,
    }
}

fn no_database() -> ApiError {
    database::Error::NoDatabase.into()
}

/// The database as whoever asks may use it for what follows its name.
fn open(app: &App, req: &Request, name: &str) -> Result<Access, ApiError> {
    let access = match req.segment(1) {
        Some("_all_docs" | "_design_docs" | "_local_docs" | "_changes" | "_settee") => {
            Access::open_for_listing(&app.node.auth, app.node.databases.get(name)?, &req.user)?
        }
        Some(second) if SERVER_ADMINS.contains(&second) => {
            let db = app.node.databases.get(name)?;
            require_server_admin(&req.user)?;
            Access::open(db, &req.user)?
        }
        _ => Access::open(app.node.databases.get(name)?, &req.user)?,
    };
    Ok(match &req.rewritten {
        Some(rewritten) => rewritten.bound(access),
        None => access,
    })
}

async fn database(app: &App, req: &mut Request, name: &str) -> Answer {
    match app.node.member() {
        None => database_here(app, req, name).await,
        Some(member) => Box::pin(clustered::database(app, member, req, name, database_here)).await,
    }
}

async fn database_here(app: &App, req: &mut Request, name: &str) -> Answer {
    if req.segments.len() == 1 {
        match req.method.as_str() {
            "PUT" => return Box::pin(db::create(app, req, name)).await,
            "DELETE" => return Box::pin(db::delete(app, req, name)).await,
            _ => {}
        }
    }
    let access = open(app, req, name)?;
    req.is_of_database = true;
    let Some(second) = req.segments.get(1) else {
        return Box::pin(db::root(app, req, &access)).await;
    };
    let Ok(second) = std::str::from_utf8(second).map(str::to_owned) else {
        return documents::invalid_id(req);
    };
    if !second.starts_with('_') {
        return documents::route(req, &access, &second, 2).await;
    }
    Box::pin(below(app, req, &access, &second)).await
}

/// What is below a database and begins with an underscore.
async fn below(app: &App, req: &mut Request, access: &Access, second: &str) -> Answer {
    let third = req.segment(2).map(str::to_owned);
    match (second, third.as_deref(), req.segments.len()) {
        ("_design", Some(_), 3..) => documents::design(app, req, access).await,
        ("_local", Some(id), 3..) => {
            documents::route(req, access, &format!("_local/{id}"), 3).await
        }
        ("_local", ..) | ("_local/", None, _) => {
            Err(ApiError::bad_request("Invalid _local document id."))
        }
        ("_partition", ..) if req.segment(3) == Some("_index") => {
            partition::enter(req, access)?;
            find::route(req, access, "_index").await
        }
        ("_partition", ..) => listing::partition(app, req, access).await,
        ("_all_docs" | "_design_docs" | "_local_docs", None, _) => {
            listing::route(app, req, access, second).await
        }
        ("_all_docs" | "_design_docs" | "_local_docs", Some("queries"), 3) => {
            listing::queries(app, req, access, second).await
        }
        ("_bulk_docs", None, _) => bulk::bulk_docs(app, req, access).await,
        ("_bulk_get", None, _) => bulk_get::route(req, access).await,
        ("_changes", None, _) => changes::route(app, req, access).await,
        _ => part(app, req, access, second, third.as_deref()).await,
    }
}

/// What is below a database besides its documents and their listings.
async fn part(
    app: &App,
    req: &mut Request,
    access: &Access,
    second: &str,
    third: Option<&str>,
) -> Answer {
    match (second, third) {
        ("_revs_diff", None) => db::revs_diff(req, access).await,
        ("_missing_revs", None) => db::missing_revs(req, access).await,
        ("_revs_limit", None) => db::revs_limit(req, access).await,
        ("_purged_infos_limit", None) => db::purged_infos_limit(req, access).await,
        ("_purged_infos", None) => db::purged_infos(req, access),
        ("_purge", None) => db::purge(req, access).await,
        ("_security", None) => db::security(app, req, access).await,
        ("_compact", _) => db::compact(req, access).await,
        ("_view_cleanup", None) => views::cleanup(req, access).await,
        ("_nouveau_cleanup", None) => texts::cleanup(req, access, true).await,
        ("_search_cleanup", None) => texts::cleanup(req, access, false).await,
        ("_ensure_full_commit", None) => db::ensure_full_commit(req, access).await,
        ("_shards", _) => db::shards(app, req, access),
        ("_sync_shards", None) => db::sync_shards(req, access),
        ("_find" | "_index" | "_explain", _) => find::route(req, access, second).await,
        ("_settee", Some("preview")) if req.segments.len() == 3 => {
            preview::route(app, req, access).await
        }
        ("_temp_view", _) => Err(ApiError::new(
            410,
            "gone",
            "Temporary views are not supported in CouchDB",
        )),
        _ => documents::route(req, access, second, 2).await,
    }
}

/// Refuses a method that a route does not know. HEAD goes wherever GET goes, named or not, as in CouchDB.
pub fn require_method(req: &Request, methods: &'static str) -> Result<(), ApiError> {
    let method = match req.method.as_str() {
        "HEAD" => "GET",
        method => method,
    };
    if methods.split(',').any(|m| m == method) {
        Ok(())
    } else {
        Err(ApiError::method_not_allowed(methods))
    }
}
