//! Divides the body of a request by its documents, and joins the responses of nodes.
//!
//! Pure functions over texts. Bodies that cannot be divided are refused as one node refuses them:
//! nothing of them was written.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use config::settings::Couchdb;
use document::{DocError, DocId, parse_document, parse_some_bulk_docs};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::errors::ApiError;
use crate::request::revisions::parse_revs_or;

/// JSON texts.
type Texts = Vec<Box<RawValue>>;
/// The members of an object.
type Members = BTreeMap<String, Box<RawValue>>;

/// A request that is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// POST of a document.
    NewDocument,
    /// `_bulk_docs`
    BulkDocs,
    /// `_bulk_get`
    BulkGet,
    /// `_revs_diff`
    RevsDiff,
    /// `_missing_revs`
    MissingRevs,
    /// `_purge`
    Purge,
}

/// The limits of a request.
pub struct DivisionLimits<'a> {
    /// Those of documents, and of their numbers.
    pub couchdb: &'a Couchdb,
    /// Maximum number of revisions that one request purges.
    pub purged_revisions_max: u64,
}

/// The documents of a request.
pub struct DividedBody {
    division: Division,
    /// The ids, in the order of the request. The empty one stands for what has none.
    pub ids: Vec<String>,
    /// The texts of the documents, or of their revisions.
    texts: Vec<String>,
    /// The revisions of replicated edits, of which responses name only those that failed.
    revs: Option<Vec<Option<String>>>,
    /// The other members of the body, in order.
    others: Members,
}

/// A node's response to its part.
pub struct PartResponse {
    /// The places of its documents in the request.
    pub places: Vec<usize>,
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

impl DividedBody {
    /// Reads a body. `new_id` returns ids for documents without one.
    ///
    /// # Errors
    /// The response to a body that is refused.
    pub fn read(
        division: Division,
        body: &[u8],
        limits: &DivisionLimits<'_>,
        new_id: impl FnMut() -> String,
    ) -> Result<DividedBody, ApiError> {
        match division {
            Division::NewDocument => read_document(body, limits, new_id),
            Division::BulkDocs => read_bulk_docs(body, limits, new_id),
            Division::BulkGet => read_bulk_get(body, limits),
            Division::RevsDiff | Division::MissingRevs | Division::Purge => {
                read_revs(division, body, limits)
            }
        }
    }

    /// Returns the body with the documents at these places.
    pub fn part(&self, places: &[usize]) -> Vec<u8> {
        let texts = places.iter().filter_map(|place| self.texts.get(*place));
        match self.division {
            Division::NewDocument => texts.map(String::as_str).collect::<String>().into_bytes(),
            Division::BulkDocs | Division::BulkGet => {
                let texts: Vec<&str> = texts.map(String::as_str).collect();
                let mut out = format!("{{\"docs\":[{}]", texts.join(",")).into_bytes();
                for (name, value) in &self.others {
                    out.push(b',');
                    out.extend_from_slice(Value::from(name.as_str()).to_string().as_bytes());
                    out.push(b':');
                    out.extend_from_slice(value.get().as_bytes());
                }
                out.push(b'}');
                out
            }
            Division::RevsDiff | Division::MissingRevs | Division::Purge => {
                let members = places.iter().zip(texts).filter_map(|(place, text)| {
                    let id = self.ids.get(*place)?.as_str();
                    Some(format!("{}:{text}", Value::from(id)))
                });
                let members: Vec<String> = members.collect();
                format!("{{{}}}", members.join(",")).into_bytes()
            }
        }
    }

