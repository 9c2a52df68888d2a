//! Parameters of paths and queries, for the OpenAPI description.

/// The kind of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// An integer that is not negative.
    Natural,
    /// Text.
    Text,
    /// A value in JSON.
    Json,
    /// One of the given words.
    Word(&'static [&'static str]),
}

/// A parameter of a query.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Its effect.
    pub about: &'static str,
}

/// Parameters that several operations share.
#[derive(Debug)]
pub struct Group {
    /// The name of the group, which is part of the names of the parameters' descriptions.
    pub name: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

const fn flag(name: &'static str, about: &'static str) -> Parameter {
    let kind = Kind::Boolean;
    Parameter { name, kind, about }
}

const fn number(name: &'static str, about: &'static str) -> Parameter {
    let kind = Kind::Natural;
    Parameter { name, kind, about }
}

const fn text(name: &'static str, about: &'static str) -> Parameter {
    let kind = Kind::Text;
    Parameter { name, kind, about }
}

const fn json(name: &'static str, about: &'static str) -> Parameter {
    let kind = Kind::Json;
    Parameter { name, kind, about }
}

const fn word(
    name: &'static str,
    words: &'static [&'static str],
    about: &'static str,
) -> Parameter {
    let kind = Kind::Word(words);
    Parameter { name, kind, about }
}

macro_rules! groups {
    ($($group:ident $name:literal [$($parameter:expr),* $(,)?])*) => {
        $(pub(crate) static $group: Group = Group { name: $name, parameters: &[$($parameter),*] };)*
    };
}

