//! Dispatch: from the route of a request to its handler. The crate `routes` matches paths; this
//! module checks rights and methods.

use node::{Access, require_login, require_server_admin};
use routes::{
    Class, Cluster, DatabaseRoute, DesignRoute, ListingKind, Route, Row, ServerRoute, Who,
};

use crate::app::App;
use crate::clustered;
use crate::database_routes::{
    bulk, bulk_get, changes, database as db, find, indexes, listing, nouveau, partition, preview,
    revs_diff, search, texts, views,
};
use crate::design_routes::calls;
use crate::document_routes::{attachments, documents};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use crate::server_routes::{
    backup, cluster, db_updates, doctor, openapi, profile, replication, reshard, root, session,
    setup, slow, this_node, top, utils,
};
use crate::spread::{self, RequestPart};

type Answer = Result<Reply, ApiError>;

/// Answers a request.
pub async fn route(app: &App, req: &mut Request) -> Answer {
    if let Some(rewritten) = &req.rewritten {
        let is_read_only = req.row.rewrites == routes::Rewrites::ReadOnly;
        rewritten.check(&app.node.auth, &req.method, req.segment(0), is_read_only)?;
    }
    match req.take_route() {
        Route::Database(name, route) => database(app, req, &name, route).await,
        // Boxed, as the future of each request would otherwise be as large as the largest.
        Route::Server(route) => Box::pin(server(app, req, route)).await,
    }
}

/// Refuses a method that the route does not have.
fn check_method(req: &Request) -> Result<(), ApiError> {
    match req.row.allows(&req.method) {
        true => Ok(()),
        false => Err(ApiError::method_not_allowed(req.row.methods)),
    }
}

async fn server(app: &App, req: &mut Request, route: ServerRoute) -> Answer {
    match req.row.who(&req.method) {
        Who::User => require_login(&req.user)?,
        Who::Metrics => this_node::require_metrics(req)?,
        Who::AllDbs if !req.settings.chttpd.admin_only_all_dbs => {}
        Who::ServerAdmin | Who::AllDbs => require_server_admin(&req.user)?,
        _ => {}
    }
    check_method(req)?;
    match route {
        ServerRoute::Welcome => Ok(root::welcome(app)),
        ServerRoute::Up => Ok(root::up(app, req)),
        ServerRoute::AllDbs => root::all_dbs(app, req).await,
        ServerRoute::DbsInfo => root::dbs_info(app, req).await,
        ServerRoute::Uuids => root::uuids(app, req),
        ServerRoute::ActiveTasks => {
            let mut tasks = root::tasks(app);
            for others in clustered::gather(app, req, &req.path).await {
                tasks.extend(others.as_array().cloned().unwrap_or_default());
            }
            Ok(Reply::json(200, &tasks.into()))
        }
        ServerRoute::Membership => Ok(root::membership(app)),
        ServerRoute::DbUpdates => db_updates::route(app, req).await,
        ServerRoute::Session => session::route(app, req).await,
        ServerRoute::Node(name, part) => this_node::route(app, req, name, part).await,
        ServerRoute::ClusterSetup => setup::route(app, req).await,
        ServerRoute::Utils(path) => utils::route(req, &path),
        ServerRoute::Replicate => replication::replicate(app, req).await,
        ServerRoute::Scheduler(route) => replication::scheduler(app, req, &route).await,
        ServerRoute::Reshard(route) => reshard::route(req, route),
        ServerRoute::SearchAnalyze => search::analyze(req).await,
        ServerRoute::NouveauAnalyze => nouveau::analyze(req).await,
        ServerRoute::NoDatabase => Err(database::Error::NoDatabase.into()),
        ServerRoute::Favicon | ServerRoute::Missing => Err(ApiError::missing()),
        route => settee(app, req, route).await,
    }
}

/// Paths below `/_settee`.
async fn settee(app: &App, req: &mut Request, route: ServerRoute) -> Answer {
    match route {
        ServerRoute::Constant => root::constant(req),
        ServerRoute::Backup => backup::route(app, req).await,
        ServerRoute::Cluster => cluster::status(app),
        ServerRoute::ClusterTokens => cluster::tokens(app, req).await,
        ServerRoute::ClusterNode(node) => cluster::node(app, req, &node).await,
        ServerRoute::ClusterPlace => cluster::place(app, req).await,
        ServerRoute::ClusterReseed => cluster::reseed(app, req).await,
        ServerRoute::ClusterBenchNetwork => cluster::bench_network(app, req).await,
        ServerRoute::Doctor => doctor::route(app).await,
        ServerRoute::Profile => profile::route(app, req).await,
        ServerRoute::Slow => Ok(slow::route(app, req)),
        ServerRoute::Top => top::route(app, req).await,
        ServerRoute::OpenApi => Ok(openapi::route()),
        _ => Err(ApiError::missing()),
    }
}

