//! Databases, their documents, indexes and storage.

use super::kind::{Bool, Count, Int, Limit, Milliseconds, NodeName, Shards, Text};

section! {
    /// Databases and documents.
    pub struct Couchdb in "couchdb" {
        /// Folder of all data.
        database_dir: Text = "./data" (active) [start],
        /// Identifier of this server; made up and kept at first start.
        uuid: Option<Text> [start],
        /// Name of this server among the nodes of a cluster, as CouchDB has it by -name: name@host. Read at start.
        node_name: NodeName = "settee@127.0.0.1" [start],
        /// What /_up tells load balancers: true and nolb are a 404.
        maintenance_mode: MaintenanceMode = "false",
        /// Largest document body, in bytes of JSON.
        max_document_size: Limit = "8000000",
        /// Size from which a partition takes no more documents, in bytes.
        max_partition_size: Limit = "10737418240",
        /// Largest attachment, in bytes.
        max_attachment_size: Limit = "1073741824",
        /// Most attachments of a document.
        max_attachments_per_document: Limit = "10000",
        /// Most leaf revisions of a document: its conflicts, and deleted branches. A replicated revision that adds another
        /// one is refused; the others can be edited, deleted and purged. 0 counts as 1.
        max_document_leaves: Limit = "10000",
        /// Longest document id, in bytes.
        max_document_id_length: Limit = "infinity",
        /// Most documents in one _bulk_docs request; each takes about a kilobyte besides its text.
        max_bulk_docs_count: Limit = "250000",
        /// Most documents in one _bulk_get request.
        max_bulk_get_count: Limit = "infinity",
        /// Let administrators change the security object of the database of users.
        users_db_security_editable: Bool = "false",
        /// Who may use a database that has no security object of its own.
        default_security: DefaultSecurity = "admin_only",
        /// Acknowledge writes before they are on disk.
        delayed_commits: Bool = "false",
        /// Longest time for one answer of a query server, in milliseconds.
        os_process_timeout: Milliseconds = "5000",
        /// Create the databases _users, _replicator and _global_changes at start.
        single_node: Bool = "true" [start],
        /// Databases whose name, or its last part after a slash, is this are under the rules of users, besides _users.
        users_db_suffix: Text = "_users",
    }
}

section! {
    /// How a new database is divided and copied.
    pub struct Cluster in "cluster" {
        /// Shards of a new database.
        q: Shards = "2" (active),
        /// Copies of each shard.
        n: Int = "1" (active),
        /// The log of the cluster that this server is a member of: kafka://HOST:PORT,HOST:PORT. Without one the server is alone.
        log: Option<Text> [start],
        /// Where the cluster's other nodes reach this one, as HOST:PORT; what it was made a member with when not set.
        node_address: Option<Text> [start],
    }
}

section! {
    /// Settings of librdkafka for the cluster's log, like security.protocol = SASL_SSL or sasl.username = settee.
    pub struct Kafka in "kafka" with all {}
}

section! {
    /// Which databases may use a feature: feature||name pattern = true.
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
        /// How long events are gathered when there were none before, in milliseconds.
        max_event_delay: Milliseconds = "25" [start],
        /// Shortest time between two writes to _global_changes, in milliseconds.
        max_write_delay: Milliseconds = "500" [start],
    }
}

section! {
    /// Queries with _find.
    pub struct Mango in "mango" {
        /// Documents that _find returns when the query says nothing.
        default_limit: Int = "25",
        /// Documents looked at for each found, from which _find warns; 0 for never.
        index_scan_warning_threshold: Int = "10",
        /// Most documents that _find looks at when no index serves; a query that needs more is refused. 0 for any
        /// number.
        scan_limit: Int = "0",
        /// Levels of conditions in a selector.
        max_selector_depth: Count = "64",
        /// Operators and field names in a selector; values of $in do not count.
        max_selector_conditions: Count = "10000",
        /// Regular expressions in a selector.
        max_selector_regexes: Count = "64",
        /// Memory of one compiled regular expression, in bytes: the time that it takes grows with it.
        max_regex_size: Count = "393216",
        /// Groups of one aggregate.
        max_aggregate_groups: Count = "100000",
        /// Values that $distinct holds, in all groups of an aggregate.
        max_aggregate_values: Count = "1000000",
        /// Memory of the groups of one aggregate and their values, in bytes.
        max_aggregate_bytes: Count = "268435456",
    }
}

