//! The version of Lucene that new `_nouveau` indexes name, as in CouchDB.

use document::json::{member, members, write_json_string};
use document::{EditDoc, parse_document};

/// The version that analyzers and scores follow, as a member of an index's definition.
const LUCENE_VERSION: (&str, &[u8]) = ("lucene_version", b"10");

/// Adds `lucene_version` to the `nouveau` indexes of new design documents that do not have it.
///
/// CouchDB adds it to clients' edits without a revision, before their validation. It does not
/// change replicated revisions.
pub(crate) fn add_lucene_versions(edits: &mut [EditDoc]) {
    for edit in edits {
        let is_design = edit.id.as_ref().is_some_and(|id| id.is_design());
        if is_design && edit.rev_path().is_none() {
            add_to(edit);
        }
    }
}

fn add_to(edit: &mut EditDoc) {
    let indexes = member(&edit.body, "nouveau").unwrap_or_default();
    if !members(indexes).any(|(_, index)| is_unversioned(index)) {
        return;
    }
    let body = rewritten(&edit.body, |name, value| match name {
        "nouveau" => rewritten(value, |_, index| versioned(index)),
        _ => value.to_vec(),
    });
    // The body was parsed before, so it is valid.
    if let Ok(parsed) = parse_document(&body) {
        edit.body = parsed.body;
        edit.body_term = parsed.body_term;
    }
}

fn is_unversioned(index: &[u8]) -> bool {
    index.starts_with(b"{") && member(index, LUCENE_VERSION.0).is_none()
}

fn versioned(index: &[u8]) -> Vec<u8> {
    if !is_unversioned(index) {
        return index.to_vec();
    }
    let mut all: Vec<_> = members(index).collect();
    all.push((LUCENE_VERSION.0.to_owned(), LUCENE_VERSION.1));
    let values = all.into_iter().map(|(name, value)| (name, value.to_vec()));
    written(values)
}

/// Returns the object with each value replaced.
fn rewritten(object: &[u8], replace: impl Fn(&str, &[u8]) -> Vec<u8>) -> Vec<u8> {
    written(members(object).map(|(name, value)| {
        let value = replace(&name, value);
        (name, value)
    }))
}

fn written(members: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (name, value) in members {
        if out.len() > 1 {
            out.push(b',');
        }
        write_json_string(&name, &mut out);
        out.push(b':');
        out.extend_from_slice(&value);
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(text: &str) -> String {
        let mut edits = [parse_document(text.as_bytes()).unwrap()];
        add_lucene_versions(&mut edits);
        let [edit] = edits;
        let again = parse_document(&edit.body).unwrap();
        assert_eq!(edit.body_term, again.body_term);
        String::from_utf8(edit.body).unwrap()
    }

    #[test]
    fn only_new_design_documents_get_the_version() {
        let index = r#""n\u00e4\"":1.50,"nouveau":{"a":{"index":"F"},"b":{},"c":{"lucene_version":9},"d":1},"z":[]}"#;
        let new = format!(r#"{{"_id":"_design/x",{index}"#);
        assert_eq!(
            body_of(&new),
            "{\"nä\\\"\":1.5,\"nouveau\":{\"a\":{\"index\":\"F\",\"lucene_version\":10},\
             \"b\":{\"lucene_version\":10},\"c\":{\"lucene_version\":9},\"d\":1},\"z\":[]}"
        );
        for head in [r#"{"_id":"_design/x","_rev":"1-a","#, r#"{"_id":"x","#] {
            let text = format!("{head}{index}");
            let unchanged = parse_document(text.as_bytes()).unwrap().body;
            assert_eq!(body_of(&text).into_bytes(), unchanged, "{text}");
        }
        let other = r#"{"_id":"_design/x","nouveau":[{}]}"#;
        assert_eq!(body_of(other), r#"{"nouveau":[{}]}"#);
    }
}