async fn database(app: &App, req: &mut Request, name: &str, route: DatabaseRoute) -> Answer {
    match app.node.member() {
        None => database_here(app, req, name, route).await,
        Some(member) => {
            // Other clusters decide nothing by it.
            let part = member.gateway().lacks_slots();
            let part = part.then(|| RequestPart::of(req, &route));
            let here = async |app: &App, req: &mut Request, name: &str| {
                database_here(app, req, name, route).await
            };
            let rights = |req: &Request| may_open(app, req, name);
            Box::pin(clustered::database(
                app,
                member,
                (req, rights),
                (name, part),
                here,
            ))
            .await
        }
    }
}

/// Checks the rights that a route requires in a database.
fn may_open(app: &App, req: &Request, name: &str) -> Result<(), ApiError> {
    if is_for_server_admins(name) {
        require_server_admin(&req.user)?;
    }
    open(app, req, name).map(drop)
}

async fn database_here(app: &App, req: &mut Request, name: &str, route: DatabaseRoute) -> Answer {
    if is_for_server_admins(name) {
        require_server_admin(&req.user)?;
    }
    if req.row.cluster == Cluster::Control {
        // The first check, as in CouchDB: others do not learn here whether the database exists.
        require_server_admin(&req.user)?;
        return match route {
            DatabaseRoute::Create => Box::pin(db::create(app, req, name)).await,
            _ => Box::pin(db::delete(app, req, name)).await,
        };
    }
    let access = open(app, req, name)?;
    req.is_of_database = true;
    if may_be_long(req) {
        // Before anything is built: a client that reads no responses gets no more of them.
        if req.answers.is_tight() {
            req.answers.admit().await?;
        }
        // Again, if it waited for that, or for another node.
        req.begun = req.answers.begin().await?;
    }
    if !req.row.allows(&req.method) {
        // A design document that does not exist is the first error.
        if let DatabaseRoute::Design(
            id,
            DesignRoute::View(_)
            | DesignRoute::ViewQueries(_)
            | DesignRoute::NoView
            | DesignRoute::Info,
        ) = &route
        {
            access.db.design_async(id).await?;
        }
        if let DatabaseRoute::Partition(partition) = &route
            && req.method == "POST"
            && partition.starts_with('_')
        {
            database::check_partition(partition)?;
        }
        return Err(ApiError::method_not_allowed(req.row.methods));
    }
    match route {
        DatabaseRoute::Document(id) => documents::one_segment(req, &access, &id).await,
        route => Box::pin(below(app, req, &access, route)).await,
    }
}

/// Returns whether the response can be long: that of a read, or of a write of many documents.
pub fn may_be_long(req: &Request) -> bool {
    is_long(req.row, &req.method, req.query.get("feed"))
}

fn is_long(row: &Row, method: &str, feed: Option<&str>) -> bool {
    let class = row.class(method, feed);
    match class {
        Class::BulkDocs | Class::Purge => true,
        // Files are in memory anyway, and a health check must not wait.
        Class::Welcome => row.path == "/_uuids",
        Class::Session | Class::DatabaseCreate | Class::DatabaseDelete => false,
        Class::Server | Class::Replication => row.reads(method),
        class => !class.writes(method),
    }
}

/// The reason of a request that access sets do not cover.
const NOT_BY_ACCESS: &str = "only admins of a database with access by document can do this";

