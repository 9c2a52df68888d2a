//! The rows. A row that others do not precede by more literals is the fallback for what they do not match.

use crate::class::Class;
use crate::route::{
    DatabaseRoute, DesignRoute, ListingKind, NodeRoute, ReshardRoute, Route, SchedulerRoute,
    ServerRoute,
};
use crate::row::{BodyClass, Cluster, Row, Who};
use crate::tree::Captures;

fn node(c: &Captures<'_>, route: NodeRoute) -> Route {
    Route::Server(ServerRoute::Node(Some(c.text("node")), route))
}

fn database(c: &Captures<'_>, route: DatabaseRoute) -> Route {
    Route::Database(c.text("db"), route)
}

fn design(c: &Captures<'_>, route: DesignRoute) -> Route {
    database(c, DatabaseRoute::Design(ddoc_id(c), route))
}

fn ddoc_id(c: &Captures<'_>) -> String {
    format!("_design/{}", c.text("ddoc"))
}

/// Returns the id of an index's design document, whose name may have the prefix in the same segment.
fn index_ddoc_id(c: &Captures<'_>) -> String {
    let name = c.text("ddoc");
    match name.starts_with("_design/") {
        true => name,
        false => format!("_design/{name}"),
    }
}

fn local_id(c: &Captures<'_>) -> String {
    format!("_local/{}", c.text("id"))
}

/// The row of what is in no other: `/{db}` and `/{db}/{id}` match every path, so that it only stands for those without a meaning.
pub static UNKNOWN: Row = Row::server("*", "/{path...}", Class::Unknown, |_| {
    Route::Server(ServerRoute::Missing)
})
.who_may(Who::Anyone);

