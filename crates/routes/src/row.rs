//! A row of the table.

use crate::captures::Captures;
use crate::class::Class;
use crate::is_read;
use crate::operation::Operation;
use crate::route::Route;
use crate::who::Who;

/// How a node of a cluster answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// About this node, whatever state the others are in.
    Node,
    /// As [`Cluster::Control`], but never forwarded: it logs in here.
    Session,
    /// Depends on what all nodes share: databases, users, settings.
    Control,
    /// About what this node has of a database.
    Local,
    /// About the data of a database on every node: each handles the request.
    Everywhere,
    /// Reads or writes documents. Reads wait for the acknowledged writes of other nodes.
    Documents {
        /// Writes that need not know earlier ones: they carry the revision that they edit.
        blind_writes: &'static [&'static str],
    },
}

/// The use that rewrite rules and functions may make of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrites {
    /// All that the client may do.
    Allowed,
    /// Only reading.
    ReadOnly,
}

/// The kind of a request's body, which determines the limit of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyClass {
    /// A name with a password.
    Login,
    /// Settings, names, ids of few documents: `[limits] max_small_request_size`.
    Small,
    /// About as large as a document: `[couchdb] max_document_size`.
    Document,
    /// Many documents, ids or keys: `[chttpd] max_http_request_size`.
    Many,
}

/// A path with its properties.
#[derive(Debug)]
pub struct Row {
    /// The path. `{name}` stands for a segment, `{name...}` for one or more segments at the end.
    pub path: &'static str,
    /// The methods, separated by commas, as CouchDB lists them in a 405 answer. `*`: the handler decides.
    pub methods: &'static str,
    /// The users who may read, and those who may use the other methods.
    pub who: [Who; 2],
    /// The class of requests that read, and of those with other methods.
    pub class: [Class; 2],
    /// POST reads, and can be repeated.
    pub is_read_by_post: bool,
    /// More segments may follow the path, and mean nothing.
    pub ignores_rest: bool,
    /// With the parameter `feed`, the answer waits for more.
    pub has_feeds: bool,
    /// How a node of a cluster answers.
    pub cluster: Cluster,
    /// The use that rewrites may make of it.
    pub rewrites: Rewrites,
    /// The kind of the body.
    pub body: BodyClass,
    /// It shows and changes documents by their access sets. Others are for admins alone in databases
    /// with access.
    pub by_access: bool,
    /// Its operations, for clients. A test compares them with the API page of the manual.
    pub operations: &'static [Operation],
    /// Builds the route from the captured segments.
    pub(crate) route: fn(&Captures<'_>) -> Route,
}

impl Row {
    /// Returns whether the route has the method. HEAD goes wherever GET goes.
    pub fn allows(&self, method: &str) -> bool {
        let method = if method == "HEAD" { "GET" } else { method };
        self.methods == "*"
            || self
                .methods
                .split(',')
                .any(|allowed| allowed.trim() == method)
    }

    /// Returns whether requests with this method only read.
    pub fn reads(&self, method: &str) -> bool {
        is_read(method) || method == "POST" && self.is_read_by_post
    }

    /// Returns who may use the method.
    pub fn who(&self, method: &str) -> Who {
        self.who[usize::from(!is_read(method))]
    }

    /// Returns the class of a request; `feed` is that parameter of its query.
    pub fn class(&self, method: &str, feed: Option<&str>) -> Class {
        let waits = matches!(
            feed,
            Some("continuous" | "live" | "longpoll" | "eventsource")
        );
        match (self.has_feeds && waits, method) {
            (true, _) => Class::Feed,
            (false, "PUT") if self.path == "/{db}" => Class::DatabaseCreate,
            (false, "DELETE") if self.path == "/{db}" => Class::DatabaseDelete,
            _ => self.class[usize::from(!is_read(method))],
        }
    }
}

/// Constructors for the table. A row begins with the defaults of its kind.
impl Row {
    /// A route of the server, for its admins.
    pub(crate) const fn server(
        methods: &'static str,
        path: &'static str,
        class: Class,
        route: fn(&Captures<'_>) -> Route,
    ) -> Row {
        Row {
            path,
            methods,
            who: [Who::ServerAdmin; 2],
            class: [class; 2],
            is_read_by_post: false,
            ignores_rest: false,
            has_feeds: false,
            cluster: Cluster::Control,
            rewrites: Rewrites::Allowed,
            body: BodyClass::Small,
            by_access: false,
            operations: &[],
            route,
        }
    }

    /// A route of a database, for its members.
    pub(crate) const fn database(
        methods: &'static str,
        path: &'static str,
        class: Class,
        route: fn(&Captures<'_>) -> Route,
    ) -> Row {
        Row {
            who: [Who::Member; 2],
            cluster: Cluster::Documents { blind_writes: &[] },
            body: BodyClass::Many,
            ..Row::server(methods, path, class, route)
        }
    }

    pub(crate) const fn who_may(self, who: Who) -> Row {
        Row {
            who: [who; 2],
            ..self
        }
    }

    /// Sets the users who may use the methods that do not only read.
    pub(crate) const fn changed_by(self, who: Who) -> Row {
        Row {
            who: [self.who[0], who],
            ..self
        }
    }

    /// The class of the methods that do not only read.
    pub(crate) const fn changes_are(self, class: Class) -> Row {
        Row {
            class: [self.class[0], class],
            ..self
        }
    }

    pub(crate) const fn post_reads(self) -> Row {
        Row {
            is_read_by_post: true,
            ..self
        }
    }

    pub(crate) const fn ignores_rest(self) -> Row {
        Row {
            ignores_rest: true,
            ..self
        }
    }

    pub(crate) const fn feeds(self) -> Row {
        Row {
            has_feeds: true,
            ..self
        }
    }

    pub(crate) const fn cluster(self, cluster: Cluster) -> Row {
        Row { cluster, ..self }
    }

    pub(crate) const fn blind_writes(self, blind_writes: &'static [&'static str]) -> Row {
        Row {
            cluster: Cluster::Documents { blind_writes },
            ..self
        }
    }

    pub(crate) const fn rewrites_read(self) -> Row {
        Row {
            rewrites: Rewrites::ReadOnly,
            ..self
        }
    }

    pub(crate) const fn operations(self, operations: &'static [Operation]) -> Row {
        Row { operations, ..self }
    }

    pub(crate) const fn by_access(self) -> Row {
        Row {
            by_access: true,
            ..self
        }
    }

    pub(crate) const fn body(self, body: BodyClass) -> Row {
        Row { body, ..self }
    }
}
