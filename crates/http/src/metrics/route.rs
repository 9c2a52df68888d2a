//! Classes of requests: what metrics tell apart. Few, so that labels are bounded whatever clients ask for.

/// Declares the classes with their names.
macro_rules! routes {
    ($($(#[$doc:meta])* $route:ident $name:literal,)*) => {
        /// What a request is about.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Route { $($(#[$doc])* $route,)* }

        /// All classes, in the order of their numbers.
        pub const ROUTES: &[Route] = &[$(Route::$route,)*];

        impl Route {
            /// The class as a label.
            pub fn name(self) -> &'static str {
                match self { $(Route::$route => $name,)* }
            }
        }
    };
}

routes! {
    /// No path of this API.
    #[default]
    Unknown "unknown",
    /// `/`, `/_up`, `/_utils` and the like.
    Welcome "welcome",
    /// `/_all_dbs`, `/_dbs_info`.
    Databases "databases",
    /// `/_session`.
    Session "session",
    /// `/_node/…`, `/_active_tasks`, `/_membership` and what else is for who looks after the server.
    Server "server",
    /// `/_replicate` and `/_scheduler`.
    Replication "replication",
    /// A database is made.
    DatabaseCreate "database_create",
    /// A database is deleted.
    DatabaseDelete "database_delete",
    /// What a database is: its counts.
    DatabaseInfo "database_info",
    /// Limits, security objects, shards, partitions.
    Properties "database_properties",
    /// A document is read.
    DocumentRead "document_read",
    /// A document is written, copied or deleted.
    DocumentWrite "document_write",
    /// An attachment is read.
    AttachmentRead "attachment_read",
    /// An attachment is written or deleted.
    AttachmentWrite "attachment_write",
    /// `_local` documents, which checkpoints are.
    Local "local_document",
    /// `_all_docs` and its like.
    Listing "all_docs",
    /// `_changes` that ends when there are no more.
    Changes "changes",
    /// `_changes` and `_db_updates` that wait for more: the time of these is their client's.
    Feed "feed",
    /// `_bulk_docs`.
    BulkDocs "bulk_docs",
    /// `_bulk_get`.
    BulkGet "bulk_get",
    /// `_revs_diff`, `_missing_revs`.
    RevsDiff "revs_diff",
    /// `_find`.
    Find "find",
    /// `_index` and `_explain`.
    Index "index",
    /// `_view`.
    View "view",
    /// `_search`: a text index by Clouseau's interface.
    Search "search",
    /// `_nouveau`: one by Nouveau's.
    Nouveau "nouveau",
    /// `_show`, `_list`, `_update`, `_rewrite`, what `_info` says of a design document, and previews of one.
    Design "design_function",
    /// `_purge`.
    Purge "purge",
    /// `_compact`, `_view_cleanup`, `_search_cleanup`, `_nouveau_cleanup`, `_ensure_full_commit`.
    Maintenance "maintenance",
}

/// Databases whose names begin with an underscore.
const SYSTEM_DATABASES: [&str; 3] = ["_users", "_replicator", "_global_changes"];

impl Route {
    /// The class of a request with these decoded segments of its path; `feed` is that parameter of its query.
    pub fn of(method: &str, segments: &[Vec<u8>], feed: Option<&str>) -> Route {
        let Some(first) = text(segments, 0) else {
            return Route::Welcome;
        };
        if !first.starts_with('_') || SYSTEM_DATABASES.contains(&first) {
            return match text(segments, 1) {
                None => of_database(method),
                Some(second) => below_database(method, second, &segments[2..], feed),
            };
        }
        match first {
            "_up" | "_utils" | "_uuids" => Route::Welcome,
            "_all_dbs" | "_dbs_info" => Route::Databases,
            "_session" => Route::Session,
            "_replicate" | "_scheduler" => Route::Replication,
            "_db_updates" if waits(feed) => Route::Feed,
            "_db_updates" => Route::Databases,
            "_node" | "_active_tasks" | "_membership" | "_cluster_setup" | "_reshard"
            | "_settee" | "_search_analyze" | "_nouveau_analyze" => Route::Server,
            _ => Route::Unknown,
        }
    }

    /// Whether it changes documents, with this method.
    pub fn writes(self, method: &str) -> bool {
        use Route::{AttachmentWrite, BulkDocs, DocumentWrite, Local, Purge};
        let changes = matches!(
            self,
            DocumentWrite | AttachmentWrite | BulkDocs | Local | Purge
        );
        changes && !reads(method)
    }

    /// Whether it asks an index that has a name below a design document: a view or a text index.
    pub fn is_of_index(self) -> bool {
        matches!(self, Route::View | Route::Search | Route::Nouveau)
    }

    /// Whether how long it takes is about something else than the server: a client that waits, a file, a whole replication.
    pub fn has_its_own_pace(self) -> bool {
        use Route::{AttachmentRead, AttachmentWrite, Feed, Replication};
        matches!(self, Feed | AttachmentRead | AttachmentWrite | Replication)
    }

    /// Whether the client decides how long it takes, and that it ends.
    pub fn is_feed(self) -> bool {
        self == Route::Feed
    }
}

fn text(segments: &[Vec<u8>], i: usize) -> Option<&str> {
    segments.get(i).map(|s| str::from_utf8(s).unwrap_or(""))
}

/// Whether a feed of this kind waits for more.
fn waits(feed: Option<&str>) -> bool {
    matches!(
        feed,
        Some("continuous" | "live" | "longpoll" | "eventsource")
    )
}

fn reads(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// `/{db}`
fn of_database(method: &str) -> Route {
    match method {
        "PUT" => Route::DatabaseCreate,
        "DELETE" => Route::DatabaseDelete,
        "POST" => Route::DocumentWrite,
        _ => Route::DatabaseInfo,
    }
}

/// `/{db}/{second}/{rest…}`
fn below_database(method: &str, second: &str, rest: &[Vec<u8>], feed: Option<&str>) -> Route {
    match (second, rest.len()) {
        ("_design", 1..) => of_design(method, rest),
        ("_local", 1..) => Route::Local,
        ("_partition", 2..) => match text(rest, 1) {
            Some("_design") => of_design(method, &rest[2..]),
            Some(third) => below_database(method, third, &rest[2..], feed),
            None => Route::Unknown,
        },
        ("_all_docs" | "_design_docs" | "_local_docs", _) => Route::Listing,
        ("_changes", _) if waits(feed) => Route::Feed,
        ("_changes", _) => Route::Changes,
        ("_bulk_docs", _) => Route::BulkDocs,
        ("_bulk_get", _) => Route::BulkGet,
        ("_revs_diff" | "_missing_revs", _) => Route::RevsDiff,
        ("_find", _) => Route::Find,
        ("_index" | "_explain", _) => Route::Index,
        ("_purge", _) => Route::Purge,
        (
            "_compact"
            | "_view_cleanup"
            | "_search_cleanup"
            | "_nouveau_cleanup"
            | "_ensure_full_commit"
            | "_sync_shards",
            _,
        ) => Route::Maintenance,
        ("_security" | "_revs_limit" | "_purged_infos" | "_purged_infos_limit", _) => {
            Route::Properties
        }
        ("_shards" | "_partition", _) => Route::Properties,
        ("_settee", _) => Route::Design,
        (_, 0) => of_document(method),
        _ => of_attachment(method),
    }
}

fn of_document(method: &str) -> Route {
    match reads(method) {
        true => Route::DocumentRead,
        false => Route::DocumentWrite,
    }
}

fn of_attachment(method: &str) -> Route {
    match reads(method) {
        true => Route::AttachmentRead,
        false => Route::AttachmentWrite,
    }
}

/// `_design/{name}/{…}`; `rest` begins with the name.
fn of_design(method: &str, rest: &[Vec<u8>]) -> Route {
    match text(rest, 1) {
        None => of_document(method),
        Some("_view") => Route::View,
        Some("_search") => Route::Search,
        Some("_nouveau") => Route::Nouveau,
        Some(part) if part.starts_with('_') => Route::Design,
        Some(_) => of_attachment(method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_classes() {
        let of = |request: &str| {
            let (method, path) = request.split_once(' ').unwrap();
            let (path, feed) = path.split_once('?').unwrap_or((path, ""));
            let segments: Vec<Vec<u8>> = path
                .split('/')
                .filter(|s| !s.is_empty())
                .map(|s| s.as_bytes().to_vec())
                .collect();
            let feed = feed.strip_prefix("feed=");
            Route::of(method, &segments, feed).name()
        };
        for (request, name) in [
            ("GET /", "welcome"),
            ("GET /_all_dbs", "databases"),
            ("GET /_nonsense", "unknown"),
            ("PUT /db", "database_create"),
            ("POST /db", "document_write"),
            ("GET /_users/org.couchdb.user:x", "document_read"),
            ("HEAD /db/doc", "document_read"),
            ("COPY /db/doc", "document_write"),
            ("GET /db/doc/file/with/slashes", "attachment_read"),
            ("PUT /db/doc/file", "attachment_write"),
            ("PUT /db/_local/x", "local_document"),
            ("GET /db/_design/x", "document_read"),
            ("GET /db/_design/x/logo.png", "attachment_read"),
            ("POST /db/_design/x/_view/y/queries", "view"),
            ("GET /db/_partition/p/_design/x/_view/y", "view"),
            ("GET /db/_design/x/_search/y", "search"),
            ("POST /db/_partition/p/_design/x/_search/y", "search"),
            ("POST /db/_design/x/_nouveau/y", "nouveau"),
            ("GET /db/_design/x/_search_info/y", "design_function"),
            ("POST /db/_search_cleanup", "maintenance"),
            ("POST /_nouveau_analyze", "server"),
            ("GET /db/_partition/p/_all_docs", "all_docs"),
            ("GET /db/_partition/p", "database_properties"),
            ("GET /db/_changes?feed=live", "feed"),
            ("GET /_db_updates", "databases"),
            ("GET /db/_design/x/_info", "design_function"),
            ("GET /db/_changes", "changes"),
            ("GET /db/_changes?feed=longpoll", "feed"),
            ("POST /db/_find", "find"),
        ] {
            assert_eq!(of(request), name, "{request}");
        }
    }

    #[test]
    fn names_are_labels_and_differ() {
        let mut names: Vec<&str> = ROUTES.iter().map(|r| r.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROUTES.len());
        assert!(ROUTES.iter().enumerate().all(|(i, r)| *r as usize == i));
    }
}
