//! Design documents: reading them for calls of their functions, and which are refused when they are written.

use std::borrow::Cow;
use std::sync::Arc;

use document::json::{self, member, string_text};
use document::{DocId, Rev, RevTree};
use functions::{DesignDoc, Error as FunctionError, JAVASCRIPT, Languages, Place, language_name};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Error;
use crate::database::Database;
use crate::design_limits::{Extent, INDEX_MEMBERS, INDEXES_MAX, excess, too_many_indexes};
use crate::read::{Read, ReadOptions};
use crate::update::blocking;
use crate::validators::{QUERY, Reading, Validator, hash_of, read_selector};

/// The members of a design document that are read.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    language: Option<&'a RawValue>,
    #[serde(borrow)]
    validate_doc_update: Option<&'a RawValue>,
}

/// The revision of a design document, the document, and the length of its text in bytes.
type ReadDesign = (Rev, (DesignDoc, usize));

impl Database {
    /// Reads a design document with its revision and the length of its text.
    pub(crate) fn read_design_doc(&self, id: &DocId) -> Result<Option<ReadDesign>, Error> {
        match self.read(id, &ReadOptions::default())? {
            Read::Found(doc) => {
                let bytes = doc.json.len();
                let read = design_doc(id.as_str(), &doc.rev.to_string(), doc.json).0;
                Ok(Some((doc.rev, (read, bytes))))
            }
            Read::Missing | Read::Deleted => Ok(None),
        }
    }

    /// Reads the validators, unless they are known.
    pub(crate) fn validators(&self) -> Result<Arc<[Validator]>, Error> {
        // Read before the documents: what changes while they are read is found at the next write.
        let version = self.designs_version();
        if let Some(known) = self.validators_found.known(version) {
            return Ok(known);
        }
        let mut found = Reading::default();
        for shard in self.all_shards() {
            let view = shard.view()?;
            let mut it = storage::IdIter::new(&view.snapshot, shard.number);
            it.seek(DESIGN.as_bytes());
            while let Some((id, value)) = it
                .entry()
                .filter(|(id, _)| id.starts_with(DESIGN.as_bytes()))
            {
                let record = storage::Record::decode(value)?;
                let id = String::from_utf8_lossy(id);
                self.add_validating(&view, shard, &id, &record.tree, &mut found)?;
                it.next();
            }
            it.status()?;
        }
        Ok(self.validators_found.keep(version, found))
    }

    /// Returns the design document of a validator for one use of it; `None` if it does not validate
    /// any more.
    ///
    /// # Errors
    /// Errors of reading it, and [`Error::Unavailable`] when it has another language now: whether a
    /// function or a selector validates is decided when the validators are read.
    pub(crate) fn validating_design(
        &self,
        validator: &Validator,
    ) -> Result<Option<Arc<DesignDoc>>, Error> {
        if let Some(kept) = &validator.design {
            return Ok(Some(kept.clone()));
        }
        let id = validator.id.as_str();
        let known = self.design_cache.docs.lock().get(id, &validator.rev);
        if known.is_some() {
            return Ok(known);
        }
        let Some(read) = self.design_doc_here(&validator.id)? else {
            return Ok(None);
        };
        let is_same = read.rev == validator.rev.to_string();
        if !is_same && !validates(&read) {
            return Ok(None);
        }
        if read.language != validator.language {
            return Err(Error::Unavailable(format!(
                "{id} changed its language during the write: retry it"
            )));
        }
        Ok(Some(read))
    }

    /// Returns a hash of the design documents that validate now, never 0. It is equal on all nodes that have equal ones.
    /// After one has changed, another thread reads them, once for all requests that wait for them.
    ///
    /// # Errors
    /// Errors of reading them.
    pub async fn designs_hash(self: &Arc<Self>) -> Result<u64, Error> {
        let known = |db: &Database| db.validators_found.known_hash(db.designs_version());
        if let Some(hash) = known(self) {
            return Ok(hash);
        }
        let turn = self.design_cache.validators_turn.clone();
        let turn = turn.lock_owned().await;
        if let Some(hash) = known(self) {
            return Ok(hash);
        }
        let db = self.clone();
        blocking(move || {
            let _turn = turn;
            Ok(hash_of(&db.validators()?))
        })
        .await
    }

