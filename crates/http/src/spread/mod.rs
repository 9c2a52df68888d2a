//! Requests to spread databases, whose shards different nodes have.
//!
//! A request about one document goes to a node with its shard. Requests about several documents
//! (`_bulk_docs`, `_bulk_get`, `_revs_diff`, `_missing_revs`, `_purge`) are divided: each node gets
//! the documents of its shards, and the responses are joined in the order of the request
//! (`division.rs`). A feed is those of the shards, one after the other (`feed.rs`); a listing or a
//! map view has their rows, merged (`listing.rs`).

mod division;
mod feed;
mod feed_text;
mod feed_waits;
mod info;
mod listing;
mod listing_text;
mod nodes;
mod nth;
mod shard_nodes;

use cluster::SlotNumber;
use database::Database;
use hyper::header::{HeaderName, HeaderValue};
use member::{DatabasePart, Gateway, PART};
use routes::{DatabaseRoute, DesignRoute, ListingKind};

pub use division::Division;
pub use feed::changes;
pub use info::info;
pub use listing::{listing, view};
pub use nodes::divided;

use crate::request::Request;

/// The part of a spread database that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPart {
    /// All of it.
    Whole,
    /// Properties and design documents, which every node has.
    Shared,
    /// The shard of a document.
    Document(String),
    /// A feed over all shards.
    Feed,
    /// A listing over all shards.
    Listing,
    /// A view of a design document over all shards.
    View(String, String),
    /// The information on the database.
    Info,
    /// The shards of the documents in its body.
    Divided(Division),
    /// Another node divided the request: the shards in these slots.
    Slots(Vec<SlotNumber>),
}

impl RequestPart {
    /// Returns the part of a request with this route.
    pub fn of(req: &Request, route: &DatabaseRoute) -> RequestPart {
        match slots_of_header(req) {
            Some(slots) => RequestPart::Slots(slots),
            None => of_route(route, &req.method, req.query.get("partition")),
        }
    }

    /// Returns whether the nodes of several shards answer, and their responses are joined.
    pub fn is_joined(&self) -> bool {
        match self {
            RequestPart::Feed
            | RequestPart::Listing
            | RequestPart::View(..)
            | RequestPart::Info
            | RequestPart::Divided(_) => true,
            RequestPart::Whole
            | RequestPart::Shared
            | RequestPart::Document(_)
            | RequestPart::Slots(_) => false,
        }
    }

    /// Returns it for the gateway.
    pub fn of_database(&self) -> DatabasePart<'_> {
        match self {
            RequestPart::Whole
            | RequestPart::Feed
            | RequestPart::Listing
            | RequestPart::View(..)
            | RequestPart::Info
            | RequestPart::Divided(_) => DatabasePart::Whole,
            RequestPart::Shared => DatabasePart::Shared,
            RequestPart::Document(id) => DatabasePart::Document(id),
            RequestPart::Slots(slots) => DatabasePart::Slots(slots),
        }
    }
}

/// The name of the header with the slots of a divided request.
fn part_header(slots: &[SlotNumber]) -> Option<(HeaderName, HeaderValue)> {
    let numbers: Vec<String> = slots.iter().map(SlotNumber::to_string).collect();
    let value = HeaderValue::try_from(numbers.join(",")).ok()?;
    Some((HeaderName::from_static(PART), value))
}

/// Returns the slots that another node named. `forwarded_clients.rs` removes the header from
/// requests of clients.
fn slots_of_header(req: &Request) -> Option<Vec<SlotNumber>> {
    let text = req.headers.get(PART)?.to_str().ok()?;
    text.split(',').map(|slot| slot.parse().ok()).collect()
}

/// Returns the shards that another node requests of a spread database, by their indexes.
pub fn shards_of(req: &Request, gateway: &Gateway, db: &Database) -> Option<Vec<usize>> {
    let slots = slots_of_header(req).filter(|_| db.is_spread())?;
    let shards = 0..db.all_shards().len();
    let is_asked = |shard: &usize| slots.contains(&gateway.slot_of_shard(db, *shard));
    Some(shards.filter(is_asked).collect())
}

