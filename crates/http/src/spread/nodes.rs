//! Sends the parts of a divided request to the nodes of their slots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::{NodeId, SlotNumber};
use database::Database;
use futures_util::future::try_join_all;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use member::{ForwardedClientRequest, Gateway, Member};

use super::division::{DividedBody, Division, DivisionLimits, PartResponse};
use super::part_header;
use crate::errors::ApiError;
use crate::forwarded_headers::headers_for_others;
use crate::reply::Reply;
use crate::request::Request;
use crate::request::room::Parsed;
use node::Node;

/// Maximum size of a node's response to its part, in bytes: it is joined in memory.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// The documents of a divided request that some nodes have.
#[derive(Default)]
struct NodeDocuments {
    slots: BTreeSet<SlotNumber>,
    places: Vec<usize>,
}

/// Answers a request about documents of several shards.
pub async fn divided(
    node: &Node,
    member: &Arc<Member>,
    req: &mut Request,
    name: &str,
    division: Division,
) -> Result<Reply, ApiError> {
    req.require_json()?;
    if division == Division::BulkGet && !req.accepts("application/json") {
        return Err(ApiError::not_implemented(
            "multipart responses of spread databases",
        ));
    }
    let db = node.databases.get(name)?;
    let body = req.bytes_of(req.row.body, Parsed::Documents).await?;
    let settings = req.settings.clone();
    let limits = DivisionLimits {
        couchdb: &settings.couchdb,
        purged_revisions_max: settings.purge.max_revisions_number,
    };
    let whole = DividedBody::read(division, &body, &limits, || node.new_uuid())?;
    for id in whole.ids.iter().filter(|id| !id.is_empty()) {
        db.check_partitioned(id)?;
    }
    let by_nodes = by_nodes(member.gateway(), &db, &whole.ids);
    drop(db);
    let question = PartQuestion {
        member,
        division,
        method: &req.method,
        target: target_of(req),
        headers: headers_of_parts(req),
    };
    let ask = |(nodes, documents): (Vec<NodeId>, NodeDocuments)| {
        let body = whole.part(&documents.places);
        question.ask(nodes, documents, body)
    };
    let answered = try_join_all(by_nodes.into_iter().map(ask)).await?;
    let (responses, locations): (Vec<PartResponse>, Vec<Option<HeaderValue>>) =
        answered.into_iter().unzip();
    let (status, body) = whole.join(responses)?;
    let mut reply = Reply::json_bytes(status, body);
    let location = locations.into_iter().flatten().next();
    let location = location.filter(|_| division == Division::NewDocument);
    reply.headers.extend(location.map(|url| (LOCATION, url)));
    Ok(reply)
}

/// A divided request, but for its bodies.
struct PartQuestion<'a> {
    member: &'a Member,
    division: Division,
    method: &'a str,
    target: String,
    headers: HeaderMap,
}

impl PartQuestion<'_> {
    /// Sends a part to the first of its nodes that answers; returns the response, and the address
    /// of a new document.
    async fn ask(
        &self,
        nodes: Vec<NodeId>,
        documents: NodeDocuments,
        body: Vec<u8>,
    ) -> Result<(PartResponse, Option<HeaderValue>), ApiError> {
        let slots: Vec<SlotNumber> = documents.slots.into_iter().collect();
        let mut headers = self.headers.clone();
        headers.extend(part_header(&slots));
        let request = ForwardedClientRequest {
            method: self.method,
            target: &self.target,
            headers,
            body: body.into(),
        };
        let repeatable = is_read(self.division);
        let reply = self.member.ask_nodes(nodes, request, repeatable).await;
        let reply = reply.ok_or_else(|| ApiError::busy(NO_ANSWER.to_owned()))?;
        let location = reply.headers.get(LOCATION).cloned();
        let status = reply.status.as_u16();
        let body = reply.body.read(RESPONSE_BYTES_MAX).await;
        let body = body.map_err(|e| ApiError::busy(e.to_string()))?;
        let response = PartResponse {
            places: documents.places,
            status,
            body: body.to_vec(),
        };
        Ok((response, location))
    }
}

const NO_ANSWER: &str = "the nodes that have a part of the database do not answer";

/// Returns whether another node may answer a part that a failed one may have answered.
fn is_read(division: Division) -> bool {
    match division {
        Division::BulkGet | Division::RevsDiff | Division::MissingRevs => true,
        Division::NewDocument | Division::BulkDocs | Division::Purge => false,
    }
}

/// Returns the documents of each list of nodes that have their shards, best node first. A request
/// without documents goes to the nodes of the first shard.
fn by_nodes(
    gateway: &Gateway,
    db: &Database,
    ids: &[String],
) -> BTreeMap<Vec<NodeId>, NodeDocuments> {
    let mut nodes_of: BTreeMap<SlotNumber, Vec<NodeId>> = BTreeMap::new();
    let mut all: BTreeMap<Vec<NodeId>, NodeDocuments> = BTreeMap::new();
    let mut add = |id: &str, place: Option<usize>| {
        let slot = gateway.slot(db, id);
        let nodes = nodes_of.entry(slot);
        let nodes = nodes.or_insert_with(|| gateway.nodes_of_slot(db, slot));
        let documents = all.entry(nodes.clone()).or_default();
        documents.slots.insert(slot);
        documents.places.extend(place);
    };
    for (place, id) in ids.iter().enumerate() {
        add(id, Some(place));
    }
    if ids.is_empty() {
        add("", None);
    }
    all
}

fn target_of(req: &Request) -> String {
    match &req.raw_query {
        Some(query) => format!("{}?{query}", req.path),
        None => req.path.clone(),
    }
}

/// The headers of the parts: their responses are joined as JSON.
fn headers_of_parts(req: &Request) -> HeaderMap {
    let mut headers = headers_for_others(req);
    let json = HeaderValue::from_static("application/json");
    headers.insert(CONTENT_TYPE, json.clone());
    headers.insert(ACCEPT, json);
    headers.remove(hyper::header::ACCEPT_ENCODING);
    headers
}
