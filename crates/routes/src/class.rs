//! Classes of requests, as metrics and reports name them.

/// Declares the classes with their names.
macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident $name:literal,)*) => {
        /// The subject of a request. There are few classes, so that metrics have few labels.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Class { $($(#[$doc])* $class,)* }

        /// All classes, in the order of their numbers.
        pub const CLASSES: &[Class] = &[$(Class::$class,)*];

        impl Class {
            /// Returns the class as a label.
            pub fn name(self) -> &'static str {
                match self { $(Class::$class => $name,)* }
            }
        }
    };
}

classes! {
    /// A path that is not in the table.
    #[default]
    Unknown "unknown",
    /// `/`, `/_up`, `/_utils`, `/_uuids`.
    Welcome "welcome",
    /// `/_all_dbs`, `/_dbs_info`.
    Databases "databases",
    /// `/_session`.
    Session "session",
    /// Administration: `/_node`, `/_active_tasks`, `/_membership`, `/_settee`.
    Server "server",
    /// `/_replicate` and `/_scheduler`.
    Replication "replication",
    /// Creation of a database.
    DatabaseCreate "database_create",
    /// Deletion of a database.
    DatabaseDelete "database_delete",
    /// Information about a database.
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
    /// `_local` documents, such as replication checkpoints.
    Local "local_document",
    /// `_all_docs`, `_design_docs`, `_local_docs`.
    Listing "all_docs",
    /// `_changes` that ends with the last change.
    Changes "changes",
    /// `_changes` and `_db_updates` that wait for more. The client decides how long they take.
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
    /// `_search`: full-text search with Clouseau's interface.
    Search "search",
    /// `_nouveau`: full-text search with Nouveau's interface.
    Nouveau "nouveau",
    /// `_show`, `_list`, `_update`, `_rewrite`, `_info` of a design document, and previews.
    Design "design_function",
    /// `_purge`.
    Purge "purge",
    /// `_compact`, `_view_cleanup`, `_search_cleanup`, `_nouveau_cleanup`, `_ensure_full_commit`.
    Maintenance "maintenance",
}

impl Class {
    /// Returns whether requests of this class change documents, when their method does not only read.
    pub fn writes(self, method: &str) -> bool {
        use Class::{AttachmentWrite, BulkDocs, DocumentWrite, Local, Purge};
        let changes = matches!(
            self,
            DocumentWrite | AttachmentWrite | BulkDocs | Local | Purge
        );
        changes && !crate::is_read(method)
    }

    /// Returns whether the path names an index below a design document: a view or a text index.
    pub fn is_of_index(self) -> bool {
        matches!(self, Class::View | Class::Search | Class::Nouveau)
    }

    /// Returns whether something else than the server determines the duration: a waiting client, a file, a whole replication.
    pub fn has_its_own_pace(self) -> bool {
        use Class::{AttachmentRead, AttachmentWrite, Feed, Replication};
        matches!(self, Feed | AttachmentRead | AttachmentWrite | Replication)
    }

    /// Returns whether the client decides when the answer ends.
    pub fn is_feed(self) -> bool {
        self == Class::Feed
    }
}
