//! Paths of the server.

use super::place::node;
use crate::class::Class;
use crate::operation::{ANY, delete, get, post, put};
use crate::parameters::{
    ALL, ANALYZE, FEED, IDS, NAMES, NEXT, PAGE, PERSIST, PROFILE, SESSION, SIZE, SLOT,
};
use crate::route::{NodeRoute, ReshardRoute, Route, SchedulerRoute, ServerRoute};
use crate::row::{BodyClass, Cluster, Row};
use crate::who::Who;

/// Rows. A row that others do not precede by more literals is the fallback for paths that they do
/// not match.
#[rustfmt::skip]
pub(super) static SERVER: &[Row] = &[
    Row::server("GET,HEAD", "/", Class::Welcome, |_| Route::Server(ServerRoute::Welcome))
        .who_may(Who::Anyone).cluster(Cluster::Node)
        .operations(&[
            get("Returns the welcome message and the version.", "Welcome"),
        ]),
    Row::server("*", "/favicon.ico", Class::Welcome, |_| Route::Server(ServerRoute::Favicon))
        .who_may(Who::Anyone).cluster(Cluster::Node)
        .operations(&[
            get("Answers 404.", "Any").gives_nothing(),
        ]),
    Row::server("GET,HEAD", "/_up", Class::Welcome, |_| Route::Server(ServerRoute::Up))
        .who_may(Who::Anyone).cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns whether the server works: 404 in maintenance mode, 503 while writes fail.", "Status"),
        ]),
    Row::server("GET,HEAD", "/_all_dbs", Class::Databases, |_| Route::Server(ServerRoute::AllDbs))
        .who_may(Who::AllDbs)
        .operations(&[
            get("Lists the names of databases.", "Names").query(&[&NAMES, &PAGE]),
        ]),
    Row::server("*", "/_all_dbs/{path...}", Class::Databases, |_| Route::Server(ServerRoute::Missing))
        .who_may(Who::AllDbs),
    Row::server("GET,HEAD,POST", "/_dbs_info", Class::Databases, |_| Route::Server(ServerRoute::DbsInfo))
        .post_reads()
        .operations(&[
            get("Returns information about all databases.", "DatabaseInfos").query(&[&NAMES, &PAGE]),
            post("Returns information about some databases.", "DatabaseInfos").body("Keys"),
        ]),
    Row::server("*", "/_dbs_info/{path...}", Class::Databases, |_| Route::Server(ServerRoute::Missing))
        .post_reads(),
    Row::server("GET", "/_uuids", Class::Welcome, |_| Route::Server(ServerRoute::Uuids))
        .who_may(Who::Anyone).ignores_rest()
        .operations(&[
            get("Returns new ids.", "Uuids").query(&[&IDS]),
        ]),
    Row::server("GET,HEAD", "/_active_tasks", Class::Server, |_| Route::Server(ServerRoute::ActiveTasks))
        .ignores_rest()
        .operations(&[
            get("Lists running tasks: index builds, compactions, replications, long scans.", "Objects"),
        ]),
    Row::server("GET", "/_membership", Class::Server, |_| Route::Server(ServerRoute::Membership))
        .ignores_rest()
        .operations(&[
            get("Lists the nodes of the cluster, and those that answer.", "Membership"),
        ]),
    Row::server("GET", "/_db_updates", Class::Databases, |_| Route::Server(ServerRoute::DbUpdates))
        .feeds().ignores_rest()
        .operations(&[
            get("Returns the creations, changes and deletions of databases.", "Updates").query(&[&FEED]),
        ]),
    Row::server("GET,HEAD,POST,DELETE", "/_session", Class::Session, |_| Route::Server(ServerRoute::Session))
        .who_may(Who::Anyone).cluster(Cluster::Session).body(BodyClass::Login).ignores_rest()
        .operations(&[
            get("Returns the user who is logged in.", "Session").query(&[&SESSION]),
            post("Logs in, and sets a cookie.", "Object").query(&[&NEXT]).body("Login"),
            delete("Logs out.", "Ok").query(&[&NEXT]),
        ]),
    Row::server("*", "/_node", Class::Server, |_| Route::Server(ServerRoute::Node(None, NodeRoute::Name)))
        .cluster(Cluster::Node),
    Row::server("GET", "/_node/{node-name}", Class::Server, |c| node(c, NodeRoute::Name))
        .cluster(Cluster::Node)
        .operations(&[
            get("Returns the name of the node.", "Object"),
        ]),
    Row::server("GET", "/_node/{node-name}/_config", Class::Server, |c| node(c, NodeRoute::Config))
        .cluster(Cluster::Node)
        .operations(&[
            get("Returns all settings that are set.", "Settings"),
        ]),
    Row::server("POST", "/_node/{node-name}/_config/_reload", Class::Server, |c| node(c, NodeRoute::ConfigReload))
        .cluster(Cluster::Node)
        .operations(&[
            post("Reads the configuration files again.", "Ok").body("Object"),
        ]),
    Row::server("GET", "/_node/{node-name}/_config/{section}", Class::Server, |c| node(c, NodeRoute::ConfigSection(c.text("section"))))
        .cluster(Cluster::Node)
        .operations(&[
            get("Returns the settings of a section.", "Section"),
        ]),
    Row::server("GET,PUT,DELETE", "/_node/{node-name}/_config/{section}/{key}", Class::Server, |c| node(c, NodeRoute::ConfigValue(c.text("section"), c.text("key"))))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns a setting.", "Text"),
            put("Sets a setting, and returns the value before.", "Text").query(&[&PERSIST]).body("Text"),
            delete("Removes a setting, and returns the value before.", "Text").query(&[&PERSIST]),
        ]),
    Row::server("GET", "/_node/{node-name}/_stats", Class::Server, |c| node(c, NodeRoute::Stats(vec![])))
        .who_may(Who::Metrics).cluster(Cluster::Node)
        .operations(&[
            get("Returns the counters.", "Object"),
        ]),
    Row::server("GET", "/_node/{node-name}/_stats/{path...}", Class::Server, |c| node(c, NodeRoute::Stats(c.rest("path"))))
        .who_may(Who::Metrics).cluster(Cluster::Node),
    Row::server("GET", "/_node/{node-name}/_system", Class::Server, |c| node(c, NodeRoute::System))
        .who_may(Who::Metrics).cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns memory, connections and uptime.", "Object"),
        ]),
    Row::server("GET", "/_node/{node-name}/_versions", Class::Server, |c| node(c, NodeRoute::Versions))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns the versions of the server's parts.", "Object"),
        ]),
    Row::server("GET", "/_node/{node-name}/_prometheus", Class::Server, |c| node(c, NodeRoute::Prometheus))
        .who_may(Who::Metrics).cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns the counters in Prometheus' format.", "Any").gives("text/plain"),
        ]),
    Row::server("GET", "/_node/{node-name}/_smoosh", Class::Server, |c| node(c, NodeRoute::Smoosh))
        .cluster(Cluster::Node),
    Row::server("GET", "/_node/{node-name}/_smoosh/status", Class::Server, |c| node(c, NodeRoute::Smoosh))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns the running compactions.", "Object"),
        ]),
    Row::server("GET", "/_node/{node-name}/_settee/settings", Class::Server, |c| node(c, NodeRoute::Settings))
        .cluster(Cluster::Node)
        .operations(&[
            get("Lists every setting with value, default, kind and documentation.", "Objects"),
        ]),
    Row::server("POST", "/_node/{node-name}/_restart", Class::Server, |c| node(c, NodeRoute::Restart))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            post("Restarts the server.", "Ok").body("Object"),
        ]),
    Row::server("*", "/_node/{node-name}/{part}", Class::Server, |c| node(c, NodeRoute::Unknown(c.text("part"))))
        .cluster(Cluster::Node),
    Row::server("*", "/_node/{node-name}/{part}/{path...}", Class::Server, |c| node(c, NodeRoute::Unknown(c.text("part"))))
        .cluster(Cluster::Node),
    Row::server("GET,HEAD", "/_settee/constant", Class::Server, |_| Route::Server(ServerRoute::Constant))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns spaces, for benchmarks.", "Any").query(&[&SIZE]),
        ]),
    Row::server("GET,POST", "/_settee/backup", Class::Server, |_| Route::Server(ServerRoute::Backup))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns running, finished and scheduled backups.", "Object"),
            post("Starts a backup; 201 when it was a copy that is complete.", "Object").body("Backup").status(202),
        ]),
    Row::server("GET", "/_settee/cluster", Class::Server, |_| Route::Server(ServerRoute::Cluster))
        .cluster(Cluster::Node)
        .operations(&[
            get("Returns the state of the cluster: nodes and slots.", "Object"),
        ]),
    Row::server("POST", "/_settee/cluster/tokens", Class::Server, |_| Route::Server(ServerRoute::ClusterTokens))
        .cluster(Cluster::Node)
        .operations(&[
            post("Creates a token with which one node can join.", "Token").body("TokenRequest").status(201),
        ]),
    Row::server("DELETE,PUT", "/_settee/cluster/nodes/{node}", Class::Server, |c| Route::Server(ServerRoute::ClusterNode(c.text("node"))))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            delete("Removes a node from the cluster.", "Ok"),
            put("Moves the slots of a node to others, or ends that.", "Ok").body("Draining"),
        ]),
    Row::server("POST", "/_settee/cluster/place", Class::Server, |_| Route::Server(ServerRoute::ClusterPlace))
        .cluster(Cluster::Node)
        .operations(&[
            post("Sets the number of nodes that have each slot, or shows what that would change.", "Object").body("Placement"),
        ]),
    Row::server("POST", "/_settee/cluster/reseed", Class::Server, |_| Route::Server(ServerRoute::ClusterReseed))
        .cluster(Cluster::Node)
        .operations(&[
            post("Continues after the log was lost, in the background.", "Ok").query(&[&SLOT]).status(202),
        ]),
    Row::server("POST", "/_settee/cluster/bench-network", Class::Server, |_| Route::Server(ServerRoute::ClusterBenchNetwork))
        .cluster(Cluster::Node)
        .operations(&[
            post("Measures the connections from this node to the others.", "Object").body("BenchNetwork"),
        ]),
    Row::server("*", "/_settee/cluster/{path...}", Class::Server, |_| Route::Server(ServerRoute::Missing))
        .cluster(Cluster::Node),
    Row::server("GET", "/_settee/doctor", Class::Server, |_| Route::Server(ServerRoute::Doctor))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Checks the server, and returns the findings.", "Object"),
        ]),
    Row::server("GET", "/_settee/profile", Class::Server, |_| Route::Server(ServerRoute::Profile))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Samples the server, and returns a flame graph.", "Any").query(&[&PROFILE]).gives(ANY),
        ]),
    Row::server("GET", "/_settee/slow", Class::Server, |_| Route::Server(ServerRoute::Slow))
        .cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns the last lines of the slow log.", "Object"),
        ]),
    Row::server("GET", "/_settee/top", Class::Server, |_| Route::Server(ServerRoute::Top))
        .who_may(Who::Metrics).cluster(Cluster::Node).ignores_rest()
        .operations(&[
            get("Returns the activity of the server, as sums since its start.", "Object").query(&[&ALL]),
        ]),
    Row::server("GET", "/_settee/openapi.json", Class::Server, |_| Route::Server(ServerRoute::OpenApi))
        .who_may(Who::Anyone).cluster(Cluster::Node)
        .operations(&[
            get("Returns this description.", "Object"),
        ]),
    Row::server("*", "/_settee", Class::Server, |_| Route::Server(ServerRoute::Missing))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("*", "/_settee/{path...}", Class::Server, |_| Route::Server(ServerRoute::Missing))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("GET,POST", "/_cluster_setup", Class::Server, |_| Route::Server(ServerRoute::ClusterSetup))
        .ignores_rest()
        .operations(&[
            get("Returns the state of the set-up.", "Object"),
            post("Sets up a single node.", "Ok").body("Setup").status(201),
        ]),
    Row::server("GET,HEAD", "/_utils", Class::Welcome, |_| Route::Server(ServerRoute::Utils(vec![])))
        .who_may(Who::Anyone).cluster(Cluster::Node)
        .operations(&[
            get("Redirects to `/_utils/`.", "Any").gives_nothing().status(301),
        ]),
    Row::server("GET,HEAD", "/_utils/{path...}", Class::Welcome, |c| Route::Server(ServerRoute::Utils(c.rest("path"))))
        .who_may(Who::Anyone).cluster(Cluster::Node),
    Row::server("*", "/_replicate", Class::Replication, |_| Route::Server(ServerRoute::Replicate))
        .who_may(Who::User).body(BodyClass::Document).ignores_rest()
        .operations(&[
            post("Runs a replication until it is complete, starts a continuous one, or cancels one.", "Object").body("Replication"),
        ]),
    Row::server("GET,HEAD", "/_scheduler/jobs", Class::Replication, |_| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Jobs)))
        .operations(&[
            get("Lists the replication jobs with their histories.", "Jobs").query(&[&PAGE]),
        ]),
    Row::server("GET,HEAD", "/_scheduler/jobs/{jobid}", Class::Replication, |c| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Job(c.text("jobid"))))),
    Row::server("GET,HEAD", "/_scheduler/docs", Class::Replication, |_| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Docs)))
        .operations(&[
            get("Lists the states of the replication documents in `_replicator`.", "Docs").query(&[&PAGE]),
        ]),
    Row::server("GET,HEAD", "/_scheduler/docs/{replicator_db}", Class::Replication, |c| Route::Server(ServerRoute::Scheduler(SchedulerRoute::DocsOf(c.rest("replicator_db")))))
        .operations(&[
            get("Lists the states of the replication documents in a database.", "Docs").query(&[&PAGE]),
        ]),
    Row::server("GET,HEAD", "/_scheduler/docs/{replicator_db}/{docid}", Class::Replication, |c| Route::Server(ServerRoute::Scheduler(SchedulerRoute::DocsOf(c.rest("replicator_db")))))
        .operations(&[
            get("Returns the state of a replication document.", "Object"),
        ]),
    Row::server("GET,HEAD", "/_scheduler/docs/{path...}", Class::Replication, |c| Route::Server(ServerRoute::Scheduler(SchedulerRoute::DocsOf(c.rest("path"))))),
    Row::server("GET,HEAD", "/_scheduler", Class::Replication, |_| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Unknown))),
    Row::server("GET,HEAD", "/_scheduler/{path...}", Class::Replication, |_| Route::Server(ServerRoute::Scheduler(SchedulerRoute::Unknown))),
    Row::server("*", "/_reshard", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Summary)))
        .operations(&[
            get("Returns the state of shard splitting, which does not exist here.", "Object"),
        ]),
    Row::server("*", "/_reshard/state", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::State)))
        .operations(&[
            get("Returns that shard splitting is running, as CouchDB does by default.", "Object"),
            put("Answers 501.", "Any").gives_nothing(),
        ]),
    Row::server("*", "/_reshard/jobs", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Jobs)))
        .operations(&[
            get("Lists no jobs.", "Object"),
            post("Answers 501.", "Any").gives_nothing(),
        ]),
    Row::server("*", "/_reshard/jobs/{jobid}", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Job)))
        .ignores_rest()
        .operations(&[
            get("Answers 404.", "Any").gives_nothing(),
            delete("Answers 501.", "Any").gives_nothing(),
        ]),
    Row::server("*", "/_reshard/jobs/{jobid}/state", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Job)))
        .ignores_rest()
        .operations(&[
            get("Answers 404.", "Any").gives_nothing(),
            put("Answers 501.", "Any").gives_nothing(),
        ]),
    Row::server("*", "/_reshard/{path...}", Class::Server, |_| Route::Server(ServerRoute::Reshard(ReshardRoute::Unknown))),
    Row::server("GET,POST", "/_search_analyze", Class::Server, |_| Route::Server(ServerRoute::SearchAnalyze))
        .post_reads().body(BodyClass::Many).ignores_rest()
        .operations(&[
            get("Splits a text into words with an analyzer of Clouseau's.", "Tokens").query(&[&ANALYZE]),
            post("Splits a text into words with an analyzer of Clouseau's.", "Tokens").body("Analysis"),
        ]),
    Row::server("POST", "/_nouveau_analyze", Class::Server, |_| Route::Server(ServerRoute::NouveauAnalyze))
        .post_reads().body(BodyClass::Many).ignores_rest()
        .operations(&[
            post("Splits a text into words with an analyzer of Nouveau's.", "Tokens").body("Analysis"),
        ]),
];