/// Returns the part that a route is about. `partition` is the parameter of this name.
fn of_route(route: &DatabaseRoute, method: &str, partition: Option<&str>) -> RequestPart {
    match route {
        DatabaseRoute::Document(id) | DatabaseRoute::Local(id) => RequestPart::Document(id.clone()),
        DatabaseRoute::Attachment(id, _) => RequestPart::Document(id.clone()),
        DatabaseRoute::Design(id, route) => of_design(id, route, partition),
        DatabaseRoute::Partition(name) | DatabaseRoute::InPartition(name) => of_partition(name),
        // Its counts are those of all documents.
        DatabaseRoute::Listing(ListingKind::DesignDocs) => RequestPart::Whole,
        DatabaseRoute::Listing(_) => partition.map_or(RequestPart::Listing, of_partition),
        DatabaseRoute::Database if method == "POST" => RequestPart::Divided(Division::NewDocument),
        DatabaseRoute::Changes => RequestPart::Feed,
        DatabaseRoute::Database => RequestPart::Info,
        DatabaseRoute::BulkDocs => RequestPart::Divided(Division::BulkDocs),
        DatabaseRoute::BulkGet => RequestPart::Divided(Division::BulkGet),
        DatabaseRoute::RevsDiff => RequestPart::Divided(Division::RevsDiff),
        DatabaseRoute::MissingRevs => RequestPart::Divided(Division::MissingRevs),
        DatabaseRoute::Purge => RequestPart::Divided(Division::Purge),
        DatabaseRoute::Security
        | DatabaseRoute::RevsLimit
        | DatabaseRoute::PurgedInfosLimit
        | DatabaseRoute::AutoPurge
        | DatabaseRoute::Index
        | DatabaseRoute::IndexBulkDelete
        | DatabaseRoute::IndexOf { .. }
        | DatabaseRoute::EnsureFullCommit
        | DatabaseRoute::Shards(_)
        | DatabaseRoute::SyncShards
        | DatabaseRoute::Compact(_)
        | DatabaseRoute::ViewCleanup
        | DatabaseRoute::SearchCleanup
        | DatabaseRoute::NouveauCleanup
        | DatabaseRoute::NoLocalId
        | DatabaseRoute::NoPartition
        | DatabaseRoute::NotInPartition(_)
        | DatabaseRoute::TempView
        | DatabaseRoute::InvalidId
        | DatabaseRoute::Missing => RequestPart::Shared,
        _ => RequestPart::Whole,
    }
}

fn of_design(id: &str, route: &DesignRoute, partition: Option<&str>) -> RequestPart {
    match route {
        DesignRoute::Document
        | DesignRoute::Attachment(_)
        | DesignRoute::NoView
        | DesignRoute::Missing => RequestPart::Document(id.to_owned()),
        DesignRoute::View(name) => match partition {
            Some(partition) => of_partition(partition),
            None => RequestPart::View(id.to_owned(), name.clone()),
        },
        _ => RequestPart::Whole,
    }
}

/// Documents of a partition are in one shard.
fn of_partition(name: &str) -> RequestPart {
    RequestPart::Document(format!("{name}:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_names_the_part_that_it_is_about() {
        let of = |route| of_route(&route, "GET", None);
        let document = |id: &str| RequestPart::Document(id.to_owned());
        assert_eq!(of(DatabaseRoute::Document("a".into())), document("a"));
        assert_eq!(
            of(DatabaseRoute::Local("_local/a".into())),
            document("_local/a")
        );
        assert_eq!(of(DatabaseRoute::Partition("p".into())), document("p:"));
        let design = |route| of(DatabaseRoute::Design("_design/d".into(), route));
        assert_eq!(design(DesignRoute::Document), document("_design/d"));
        let view = RequestPart::View("_design/d".into(), "v".into());
        assert_eq!(design(DesignRoute::View("v".into())), view);
        assert_eq!(of(DatabaseRoute::Security), RequestPart::Shared);
        assert_eq!(of(DatabaseRoute::Changes), RequestPart::Feed);
        assert_eq!(of(DatabaseRoute::Find), RequestPart::Whole);
        assert_eq!(of(DatabaseRoute::Database), RequestPart::Info);
        let created = of_route(&DatabaseRoute::Database, "POST", None);
        assert_eq!(created, RequestPart::Divided(Division::NewDocument));
        let all_docs = DatabaseRoute::Listing(ListingKind::AllDocs);
        assert_eq!(of_route(&all_docs, "GET", Some("p")), document("p:"));
        let (name, value) = part_header(&[3, 14]).expect("a header");
        assert_eq!((name.as_str(), value.as_bytes()), (PART, &b"3,14"[..]));
    }
}
