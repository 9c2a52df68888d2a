//! Databases, their documents, indexes and storage.

use super::kind::{
    Bool, Count, Int, Limit, Milliseconds, NodeName, Period, PeriodText, Shards, Text,
};
use super::server::LogLevel;

section! {
    /// Databases and documents.
    pub struct Couchdb in "couchdb" {
        /// Folder of all data.
        database_dir: Text = "./data" (active) [start],
        /// Identifier of this server; generated and stored at the first start.
        uuid: Option<Text> [start],
        /// Name of this server among the nodes of a cluster, like CouchDB's -name: name@host. Read
        /// at start.
        node_name: NodeName = "settee@127.0.0.1" [start],
        /// State that /_up reports to load balancers: with true and nolb it returns a 404.
        maintenance_mode: MaintenanceMode = "false",
        /// Announce an upgrade of the cluster: the metric couchdb_upgrade_in_progress is 1.
        upgrade_in_progress: Bool = "false",
        /// Maximum size of a document body, in bytes of JSON.
        max_document_size: Limit = "8000000",
        /// Maximum size of a security object (`PUT /{db}/_security`), in bytes. Larger existing ones
        /// stay in use.
        max_security_size: Limit = "1048576",
        /// Size at which a partition accepts no more documents, in bytes.
        max_partition_size: Limit = "10737418240",
        /// Maximum size of an attachment, in bytes.
        max_attachment_size: Limit = "1073741824",
        /// Maximum number of attachments of a document.
        max_attachments_per_document: Limit = "10000",
        /// Maximum number of leaf revisions of a document: its conflicts, and deleted branches. A
        /// replicated revision that would exceed it is refused; existing leaves can be edited,
        /// deleted and purged. 0 counts as 1.
        max_document_leaves: Limit = "10000",
        /// Maximum length of a document id, in bytes.
        max_document_id_length: Limit = "infinity",
        /// Maximum number of documents in one _bulk_docs request; each takes about a kilobyte in
        /// addition to its text.
        max_bulk_docs_count: Limit = "250000",
        /// Maximum number of documents in one _bulk_get request.
        max_bulk_get_count: Limit = "infinity",
        /// Changes made before this time are not recorded in the time bins that
        /// _changes?since=TIME uses, in seconds since 1970: the clock of a machine that has just
        /// started may be wrong. The default is 2025-08-01.
        time_seq_min_time: Limit = "1754006400",
        /// Allow administrators to change the security object of the user database.
        users_db_security_editable: Bool = "false",
        /// Access to databases without a security object.
        default_security: DefaultSecurity = "admin_only",
        /// Acknowledge writes before they are on disk.
        delayed_commits: Bool = "false",
        /// Maximum time for one response of a query server, in milliseconds.
        os_process_timeout: Milliseconds = "5000",
        /// Create the databases _users, _replicator and _global_changes at start.
        single_node: Bool = "true" [start],
        /// The rules of user databases apply to _users, and to databases whose name, or its last
        /// part after a slash, equals this.
        users_db_suffix: Text = "_users",
    }
}

section! {
    /// Shards and copies of new databases.
    pub struct Cluster in "cluster" {
        /// Number of shards of a new database.
        q: Shards = "2" (active),
        /// Number of copies of each shard.
        n: Int = "1" (active),
        /// Where the log of this node's cluster is: nodes, or kafka://HOST:PORT,HOST:PORT. By
        /// default, the nodes keep it. `settee cluster reseed` moves it.
        log: Option<Text> [start],
        /// Address at which the cluster's other nodes reach this one, as HOST:PORT; by default the
        /// address with which it joined.
        node_address: Option<Text> [start],
        /// Zone of this node, such as a data center or a rack: the copies of a slot are in
        /// different zones if possible.
        zone: Option<Text> [start],
    }
}

section! {
    /// Settings of librdkafka for the cluster's log, like security.protocol = SASL_SSL or sasl.username = settee.
    pub struct Kafka in "kafka" with all {}
}

section! {
    /// Databases that may use a feature: feature||name pattern = true.
    pub struct FeatureFlags in "feature_flags" with all {
        /// Partitioned databases.
        partitioned as "partitioned||*": Bool = "true" (active),
    }
}

section! {
    /// The database of events behind _db_updates.
    pub struct GlobalChanges in "global_changes" {
        /// Keep _global_changes, which _db_updates shows.
        update_db: Bool = "true" [start],
        /// Time for which events are collected after an idle period, in milliseconds.
        max_event_delay: Milliseconds = "25",
        /// Minimum time between two writes to _global_changes, in milliseconds.
        max_write_delay: Milliseconds = "500",
    }
}

section! {
    /// Mango queries.
    pub struct Mango in "mango" {
        /// Number of documents that _find returns if the query has no limit.
        default_limit: Int = "25",
        /// Number of examined documents per result above which _find adds a warning; 0 for never.
        index_scan_warning_threshold: Int = "10",
        /// Maximum number of documents that _find examines without an index; a query that needs
        /// more is refused. 0 for no limit.
        scan_limit: Int = "0",
        /// Maximum depth of conditions in a selector.
        max_selector_depth: Count = "64",
        /// Maximum number of operators and field names in a selector; values of $in do not count.
        max_selector_conditions: Count = "10000",
        /// Maximum number of regular expressions in a selector.
        max_selector_regexes: Count = "64",
        /// Maximum memory of one compiled regular expression, in bytes; its run time grows with its
        /// memory.
        max_regex_size: Count = "393216",
        /// Maximum number of groups of one aggregate.
        max_aggregate_groups: Count = "100000",
        /// Maximum number of values that $distinct holds, in all groups of an aggregate.
        max_aggregate_values: Count = "1000000",
        /// Maximum memory of the groups of one aggregate and their values, in bytes.
        max_aggregate_bytes: Count = "268435456",
    }
}