    fn add_validating(
        &self,
        view: &storage::View,
        shard: &storage::Shard,
        id: &str,
        tree: &RevTree,
        found: &mut Reading,
    ) -> Result<(), Error> {
        let Some(winner) = tree.winner().filter(|w| !w.revision.deleted) else {
            return Ok(());
        };
        let rev = winner.rev.to_rev();
        let mut json = vec![];
        let written = view.with_body(shard, winner.revision.seq, |body| {
            crate::rows::write_members(id, &rev, false, body, &mut json);
            json.push(b'}');
        })?;
        written.ok_or_else(|| Error::Storage(storage::Error::Corrupt("document body")))?;
        let (doc, validates) = design_doc(id, &rev.to_string(), json);
        if validates {
            let id = DocId::new(id).map_err(|e| Error::Internal(e.to_string()))?;
            found.add(id, rev, &doc);
        }
        Ok(())
    }
}

/// Whether it has a `validate_doc_update`.
fn validates(design: &DesignDoc) -> bool {
    let head: Option<Head<'_>> = serde_json::from_slice(&design.json).ok();
    head.is_some_and(|head| head.validates())
}

impl Head<'_> {
    fn validates(&self) -> bool {
        self.validate_doc_update
            .is_some_and(|function| function.get() != "null")
    }
}

const DESIGN: &str = "_design/";

/// The design document of this text, and whether it has a `validate_doc_update`.
fn design_doc(id: &str, rev: &str, json: Vec<u8>) -> (DesignDoc, bool) {
    let head: Option<Head<'_>> = serde_json::from_slice(&json).ok();
    let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
    let language = head
        .as_ref()
        .and_then(|h| h.language)
        .and_then(text)
        .map_or_else(|| JAVASCRIPT.to_owned(), |name| language_name(&name));
    let validates = head.is_some_and(|head| head.validates());
    let doc = DesignDoc {
        id: id.to_owned(),
        rev: rev.to_owned(),
        language,
        json: json.into(),
    };
    (doc, validates)
}

/// Why a design document may not be written: CouchDB's error and reason.
pub(crate) type Refusal = (Cow<'static, str>, String);

fn invalid(reason: String) -> Refusal {
    ("invalid_design_doc".into(), reason)
}

/// Kinds of JSON values.
#[derive(Clone, Copy)]
enum Kind {
    Object,
    Text,
    Bool,
    TextOrArray,
    TextOrObject,
}

impl Kind {
    fn fits(self, value: &[u8]) -> bool {
        matches!(
            (self, value.first()),
            (Kind::Object | Kind::TextOrObject, Some(b'{'))
                | (
                    Kind::Text | Kind::TextOrArray | Kind::TextOrObject,
                    Some(b'"')
                )
                | (Kind::TextOrArray, Some(b'['))
                | (Kind::Bool, Some(b't' | b'f'))
        )
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Object => "object",
            Kind::Text => "string",
            Kind::Bool => "boolean",
            Kind::TextOrArray => "string or array",
            Kind::TextOrObject => "object or string",
        }
    }
}

fn expect(path: &[&str], value: Option<&[u8]>, kind: Kind) -> Result<(), Refusal> {
    match value {
        Some(value) if !kind.fits(value) => Err(invalid(format!(
            "`{}` field must have {} type",
            path.join("."),
            kind.name()
        ))),
        _ => Ok(()),
    }
}

/// The members of a value, none if it is not an object.
fn members(value: Option<&[u8]>) -> impl Iterator<Item = (String, &[u8])> {
    json::members(value.unwrap_or_default())
}

/// Checks the body of a design document as CouchDB does when it is written. Functions in languages
/// without a runtime are not checked. May block, because functions are compiled.
///
/// The text is searched, not parsed: a tree of its values can take a hundred times its length.
///
/// `partitioned`: whether the database is.
pub(crate) fn check(
    (languages, place): (&dyn Languages, &Place),
    partitioned: bool,
    body: &[u8],
) -> Result<(), Refusal> {
    if let Some(reason) = excess(Extent::of(body)) {
        return Err(invalid(reason));
    }
    check_fields(body)?;
    check_count(body)?;
    let option = member(body, "options").and_then(|options| member(options, "partitioned"));
    if option == Some(b"true") && !partitioned {
        let reason = "partitioned option cannot be true in a non-partitioned database.";
        return Err(invalid(reason.to_owned()));
    }
    let language = language_of(body).unwrap_or_else(|| JAVASCRIPT.to_owned());
    if language == QUERY {
        return check_selector(body);
    }
    check_functions((languages, place), &language, member(body, "views"))
}