    /// Joins the responses to all parts: the status and the body.
    ///
    /// # Errors
    /// A node's response is of another form.
    pub fn join(&self, responses: Vec<PartResponse>) -> Result<(u16, Vec<u8>), ApiError> {
        let refused = |response: &&PartResponse| !matches!(response.status, 200..=202);
        if let Some(refused) = responses.iter().find(refused) {
            return Ok((refused.status, refused.body.clone()));
        }
        let status = responses.iter().map(|response| response.status).max();
        let status = status.unwrap_or(200);
        let body = match self.division {
            Division::NewDocument => responses.into_iter().next().map(|only| only.body),
            Division::BulkDocs => Some(self.join_outcomes(responses)?),
            Division::BulkGet => Some(self.join_results(responses)?),
            Division::RevsDiff => Some(line(&self.join_members(responses, None)?.into())),
            Division::MissingRevs => {
                let revs = self.join_members(responses, Some("missing_revs"))?;
                Some(line(&json!({"missing_revs": revs})))
            }
            Division::Purge => {
                let purged = self.join_members(responses, Some("purged"))?;
                Some(line(&json!({"purge_seq": null, "purged": purged})))
            }
        };
        Ok((status, body.unwrap_or_default()))
    }

    /// Joins objects by the ids of documents, in the order of the request.
    fn join_members(
        &self,
        responses: Vec<PartResponse>,
        member: Option<&str>,
    ) -> Result<Map<String, Value>, ApiError> {
        let mut found = Map::new();
        for response in responses {
            let mut value: Value = serde_json::from_slice(&response.body).map_err(odd)?;
            if let Some(member) = member {
                value = value.get_mut(member).map(Value::take).unwrap_or_default();
            }
            let Value::Object(members) = value else {
                return Err(odd("it is not an object"));
            };
            found.extend(members);
        }
        let ids = self.ids.iter();
        let in_order = ids.filter_map(|id| Some((id.clone(), found.remove(id)?)));
        Ok(in_order.collect())
    }

    fn join_results(&self, responses: Vec<PartResponse>) -> Result<Vec<u8>, ApiError> {
        #[derive(Deserialize)]
        struct Results {
            results: Texts,
        }
        let lists = responses.into_iter().map(|response| {
            let read: Results = serde_json::from_slice(&response.body).map_err(odd)?;
            Ok((response.places, read.results))
        });
        let texts = self.placed(lists.collect::<Result<_, ApiError>>()?)?;
        Ok(format!("{{\"results\":[{}]}}\n", texts.join(",")).into_bytes())
    }

    fn join_outcomes(&self, responses: Vec<PartResponse>) -> Result<Vec<u8>, ApiError> {
        let lists = responses.into_iter().map(|response| {
            let read: Texts = serde_json::from_slice(&response.body).map_err(odd)?;
            let places = match &self.revs {
                None => response.places,
                Some(revs) => self.places_of_failures(revs, &response.places, &read)?,
            };
            Ok((places, read))
        });
        let texts = self.placed(lists.collect::<Result<_, ApiError>>()?)?;
        Ok(format!("[{}]\n", texts.join(",")).into_bytes())
    }

    /// Returns the places of the edits that failed, which are in the order of the part.
    fn places_of_failures(
        &self,
        revs: &[Option<String>],
        places: &[usize],
        failures: &[Box<RawValue>],
    ) -> Result<Vec<usize>, ApiError> {
        #[derive(Deserialize)]
        struct Failure<'a> {
            #[serde(borrow)]
            id: Cow<'a, str>,
            #[serde(borrow, default)]
            rev: Option<Cow<'a, str>>,
        }
        let mut left: VecDeque<usize> = places.iter().copied().collect();
        let mut place_of = |text: &str| {
            let failure: Failure<'_> = serde_json::from_str(text).map_err(odd)?;
            while let Some(place) = left.pop_front() {
                let id = self.ids.get(place).map(String::as_str);
                let rev = revs.get(place).and_then(Option::as_deref);
                if id == Some(&*failure.id) && rev == failure.rev.as_deref() {
                    return Ok(place);
                }
            }
            Err(odd("it names another document"))
        };
        let texts = failures.iter().map(|failure| failure.get());
        texts.map(&mut place_of).collect()
    }

