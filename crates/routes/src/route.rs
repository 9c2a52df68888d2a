//! The meaning of a path, parsed for handlers.

/// A matched path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A path of the server.
    Server(ServerRoute),
    /// A path of the database of this name.
    Database(String, DatabaseRoute),
}

/// A path of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerRoute {
    /// `/`
    Welcome,
    /// `/favicon.ico`, which browsers request.
    Favicon,
    /// `/_up`
    Up,
    /// `/_all_dbs`
    AllDbs,
    /// `/_dbs_info`
    DbsInfo,
    /// `/_uuids`
    Uuids,
    /// `/_active_tasks`
    ActiveTasks,
    /// `/_membership`
    Membership,
    /// `/_db_updates`
    DbUpdates,
    /// `/_session`
    Session,
    /// `/_node/{node}…`; without a name the path is incomplete.
    Node(Option<String>, NodeRoute),
    /// `/_settee/constant`
    Constant,
    /// `/_settee/backup`
    Backup,
    /// `/_settee/cluster`
    Cluster,
    /// `/_settee/cluster/tokens`
    ClusterTokens,
    /// `/_settee/cluster/nodes/{node}`
    ClusterNode(String),
    /// `/_settee/cluster/place`
    ClusterPlace,
    /// `/_settee/cluster/reseed`
    ClusterReseed,
    /// `/_settee/cluster/bench-network`
    ClusterBenchNetwork,
    /// `/_settee/doctor`
    Doctor,
    /// `/_settee/profile`
    Profile,
    /// `/_settee/slow`
    Slow,
    /// `/_settee/top`
    Top,
    /// `/_settee/openapi.json`
    OpenApi,
    /// `/_cluster_setup`
    ClusterSetup,
    /// `/_utils…`: the web interface; the segments after `_utils`.
    Utils(Vec<String>),
    /// `/_replicate`
    Replicate,
    /// `/_scheduler…`
    Scheduler(SchedulerRoute),
    /// `/_reshard…`
    Reshard(ReshardRoute),
    /// `/_search_analyze`
    SearchAnalyze,
    /// `/_nouveau_analyze`
    NouveauAnalyze,
    /// The name of a database that is not UTF-8.
    NoDatabase,
    /// A path below one of these that does not exist.
    Missing,
}

/// A path of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeRoute {
    /// Its name.
    Name,
    /// `_config`
    Config,
    /// `_config/_reload`
    ConfigReload,
    /// `_config/{section}`
    ConfigSection(String),
    /// `_config/{section}/{key}`
    ConfigValue(String, String),
    /// `_stats`, or a part of it.
    Stats(Vec<String>),
    /// `_system`
    System,
    /// `_versions`
    Versions,
    /// `_prometheus`
    Prometheus,
    /// `_smoosh/status`
    Smoosh,
    /// `_settee/settings`
    Settings,
    /// `_restart`
    Restart,
    /// Anything else: its first segment.
    Unknown(String),
}

/// A path of the replication scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerRoute {
    /// `jobs`
    Jobs,
    /// `jobs/{id}`
    Job(String),
    /// `docs`
    Docs,
    /// `docs/…`: a database, whose name may contain slashes, and perhaps a document.
    DocsOf(Vec<String>),
    /// Anything else.
    Unknown,
}

/// A path of CouchDB's shard splitting, which Settee does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReshardRoute {
    /// `/_reshard`
    Summary,
    /// `/_reshard/state`
    State,
    /// `/_reshard/jobs`
    Jobs,
    /// `/_reshard/jobs/{id}`
    Job,
    /// Anything else.
    Unknown,
}

/// Which documents a listing has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingKind {
    /// `_all_docs`
    AllDocs,
    /// `_design_docs`
    DesignDocs,
    /// `_local_docs`
    LocalDocs,
}

/// A path of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseRoute {
    /// PUT of the database.
    Create,
    /// DELETE of the database.
    Delete,
    /// The database itself, with other methods.
    Database,
    /// `{id}`
    Document(String),
    /// `{id}/{attachment}`; a name that is not UTF-8 cannot be written.
    Attachment(String, Vec<u8>),
    /// `_local/{id}`: the id with its prefix.
    Local(String),
    /// `_local` without an id.
    NoLocalId,
    /// `_design/{name}…`: the id with its prefix.
    Design(String, DesignRoute),
    /// `_all_docs`, `_design_docs`, `_local_docs`
    Listing(ListingKind),
    /// A listing's `/queries`: several queries in one request.
    ListingQueries(ListingKind),
    /// `_partition` without a name.
    NoPartition,
    /// `_partition/{partition}`
    Partition(String),
    /// A path below `_partition/{partition}/`, which is one of the database with the partition as a parameter.
    InPartition(String),
    /// Any other path below `_partition/{partition}/`.
    NotInPartition(String),
    /// `_bulk_docs`
    BulkDocs,
    /// `_bulk_get`
    BulkGet,
    /// `_changes`
    Changes,
    /// `_revs_diff`
    RevsDiff,
    /// `_missing_revs`
    MissingRevs,
    /// `_find`
    Find,
    /// `_explain`
    Explain,
    /// `_index`
    Index,
    /// `_index/_bulk_delete`
    IndexBulkDelete,
    /// `_index/_design/{ddoc}/{kind}/{name}`
    IndexOf {
        /// The id of the design document.
        ddoc: String,
        /// `json`, `text` or `nouveau`.
        kind: String,
        /// The name of the index.
        name: String,
    },
    /// `_security`
    Security,
    /// `_revs_limit`
    RevsLimit,
    /// `_purged_infos_limit`
    PurgedInfosLimit,
    /// `_purged_infos`
    PurgedInfos,
    /// `_auto_purge`
    AutoPurge,
    /// `_time_seq`
    TimeSeq,
    /// `_purge`
    Purge,
    /// `_compact`, or the id of a design document whose views are compacted.
    Compact(Option<String>),
    /// `_view_cleanup`
    ViewCleanup,
    /// `_search_cleanup`
    SearchCleanup,
    /// `_nouveau_cleanup`
    NouveauCleanup,
    /// `_ensure_full_commit`
    EnsureFullCommit,
    /// `_shards`, or the shard of the document of this id.
    Shards(Option<String>),
    /// `_sync_shards`
    SyncShards,
    /// `_settee/preview`
    Preview,
    /// `_temp_view…`
    TempView,
    /// An id that is not UTF-8.
    InvalidId,
    /// A path below one of these that does not exist.
    Missing,
}

/// A path of a design document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesignRoute {
    /// The document.
    Document,
    /// An attachment.
    Attachment(Vec<u8>),
    /// `_view/{view}`
    View(String),
    /// `_view/{view}/queries`
    ViewQueries(String),
    /// `_view`, or `_view/{view}/{other}`.
    NoView,
    /// `_info`
    Info,
    /// `_search/…`: the segments after it.
    Search(Vec<String>),
    /// `_search_info/…`
    SearchInfo(Vec<String>),
    /// `_search_disk_size/…`
    SearchDiskSize(Vec<String>),
    /// `_nouveau/…`
    Nouveau(Vec<String>),
    /// `_nouveau_info/…`
    NouveauInfo(Vec<String>),
    /// `_show/…`, `_list/…`, `_update/…`, `_rewrite/…`: the first of these, and the segments after it.
    Function(&'static str, Vec<String>),
    /// A path below one of these that does not exist.
    Missing,
}