/// The `language` of a design document, if it is one.
fn language_of(body: &[u8]) -> Option<String> {
    let text = string_text(member(body, "language")?)?;
    Some(language_name(&text))
}

/// Refuses more functions of indexes than one design document may have. They would be read, and
/// their definitions compared, together.
fn check_count(body: &[u8]) -> Result<(), Refusal> {
    let of_indexes = INDEX_MEMBERS.iter().map(|name| member(body, name));
    let count: usize = of_indexes.map(|functions| members(functions).count()).sum();
    match count > INDEXES_MAX {
        true => Err(invalid(too_many_indexes(count))),
        false => Ok(()),
    }
}

fn check_fields(body: &[u8]) -> Result<(), Refusal> {
    for name in ["filters", "lists", "shows", "updates"] {
        let functions = member(body, name);
        expect(&[name], functions, Kind::Object)?;
        for (function, value) in members(functions) {
            expect(&[name, &function], Some(value), Kind::TextOrObject)?;
        }
    }
    expect(&["language"], member(body, "language"), Kind::Text)?;
    let options = member(body, "options");
    expect(&["options"], options, Kind::Object)?;
    let partitioned = options.and_then(|options| member(options, "partitioned"));
    expect(&["options", "partitioned"], partitioned, Kind::Bool)?;
    expect(&["rewrites"], member(body, "rewrites"), Kind::TextOrArray)?;
    let validation = member(body, "validate_doc_update");
    expect(&["validate_doc_update"], validation, Kind::TextOrObject)?;
    let is_query = language_of(body).is_some_and(|language| language == QUERY);
    // CouchDB takes the wrong one of the two, and then every write of a document is a 500.
    let kind = if is_query { Kind::Object } else { Kind::Text };
    expect(&["validate_doc_update"], validation, kind)?;
    check_views(
        member(body, "views"),
        if is_query { Kind::Object } else { Kind::Text },
    )
}

fn check_views(views: Option<&[u8]>, map: Kind) -> Result<(), Refusal> {
    expect(&["views"], views, Kind::Object)?;
    for (name, view) in members(views) {
        expect(&["views", &name], Some(view), Kind::Object)?;
    }
    let views = || members(views).filter(|(name, _)| name != "lib");
    for (name, view) in views() {
        expect(&["views", &name, "map"], member(view, "map"), map)?;
    }
    for (name, view) in views() {
        let reduce = member(view, "reduce");
        expect(&["views", &name, "reduce"], reduce, Kind::Text)?;
    }
    match views().find(|(_, view)| member(view, "map").is_none()) {
        Some((name, _)) => Err(invalid(format!("View `{name}` must contain map function"))),
        None => Ok(()),
    }
}

/// Refuses a selector that cannot be read. CouchDB takes it, and then every write of a document is a 500.
fn check_selector(body: &[u8]) -> Result<(), Refusal> {
    let head: Head<'_> = serde_json::from_slice(body).map_err(|e| invalid(e.to_string()))?;
    let Some(selector) = head.validate_doc_update else {
        return Ok(());
    };
    match read_selector(selector.get().as_bytes()) {
        Ok(_) => Ok(()),
        Err(reason) => Err(invalid(format!("`validate_doc_update`: {reason}"))),
    }
}

