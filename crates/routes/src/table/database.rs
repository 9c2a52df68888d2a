//! Paths of a database, except those of its design documents.

use super::place::{database, ddoc_id, index_ddoc_id, local_id};
use crate::class::Class;
use crate::operation::{ANY, copy, delete, get, post, put};
use crate::parameters::{
    BATCH, BULK_GET, CHANGES, CLOUSEAU, CREATE, FEED, FULL, NOUVEAU, PAGE, RANGE, READ, REV,
    SEARCH, VIEW, WRITE,
};
use crate::route::{DatabaseRoute, ListingKind};
use crate::row::{BodyClass, Cluster, Row};
use crate::who::Who;

/// The content type of HTML forms with files.
const FORM: &str = "multipart/form-data";

/// Rows. A row that others do not precede by more literals is the fallback for paths that they do
/// not match.
#[rustfmt::skip]
pub(super) static DATABASE: &[Row] = &[
    Row::database("PUT", "/{db}", Class::DatabaseCreate, |c| database(c, DatabaseRoute::Create))
        .who_may(Who::ServerAdmin).cluster(Cluster::Control).rewrites_read()
        .operations(&[
            put("Creates the database.", "Ok").query(&[&CREATE]).status(201),
        ]),
    Row::database("DELETE", "/{db}", Class::DatabaseDelete, |c| database(c, DatabaseRoute::Delete))
        .who_may(Who::ServerAdmin).cluster(Cluster::Control).rewrites_read()
        .operations(&[
            delete("Deletes the database.", "Ok"),
        ]),
    Row::database("DELETE,GET,HEAD,POST", "/{db}", Class::DatabaseInfo, |c| database(c, DatabaseRoute::Database)).by_access()
        .changes_are(Class::DocumentWrite).blind_writes(&["POST"])
        .operations(&[
            get("Returns information about the database.", "DatabaseInfo"),
            post("Creates a document; without `_id` the server chooses one.", "Written").query(&[&BATCH]).body("Document").status(201),
        ]),
    Row::database("DELETE,GET,HEAD,POST,PUT,COPY", "/{db}/{docid}", Class::DocumentRead, |c| database(c, DatabaseRoute::Document(c.text("docid")))).by_access()
        .changes_are(Class::DocumentWrite).blind_writes(&["PUT"])
        .operations(&[
            get("Returns a document.", "Document").query(&[&READ]),
            put("Writes a document.", "Written").query(&[&WRITE]).body("Document").status(201),
            delete("Deletes a document.", "Written").query(&[&REV]),
            copy("Copies a document to the id in the header `Destination`.", "Written").query(&[&REV]).status(201),
            post("Adds attachments from an HTML form.", "Written").takes(FORM).status(201),
        ]),
    Row::database("DELETE,GET,HEAD,PUT", "/{db}/{docid}/{attname...}", Class::AttachmentRead, |c| database(c, DatabaseRoute::Attachment(c.text("docid"), c.joined("attname")))).by_access()
        .changes_are(Class::AttachmentWrite)
        .operations(&[
            get("Returns an attachment, or ranges of it.", "Any").query(&[&REV]).gives(ANY),
            put("Writes an attachment.", "Written").query(&[&REV]).takes(ANY).status(201),
            delete("Deletes an attachment.", "Written").query(&[&REV]),
        ]),
    Row::database("*", "/{db}/_local", Class::Local, |c| database(c, DatabaseRoute::NoLocalId)),
    Row::database("DELETE,GET,HEAD,POST,PUT,COPY", "/{db}/_local/{docid}", Class::Local, |c| database(c, DatabaseRoute::Local(local_id(c)))).by_access()
        .operations(&[
            get("Returns a local document, which is not replicated.", "Document"),
            put("Writes a local document.", "Written").query(&[&WRITE]).body("Document").status(201),
            delete("Deletes a local document.", "Written").query(&[&REV]),
            copy("Copies a local document to the id in the header `Destination`.", "Written").query(&[&REV]).status(201),
        ]),
    Row::database("DELETE,GET,HEAD,PUT", "/{db}/_local/{docid}/{attname...}", Class::Local, |c| database(c, DatabaseRoute::Attachment(local_id(c), c.joined("attname")))),
    Row::database("GET,HEAD,POST", "/{db}/_all_docs", Class::Listing, |c| database(c, DatabaseRoute::Listing(ListingKind::AllDocs))).by_access()
        .who_may(Who::Listing).post_reads()
        .operations(&[
            get("Lists documents by id.", "Rows").query(&[&RANGE, &PAGE, &FULL]),
            post("Lists documents by id; the body has the parameters.", "Rows").query(&[&RANGE, &PAGE, &FULL]).body("RowsQuery"),
        ]),
    Row::database("POST", "/{db}/_all_docs/queries", Class::Listing, |c| database(c, DatabaseRoute::ListingQueries(ListingKind::AllDocs))).by_access()
        .who_may(Who::Listing).post_reads()
        .operations(&[
            post("Returns several listings of documents.", "Results").body("Queries"),
        ]),
    Row::database("GET,HEAD,POST", "/{db}/_design_docs", Class::Listing, |c| database(c, DatabaseRoute::Listing(ListingKind::DesignDocs)))
        .who_may(Who::Listing).post_reads()
        .operations(&[
            get("Lists design documents by id.", "Rows").query(&[&RANGE, &PAGE, &FULL]),
            post("Lists design documents by id; the body has the parameters.", "Rows").query(&[&RANGE, &PAGE, &FULL]).body("RowsQuery"),
        ]),
    Row::database("POST", "/{db}/_design_docs/queries", Class::Listing, |c| database(c, DatabaseRoute::ListingQueries(ListingKind::DesignDocs)))
        .who_may(Who::Listing).post_reads()
        .operations(&[
            post("Returns several listings of design documents.", "Results").body("Queries"),
        ]),
    Row::database("GET,HEAD,POST", "/{db}/_local_docs", Class::Listing, |c| database(c, DatabaseRoute::Listing(ListingKind::LocalDocs)))
        .who_may(Who::Listing).post_reads()
        .operations(&[
            get("Lists local documents by id.", "Rows").query(&[&RANGE, &PAGE, &FULL]),
            post("Lists local documents by id; the body has the parameters.", "Rows").query(&[&RANGE, &PAGE, &FULL]).body("RowsQuery"),
        ]),
    Row::database("POST", "/{db}/_local_docs/queries", Class::Listing, |c| database(c, DatabaseRoute::ListingQueries(ListingKind::LocalDocs)))
        .who_may(Who::Listing).post_reads()
        .operations(&[
            post("Returns several listings of local documents.", "Results").body("Queries"),
        ]),
    Row::database("GET,POST,HEAD", "/{db}/_changes", Class::Changes, |c| database(c, DatabaseRoute::Changes)).by_access()
        .who_may(Who::Listing).post_reads().feeds()
        .operations(&[
            get("Returns changes in their order.", "Changes").query(&[&FEED, &CHANGES, &FULL]),
            post("Returns changes in their order; the body has parameters of the filter.", "Changes").query(&[&FEED, &CHANGES, &FULL]).body("ChangesFilter"),
        ]),
    Row::database("POST", "/{db}/_bulk_docs", Class::BulkDocs, |c| database(c, DatabaseRoute::BulkDocs)).by_access()
        .blind_writes(&["POST"])
        .operations(&[
            post("Writes documents.", "Outcomes").body("BulkDocs").status(201),
        ]),
    Row::database("POST", "/{db}/_bulk_get", Class::BulkGet, |c| database(c, DatabaseRoute::BulkGet)).by_access()
        .post_reads()
        .operations(&[
            post("Returns documents, or several revisions of each.", "BulkGetAnswer").query(&[&BULK_GET]).body("BulkGet"),
        ]),
    Row::database("POST", "/{db}/_revs_diff", Class::RevsDiff, |c| database(c, DatabaseRoute::RevsDiff)).by_access()
        .post_reads()
        .operations(&[
            post("Returns which of these revisions are missing.", "Object").body("RevsById"),
        ]),
    Row::database("POST", "/{db}/_missing_revs", Class::RevsDiff, |c| database(c, DatabaseRoute::MissingRevs)).by_access()
        .post_reads()
        .operations(&[
            post("Returns which of these revisions are missing, in an older format.", "Object").body("RevsById"),
        ]),
    Row::database("POST", "/{db}/_find", Class::Find, |c| database(c, DatabaseRoute::Find)).by_access()
        .post_reads().body(BodyClass::Document)
        .operations(&[
            post("Returns documents that match a selector, or aggregates of them.", "Found").body("Find"),
        ]),
    Row::database("POST", "/{db}/_explain", Class::Index, |c| database(c, DatabaseRoute::Explain))
        .post_reads().body(BodyClass::Document)
        .operations(&[
            post("Returns which index a query would use.", "Object").body("Find"),
        ]),
    Row::database("POST", "/{db}/_find/{path...}", Class::Find, |c| database(c, DatabaseRoute::Missing))
        .post_reads(),
    Row::database("POST", "/{db}/_explain/{path...}", Class::Index, |c| database(c, DatabaseRoute::Missing))
        .post_reads(),
    Row::database("GET,POST", "/{db}/_index", Class::Index, |c| database(c, DatabaseRoute::Index))
        .body(BodyClass::Document)
        .operations(&[
            get("Lists the indexes of queries.", "Indexes").query(&[&PAGE]),
            post("Creates an index.", "Object").needs(Who::DesignAdmin).body("NewIndex"),
        ]),
    Row::database("POST", "/{db}/_index/_bulk_delete", Class::Index, |c| database(c, DatabaseRoute::IndexBulkDelete))
        .body(BodyClass::Document)
        .operations(&[
            post("Deletes all indexes of design documents.", "Object").needs(Who::DesignAdmin).body("IndexIds"),
        ]),
    Row::database("DELETE", "/{db}/_index/{design_doc}/{kind}/{name}", Class::Index, |c| database(c, DatabaseRoute::IndexOf { ddoc: index_ddoc_id(&c.text("design_doc")), kind: c.text("kind"), name: c.text("name") }))
        .operations(&[
            delete("Deletes an index.", "Ok").needs(Who::DesignAdmin),
        ]),
    Row::database("DELETE", "/{db}/_index/_design/{ddoc}/{kind}/{name}", Class::Index, |c| database(c, DatabaseRoute::IndexOf { ddoc: index_ddoc_id(&c.text("ddoc")), kind: c.text("kind"), name: c.text("name") })),
    Row::database("*", "/{db}/_index/{path...}", Class::Index, |c| database(c, DatabaseRoute::Missing)),
    Row::database("PUT,GET", "/{db}/_security", Class::Properties, |c| database(c, DatabaseRoute::Security)).by_access()
        .changed_by(Who::DesignAdmin).blind_writes(&["PUT"]).body(BodyClass::Document)
        .operations(&[
            get("Returns who may use the database.", "Security"),
            put("Sets who may use the database.", "Ok").body("Security"),
        ]),
    Row::database("PUT,GET", "/{db}/_revs_limit", Class::Properties, |c| database(c, DatabaseRoute::RevsLimit))
        .changed_by(Who::DatabaseAdmin).blind_writes(&["PUT"]).body(BodyClass::Small)
        .operations(&[
            get("Returns how many ancestors of a revision are kept.", "Number"),
            put("Sets how many ancestors of a revision are kept.", "Ok").body("Number"),
        ]),
    Row::database("GET,PUT", "/{db}/_purged_infos_limit", Class::Properties, |c| database(c, DatabaseRoute::PurgedInfosLimit))
        .changed_by(Who::DatabaseAdmin).blind_writes(&["PUT"]).body(BodyClass::Small)
        .operations(&[
            get("Returns how many purges are remembered.", "Number"),
            put("Sets how many purges are remembered.", "Ok").body("Number"),
        ]),
    Row::database("GET", "/{db}/_purged_infos", Class::Properties, |c| database(c, DatabaseRoute::PurgedInfos))
        .who_may(Who::Listing)
        .operations(&[
            get("Lists purges.", "Object"),
        ]),
    Row::database("GET,PUT,HEAD", "/{db}/_auto_purge", Class::Properties, |c| database(c, DatabaseRoute::AutoPurge))
        .changed_by(Who::DatabaseAdmin).blind_writes(&["PUT"]).body(BodyClass::Small)
        .operations(&[
            get("Returns how long deleted documents are kept.", "AutoPurge"),
            put("Sets how long deleted documents are kept.", "Ok").body("AutoPurge").status(201),
        ]),
    Row::database("GET,DELETE", "/{db}/_time_seq", Class::Properties, |c| database(c, DatabaseRoute::TimeSeq))
        .changed_by(Who::DatabaseAdmin).cluster(Cluster::Local)
        .operations(&[
            get("Returns the numbers of changes in periods of time.", "TimeSeq"),
            delete("Resets the numbers of changes in periods of time.", "Ok"),
        ]),
    Row::database("POST", "/{db}/_purge", Class::Purge, |c| database(c, DatabaseRoute::Purge))
        .who_may(Who::ServerAdmin).rewrites_read().body(BodyClass::Small)
        .operations(&[
            post("Removes revisions as if they had never been.", "Object").body("RevsById").status(201),
        ]),
    Row::database("POST", "/{db}/_compact", Class::Maintenance, |c| database(c, DatabaseRoute::Compact(None)))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Everywhere).body(BodyClass::Small)
        .operations(&[
            post("Starts a compaction of the database.", "Ok").body("Object").status(202),
        ]),
    Row::database("POST", "/{db}/_compact/{ddoc}", Class::Maintenance, |c| database(c, DatabaseRoute::Compact(Some(ddoc_id(c)))))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Everywhere).body(BodyClass::Small)
        .operations(&[
            post("Starts a compaction of a design document's indexes.", "Ok").body("Object").status(202),
        ]),
    Row::database("POST", "/{db}/_view_cleanup", Class::Maintenance, |c| database(c, DatabaseRoute::ViewCleanup))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Everywhere).body(BodyClass::Small)
        .operations(&[
            post("Deletes indexes that no design document has.", "Ok").body("Object").status(202),
        ]),
    Row::database("POST", "/{db}/_search_cleanup", Class::Maintenance, |c| database(c, DatabaseRoute::SearchCleanup))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Everywhere).body(BodyClass::Small)
        .operations(&[
            post("Deletes text indexes that no design document has.", "Ok").body("Object").status(202),
        ]),
    Row::database("POST", "/{db}/_nouveau_cleanup", Class::Maintenance, |c| database(c, DatabaseRoute::NouveauCleanup))
        .who_may(Who::DatabaseAdmin).cluster(Cluster::Everywhere).body(BodyClass::Small)
        .operations(&[
            post("Deletes text indexes that no design document has.", "Ok").body("Object").status(202),
        ]),
    Row::database("POST", "/{db}/_ensure_full_commit", Class::Maintenance, |c| database(c, DatabaseRoute::EnsureFullCommit)).by_access()
        .cluster(Cluster::Local).body(BodyClass::Small)
        .operations(&[
            post("Waits until all writes are on disk.", "Object").body("Object").status(201),
        ]),
    Row::database("GET", "/{db}/_shards", Class::Properties, |c| database(c, DatabaseRoute::Shards(None)))
        .cluster(Cluster::Local)
        .operations(&[
            get("Returns the shards of the database.", "Object"),
        ]),
    Row::database("GET", "/{db}/_shards/{docid...}", Class::Properties, |c| database(c, DatabaseRoute::Shards(Some(c.rest("docid").join("/")))))
        .cluster(Cluster::Local)
        .operations(&[
            get("Returns the shard of a document.", "Object"),
        ]),
    Row::database("POST", "/{db}/_sync_shards", Class::Maintenance, |c| database(c, DatabaseRoute::SyncShards))
        .who_may(Who::ServerAdmin).cluster(Cluster::Everywhere).rewrites_read()
        .operations(&[
            post("Has nothing to do; accepted for compatibility.", "Ok").body("Object").status(202),
        ]),
    Row::database("*", "/{db}/_partition", Class::Properties, |c| database(c, DatabaseRoute::NoPartition)),
    Row::database("GET", "/{db}/_partition/{partition_id}", Class::Properties, |c| database(c, DatabaseRoute::Partition(c.text("partition_id"))))
        .operations(&[
            get("Returns information about a partition.", "Object"),
        ]),
    Row::database("GET,HEAD,POST", "/{db}/_partition/{partition_id}/_all_docs", Class::Listing, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .who_may(Who::Listing).post_reads()
        .operations(&[
            get("Lists the documents of a partition.", "Rows").query(&[&RANGE, &PAGE, &FULL]),
            post("Lists the documents of a partition; the body has the parameters.", "Rows").query(&[&RANGE, &PAGE, &FULL]).body("RowsQuery"),
        ]),
    Row::database("POST", "/{db}/_partition/{partition_id}/_all_docs/queries", Class::Listing, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .who_may(Who::Listing).post_reads(),
    Row::database("POST", "/{db}/_partition/{partition_id}/_find", Class::Find, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .post_reads().body(BodyClass::Document)
        .operations(&[
            post("Returns documents of a partition that match a selector.", "Found").body("Find"),
        ]),
    Row::database("POST", "/{db}/_partition/{partition_id}/_explain", Class::Index, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .post_reads().body(BodyClass::Document)
        .operations(&[
            post("Returns which index a query of a partition would use.", "Object").body("Find"),
        ]),
    Row::database("*", "/{db}/_partition/{partition_id}/_index", Class::Index, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .body(BodyClass::Document)
        .operations(&[
            get("Lists the indexes of the database.", "Indexes").query(&[&PAGE]),
            post("Creates an index of the database.", "Object").needs(Who::DesignAdmin).body("NewIndex"),
        ]),
    Row::database("*", "/{db}/_partition/{partition_id}/_index/{path...}", Class::Index, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .body(BodyClass::Document),
    Row::database("GET,POST,HEAD", "/{db}/_partition/{partition_id}/_design/{ddoc}/_view/{view}", Class::View, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .post_reads()
        .operations(&[
            get("Returns the rows of a view that belong to a partition.", "Rows").query(&[&RANGE, &PAGE, &VIEW, &FULL]),
            post("Returns the rows of a view that belong to a partition; the body has the parameters.", "Rows").query(&[&RANGE, &PAGE, &VIEW, &FULL]).body("RowsQuery"),
        ]),
    Row::database("POST", "/{db}/_partition/{partition_id}/_design/{ddoc}/_view/{view}/queries", Class::View, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .post_reads(),
    Row::database("GET,POST", "/{db}/_partition/{partition_id}/_design/{ddoc}/_search/{index}", Class::Search, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .post_reads().body(BodyClass::Small)
        .operations(&[
            get("Searches a text index of Clouseau's interface in a partition.", "Hits").query(&[&SEARCH, &CLOUSEAU]),
            post("Searches a text index of Clouseau's interface in a partition.", "Hits").body("Search"),
        ]),
    Row::database("GET,POST", "/{db}/_partition/{partition_id}/_design/{ddoc}/_nouveau/{index}", Class::Nouveau, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .post_reads().body(BodyClass::Small)
        .operations(&[
            get("Searches a text index of Nouveau's interface in a partition.", "Hits").query(&[&SEARCH, &NOUVEAU]),
            post("Searches a text index of Nouveau's interface in a partition.", "Hits").body("Search"),
        ]),
    Row::database("*", "/{db}/_partition/{partition_id}/_design/{ddoc}/_list/{function...}", Class::Design, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .post_reads().body(BodyClass::Document),
    Row::database("*", "/{db}/_partition/{partition_id}/_design/{ddoc}/{function...}", Class::Design, |c| database(c, DatabaseRoute::InPartition(c.text("partition_id"))))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_partition/{partition_id}/{path...}", Class::Unknown, |c| database(c, DatabaseRoute::NotInPartition(c.text("partition_id")))),
    Row::database("POST", "/{db}/_settee/preview", Class::Design, |c| database(c, DatabaseRoute::Preview))
        .who_may(Who::ListingAdmin).post_reads().body(BodyClass::Document)
        .operations(&[
            post("Runs functions that are not saved on some documents.", "Object").body("Preview"),
        ]),
    Row::database("*", "/{db}/_temp_view", Class::Unknown, |c| database(c, DatabaseRoute::TempView))
        .operations(&[
            post("Answers 410.", "Any").gives_nothing(),
        ]),
    Row::database("*", "/{db}/_temp_view/{path...}", Class::Unknown, |c| database(c, DatabaseRoute::TempView)),
];