/// Opens the database for the user, who must have the rights that the route requires. In a database
/// with access, others than admins have only routes that show and change documents by their access
/// sets.
fn open(app: &App, req: &Request, name: &str) -> Result<Access, ApiError> {
    let (who, db) = (req.row.who(&req.method), app.node.databases.get(name)?);
    if who == Who::ServerAdmin {
        require_server_admin(&req.user)?;
    }
    let access = match who {
        Who::Listing | Who::ListingAdmin => {
            Access::open_for_listing(&app.node.auth, db, &req.user)?
        }
        _ => Access::open(db, &req.user)?,
    };
    let mut access = match &req.rewritten {
        Some(rewritten) => rewritten.bound(access),
        None => access,
    };
    let shards = app.node.member().filter(|_| access.db.is_spread());
    let shards = shards.and_then(|member| spread::shards_of(req, member.gateway(), &access.db));
    access.db = access.db.for_requester(req.requester());
    if let Some(shards) = shards {
        access.db = access.db.for_shards(shards);
    }
    if access.db.is_limited() && !req.row.by_access {
        return Err(ApiError::forbidden(NOT_BY_ACCESS));
    }
    match who {
        Who::DatabaseAdmin => access.require_admin()?,
        Who::DesignAdmin | Who::ListingAdmin => access.require_design_admin(&req.user)?,
        _ => {}
    }
    Ok(access)
}

/// Returns whether only server admins get an answer, as in CouchDB: of `_global_changes`, and of
/// names that are neither those of databases nor paths of the server.
fn is_for_server_admins(name: &str) -> bool {
    name.starts_with('_') && !["_users", "_replicator"].contains(&name)
}

/// Documents, and what queries return them.
async fn below(app: &App, req: &mut Request, access: &Access, route: DatabaseRoute) -> Answer {
    match route {
        DatabaseRoute::Database => db::root(app, req, access).await,
        DatabaseRoute::Local(id) => documents::route(req, access, &id).await,
        DatabaseRoute::Attachment(id, name) => match documents::led_to_design(req, access, &id) {
            Some(led) => Ok(led),
            None => attachments::route(req, access, &id, name).await,
        },
        DatabaseRoute::Design(id, route) => design(app, req, access, &id, route).await,
        DatabaseRoute::Listing(kind) => listing::list(app, req, access, kind).await,
        DatabaseRoute::ListingQueries(kind) => listing::queries(app, req, access, kind).await,
        DatabaseRoute::Partition(name) => {
            Box::pin(listing::partition_info(req, access, &name)).await
        }
        DatabaseRoute::InPartition(name) => in_partition(app, req, access, name).await,
        DatabaseRoute::NotInPartition(name) => {
            partition::enter(req, access, &name)?;
            Err(ApiError::missing())
        }
        DatabaseRoute::BulkDocs => bulk::bulk_docs(app, req, access).await,
        DatabaseRoute::BulkGet => bulk_get::route(req, access).await,
        DatabaseRoute::Changes => changes::route(app, req, access).await,
        DatabaseRoute::Find => find::find(req, access, None).await,
        DatabaseRoute::Explain => find::explain(req, access, None).await,
        DatabaseRoute::Index => indexes::route(req, access).await,
        DatabaseRoute::IndexBulkDelete => indexes::bulk_delete(req, access).await,
        DatabaseRoute::IndexOf { ddoc, kind, name } => {
            indexes::delete(req, access, &ddoc, &kind, &name).await
        }
        DatabaseRoute::Preview => preview::route(app, req, access).await,
        DatabaseRoute::InvalidId => documents::invalid_id(req),
        DatabaseRoute::NoLocalId => Err(documents::no_local_id()),
        DatabaseRoute::NoPartition => Err(ApiError::bad_request("invalid_partition_req")),
        DatabaseRoute::TempView => Err(ApiError::new(
            410,
            "gone",
            "Temporary views are not supported in CouchDB",
        )),
        route => properties(app, req, access, route).await,
    }
}

/// Revisions, properties, purges and maintenance.
async fn properties(app: &App, req: &mut Request, access: &Access, route: DatabaseRoute) -> Answer {
    match route {
        DatabaseRoute::RevsDiff => revs_diff::revs_diff(req, access).await,
        DatabaseRoute::MissingRevs => revs_diff::missing_revs(req, access).await,
        DatabaseRoute::RevsLimit => db::revs_limit(req, access).await,
        DatabaseRoute::PurgedInfosLimit => db::purged_infos_limit(req, access).await,
        DatabaseRoute::PurgedInfos => db::purged_infos(req, access).await,
        DatabaseRoute::AutoPurge => db::auto_purge(app, req, access).await,
        DatabaseRoute::TimeSeq => db::time_seq(app, req, access).await,
        DatabaseRoute::Purge => db::purge(req, access).await,
        DatabaseRoute::Security => db::security(app, req, access).await,
        DatabaseRoute::Compact(ddoc) => db::compact(req, access, ddoc.as_deref()).await,
        DatabaseRoute::ViewCleanup => views::cleanup(access).await,
        DatabaseRoute::NouveauCleanup => texts::cleanup(req, access, true).await,
        DatabaseRoute::SearchCleanup => texts::cleanup(req, access, false).await,
        DatabaseRoute::EnsureFullCommit => db::ensure_full_commit(req, access).await,
        DatabaseRoute::Shards(id) => db::shards(app, access, id.as_deref()),
        DatabaseRoute::SyncShards => db::sync_shards(access),
        _ => Err(ApiError::missing()),
    }
}