    /// Returns texts in the order of their places.
    fn placed(&self, lists: Vec<(Vec<usize>, Texts)>) -> Result<Vec<String>, ApiError> {
        let mut texts = BTreeMap::new();
        for (places, list) in lists {
            if places.len() != list.len() {
                return Err(odd("it has another number of documents"));
            }
            let of_list = list
                .into_iter()
                .map(|text| String::from(Box::<str>::from(text)));
            texts.extend(places.into_iter().zip(of_list));
        }
        Ok(texts.into_values().collect())
    }
}

/// The error for a node's response that has another form.
fn odd(why: impl ToString) -> ApiError {
    ApiError::internal(
        "A node answered a part of the request in another form.",
        why,
    )
}

fn line(value: &Value) -> Vec<u8> {
    let mut text = value.to_string().into_bytes();
    text.push(b'\n');
    text
}

/// Returns the text of a document with this id, which it does not have.
fn with_id(text: &str, id: &str) -> String {
    let rest = text.trim_start().strip_prefix('{').unwrap_or_default();
    let comma = match rest.trim_start().starts_with('}') {
        true => "",
        false => ",",
    };
    format!("{{\"_id\":{}{comma}{rest}", Value::from(id))
}

fn read_document(
    body: &[u8],
    limits: &DivisionLimits<'_>,
    mut new_id: impl FnMut() -> String,
) -> Result<DividedBody, ApiError> {
    let mut doc = parse_document(body)?;
    let text = std::str::from_utf8(body).map_err(|_| ApiError::invalid_json())?;
    let (id, text) = match doc.id.take() {
        Some(id) => (id.as_str().to_owned(), text.to_owned()),
        None => {
            let id = new_id();
            let text = with_id(text, &id);
            (id, text)
        }
    };
    doc.id = Some(DocId::new(&id)?);
    node::check_document(&doc, limits.couchdb)?;
    Ok(DividedBody {
        division: Division::NewDocument,
        ids: vec![id],
        texts: vec![text],
        revs: None,
        others: BTreeMap::new(),
    })
}

/// Reads the list `docs` and the other members of an object.
fn docs_of(body: &[u8]) -> Result<(Option<Texts>, Members), ApiError> {
    let members = serde_json::from_slice::<Members>(body);
    let mut members = members.map_err(|_| ApiError::invalid_json())?;
    let docs = members.remove("docs");
    let docs = docs.map(|docs| serde_json::from_str::<Texts>(docs.get()));
    let docs = docs.transpose();
    let docs = docs.map_err(|_| ApiError::bad_request("`docs` must be an array."))?;
    Ok((docs, members))
}

fn read_bulk_docs(
    body: &[u8],
    limits: &DivisionLimits<'_>,
    mut new_id: impl FnMut() -> String,
) -> Result<DividedBody, ApiError> {
    let docs_max = limits.couchdb.max_bulk_docs_count;
    let max = usize::try_from(docs_max).unwrap_or(usize::MAX);
    let mut bulk = match parse_some_bulk_docs(body, max) {
        Err(DocError::TooManyDocs) => {
            return Err(ApiError::too_many("max_bulk_docs_count", docs_max));
        }
        bulk => bulk?,
    };
    let (docs, others) = docs_of(body)?;
    let docs = docs.unwrap_or_default();
    if docs.len() != bulk.docs.len() {
        return Err(ApiError::invalid_json());
    }
    let (mut ids, mut texts) = (vec![], vec![]);
    for (doc, text) in bulk.docs.iter_mut().zip(&docs) {
        let text = match &doc.id {
            Some(_) => text.get().to_owned(),
            None => {
                let id = new_id();
                doc.id = Some(DocId::new(&id)?);
                with_id(text.get(), &id)
            }
        };
        node::check_document(doc, limits.couchdb)?;
        ids.push(doc.id.as_ref().map_or("", DocId::as_str).to_owned());
        texts.push(text);
    }
    let rev_of = |doc: &document::EditDoc| {
        let newest = doc.rev_path().and_then(|path| path.newest());
        newest.map(|rev| rev.to_string())
    };
    let is_replicated = bulk.new_edits == Some(false) && !bulk.all_or_nothing;
    Ok(DividedBody {
        division: Division::BulkDocs,
        revs: is_replicated.then(|| bulk.docs.iter().map(rev_of).collect()),
        ids,
        texts,
        others,
    })
}