section! {
    /// Purging documents.
    pub struct Purge in "purge" {
        /// Maximum number of revisions in one _purge request.
        max_revisions_number: Limit = "infinity",
    }
}

section! {
    /// Purging documents that were deleted long ago, in the background.
    pub struct CouchAutoPurgePlugin in "couch_auto_purge_plugin" {
        /// How long deleted documents are kept: a number, _ and a unit (1000_sec, 30_min, 8_hours,
        /// 2_days, 3_weeks, 1_month, 2_years), or infinity. Without a value they are kept for ever.
        /// A database may have its own value (_auto_purge).
        deleted_document_ttl: Option<PeriodText>,
        /// How often the server searches for such documents.
        repeat: Period = "10_min",
        /// Minimum number of revisions in one purge, except in the last one of a shard.
        min_batch_size: Count = "250",
        /// Maximum number of revisions in one purge.
        max_batch_size: Count = "500",
        /// Search and log, but purge nothing.
        dry_run: Bool = "false",
        /// Level of the log line about the purges of a database.
        log_level: LogLevel = "info",
    }
}

section! {
    /// Background work that processes databases.
    pub struct CouchScanner in "couch_scanner" {
        /// Maximum number of revisions that automatic purges remove per second.
        doc_write_rate_limit: Int = "500",
    }
}

section! {
    /// Building indexes in the background after writes.
    pub struct Ken in "ken" {
        /// Update the indexes of design documents in the background.
        enable: Bool = "true",
        /// Maximum number of concurrent index builds in the background.
        limit: Count = "20",
    }
}

section! {
    /// Storage of attachments.
    pub struct Attachments in "attachments" {
        /// Compression level of attachments of compressible types: 1 to 9, or 0 for no compression.
        compression_level: Int = "8" (active),
        /// Content types of attachments that are stored compressed, separated by commas; * matches
        /// any text.
        compressible_types: Text = "text/*, application/javascript, application/json, application/xml" (active),
    }
}

section! {
    /// Memory of the server and of its parts, in bytes. 0 selects a share of the limit.
    pub struct Memory in "memory" {
        /// Memory that the server may use; 0 for the limit of its control group, or the memory of
        /// the machine.
        limit: Count = "0" [start],
        /// Bodies of running requests; others wait, and finally get a 503. One user gets at most as
        /// much as stays free. A body longer than a quarter of it, for server admins half, is a 413.
        /// 0: a tenth of the limit, at most 384 MiB.
        bodies: Count = "0" [start],
        /// Cache of recently read documents. 0: a twenty-fourth of the limit, at most 128 MiB.
        documents: Count = "0" [start],
        /// Open databases and indexes; the least recently used are closed. 0: a sixteenth, at most
        /// 96 MiB.
        open_databases: Count = "0" [start],
        /// Rows of running index builds; with less memory they write more often. 0: a twelfth, at
        /// most 256 MiB.
        index_builds: Count = "0" [start],
        /// Cache of frequently read index rows. 0: a thirty-second, at most 64 MiB.
        index_rows: Count = "0" [start],
        /// Worker processes for JavaScript, together; beyond it idle ones are ended, then the
        /// largest busy one. 0: a twelfth, at most 1 GiB.
        workers: Count = "0" [start],
        /// Parameters of running responses (selectors, ids, keys), long responses that clients have not
        /// read, and stored documents that are written again. Beyond it requests get a 503. 0: a
        /// twenty-fourth, at most 256 MiB.
        answers: Count = "0" [start],
        /// Groups of running aggregates. From three quarters of it on, all growing aggregates but the
        /// oldest get a 503. One user gets at most as much as stays free. 0: a thirty-second, at most
        /// 256 MiB.
        aggregates: Count = "0" [start],
        /// Running searches in text indexes, including $text of _find. Beyond it searches get a 503. 0: a
        /// sixteenth, at most 512 MiB.
        searches: Count = "0" [start],
        /// Ids, selectors and batches of replications. Beyond it _replicate is a 503 and _replicator
        /// documents fail; batches wait. 0: a forty-eighth, at most 128 MiB.
        replications: Count = "0" [start],
    }
}

section! {
    /// The storage engine.
    pub struct Rocksdb in "rocksdb" {
        /// Cache of blocks, in bytes. 0: an eighth of [memory] limit, at most 256 MiB.
        block_cache_size: Count = "0" [start],
        /// Size of unwritten data of all keyspaces in memory at which it is written to files; at
        /// twice this size writers wait. 0: a sixteenth of [memory] limit, at most 256 MiB.
        write_buffer_size: Count = "0" [start],
        /// Number of threads that flush and compact.
        max_background_jobs: Int = "2" [start],
        /// Maximum write rate of flushes and compactions, in bytes per second; 0 for no limit.
        background_bytes_per_second: Count = "0" [start],
    }
}

section! {
    /// Reclaiming the space of old revisions.
    pub struct Compaction in "compaction" {
        /// Compact databases automatically when enough old data has accumulated.
        enable: Bool = "true",
    }
}

choice! {
    /// The state that `/_up` reports to load balancers.
    pub enum MaintenanceMode {
        /// The server is available.
        Off = "false",
        /// The server is in maintenance.
        On = "true",
        /// The server should get no requests from load balancers.
        NoLoadBalancing = "nolb",
    }
}

choice! {
    /// Access to databases without a security object.
    pub enum DefaultSecurity {
        /// Server administrators.
        AdminOnly = "admin_only",
        /// All users.
        Everyone = "everyone",
        /// All users; CouchDB's value for databases of one node.
        AdminLocal = "admin_local",
    }
}