fn check_functions(
    (languages, place): (&dyn Languages, &Place),
    language: &str,
    views: Option<&[u8]>,
) -> Result<(), Refusal> {
    let lib = views.and_then(|views| member(views, "lib"));
    let lib = lib.map(String::from_utf8_lossy);
    let compile = |kind: &str, view: &str, source: &str| match languages.check(
        place,
        language,
        source,
        lib.as_deref(),
    ) {
        Ok(()) | Err(FunctionError::UnknownLanguage(_)) => Ok(()),
        Err(FunctionError::Thrown { name, reason }) => Err((name.into(), reason)),
        Err(e) => Err((
            "compilation_error".into(),
            format!("Compilation of the {kind} function in the '{view}' view failed: {e}"),
        )),
    };
    for (name, view) in members(views).filter(|(name, _)| name != "lib") {
        let text = |wanted| member(view, wanted).and_then(string_text);
        if let Some(map) = text("map") {
            compile("map", &name, &map)?;
        }
        let Some(reduce) = text("reduce") else {
            continue;
        };
        match index::reduce::Builtin::parse(&reduce) {
            Some(builtin) => drop(builtin.map_err(invalid)?),
            None => compile("reduce", &name, &reduce)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use serde_json::Value;

    use super::*;
    use crate::design_limits::{DEPTH_MAX, VALUES_MAX};
    use crate::{CreateOptions, Databases, Durability, EditMode, Options, Outcome};

    fn refusal(body: &str) -> Option<Refusal> {
        let place = Place::uncounted();
        check((&functions::NoLanguages, &place), false, body.as_bytes()).err()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_validator_that_changes_its_language_is_not_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::open(folder.path(), Options::default()).unwrap();
        let options = CreateOptions::default();
        let db = databases.create("db", options).await.unwrap();
        let mut rev: Option<Rev> = None;
        let mut write = async |language: &str, validation: Option<Value>| {
            let mut doc = serde_json::json!({"_id": "_design/d", "language": language});
            if let Some(validation) = validation {
                doc["validate_doc_update"] = validation;
            }
            if let Some(rev) = &rev {
                doc["_rev"] = rev.to_string().into();
            }
            let doc = document::parse_document(doc.to_string().as_bytes()).unwrap();
            let written = db.update(vec![doc], EditMode::Interactive, Durability::Synced);
            match written.await.unwrap().0.remove(0) {
                Outcome::Ok { rev: new } => rev = Some(new),
                refused => panic!("{refused:?}"),
            }
        };
        write("other", Some("f".into())).await;
        let validators = db.validators().unwrap();
        let read = || db.validating_design(&validators[0]);
        write("other", Some("g".into())).await;
        assert!(read().unwrap().is_some());
        write(QUERY, Some(serde_json::json!({"newDoc.a": 1}))).await;
        assert!(matches!(read(), Err(Error::Unavailable(_))));
        write(QUERY, None).await;
        assert!(read().unwrap().is_none());
        databases.close();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn validators_are_read_for_their_hash_by_one_request_at_a_time_on_another_thread() {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::open(folder.path(), Options::default()).unwrap();
        let options = CreateOptions::default();
        let db = databases.create("db", options).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut hashes = vec![];
        for n in 0..3 {
            let other = db
                .design_cache
                .validators_turn
                .clone()
                .try_lock_owned()
                .unwrap();
            let mut hash = std::pin::pin!(db.designs_hash());
            assert!(hash.as_mut().poll(&mut context).is_pending());
            drop(other);
            hashes.push(hash.await.unwrap());
            assert_eq!(hashes[n], hash_of(&db.validators().unwrap()));
            // Now it is known, and takes no turn.
            let _other = db
                .design_cache
                .validators_turn
                .clone()
                .try_lock_owned()
                .unwrap();
            let hash = std::pin::pin!(db.designs_hash()).poll(&mut context);
            assert!(matches!(hash, Poll::Ready(Ok(hash)) if hash == hashes[n]));
            let doc = serde_json::json!({"_id": format!("_design/{n}"), "language": "other", "validate_doc_update": "f"});
            let doc = document::parse_document(doc.to_string().as_bytes()).unwrap();
            let written = db.update(vec![doc], EditMode::Interactive, Durability::Synced);
            written.await.unwrap();
        }
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
        databases.close();
    }

    #[test]
    fn fields_of_the_wrong_type_are_named() {
        let cases = [
            (r#"{"views":[]}"#, "`views` field must have object type"),
            (
                r#"{"views":{"v":"x"}}"#,
                "`views.v` field must have object type",
            ),
            (
                r#"{"views":{"v":{"map":1}}}"#,
                "`views.v.map` field must have string type",
            ),
            (
                r#"{"views":{"v":{"map":"x","reduce":{}}}}"#,
                "`views.v.reduce` field must have string type",
            ),
            (
                r#"{"views":{"v":{"reduce":"_sum"}}}"#,
                "View `v` must contain map function",
            ),
            (
                r#"{"language":"query","views":{"v":{"map":"x"}}}"#,
                "`views.v.map` field must have object type",
            ),
            (
                r#"{"views":{"v":{"map":"x","reduce":"_nope"}}}"#,
                "`_nope` is not a supported reduce function.",
            ),
            (
                r#"{"language":null}"#,
                "`language` field must have string type",
            ),
            (
                r#"{"updates":{"u":1}}"#,
                "`updates.u` field must have object or string type",
            ),
            (
                r#"{"rewrites":{}}"#,
                "`rewrites` field must have string or array type",
            ),
            (
                r#"{"options":{"partitioned":"x"}}"#,
                "`options.partitioned` field must have boolean type",
            ),
            (
                r#"{"validate_doc_update":{}}"#,
                "`validate_doc_update` field must have string type",
            ),
        ];
        for (body, reason) in cases {
            assert_eq!(
                refusal(body),
                Some(("invalid_design_doc".into(), reason.to_owned())),
                "{body}"
            );
        }
    }

    #[test]
    fn a_design_document_has_a_limited_number_of_indexes() {
        let views = |count: usize| {
            let views = (0..count).map(|n| format!(r#""{n}":{{"map":"x"}}"#));
            let views = views.collect::<Vec<_>>().join(",");
            format!(r#"{{"language":"cobol","views":{{{views}}},"indexes":{{"i":{{}}}}}}"#)
        };
        assert_eq!(refusal(&views(INDEXES_MAX - 1)), None);
        let refused = ("invalid_design_doc".into(), too_many_indexes(1001));
        assert_eq!(refusal(&views(INDEXES_MAX)), Some(refused));
    }

    #[test]
    fn a_design_document_has_a_limited_number_of_values() {
        let values = |count: usize| format!(r#"{{"lib":[{}0]}}"#, "0,".repeat(count - 3));
        assert_eq!(refusal(&values(VALUES_MAX)), None);
        let (error, reason) = refusal(&values(VALUES_MAX + 1)).unwrap();
        assert_eq!(error, "invalid_design_doc");
        assert_eq!(
            reason,
            "A design document has at most 262144 JSON values; this one has 262145."
        );
        // Sources are full of commas and brackets.
        assert_eq!(
            refusal(&format!(r#"{{"a":"{}"}}"#, "[,{:".repeat(1 << 20))),
            None
        );
    }

    #[test]
    fn a_design_document_is_not_nested_deeply() {
        let nested = |depth: usize| {
            let inner = "[".repeat(depth - 1) + &"]".repeat(depth - 1);
            format!(r#"{{"a":{inner}}}"#)
        };
        assert_eq!(refusal(&nested(DEPTH_MAX)), None);
        let (error, reason) = refusal(&nested(DEPTH_MAX + 1)).unwrap();
        assert_eq!(error, "invalid_design_doc");
        assert_eq!(
            reason,
            "A design document is nested at most 127 levels deep."
        );
    }

    #[test]
    fn selectors_that_validate_can_be_read() {
        let cases = [
            (
                r#"{"language":"query","validate_doc_update":"function() {}"}"#,
                "`validate_doc_update` field must have object type",
            ),
            (
                r#"{"language":"query","validate_doc_update":[]}"#,
                "`validate_doc_update` field must have object or string type",
            ),
            (
                r#"{"language":"Query","validate_doc_update":{"newDoc":{"a":{"$nope":1}}}}"#,
                "`validate_doc_update`: Invalid operator: $nope",
            ),
        ];
        for (body, reason) in cases {
            let expected = ("invalid_design_doc".into(), reason.to_owned());
            assert_eq!(refusal(body), Some(expected), "{body}");
        }
    }

    #[test]
    fn what_couchdb_takes_is_taken() {
        for body in [
            "{}",
            r#"{"views":{"lib":{"a":1},"v":{"map":"anything"}},"language":"cobol"}"#,
            r#"{"language":"query","views":{"v":{"map":{"fields":{}},"reduce":"_count"}}}"#,
            r#"{"shows":{"s":{"nested":"x"}},"rewrites":"function(req) {}","anything":[null]}"#,
        ] {
            assert_eq!(refusal(body), None, "{body}");
        }
    }
}
