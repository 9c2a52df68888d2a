//! Documents of a merged database: each leaf gets one more revision, which has `_access`.
//!
//! A device that has the leaf gets that revision as an edit. Its id depends on the leaf alone, so a
//! merge that is repeated writes the same revisions.

use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_128;

/// The generation and the hash of a revision.
fn parts(rev: &str) -> Option<(u64, &str)> {
    let (generation, hash) = rev.split_once('-')?;
    Some((generation.parse().ok()?, hash))
}

/// Returns the revision of a merged document that follows this one.
pub fn next_rev(id: &str, rev: &str) -> Option<String> {
    let (generation, _) = parts(rev)?;
    let hash = xxh3_128(format!("settee access merge\0{id}\0{rev}").as_bytes());
    Some(format!("{}-{hash:032x}", generation.checked_add(1)?))
}

/// Returns the revisions of a document's path, newest first.
fn path(doc: &Map<String, Value>) -> Option<Vec<String>> {
    let start = doc.get("_revisions")?["start"].as_u64()?;
    let ids = doc.get("_revisions")?["ids"].as_array()?;
    let generations = (0..=start).rev();
    let revs = generations.zip(ids).map(|(generation, id)| {
        let id = id.as_str()?;
        Some(format!("{generation}-{id}"))
    });
    revs.collect()
}

/// The revisions that a merge of older leaves of a document has written, if there was one.
pub fn earlier(id: &str, doc: &Map<String, Value>) -> Vec<String> {
    let path = path(doc).unwrap_or_default();
    let ancestors = path.iter().skip(1);
    ancestors.filter_map(|rev| next_rev(id, rev)).collect()
}

/// Returns the next revision of a leaf that was read with its path: under this id, with this access
/// unless it has one. `None` if it is not such a leaf.
pub fn merged(id: &str, mut doc: Map<String, Value>, access: &Value) -> Option<Value> {
    let path = path(&doc)?;
    let rev = next_rev(id, path.first()?)?;
    let (start, hash) = parts(&rev)?;
    let mut ids = vec![hash];
    ids.extend(path.iter().filter_map(|rev| Some(parts(rev)?.1)));
    let revisions = json!({"start": start, "ids": ids});
    doc.insert("_id".into(), id.into());
    doc.insert("_rev".into(), rev.clone().into());
    doc.insert("_revisions".into(), revisions);
    doc.entry("_access").or_insert_with(|| access.clone());
    Some(doc.into())
}

/// Returns the tombstone of a revision that a merge has written and that a newer leaf replaces.
pub fn replaced(id: &str, rev: &str, access: &Value) -> Option<Value> {
    let next = next_rev(id, rev)?;
    let ((start, hash), (_, parent)) = (parts(&next)?, parts(rev)?);
    Some(json!({
        "_id": id,
        "_rev": next,
        "_revisions": {"start": start, "ids": [hash, parent]},
        "_deleted": true,
        "_access": access,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_leaf_gets_a_child_with_its_access() {
        let doc = r#"{"_id":"a","_rev":"2-b","_revisions":{"start":2,"ids":["b","a"]},"n":1}"#;
        let merged = merged("bob:a", leaf(doc), &json!(["bob"])).unwrap();
        let rev = next_rev("bob:a", "2-b").unwrap();
        assert_eq!(merged["_id"], "bob:a");
        assert_eq!(merged["_rev"], *rev);
        assert_eq!(merged["_access"], json!(["bob"]));
        assert_eq!(merged["n"], 1);
        let hash = rev.strip_prefix("3-").unwrap();
        assert_eq!(hash.len(), 32);
        assert_eq!(
            merged["_revisions"],
            json!({"start": 3, "ids": [hash, "b", "a"]})
        );
        // What an earlier merge has written of the ancestor.
        assert_eq!(
            earlier("bob:a", &leaf(doc)),
            [next_rev("bob:a", "1-a").unwrap()]
        );
    }

    #[test]
    fn an_access_that_a_document_has_stays() {
        let doc = r#"{"_rev":"1-a","_revisions":{"start":1,"ids":["a"]},"_access":["al"]}"#;
        let merged = merged("a", leaf(doc), &json!(["bob"])).unwrap();
        assert_eq!(merged["_access"], json!(["al"]));
    }

    #[test]
    fn what_is_no_leaf_is_not_merged() {
        for doc in ["{}", r#"{"_revisions":{"start":1,"ids":[]}}"#] {
            assert_eq!(merged("a", leaf(doc), &Value::Null), None);
        }
        assert_eq!(next_rev("a", "x"), None);
    }

    #[test]
    fn a_replaced_revision_is_deleted() {
        let rev = next_rev("a", "1-a").unwrap();
        let gone = replaced("a", &rev, &json!(["bob"])).unwrap();
        assert_eq!(gone["_revisions"]["start"], 3);
        let parent = &gone["_revisions"]["ids"][1];
        assert_eq!(format!("2-{}", parent.as_str().unwrap()), rev);
    }
}