fn read_bulk_get(body: &[u8], limits: &DivisionLimits<'_>) -> Result<DividedBody, ApiError> {
    #[derive(Deserialize)]
    struct Wanted<'a> {
        #[serde(borrow, default)]
        id: Option<Cow<'a, str>>,
    }
    let (docs, others) = docs_of(body)?;
    let docs = docs.ok_or_else(|| ApiError::bad_request("Missing JSON list of 'docs'."))?;
    let docs_max = limits.couchdb.max_bulk_get_count;
    if docs.len() as u64 > docs_max {
        return Err(ApiError::too_many("max_bulk_get_count", docs_max));
    }
    let id_of = |text: &str| {
        if !text.starts_with('{') {
            return Ok(String::new());
        }
        let wanted: Result<Wanted<'_>, _> = serde_json::from_str(text);
        let wanted = wanted.map_err(|_| ApiError::bad_request("`id` must be a string"))?;
        Ok(wanted.id.map(Cow::into_owned).unwrap_or_default())
    };
    let ids = docs.iter().map(|doc| id_of(doc.get()));
    let ids: Vec<String> = ids.collect::<Result<_, ApiError>>()?;
    Ok(DividedBody {
        division: Division::BulkGet,
        ids,
        texts: docs.iter().map(|doc| doc.get().to_owned()).collect(),
        revs: None,
        others,
    })
}