/// Paths of a design document.
async fn design(
    app: &App,
    req: &mut Request,
    access: &Access,
    id: &str,
    route: DesignRoute,
) -> Answer {
    match route {
        DesignRoute::Document => documents::route(req, access, id).await,
        DesignRoute::Attachment(name) => attachments::route(req, access, id, name).await,
        DesignRoute::View(name) => views::view(app, req, access, id, &name).await,
        DesignRoute::ViewQueries(name) => views::queries(app, req, access, id, &name).await,
        DesignRoute::Info => views::info(app, req, access, id).await,
        DesignRoute::NoView => {
            access.db.design_async(id).await?;
            Err(ApiError::method_not_allowed(req.row.methods))
        }
        DesignRoute::Search(path) => search::search(req, access, id, &path).await,
        DesignRoute::SearchInfo(path) => search::info(access, id, &path).await,
        DesignRoute::SearchDiskSize(path) => search::disk_size(access, id, &path).await,
        DesignRoute::Nouveau(path) => nouveau::search(req, access, id, &path).await,
        DesignRoute::NouveauInfo(path) => nouveau::info(access, id, &path).await,
        DesignRoute::Function(part, path) => calls::route(app, req, access, id, part, path).await,
        DesignRoute::Missing => {
            access.db.design_async(id).await?;
            Err(ApiError::missing())
        }
    }
}

/// A path below `_partition/{partition}/` is one of the database, with the partition as a parameter.
async fn in_partition(app: &App, req: &mut Request, access: &Access, name: String) -> Answer {
    partition::enter(req, access, &name)?;
    let inner = routes::find(&req.method, &req.segments);
    if !inner.row.allows(&req.method) {
        return Err(ApiError::method_not_allowed(inner.row.methods));
    }
    match inner.route {
        Route::Database(_, DatabaseRoute::Find) => find::find(req, access, Some(name)).await,
        Route::Database(_, DatabaseRoute::Explain) => find::explain(req, access, Some(name)).await,
        Route::Database(_, DatabaseRoute::Listing(kind)) => {
            listing::list(app, req, access, kind).await
        }
        Route::Database(_, DatabaseRoute::ListingQueries(kind @ ListingKind::AllDocs)) => {
            listing::queries(app, req, access, kind).await
        }
        Route::Database(_, DatabaseRoute::Design(_, DesignRoute::Attachment(_))) => {
            Err(ApiError::missing())
        }
        Route::Database(_, DatabaseRoute::Design(id, route)) => {
            Box::pin(design(app, req, access, &id, route)).await
        }
        Route::Database(_, route) => Box::pin(below(app, req, access, route)).await,
        Route::Server(_) => Err(ApiError::missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_that_are_always_short_wait_for_no_others() {
        let is_long = |method: &str, path: &str| {
            let segments = node::segments_with(path, false);
            is_long(routes::find(method, &segments).row, method, None)
        };
        for (method, path) in [
            ("GET", "/_uuids"),
            ("GET", "/_all_dbs"),
            ("POST", "/_dbs_info"),
            ("GET", "/_node/_local/_stats"),
            ("GET", "/_node/_local/_config"),
            ("GET", "/_scheduler/jobs"),
            ("GET", "/db/doc"),
            ("POST", "/db/_find"),
            ("POST", "/db/_bulk_get"),
            ("POST", "/db/_bulk_docs"),
            ("GET", "/db/_changes"),
        ] {
            assert!(is_long(method, path), "{method} {path}");
        }
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/_up"),
            ("GET", "/_utils/index.html"),
            ("GET", "/_session"),
            ("POST", "/_session"),
            ("POST", "/_replicate"),
            ("PUT", "/_node/_local/_config/log/level"),
            ("PUT", "/db"),
            ("DELETE", "/db"),
            ("PUT", "/db/doc"),
        ] {
            assert!(!is_long(method, path), "{method} {path}");
        }
    }
}