section! {
    /// Purging documents.
    pub struct Purge in "purge" {
        /// Most documents in one _purge request.
        max_document_id_number: Int = "100",
        /// Most revisions in one _purge request.
        max_revisions_number: Int = "1000",
    }
}

section! {
    /// Building indexes in the background after writes.
    pub struct Ken in "ken" {
        /// Keep the indexes of design documents up in the background.
        enable: Bool = "true" [start],
        /// Most indexes that are built in the background at a time.
        limit: Count = "20" [start],
    }
}

section! {
    /// How attachments are stored.
    pub struct Attachments in "attachments" {
        /// How much attachments of compressible types are compressed: 1 to 9, 0 for not at all.
        compression_level: Int = "8" (active),
        /// Content types of attachments that are stored compressed, separated by commas; * stands for anything.
        compressible_types: Text = "text/*, application/javascript, application/json, application/xml" (active),
    }
}

section! {
    /// How much memory the server may use, and how much of it for what, in bytes. 0 stands for a share of the limit.
    pub struct Memory in "memory" {
        /// What the server may use; 0 for what its control group, or the machine, has.
        limit: Count = "0" [start],
        /// Bodies of requests under way; others wait, and get a 503 in the end. 0: a tenth of the limit, at most 384 MiB.
        bodies: Count = "0" [start],
        /// Documents that were read lately, whole, for who asks next. 0: a twenty-fourth of the limit, at most 128 MiB.
        documents: Count = "0" [start],
        /// Databases and indexes that are open; those not used for longest are closed. 0: a sixteenth, at most 96 MiB.
        open_databases: Count = "0" [start],
        /// Rows of index builds under way; the less they have the more often they write. 0: a twelfth, at most 256 MiB.
        index_builds: Count = "0" [start],
        /// Rows of indexes that are read often, for who asks next. 0: a thirty-second, at most 64 MiB.
        index_rows: Count = "0" [start],
        /// Worker processes for JavaScript, together; idle ones are ended beyond it, then the largest one at work. 0: a twelfth,
        /// at most 1 GiB.
        workers: Count = "0" [start],
        /// Memory for the parameters of requests being answered (selectors, ids, keys) and for long answers that clients have not read. Beyond it requests get a 503. 0: a twenty-fourth, at most 256 MiB.
        answers: Count = "0" [start],
        /// Memory for groups of running aggregates. From three quarters of it on, all but the oldest that still grows get a 503. 0: a thirty-second, at most 256 MiB.
        aggregates: Count = "0" [start],
    }
}

section! {
    /// The storage engine.
    pub struct Rocksdb in "rocksdb" {
        /// Memory for blocks read, in bytes. 0: an eighth of [memory] limit, at most 256 MiB.
        block_cache_size: Count = "0" [start],
        /// Writes gather in memory until they are so many bytes, of all keyspaces together; writers wait while they are twice as many. 0: a sixteenth of [memory] limit, at most 96 MiB.
        write_buffer_size: Count = "0" [start],
        /// Threads that flush and compact.
        max_background_jobs: Int = "2" [start],
        /// Most bytes a second that flushing and compacting write; 0 for as many as the disk takes.
        background_bytes_per_second: Count = "0" [start],
    }
}

section! {
    /// Reclaiming the space of old revisions.
    pub struct Compaction in "compaction" {
        /// Compact databases on their own when enough has gathered.
        enable: Bool = "true" [start],
    }
}

choice! {
    /// What `/_up` tells load balancers.
    pub enum MaintenanceMode {
        /// That the server is there.
        Off = "false",
        /// That it is not.
        On = "true",
        /// That it wants no requests from load balancers.
        NoLoadBalancing = "nolb",
    }
}

choice! {
    /// Who may use a database that has no security object of its own.
    pub enum DefaultSecurity {
        /// Server administrators.
        AdminOnly = "admin_only",
        /// Everybody.
        Everyone = "everyone",
        /// Everybody: CouchDB's way to say so of databases of one node.
        AdminLocal = "admin_local",
    }
}