fn read_revs(
    division: Division,
    body: &[u8],
    limits: &DivisionLimits<'_>,
) -> Result<DividedBody, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|_| ApiError::invalid_json())?;
    let Value::Object(members) = value else {
        return Err(ApiError::bad_request("Request body must be a JSON object"));
    };
    let mut revisions = 0;
    for (id, revs) in &members {
        if division == Division::Purge {
            DocId::new(id)?;
        }
        revisions += parse_revs_or(revs, "Invalid revisions, must be a list")?.len() as u64;
    }
    if division == Division::Purge && revisions > limits.purged_revisions_max {
        return Err(ApiError::too_many_purged());
    }
    let (ids, revs): (Vec<String>, Vec<Value>) = members.into_iter().unzip();
    Ok(DividedBody {
        division,
        ids,
        texts: revs.iter().map(Value::to_string).collect(),
        revs: None,
        others: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(division: Division, body: &Value) -> DividedBody {
        let settings = config::Settings::default();
        let limits = DivisionLimits {
            couchdb: &settings.couchdb,
            purged_revisions_max: 1_000,
        };
        let text = body.to_string();
        let read = DividedBody::read(division, text.as_bytes(), &limits, || "new".to_owned());
        read.unwrap_or_else(|e| panic!("{}", e.reason))
    }

    fn value(text: &[u8]) -> Value {
        serde_json::from_slice(text).expect("JSON")
    }

    fn response(places: &[usize], status: u16, body: &Value) -> PartResponse {
        PartResponse {
            places: places.to_vec(),
            status,
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn edits_are_divided_and_their_outcomes_are_in_the_order_of_the_request() {
        let body = json!({"docs": [{"_id": "a"}, {"x": 1}, {"_id": "b"}, {}], "w": 2});
        let whole = read(Division::BulkDocs, &body);
        assert_eq!(whole.ids, ["a", "new", "b", "new"]);
        let part = json!({"docs": [{"_id": "new", "x": 1}, {"_id": "new"}], "w": 2});
        assert_eq!(value(&whole.part(&[1, 3])), part);
        let joined = whole.join(vec![
            response(
                &[1, 3],
                201,
                &json!([{"id": "new", "n": 1}, {"id": "new", "n": 3}]),
            ),
            response(&[0, 2], 202, &json!([{"id": "a"}, {"id": "b"}])),
        ]);
        let (status, text) = joined.expect("outcomes");
        assert_eq!(status, 202);
        let expected =
            "[{\"id\":\"a\"},{\"id\":\"new\",\"n\":1},{\"id\":\"b\"},{\"id\":\"new\",\"n\":3}]\n";
        assert_eq!(text, expected.as_bytes());
        let short = whole.join(vec![response(&[0], 201, &json!([]))]);
        assert!(short.is_err());
    }

    #[test]
    fn failures_of_replicated_edits_are_in_the_order_of_the_request() {
        let doc = |id: &str, rev: &str| json!({"_id": id, "_rev": rev});
        let docs = [
            doc("a", "1-a"),
            doc("b", "1-b"),
            doc("a", "1-c"),
            doc("c", "1-d"),
        ];
        let whole = read(
            Division::BulkDocs,
            &json!({"docs": docs, "new_edits": false}),
        );
        let failed = |id: &str, rev: &str| json!({"id": id, "rev": rev, "error": "forbidden"});
        let joined = whole.join(vec![
            response(&[1, 3], 201, &json!([failed("b", "1-b")])),
            response(&[0, 2], 201, &json!([failed("a", "1-c")])),
        ]);
        let expected = json!([failed("b", "1-b"), failed("a", "1-c")]);
        assert_eq!(value(&joined.expect("failures").1), expected);
    }

    #[test]
    fn missing_revisions_are_joined_by_the_ids_of_the_request() {
        let body = json!({"z": ["1-a"], "a": ["1-b"], "m": ["1-c"]});
        let whole = read(Division::RevsDiff, &body);
        assert_eq!(
            value(&whole.part(&[2, 0])),
            json!({"m": ["1-c"], "z": ["1-a"]})
        );
        let missing = |rev: &str| json!({"missing": [rev]});
        let parts = vec![
            response(&[1], 200, &json!({"a": missing("1-b")})),
            response(
                &[0, 2],
                200,
                &json!({"m": missing("1-c"), "z": missing("1-a")}),
            ),
        ];
        let (_, text) = whole.join(parts).expect("revisions");
        let expected = "{\"z\":{\"missing\":[\"1-a\"]},\"a\":{\"missing\":[\"1-b\"]},\"m\":{\"missing\":[\"1-c\"]}}\n";
        assert_eq!(text, expected.as_bytes());
        let whole = read(Division::Purge, &body);
        let parts = vec![
            response(
                &[0],
                201,
                &json!({"purge_seq": null, "purged": {"z": ["1-a"]}}),
            ),
            response(
                &[1, 2],
                202,
                &json!({"purge_seq": null, "purged": {"a": [], "m": []}}),
            ),
        ];
        let (status, text) = whole.join(parts).expect("purges");
        let expected = json!({"purge_seq": null, "purged": {"z": ["1-a"], "a": [], "m": []}});
        assert_eq!((status, value(&text)), (202, expected));
    }

    #[test]
    fn a_refusal_of_a_node_is_the_response() {
        let whole = read(
            Division::BulkGet,
            &json!({"docs": [{"id": "a"}, {"id": "b"}]}),
        );
        assert_eq!(whole.ids, ["a", "b"]);
        let results = |id: &str| json!({"results": [{"id": id, "docs": []}]});
        let busy = json!({"error": "service_unavailable"});
        let parts = vec![
            response(&[1], 200, &results("b")),
            response(&[0], 503, &busy),
        ];
        let (status, text) = whole.join(parts).expect("a refusal");
        assert_eq!((status, value(&text)), (503, busy));
        let parts = vec![
            response(&[1], 200, &results("b")),
            response(&[0], 200, &results("a")),
        ];
        let (_, text) = whole.join(parts).expect("results");
        let expected = json!({"results": [{"id": "a", "docs": []}, {"id": "b", "docs": []}]});
        assert_eq!(value(&text), expected);
    }

    #[test]
    fn a_new_document_gets_an_id() {
        assert_eq!(with_id(" { }", "a\""), "{\"_id\":\"a\\\"\" }");
        assert_eq!(with_id("{\"x\":1}", "a"), "{\"_id\":\"a\",\"x\":1}");
    }
}
