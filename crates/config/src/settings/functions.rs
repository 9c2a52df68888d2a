//! Users' functions.

use super::kind::{Bool, Count, Limit, Milliseconds, Ratio, Seconds};

section! {
    /// JavaScript functions of design documents. An index keeps what it used when it was opened.
    pub struct Functions in "functions" {
        /// Longest time of a function for one document, or of one call, in milliseconds.
        time_limit_ms: Milliseconds = "5000" [start],
        /// Memory of one JavaScript heap, in bytes; at most 1073741824 counts.
        memory_limit_bytes: Count = "67108864" [start],
        /// Stack of JavaScript's calls, in bytes.
        stack_limit_bytes: Count = "524288" [start],
        /// Most rows that one function may emit for one document.
        emit_rows_limit: Count = "100000" [start],
        /// Most JSON that the functions of a design document may emit for one document, and that any other may answer,
        /// in bytes.
        emit_bytes_limit: Count = "67108864" [start],
        /// process runs JavaScript in worker processes, which can be killed whatever the function does; thread inside
        /// the server, where one long call of a built-in function ends when it ends.
        isolation: Isolation = "process" [start],
        /// Functions of one database that run at a time, of any language: so many that requests and feeds call (shows,
        /// updates, rewrites, filters), so many that validate writes, and so many that indexes need (maps, reduces).
        /// Another place of each kind is for other databases. 0 means one a core; at least 2 count.
        workers_limit: Count = "0" [start],
        /// Most requests that wait for a place of one kind. Beyond, the database with most of them waiting gets 503 for
        /// its newest.
        queue_limit: Count = "2048" [start],
        /// Longest time that a show, list, update or rewrite waits for a place, in milliseconds; then the request gets
        /// 503.
        queue_time_limit_ms: Milliseconds = "10000",
    }
}

section! {
    /// Programs that run the functions of other languages, by CouchDB's line protocol: language = command line. The
    /// word builtin stands for a server that comes with Settee (nodejs, erlang). They run with all rights of the
    /// server's user.
    pub struct QueryServers in "query_servers" with all {}
}

section! {
    /// CouchDB's way to allow Erlang.
    pub struct NativeQueryServers in "native_query_servers" with all {
        /// Run Erlang functions, when Erlang is installed.
        enable_erlang_query_server: Bool = "false",
    }
}

section! {
    /// The programs of [query_servers], and reductions.
    pub struct QueryServerConfig in "query_server_config" {
        /// Most processes of one language.
        os_process_limit: Count = "100",
        /// Processes of one language that are kept when nobody waits for one.
        os_process_soft_limit: Count = "100",
        /// How long an unused process is kept, in seconds.
        os_process_idle_limit: Seconds = "300",
        /// Whether a reduction that does not shrink is an error; log only logs it.
        reduce_limit: ReduceLimit = "true",
        /// Size from which a reduction has to shrink, in bytes.
        reduce_limit_threshold: Count = "5000",
        /// How many times smaller than its input it has to be.
        reduce_limit_ratio: Ratio = "2.0",
        /// Most rows that one query of a view, of _all_docs and its like, or of _all_dbs may ask for, and gets.
        query_limit: Limit = "268435456",
        /// The same for a query of one partition.
        partition_query_limit: Limit = "268435456",
    }
}

choice! {
    /// Where JavaScript runs.
    pub enum Isolation {
        /// Inside the server.
        Thread = "thread",
        /// In worker processes.
        Process = "process",
    }
}

choice! {
    /// What happens to a reduction that does not shrink.
    pub enum ReduceLimit {
        /// It is an error.
        On = "true",
        /// Nothing.
        Off = "false",
        /// It is logged.
        Log = "log",
    }
}
