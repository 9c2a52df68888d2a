//! Paths of a design document.

use super::place::design;
use crate::class::Class;
use crate::operation::{ANY, copy, delete, get, post, put};
use crate::parameters::{
    CLOUSEAU, FULL, INFO, NOUVEAU, PAGE, RANGE, READ, REV, SEARCH, VIEW, WRITE,
};
use crate::route::DesignRoute;
use crate::row::{BodyClass, Row};
use crate::who::Who;

/// The content type of HTML forms with files.
const FORM: &str = "multipart/form-data";

/// Rows. A row that others do not precede by more literals is the fallback for paths that they do
/// not match.
#[rustfmt::skip]
pub(super) static DESIGN: &[Row] = &[
    Row::database("DELETE,GET,HEAD,POST,PUT,COPY", "/{db}/_design/{ddoc}", Class::DocumentRead, |c| design(c, DesignRoute::Document)).by_access()
        .changes_are(Class::DocumentWrite)
        .operations(&[
            get("Returns a design document.", "Document").query(&[&READ]),
            put("Writes a design document.", "Written").needs(Who::DesignAdmin).query(&[&WRITE]).body("DesignDocument").status(201),
            delete("Deletes a design document.", "Written").needs(Who::DesignAdmin).query(&[&REV]),
            copy("Copies a design document to the id in the header `Destination`.", "Written").needs(Who::DesignAdmin).query(&[&REV]).status(201),
            post("Adds attachments from an HTML form.", "Written").needs(Who::DesignAdmin).takes(FORM).status(201),
        ]),
    Row::database("DELETE,GET,HEAD,PUT", "/{db}/_design/{ddoc}/{attname...}", Class::AttachmentRead, |c| design(c, DesignRoute::Attachment(c.joined("attname")))).by_access()
        .changes_are(Class::AttachmentWrite)
        .operations(&[
            get("Returns an attachment of a design document.", "Any").query(&[&REV]).gives(ANY),
            put("Writes an attachment of a design document.", "Written").needs(Who::DesignAdmin).query(&[&REV]).takes(ANY).status(201),
            delete("Deletes an attachment of a design document.", "Written").needs(Who::DesignAdmin).query(&[&REV]),
        ]),
    Row::database("GET,POST,HEAD", "/{db}/_design/{ddoc}/_view/{view}", Class::View, |c| design(c, DesignRoute::View(c.text("view")))).by_access()
        .post_reads()
        .operations(&[
            get("Returns the rows of a view, or reductions of them.", "Rows").query(&[&RANGE, &PAGE, &VIEW, &FULL]),
            post("Returns the rows of a view, or reductions of them; the body has the parameters.", "Rows").query(&[&RANGE, &PAGE, &VIEW, &FULL]).body("RowsQuery"),
        ]),
    Row::database("POST", "/{db}/_design/{ddoc}/_view/{view}/queries", Class::View, |c| design(c, DesignRoute::ViewQueries(c.text("view")))).by_access()
        .post_reads()
        .operations(&[
            post("Returns the answers to several queries of a view.", "Results").body("Queries"),
        ]),
    Row::database("GET,POST,HEAD", "/{db}/_design/{ddoc}/_view", Class::View, |c| design(c, DesignRoute::NoView))
        .post_reads(),
    Row::database("GET,POST,HEAD", "/{db}/_design/{ddoc}/_view/{view}/{sub}", Class::View, |c| design(c, DesignRoute::NoView))
        .post_reads(),
    Row::database("*", "/{db}/_design/{ddoc}/_view/{path...}", Class::View, |c| design(c, DesignRoute::Missing))
        .post_reads(),
    Row::database("GET", "/{db}/_design/{ddoc}/_info", Class::Design, |c| design(c, DesignRoute::Info))
        .operations(&[
            get("Returns information about the design document's view index.", "Object").query(&[&INFO]),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_info/{path...}", Class::Design, |c| design(c, DesignRoute::Missing)),
    Row::database("GET,POST", "/{db}/_design/{ddoc}/_search/{index}", Class::Search, |c| design(c, DesignRoute::Search(vec![c.text("index")])))
        .post_reads().body(BodyClass::Small)
        .operations(&[
            get("Searches a text index of Clouseau's interface.", "Hits").query(&[&SEARCH, &CLOUSEAU]),
            post("Searches a text index of Clouseau's interface.", "Hits").body("Search"),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_search", Class::Search, |c| design(c, DesignRoute::Search(vec![])))
        .post_reads().body(BodyClass::Small),
    Row::database("*", "/{db}/_design/{ddoc}/_search/{path...}", Class::Search, |c| design(c, DesignRoute::Search(c.rest("path"))))
        .post_reads().body(BodyClass::Small),
    Row::database("GET", "/{db}/_design/{ddoc}/_search_info/{index}", Class::Design, |c| design(c, DesignRoute::SearchInfo(vec![c.text("index")])))
        .operations(&[
            get("Returns information about a text index.", "Object"),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_search_info", Class::Design, |c| design(c, DesignRoute::SearchInfo(vec![]))),
    Row::database("*", "/{db}/_design/{ddoc}/_search_info/{path...}", Class::Design, |c| design(c, DesignRoute::SearchInfo(c.rest("path")))),
    Row::database("GET", "/{db}/_design/{ddoc}/_search_disk_size/{index}", Class::Design, |c| design(c, DesignRoute::SearchDiskSize(vec![c.text("index")])))
        .operations(&[
            get("Returns the size of a text index on disk.", "Object"),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_search_disk_size", Class::Design, |c| design(c, DesignRoute::SearchDiskSize(vec![]))),
    Row::database("*", "/{db}/_design/{ddoc}/_search_disk_size/{path...}", Class::Design, |c| design(c, DesignRoute::SearchDiskSize(c.rest("path")))),
    Row::database("GET, POST", "/{db}/_design/{ddoc}/_nouveau/{index}", Class::Nouveau, |c| design(c, DesignRoute::Nouveau(vec![c.text("index")])))
        .post_reads().body(BodyClass::Small)
        .operations(&[
            get("Searches a text index of Nouveau's interface.", "Hits").query(&[&SEARCH, &NOUVEAU]),
            post("Searches a text index of Nouveau's interface.", "Hits").body("Search"),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_nouveau", Class::Nouveau, |c| design(c, DesignRoute::Nouveau(vec![])))
        .post_reads().body(BodyClass::Small),
    Row::database("*", "/{db}/_design/{ddoc}/_nouveau/{path...}", Class::Nouveau, |c| design(c, DesignRoute::Nouveau(c.rest("path"))))
        .post_reads().body(BodyClass::Small),
    Row::database("GET", "/{db}/_design/{ddoc}/_nouveau_info/{index}", Class::Design, |c| design(c, DesignRoute::NouveauInfo(vec![c.text("index")])))
        .operations(&[
            get("Returns information about a text index.", "Object"),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_nouveau_info", Class::Design, |c| design(c, DesignRoute::NouveauInfo(vec![]))),
    Row::database("*", "/{db}/_design/{ddoc}/_nouveau_info/{path...}", Class::Design, |c| design(c, DesignRoute::NouveauInfo(c.rest("path")))),
    Row::database("*", "/{db}/_design/{ddoc}/_show", Class::Design, |c| design(c, DesignRoute::Function("_show", vec![])))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_show/{func}", Class::Design, |c| design(c, DesignRoute::Function("_show", c.rest("func"))))
        .body(BodyClass::Document)
        .operations(&[
            get("Calls a show function.", "Any").gives(ANY),
            post("Calls a show function.", "Any").takes(ANY).gives(ANY),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_show/{func}/{docid...}", Class::Design, |c| design(c, DesignRoute::Function("_show", c.rest("func"))))
        .body(BodyClass::Document)
        .operations(&[
            get("Calls a show function with a document.", "Any").gives(ANY),
            post("Calls a show function with a document.", "Any").takes(ANY).gives(ANY),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_list", Class::Design, |c| design(c, DesignRoute::Function("_list", vec![])))
        .post_reads().body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_list/{func}/{view}", Class::Design, |c| design(c, DesignRoute::Function("_list", c.rest("func"))))
        .post_reads().body(BodyClass::Document)
        .operations(&[
            get("Calls a list function with the rows of a view.", "Any").query(&[&RANGE, &PAGE, &VIEW, &FULL]).gives(ANY),
            post("Calls a list function with the rows of a view.", "Any").query(&[&RANGE, &PAGE, &VIEW, &FULL]).body("RowsQuery").gives(ANY),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_list/{func}/{other-ddoc}/{view}", Class::Design, |c| design(c, DesignRoute::Function("_list", c.rest("func"))))
        .post_reads().body(BodyClass::Document)
        .operations(&[
            get("Calls a list function with the rows of another design document's view.", "Any").query(&[&RANGE, &PAGE, &VIEW, &FULL]).gives(ANY),
            post("Calls a list function with the rows of another design document's view.", "Any").query(&[&RANGE, &PAGE, &VIEW, &FULL]).body("RowsQuery").gives(ANY),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_list/{path...}", Class::Design, |c| design(c, DesignRoute::Function("_list", c.rest("path"))))
        .post_reads().body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_update", Class::Design, |c| design(c, DesignRoute::Function("_update", vec![])))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_update/{func}", Class::Design, |c| design(c, DesignRoute::Function("_update", c.rest("func"))))
        .body(BodyClass::Document)
        .operations(&[
            post("Calls an update function, which may write a document.", "Any").takes(ANY).gives(ANY).status(201),
            put("Calls an update function, which may write a document.", "Any").takes(ANY).gives(ANY).status(201),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_update/{func}/{docid...}", Class::Design, |c| design(c, DesignRoute::Function("_update", c.rest("func"))))
        .body(BodyClass::Document)
        .operations(&[
            post("Calls an update function with a document.", "Any").takes(ANY).gives(ANY).status(201),
            put("Calls an update function with a document.", "Any").takes(ANY).gives(ANY).status(201),
        ]),
    Row::database("*", "/{db}/_design/{ddoc}/_rewrite", Class::Design, |c| design(c, DesignRoute::Function("_rewrite", vec![])))
        .body(BodyClass::Document),
    Row::database("*", "/{db}/_design/{ddoc}/_rewrite/{path...}", Class::Design, |c| design(c, DesignRoute::Function("_rewrite", c.rest("path"))))
        .body(BodyClass::Document)
        .operations(&[
            get("Answers the request with the path that rewrite rules make.", "Any").gives(ANY),
            post("Answers the request with the path that rewrite rules make.", "Any").gives(ANY).takes(ANY),
            put("Answers the request with the path that rewrite rules make.", "Any").gives(ANY).takes(ANY),
            delete("Answers the request with the path that rewrite rules make.", "Any").gives(ANY),
        ]),
];
