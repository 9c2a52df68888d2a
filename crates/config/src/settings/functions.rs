//! Users' functions.

use super::kind::{Bool, Count, Limit, Milliseconds, Ratio, Seconds, Text};

section! {
    /// JavaScript functions of design documents. An open index keeps the settings with which it was
    /// opened.
    pub struct Functions in "functions" {
        /// Maximum time of a function for one document, or of one call, in milliseconds of processor
        /// time: on a busy machine a call may take up to four times as long.
        time_limit_ms: Milliseconds = "5000" [start],
        /// Maximum memory of one JavaScript heap, in bytes; at most 1073741824.
        memory_limit_bytes: Count = "67108864" [start],
        /// Maximum stack of JavaScript calls, in bytes.
        stack_limit_bytes: Count = "524288" [start],
        /// Maximum number of rows that one function may emit for one document.
        emit_rows_limit: Count = "100000" [start],
        /// Maximum size of the JSON that the functions of a design document may emit for one
        /// document, and that any other function may return, in bytes.
        emit_bytes_limit: Count = "67108864" [start],
        /// process runs JavaScript in worker processes, which can always be killed; thread runs it
        /// inside the server, where a long call of a built-in function cannot be stopped.
        isolation: Isolation = "process" [start],
        /// Time zone of dates in JavaScript, like Europe/Berlin. Unset: that of the environment variable TZ,
        /// else UTC. Indexes whose functions use dates are rebuilt when it changes. With isolation =
        /// thread, the time zone of the server's process counts.
        time_zone: Option<Text> [start],
        /// Maximum number of running functions of one user, in any language. It applies separately
        /// to functions of requests and feeds (shows, updates, rewrites, filters), to validations
        /// of writes, and to functions of indexes (maps, reduces). One more of each kind may run
        /// for other users of a database, and one more for other databases. 0 means one per core,
        /// at least 2.
        workers_limit: Count = "0" [start],
        /// Maximum number of requests that wait to run a function of one kind. Beyond it, the
        /// newest request of the user with the most waiting requests gets a 503.
        queue_limit: Count = "2048" [start],
        /// Maximum time that a show, list, update or rewrite waits to run, in milliseconds; then
        /// the request gets a 503.
        queue_time_limit_ms: Milliseconds = "10000",
    }
}

section! {
    /// Programs that run functions in other languages, with CouchDB's line protocol: language =
    /// command line. The word builtin selects a program that comes with Settee (nodejs, erlang,
    /// python); an interpreter may follow it, as in python = builtin pypy3. They run with all
    /// rights of the server's user.
    pub struct QueryServers in "query_servers" with all {}
}

section! {
    /// CouchDB's settings for Erlang functions.
    pub struct NativeQueryServers in "native_query_servers" with all {
        /// Run Erlang functions, if Erlang is installed.
        enable_erlang_query_server: Bool = "false",
    }
}

section! {
    /// The programs of [query_servers], and reductions.
    pub struct QueryServerConfig in "query_server_config" {
        /// Maximum number of processes per language.
        os_process_limit: Count = "100",
        /// Number of idle processes per language that are kept.
        os_process_soft_limit: Count = "100",
        /// Time for which an idle process is kept, in seconds.
        os_process_idle_limit: Seconds = "300",
        /// Treat a reduction that does not shrink its input as an error; log only logs it.
        reduce_limit: ReduceLimit = "true",
        /// Size of the input above which a reduction must shrink it, in bytes.
        reduce_limit_threshold: Count = "5000",
        /// Factor by which the result must be smaller than the input.
        reduce_limit_ratio: Ratio = "2.0",
        /// Maximum number of rows of one query of a view, of _all_docs and similar listings, or of
        /// _all_dbs.
        query_limit: Limit = "infinity",
        /// Maximum number of rows of a query of one partition.
        partition_query_limit: Limit = "infinity",
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
    /// The reaction to a reduction that does not shrink.
    pub enum ReduceLimit {
        /// It is an error.
        On = "true",
        /// Nothing.
        Off = "false",
        /// It is logged.
        Log = "log",
    }
}