/// All paths that the server knows.
#[rustfmt::skip]
pub static ROWS: &[Row] = &[
    // Paths of the server.
    Row::server("GET,HEAD", "/", Class::Welcome, |_| Route::Server(ServerRoute::Welcome))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("*", "/favicon.ico", Class::Welcome, |_| Route::Server(ServerRoute::Favicon))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("GET,HEAD", "/_up", Class::Welcome, |_| Route::Server(ServerRoute::Up))
        .who_may(Who::Anyone).cluster(Cluster::Node).ignores_rest(),
    Row::server("GET,HEAD", "/_all_dbs", Class::Databases, |_| Route::Server(ServerRoute::AllDbs))
        .who_may(Who::AllDbs),
    Row::server("*", "/_all_dbs/{path...}", Class::Databases, |_| Route::Server(ServerRoute::Missing))
        .who_may(Who::AllDbs),
    Row::server("GET,HEAD,POST", "/_dbs_info", Class::Databases, |_| Route::Server(ServerRoute::DbsInfo))
        .post_reads(),
    Row::server("*", "/_dbs_info/{path...}", Class::Databases, |_| Route::Server(ServerRoute::Missing))
        .post_reads(),
    Row::server("GET", "/_uuids", Class::Welcome, |_| Route::Server(ServerRoute::Uuids))
        .who_may(Who::Anyone).ignores_rest(),
    Row::server("GET,HEAD", "/_active_tasks", Class::Server, |_| Route::Server(ServerRoute::ActiveTasks))
        .ignores_rest(),
    Row::server("GET,HEAD", "/_membership", Class::Server, |_| Route::Server(ServerRoute::Membership))
        .ignores_rest(),
    Row::server("GET,HEAD", "/_db_updates", Class::Databases, |_| Route::Server(ServerRoute::DbUpdates))
        .feeds().ignores_rest(),
    Row::server("GET,HEAD,POST,DELETE", "/_session", Class::Session, |_| Route::Server(ServerRoute::Session))
        .who_may(Who::Anyone).cluster(Cluster::Session).body(BodyClass::Login).ignores_rest(),
    Row::server("*", "/_node", Class::Server, |_| Route::Server(ServerRoute::Node(None, NodeRoute::Name)))
        .cluster(Cluster::Node),
    Row::server("GET", "/_node/{node}", Class::Server, |c| node(c, NodeRoute::Name))
        .cluster(Cluster::Node),
    Row::server("GET", "/_node/{node}/_config", Class::Server, |c| node(c, NodeRoute::Config))
        .cluster(Cluster::Node),
    Row::server("POST", "/_node/{node}/_config/_reload", Class::Server, |c| node(c, NodeRoute::ConfigReload))
        .cluster(Cluster::Node),
    Row::server("GET", "/_node/{node}/_config/{section}", Class::Server, |c| node(c, NodeRoute::ConfigSection(c.text("section"))))
        .cluster(Cluster::Node),
    Row::server("GET,PUT,DELETE", "/_node/{node}/_config/{section}/{key}", Class::Server, |c| node(c, NodeRoute::ConfigValue(c.text("section"), c.text("key"))))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_node/{node}/_stats", Class::Server, |c| node(c, NodeRoute::Stats(vec![])))
        .who_may(Who::Metrics).cluster(Cluster::Node),
    Row::server("GET", "/_node/{node}/_stats/{path...}", Class::Server, |c| node(c, NodeRoute::Stats(c.rest("path"))))
        .who_may(Who::Metrics).cluster(Cluster::Node),
    Row::server("GET", "/_node/{node}/_system", Class::Server, |c| node(c, NodeRoute::System))
        .who_may(Who::Metrics).cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_node/{node}/_versions", Class::Server, |c| node(c, NodeRoute::Versions))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_node/{node}/_prometheus", Class::Server, |c| node(c, NodeRoute::Prometheus))
        .who_may(Who::Metrics).cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_node/{node}/_smoosh", Class::Server, |c| node(c, NodeRoute::Smoosh))
        .cluster(Cluster::Node),
    Row::server("GET", "/_node/{node}/_smoosh/status", Class::Server, |c| node(c, NodeRoute::Smoosh))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_node/{node}/_settee/settings", Class::Server, |c| node(c, NodeRoute::Settings))
        .cluster(Cluster::Node),
    Row::server("POST", "/_node/{node}/_restart", Class::Server, |c| node(c, NodeRoute::Restart))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("*", "/_node/{node}/{part}", Class::Server, |c| node(c, NodeRoute::Unknown(c.text("part"))))
        .cluster(Cluster::Node),
    Row::server("*", "/_node/{node}/{part}/{path...}", Class::Server, |c| node(c, NodeRoute::Unknown(c.text("part"))))
        .cluster(Cluster::Node),
    Row::server("GET,HEAD", "/_settee/constant", Class::Server, |_| Route::Server(ServerRoute::Constant))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("GET,POST", "/_settee/backup", Class::Server, |_| Route::Server(ServerRoute::Backup))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_settee/cluster", Class::Server, |_| Route::Server(ServerRoute::Cluster))
        .cluster(Cluster::Node),
    Row::server("POST", "/_settee/cluster/tokens", Class::Server, |_| Route::Server(ServerRoute::ClusterTokens))
        .cluster(Cluster::Node),
    Row::server("DELETE", "/_settee/cluster/nodes/{node}", Class::Server, |c| Route::Server(ServerRoute::ClusterNode(c.text("node"))))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("POST", "/_settee/cluster/reseed", Class::Server, |_| Route::Server(ServerRoute::ClusterReseed))
        .cluster(Cluster::Node),
    Row::server("*", "/_settee/cluster/{path...}", Class::Server, |_| Route::Server(ServerRoute::Missing))
        .cluster(Cluster::Node),
    Row::server("GET", "/_settee/doctor", Class::Server, |_| Route::Server(ServerRoute::Doctor))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_settee/profile", Class::Server, |_| Route::Server(ServerRoute::Profile))
        .cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_settee/top", Class::Server, |_| Route::Server(ServerRoute::Top))
        .who_may(Who::Metrics).cluster(Cluster::Node).ignores_rest(),
    Row::server("GET", "/_settee/openapi.json", Class::Server, |_| Route::Server(ServerRoute::OpenApi))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("*", "/_settee", Class::Server, |_| Route::Server(ServerRoute::Missing))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("*", "/_settee/{path...}", Class::Server, |_| Route::Server(ServerRoute::Missing))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("GET,POST", "/_cluster_setup", Class::Server, |_| Route::Server(ServerRoute::ClusterSetup))
        .ignores_rest(),
    Row::server("GET,HEAD", "/_utils", Class::Welcome, |_| Route::Server(ServerRoute::Utils(vec![])))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("GET,HEAD", "/_utils/{path...}", Class::Welcome, |c| Route::Server(ServerRoute::Utils(c.rest("path"))))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("*", "/_replicate", Class::Replication, |_| Route::Server(ServerRoute::Replicate))
        .who_may(Who::User).body(BodyClass::Document).ignores_rest(),
    Row::server("GET,HEAD", "/_scheduler/jobs", Class::Replication, |_| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Jobs))),
    Row::server("GET,HEAD", "/_scheduler/jobs/{id}", Class::Replication, |c| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Job(c.text("id"))))),
    Row::server("GET,HEAD", "/_scheduler/docs", Class::Replication, |_| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Docs))),
    Row::server("GET,HEAD", "/_scheduler/docs/{path...}", Class::Replication, |c| Route::Server(ServerRoute::Scheduler(SchedulerRoute::DocsOf(c.rest("path"))))),
    Row::server("GET,HEAD", "/_scheduler", Class::Replication, |_| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Unknown))),
    Row::server("GET,HEAD", "/_scheduler/{path...}", Class::Replication, |_| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Unknown))),
    Row::server("*", "/_reshard", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Summary))),
    Row::server("*", "/_reshard/state", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::State))),
    Row::server("*", "/_reshard/jobs", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Jobs))),
    Row::server("*", "/_reshard/jobs/{id}", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Job))),
    Row::server("*", "/_reshard/{path...}", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Unknown))),
    Row::server("GET,POST", "/_search_analyze", Class::Server, |_| Route::Server(ServerRoute::SearchAnalyze))
        .post_reads().body(BodyClass::Many).ignores_rest(),
    Row::server("POST", "/_nouveau_analyze", Class::Server, |_| Route::Server(ServerRoute::NouveauAnalyze))
        .post_reads().body(BodyClass::Many).ignores_rest(),
    // Paths of a database.
    Row::database("PUT", "/{db}", Class::DatabaseCreate, |c| database(c, DatabaseRoute::Create))
        .who_may(Who::ServerAdmin).cluster(Cluster::Control).rewrites_read(),
    Row::database("DELETE", "/{db}", Class::DatabaseDelete, |c| database(c, DatabaseRoute::Delete))
        .who_may(Who::ServerAdmin).cluster(Cluster::Control).rewrites_read(),
    Row::database("DELETE,GET,HEAD,POST", "/{db}", Class::DatabaseInfo, |c| database(c, DatabaseRoute::Database))
        .changes_are(Class::DocumentWrite).blind_writes(&["POST"]),
    Row::database("DELETE,GET,HEAD,POST,PUT,COPY", "/{db}/{id}", Class::DocumentRead, |c| database(c, DatabaseRoute::Document(c.text("id"))))
        .changes_are(Class::DocumentWrite).blind_writes(&["PUT"]),
    Row::database("DELETE,GET,HEAD,PUT", "/{db}/{id}/{attachment...}", Class::AttachmentRead, |c| database(c, DatabaseRoute::Attachment(c.text("id"), c.joined("attachment"))))
        .changes_are(Class::AttachmentWrite),
    Row::database("*", "/{db}/_local", Class::Local, |c| database(c, DatabaseRoute::NoLocalId)),
    Row::database("DELETE,GET,HEAD,POST,PUT,COPY", "/{db}/_local/{id}", Class::Local, |c| database(c, DatabaseRoute::Local(local_id(c)))),
    Row::database("DELETE,GET,HEAD,PUT", "/{db}/_local/{id}/{attachment...}", Class::Local, |c| database(c, DatabaseRoute::Attachment(local_id(c), c.joined("attachment")))),
    Row::database("GET,HEAD,POST", "/{db}/_all_docs", Class::Listing, |c| database(c, DatabaseRoute::Listing(ListingKind::AllDocs)))
        .who_may(Who::Listing).post_reads(),
    Row::database("POST", "/{db}/_all_docs/queries", Class::Listing, |c| database(c, DatabaseRoute::ListingQueries(ListingKind::AllDocs)))
        .who_may(Who::Listing).post_reads(),
    Row::database("GET,HEAD,POST", "/{db}/_design_docs", Class::Listing, |c| database(c, DatabaseRoute::Listing(ListingKind::DesignDocs)))
        .who_may(Who::Listing).post_reads(),
    Row::database("POST", "/{db}/_design_docs/queries", Class::Listing, |c| database(c, DatabaseRoute::ListingQueries(ListingKind::DesignDocs)))
        .who_may(Who::Listing).post_reads(),
    Row::database("GET,HEAD,POST", "/{db}/_local_docs", Class::Listing, |c| database(c, DatabaseRoute::Listing(ListingKind::LocalDocs)))
        .who_may(Who::Listing).post_reads(),
    Row::database("POST", "/{db}/_local_docs/queries", Class::Listing, |c| database(c, DatabaseRoute::ListingQueries(ListingKind::LocalDocs)))
        .who_may(Who::Listing).post_reads(),
    Row::database("GET,HEAD,POST", "/{db}/_changes", Class::Changes, |c| database(c, DatabaseRoute::Changes))
        .who_may(Who::Listing).post_reads().feeds(),
    Row::database("POST", "/{db}/_bulk_docs", Class::BulkDocs, |c| database(c, DatabaseRoute::BulkDocs))
        .blind_writes(&["POST"]),
    Row::database("POST", "/{db}/_bulk_get", Class::BulkGet, |c| database(c, DatabaseRoute::BulkGet))
        .post_reads(),
    Row::database("POST", "/{db}/_revs_diff", Class::RevsDiff, |c| database(c, DatabaseRoute::RevsDiff))
        .post_reads(),
    Row::database("POST", "/{db}/_missing_revs", Class::RevsDiff, |c| database(c, DatabaseRoute::MissingRevs))
        .post_reads(),
    Row::database("POST", "/{db}/_find", Class::Find, |c| database(c, DatabaseRoute::Find))
        .post_reads().body(BodyClass::Document),
    Row::database("POST", "/{db}/_explain", Class::Index, |c| database(c, DatabaseRoute::Explain))
        .post_reads().body(BodyClass::Document),
    Row::database("POST", "/{db}/_find/{path...}", Class::Find, |c| database(c, DatabaseRoute::Missing))
        .post_reads(),
    Row::database("POST", "/{db}/_explain/{path...}", Class::Index, |c| database(c, DatabaseRoute::Missing))
        .post_reads(),
    Row::database("GET,POST", "/{db}/_index", Class::Index, |c| database(c, DatabaseRoute::Index))
        .body(BodyClass::Document),
    Row::database("POST", "/{db}/_index/_bulk_delete", Class::Index, |c| database(c, DatabaseRoute::IndexBulkDelete))
        .body(BodyClass::Document),
    Row::database("DELETE", "/{db}/_index/{ddoc}/{kind}/{name}", Class::Index, |c| database(c, DatabaseRoute::IndexOf { ddoc: index_ddoc_id(c), kind: c.text("kind"), name: c.text("name") })),
    Row::database("DELETE", "/{db}/_index/_design/{ddoc}/{kind}/{name}", Class::Index, |c| database(c, DatabaseRoute::IndexOf { ddoc: index_ddoc_id(c), kind: c.text("kind"), name: c.text("name") })),
    Row::database("*", "/{db}/_index/{path...}", Class::Index, |c| database(c, DatabaseRoute::Missing)),
    Row::database("PUT,GET", "/{db}/_security", Class::Properties, |c| database(c, DatabaseRoute::Security))
        .changed_by(Who::DesignAdmin).blind_writes(&["PUT"]).body(BodyClass::Document),
    Row::database("PUT,GET", "/{db}/_revs_limit", Class::Properties, |c| database(c, DatabaseRoute::RevsLimit))
        .changed_by(Who::DatabaseAdmin).blind_writes(&["PUT"]).body(BodyClass::Small),
    Row::database("GET,PUT", "/{db}/_purged_infos_limit", Class::Properties, |c| database(c, DatabaseRoute::PurgedInfosLimit))
        .changed_by(Who::DatabaseAdmin).blind_writes(&["PUT"]).body(BodyClass::Small),
    Row::database("GET", "/{db}/_purged_infos", Class::Properties, |c| database(c, DatabaseRoute::PurgedInfos)),
    Row::database("POST", "/{db}/_purge", Class::Purge, |c| database(c, DatabaseRoute::Purge))
        .who_may(Who::ServerAdmin).rewrites_read().body(BodyClass::Small),
    Row::database("POST", "/{db}/_compact", Class::Maintenance, |c| database(c, DatabaseRoute::Compact(None)))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Local).body(BodyClass::Small),
    Row::database("POST", "/{db}/_compact/{ddoc}", Class::Maintenance, |c| database(c, DatabaseRoute::Compact(Some(ddoc_id(c)))))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Local).body(BodyClass::Small),
    Row::database("POST", "/{db}/_view_cleanup", Class::Maintenance, |c| database(c, DatabaseRoute::ViewCleanup))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Local).body(BodyClass::Small),
    Row::database("POST", "/{db}/_search_cleanup", Class::Maintenance, |c| database(c, DatabaseRoute::SearchCleanup))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Local).body(BodyClass::Small),
    Row::database("POST", "/{db}/_nouveau_cleanup", Class::Maintenance, |c| database(c, DatabaseRoute::NouveauCleanup))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Local).body(BodyClass::Small),
    Row::database("POST", "/{db}/_ensure_full_commit", Class::Maintenance, |c| database(c, DatabaseRoute::EnsureFullCommit))
        .cluster(Cluster::Local).body(BodyClass::Small),
    Row::database("GET", "/{db}/_shards", Class::Properties, |c| database(c, DatabaseRoute::Shards(None)))
        .cluster(Cluster::Local),
    Row::database("GET", "/{db}/_shards/{id...}", Class::Properties, |c| database(c, DatabaseRoute::Shards(Some(c.rest("id").join("/")))))
        .cluster(Cluster::Local),
    Row::database("POST", "/{db}/_sync_shards", Class::Maintenance, |c| database(c, DatabaseRoute::SyncShards))
        .who_may(Who::ServerAdmin).cluster(Cluster::Local).rewrites_read(),
    Row::database("*", "/{db}/_partition", Class::Properties, |c| database(c, DatabaseRoute::NoPartition)),
    Row::database("GET", "/{db}/_partition/{partition}", Class::Properties, |c| database(c, DatabaseRoute::Partition(c.text("partition")))),
    Row::database("GET,HEAD,POST", "/{db}/_partition/{partition}/_all_docs", Class::Listing, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads(),
    Row::database("POST", "/{db}/_partition/{partition}/_all_docs/queries", Class::Listing, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads(),
    Row::database("POST", "/{db}/_partition/{partition}/_find", Class::Find, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads().body(BodyClass::Document),
    Row::database("POST", "/{db}/_partition/{partition}/_explain", Class::Index, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads().body(BodyClass::Document),
    Row::database("*", "/{db}/_partition/{partition}/_index", Class::Index, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_partition/{partition}/_index/{path...}", Class::Index, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .body(BodyClass::Document),
    Row::database("GET,POST,HEAD", "/{db}/_partition/{partition}/_design/{ddoc}/_view/{view}", Class::View, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads(),
    Row::database("POST", "/{db}/_partition/{partition}/_design/{ddoc}/_view/{view}/queries", Class::View, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads(),
    Row::database("GET,POST", "/{db}/_partition/{partition}/_design/{ddoc}/_search/{index}", Class::Search, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads().body(BodyClass::Small),
    Row::database("GET,POST", "/{db}/_partition/{partition}/_design/{ddoc}/_nouveau/{index}", Class::Nouveau, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads().body(BodyClass::Small),
    Row::database("*", "/{db}/_partition/{partition}/_design/{ddoc}/{function...}", Class::Design, |c| database(c, DatabaseRoute::InPartition(c.text("partition"))))
        .post_reads(),
    Row::database("*", "/{db}/_partition/{partition}/{path...}", Class::Unknown, |c| database(c, DatabaseRoute::Missing)),
    Row::database("POST", "/{db}/_settee/preview", Class::Design, |c| database(c, DatabaseRoute::Preview))
        .who_may(Who::ListingAdmin).post_reads().body(BodyClass::Document),
    Row::database("*", "/{db}/_temp_view", Class::Unknown, |c| database(c, DatabaseRoute::TempView)),
    Row::database("*", "/{db}/_temp_view/{path...}", Class::Unknown, |c| database(c, DatabaseRoute::TempView)),
    Row::database("DELETE,GET,HEAD,POST,PUT,COPY", "/{db}/_design/{ddoc}", Class::DocumentRead, |c| design(c, DesignRoute::Document))
        .changes_are(Class::DocumentWrite),
    Row::database("DELETE,GET,HEAD,PUT", "/{db}/_design/{ddoc}/{attachment...}", Class::AttachmentRead, |c| design(c, DesignRoute::Attachment(c.joined("attachment"))))
        .changes_are(Class::AttachmentWrite),
    Row::database("GET,POST,HEAD", "/{db}/_design/{ddoc}/_view/{view}", Class::View, |c| design(c, DesignRoute::View(c.text("view"))))
        .post_reads(),
    Row::database("POST", "/{db}/_design/{ddoc}/_view/{view}/queries", Class::View, |c| design(c, DesignRoute::ViewQueries(c.text("view"))))
        .post_reads(),
    Row::database("GET,POST,HEAD", "/{db}/_design/{ddoc}/_view", Class::View, |c| design(c, DesignRoute::NoView))
        .post_reads(),
    Row::database("GET,POST,HEAD", "/{db}/_design/{ddoc}/_view/{view}/{sub}", Class::View, |c| design(c, DesignRoute::NoView))
        .post_reads(),
    Row::database("*", "/{db}/_design/{ddoc}/_view/{path...}", Class::View, |c| design(c, DesignRoute::Missing))
        .post_reads(),
    Row::database("GET", "/{db}/_design/{ddoc}/_info", Class::Design, |c| design(c, DesignRoute::Info)),
    Row::database("*", "/{db}/_design/{ddoc}/_info/{path...}", Class::Design, |c| design(c, DesignRoute::Missing)),
    Row::database("GET,POST", "/{db}/_design/{ddoc}/_search/{index}", Class::Search, |c| design(c, DesignRoute::Search(vec![c.text("index")])))
        .post_reads().body(BodyClass::Small),
    Row::database("*", "/{db}/_design/{ddoc}/_search", Class::Search, |c| design(c, DesignRoute::Search(vec![])))
        .post_reads().body(BodyClass::Small),
    Row::database("*", "/{db}/_design/{ddoc}/_search/{path...}", Class::Search, |c| design(c, DesignRoute::Search(c.rest("path"))))
        .post_reads().body(BodyClass::Small),
    Row::database("GET", "/{db}/_design/{ddoc}/_search_info/{index}", Class::Design, |c| design(c, DesignRoute::SearchInfo(vec![c.text("index")]))),
    Row::database("*", "/{db}/_design/{ddoc}/_search_info", Class::Design, |c| design(c, DesignRoute::SearchInfo(vec![]))),
    Row::database("*", "/{db}/_design/{ddoc}/_search_info/{path...}", Class::Design, |c| design(c, DesignRoute::SearchInfo(c.rest("path")))),
    Row::database("GET", "/{db}/_design/{ddoc}/_search_disk_size/{index}", Class::Design, |c| design(c, DesignRoute::SearchDiskSize(vec![c.text("index")]))),
    Row::database("*", "/{db}/_design/{ddoc}/_search_disk_size", Class::Design, |c| design(c, DesignRoute::SearchDiskSize(vec![]))),
    Row::database("*", "/{db}/_design/{ddoc}/_search_disk_size/{path...}", Class::Design, |c| design(c, DesignRoute::SearchDiskSize(c.rest("path")))),
    Row::database("GET,POST", "/{db}/_design/{ddoc}/_nouveau/{index}", Class::Nouveau, |c| design(c, DesignRoute::Nouveau(vec![c.text("index")])))
        .post_reads().body(BodyClass::Small),
    Row::database("*", "/{db}/_design/{ddoc}/_nouveau", Class::Nouveau, |c| design(c, DesignRoute::Nouveau(vec![])))
        .post_reads().body(BodyClass::Small),
    Row::database("*", "/{db}/_design/{ddoc}/_nouveau/{path...}", Class::Nouveau, |c| design(c, DesignRoute::Nouveau(c.rest("path"))))
        .post_reads().body(BodyClass::Small),
    Row::database("GET", "/{db}/_design/{ddoc}/_nouveau_info/{index}", Class::Design, |c| design(c, DesignRoute::NouveauInfo(vec![c.text("index")]))),
    Row::database("*", "/{db}/_design/{ddoc}/_nouveau_info", Class::Design, |c| design(c, DesignRoute::NouveauInfo(vec![]))),
    Row::database("*", "/{db}/_design/{ddoc}/_nouveau_info/{path...}", Class::Design, |c| design(c, DesignRoute::NouveauInfo(c.rest("path")))),
    Row::database("*", "/{db}/_design/{ddoc}/_show", Class::Design, |c| design(c, DesignRoute::Function("_show", vec![])))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_show/{path...}", Class::Design, |c| design(c, DesignRoute::Function("_show", c.rest("path"))))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_list", Class::Design, |c| design(c, DesignRoute::Function("_list", vec![])))
        .post_reads(),
    Row::database("*", "/{db}/_design/{ddoc}/_list/{path...}", Class::Design, |c| design(c, DesignRoute::Function("_list", c.rest("path"))))
        .post_reads(),
    Row::database("*", "/{db}/_design/{ddoc}/_update", Class::Design, |c| design(c, DesignRoute::Function("_update", vec![])))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_update/{path...}", Class::Design, |c| design(c, DesignRoute::Function("_update", c.rest("path"))))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_rewrite", Class::Design, |c| design(c, DesignRoute::Function("_rewrite", vec![])))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_rewrite/{path...}", Class::Design, |c| design(c, DesignRoute::Function("_rewrite", c.rest("path"))))
        .body(BodyClass::Document),
];