groups! {
    PAGE "page" [
        number("limit", "Returns at most this many."),
        number("skip", "Skips this many."),
    ]
    IDS "ids" [
        number("count", "How many ids; 1 by default."),
        text("prefix", "Text that each id starts with."),
    ]
    SESSION "session" [
        flag("basic", "Answers 401 with a challenge for Basic authentication without a login."),
    ]
    NEXT "next" [text("next", "Redirects to this path afterwards.")]
    NAMES "names" [
        json("startkey", "The first name."),
        json("endkey", "The last name."),
        flag("inclusive_end", "Whether `endkey` is among the names; `true` by default."),
        flag("descending", "Lists in reverse order."),
    ]
    CREATE "create" [
        number("q", "Number of shards; at least 1."),
        number("n", "Number of replicas; accepted for compatibility."),
        flag("partitioned", "Whether ids begin with the name of a partition."),
        flag("spread", "Whether the shards may be on different nodes of a cluster."),
        flag("access", "Whether each user sees and changes only the documents that name the user."),
        word("default_access", &["none", "owner"], "In a database with access: whether a user's new document without `_access` is refused or the user's own."),
        text("placement", "Replicas by zone, `zone:n`; accepted for compatibility."),
        word("engine", &["couch"], "The storage engine; accepted for compatibility."),
    ]
    READ "read" [
        text("rev", "Reads this revision."),
        flag("revs", "Adds the ids of the revision's ancestors."),
        flag("revs_info", "Adds the ancestors, and whether each is available."),
        text("open_revs", "`all`, or a JSON array of revisions: returns several revisions."),
        flag("latest", "Reads the leaves that descend from the requested revisions."),
        flag("conflicts", "Adds the conflicting revisions."),
        flag("deleted_conflicts", "Adds the deleted conflicting revisions."),
        flag("local_seq", "Adds the sequence of the last change."),
        flag("meta", "Stands for `revs_info`, `conflicts` and `deleted_conflicts`."),
        flag("attachments", "Adds the content of the attachments."),
        json("atts_since", "Adds only attachments newer than these revisions."),
        flag("att_encoding_info", "Adds how attachments are stored."),
    ]
    REV "rev" [text("rev", "The current revision.")]
    BATCH "batch" [word("batch", &["ok"], "Answers 202 before the document is on disk.")]
    WRITE "write" [
        text("rev", "The revision that is edited, when the body has no `_rev`."),
        flag("new_edits", "`false` stores the revision unchanged, as replication does."),
        word("batch", &["ok"], "Answers 202 before the document is on disk."),
    ]
    FULL "full" [
        flag("conflicts", "Adds conflicting revisions to documents."),
        flag("include_docs", "Adds the documents."),
        flag("attachments", "Adds the content of attachments to documents."),
        flag("att_encoding_info", "Adds how attachments are stored."),
    ]
    RANGE "range" [
        json("key", "Returns rows with this key."),
        json("keys", "Returns rows with these keys, in this order."),
        json("startkey", "The first key."),
        json("start_key", "The first key; another name of `startkey`."),
        json("endkey", "The last key."),
        json("end_key", "The last key; another name of `endkey`."),
        flag("inclusive_end", "Whether rows with `endkey` are returned; `true` by default."),
        flag("descending", "Returns rows in reverse order."),
        flag("update_seq", "Adds the sequence that the rows reflect."),
    ]
    VIEW "view" [
        text("startkey_docid", "The first id among rows with `startkey`."),
        text("endkey_docid", "The last id among rows with `endkey`."),
        flag("reduce", "Whether the rows are reduced; `true` by default if there is a reduce function."),
        flag("group", "Reduces the rows of each key."),
        number("group_level", "Reduces by the first members of keys that are arrays."),
        word("update", &["true", "false", "lazy"], "Whether the index is updated first."),
        word("stale", &["ok", "update_after"], "The older form of `update`."),
        flag("sorted", "Accepted for compatibility: rows are always sorted."),
        flag("stable", "Accepted for compatibility."),
    ]
    FEED "feed" [
        word("feed", &["normal", "longpoll", "continuous", "eventsource"], "How changes are sent; the last three wait for new ones."),
        text("since", "Returns changes after this sequence; `now` for future ones."),
        number("limit", "Returns at most this many."),
        flag("descending", "Returns the newest change first."),
        text("heartbeat", "Milliseconds between empty lines while there are no changes, or `true`."),
        number("timeout", "Milliseconds without changes until the feed ends."),
    ]
    CHANGES "changes" [
        text("filter", "A filter: `ddoc/name`, `_doc_ids`, `_selector`, `_design` or `_view`."),
        text("view", "The view of the filter `_view`: `ddoc/name`."),
        json("doc_ids", "The ids of the filter `_doc_ids`."),
        word("style", &["main_only", "all_docs"], "Whether all leaves of a document are returned."),
        number("seq_interval", "Returns a sequence only in every Nth row."),
    ]
    BULK_GET "bulk_get" [
        flag("revs", "Adds the ids of the revisions' ancestors."),
        flag("latest", "Reads the leaves that descend from the requested revisions."),
        flag("attachments", "Adds the content of the attachments."),
        flag("att_encoding_info", "Adds how attachments are stored."),
    ]
    SEARCH "search" [
        text("q", "The query."),
        number("limit", "Returns at most this many hits."),
        text("bookmark", "Continues after the hits of an earlier answer."),
        json("sort", "The order: a field, or an array of fields."),
        flag("include_docs", "Adds the documents."),
        json("counts", "Fields whose values are counted."),
        json("ranges", "Ranges of numeric fields that are counted."),
    ]
    NOUVEAU "nouveau" [
        number("top_n", "Most values that `counts` returns."),
        flag("update", "Whether the index is updated first; `true` by default."),
        text("locale", "The locale of numbers in the query."),
    ]
    CLOUSEAU "clouseau" [
        text("query", "Another name of `q`."),
        word("stale", &["ok"], "Does not update the index first."),
        json("drilldown", "A field with the values that hits must have."),
        text("group_field", "Groups hits by this field."),
        number("group_limit", "Returns at most this many groups."),
        json("group_sort", "The order of groups."),
        json("include_fields", "Returns only these stored fields."),
        json("highlight_fields", "Fields of which excerpts are returned."),
        text("highlight_pre_tag", "Text before a highlighted word."),
        text("highlight_post_tag", "Text after a highlighted word."),
        number("highlight_number", "Number of excerpts per field."),
        number("highlight_size", "The length of an excerpt, in characters."),
    ]
    ANALYZE "analyze" [
        text("analyzer", "The name of an analyzer."),
        text("text", "The text."),
    ]
    INFO "info" [flag("projections", "Adds the layout of stored projections.")]
    PERSIST "persist" [flag("persist", "`false` does not write the value to the file.")]
    SIZE "size" [number("size", "Number of spaces; 100 by default.")]
    ALL "all" [flag("all", "`true` returns the answers of all nodes of the cluster.")]
    SLOT "slot" [text("slot", "Only this slot: its number, or `control`.")]
    PROFILE "profile" [
        number("seconds", "How long to sample."),
        number("hz", "Samples per second."),
        word("of", &["cpu", "waits"], "Whether the time on processors is sampled, or the time of requests by the clock."),
        word("format", &["svg", "folded", "pprof"], "The format of the answer; `svg` by default."),
        text("route", "Only requests of this route, named as in metrics."),
        word("frames", &["own", "all"], "Whether each frame of the runtime is shown; `own` by default."),
    ]
}

/// Parameters of paths, with their meanings.
pub static PATH_PARAMETERS: &[(&str, &str)] = &[
    ("attname", "The name of an attachment. It may have slashes."),
    ("db", "The name of a database."),
    ("ddoc", "The name of a design document, without `_design/`."),
    (
        "design_doc",
        "The name of a design document, with or without `_design/`.",
    ),
    ("docid", "The id of a document."),
    ("func", "The name of a function."),
    ("index", "The name of an index."),
    ("jobid", "The id of a job."),
    ("key", "The key of a setting."),
    ("kind", "The kind of an index: `json`, `text` or `nouveau`."),
    ("name", "The name of an index."),
    ("node", "The name or number of a node."),
    ("node-name", "`_local`, or the name of a node."),
    (
        "other-ddoc",
        "The name of the design document that has the view.",
    ),
    ("partition_id", "The name of a partition."),
    ("path", "A path. It may have slashes."),
    ("replicator_db", "The name of a replicator database."),
    ("section", "A section of the settings."),
    ("view", "The name of a view."),
];
