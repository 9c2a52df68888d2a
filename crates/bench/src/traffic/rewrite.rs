//! The form of a recorded request at replay: with the revisions and ids of the replay's server.
//!
//! Replaced are: the document's id in the path, `rev` in the query, `If-Match`, `rev` in
//! `Destination`, and `_id` and `_rev` in the bodies of single documents and of `_bulk_docs`, and
//! `id` and `rev` in those of `_bulk_get`. Texts are replaced in place, so that nothing else in a
//! body changes.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;

use super::entry::Entry;
use super::revs::{Names, of_id, of_rev};

/// Characters that need no encoding in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b':');

/// A request, ready to be sent.
#[derive(Debug, PartialEq)]
pub(super) struct Rewritten {
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// A text of a body, where it stands unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A document in a body.
#[derive(Deserialize)]
struct Doc<'a> {
    #[serde(borrow, rename = "_id")]
    id: Option<Text<'a>>,
    #[serde(borrow, rename = "_rev")]
    rev: Option<Text<'a>>,
}

/// A document that `_bulk_get` requests.
#[derive(Deserialize)]
struct RequestedDocument<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    rev: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct BulkDocs<'a> {
    #[serde(borrow)]
    docs: Vec<Doc<'a>>,
    #[serde(default = "yes")]
    new_edits: bool,
}

#[derive(Deserialize)]
struct BulkGet<'a> {
    #[serde(borrow)]
    docs: Vec<RequestedDocument<'a>>,
}

fn yes() -> bool {
    true
}

/// A text of the body and its replacement.
struct Patch {
    start: usize,
    len: usize,
    text: String,
}

/// Puts the replay's names into a request. Waits for names whose requests are on their way.
pub(super) async fn rewrite(entry: &Entry, names: &Names) -> Result<Rewritten, String> {
    let recorded = entry.body()?;
    let mut body = recorded.clone();
    let mut path = entry.path.clone();
    let mut headers = entry.headers.clone();
    let Some(database) = entry.database() else {
        return Ok(Rewritten {
            path,
            headers,
            body,
        });
    };
    let document = document(&entry.path);
    if let Some((range, id)) = &document {
        path = with_query_rev(&path, &database, id, names).await;
        if let Some(now) = names.now(&of_id(&database, id)).await {
            let segment = utf8_percent_encode(&now, SEGMENT).to_string();
            path.replace_range(range.clone(), &segment);
        }
        for (name, value) in &mut headers {
            if name == "if-match" {
                let rev = value.trim_matches('"').to_owned();
                if let Some(now) = names.now(&of_rev(&database, id, &rev)).await {
                    *value = value.replace(&rev, &now);
                }
            }
        }
        let patches = one_patches(&recorded, &database, Some(id), names).await;
        patch(&mut body, patches);
    } else if entry.method == "POST" {
        let segments = path.split('?').next().unwrap_or_default();
        let patches = match segments.rsplit('/').next() {
            Some("_bulk_docs") => bulk_docs_patches(&recorded, &database, names).await,
            Some("_bulk_get") => bulk_get_patches(&recorded, &database, names).await,
            _ => one_patches(&recorded, &database, None, names).await,
        };
        patch(&mut body, patches);
    }
    for (name, value) in &mut headers {
        if name == "destination" {
            *value = destination(value, &database, names).await;
        }
    }
    Ok(Rewritten {
        path,
        headers,
        body,
    })
}

/// The position of a document's id in a path, and the id; `None` when the path does not name a
/// document.
fn document(path: &str) -> Option<(std::ops::Range<usize>, String)> {
    let end = path.find('?').unwrap_or(path.len());
    let start = path[1..end].find('/')? + 2;
    let rest = &path[start..end];
    let mut segments = rest.split('/');
    let first = segments.next().filter(|first| !first.is_empty())?;
    let mut len = first.len();
    if matches!(first, "_design" | "_local") {
        len += 1 + segments.next().filter(|name| !name.is_empty())?.len();
    } else if first.starts_with('_') {
        return None;
    }
    let id = percent_decode_str(&rest[..len]).decode_utf8_lossy();
    Some((start..start + len, id.into_owned()))
}

async fn with_query_rev(path: &str, database: &str, id: &str, names: &Names) -> String {
    let Some((before, query)) = path.split_once('?') else {
        return path.to_owned();
    };
    let mut parameters = Vec::new();
    for parameter in query.split('&') {
        let now = match parameter.strip_prefix("rev=") {
            Some(rev) => {
                let rev = percent_decode_str(rev).decode_utf8_lossy();
                let rev = rev.trim_matches('"');
                names.now(&of_rev(database, id, rev)).await
            }
            None => None,
        };
        parameters.push(now.map_or(Cow::Borrowed(parameter), |now| format!("rev={now}").into()));
    }
    format!("{before}?{}", parameters.join("&"))
}

/// `ID` or `ID?rev=REV`, of the same database.
async fn destination(value: &str, database: &str, names: &Names) -> String {
    let Some((id, rev)) = value.split_once("?rev=") else {
        return value.to_owned();
    };
    let decoded = percent_decode_str(id).decode_utf8_lossy();
    match names.now(&of_rev(database, &decoded, rev)).await {
        Some(now) => format!("{id}?rev={now}"),
        None => value.to_owned(),
    }
}

async fn one_patches(
    body: &[u8],
    database: &str,
    id_of_path: Option<&str>,
    names: &Names,
) -> Vec<Patch> {
    let Ok(doc) = serde_json::from_slice::<Doc<'_>>(body) else {
        return Vec::new();
    };
    let id = doc.id.as_ref();
    let Some(of) = id_of_path.or(id.map(|id| &*id.0)) else {
        return Vec::new();
    };
    patches(body, of, (id, doc.rev.as_ref()), database, names).await
}

async fn bulk_docs_patches(body: &[u8], database: &str, names: &Names) -> Vec<Patch> {
    let mut all = Vec::new();
    if let Ok(bulk) = serde_json::from_slice::<BulkDocs<'_>>(body)
        // A replicator's documents bring their own revisions, which are the same everywhere.
        && bulk.new_edits
    {
        for doc in &bulk.docs {
            if let Some(id) = &doc.id {
                let texts = (Some(id), doc.rev.as_ref());
                all.extend(patches(body, &id.0, texts, database, names).await);
            }
        }
    }
    all
}

async fn bulk_get_patches(body: &[u8], database: &str, names: &Names) -> Vec<Patch> {
    let mut all = Vec::new();
    if let Ok(bulk) = serde_json::from_slice::<BulkGet<'_>>(body) {
        for doc in &bulk.docs {
            if let Some(id) = &doc.id {
                let texts = (Some(id), doc.rev.as_ref());
                all.extend(patches(body, &id.0, texts, database, names).await);
            }
        }
    }
    all
}

/// Replacements of a document's id and revision, which are `texts` of the body.
async fn patches(
    body: &[u8],
    id: &str,
    texts: (Option<&Text<'_>>, Option<&Text<'_>>),
    database: &str,
    names: &Names,
) -> Vec<Patch> {
    let mut patches = Vec::new();
    if let Some(text) = texts.0 {
        let now = names.now(&of_id(database, id)).await;
        patches.extend(now.and_then(|now| place(body, text, now)));
    }
    if let Some(text) = texts.1 {
        let now = names.now(&of_rev(database, id, &text.0)).await;
        patches.extend(now.and_then(|now| place(body, text, now)));
    }
    patches
}

/// The position of a text that was read from a body; `None` when it was written with escapes.
fn place(body: &[u8], text: &Text<'_>, now: String) -> Option<Patch> {
    let Cow::Borrowed(text) = &text.0 else {
        return None;
    };
    let start = (text.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let is_plain = !now.contains(['"', '\\']) && !now.contains(char::is_control);
    (is_plain && start + text.len() <= body.len()).then_some(Patch {
        start,
        len: text.len(),
        text: now,
    })
}

fn patch(body: &mut Vec<u8>, mut patches: Vec<Patch>) {
    // Documents may have `_rev` before `_id`.
    patches.sort_by_key(|patch| std::cmp::Reverse(patch.start));
    for Patch { start, len, text } in patches {
        body.splice(start..start + len, text.into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names in which each of the keys became the other.
    fn names(pairs: &[(&str, &str, &str, &str)]) -> Names {
        let names = Names::default();
        for (id, recorded, now, kind) in pairs {
            let key = match *kind {
                "rev" => of_rev("db", id, recorded),
                _ => of_id("db", id),
            };
            let promise = names.promise(key);
            names.keep(promise, recorded, Some(now));
        }
        names
    }

    async fn rewritten(method: &str, path: &str, body: &str, names: &Names) -> Rewritten {
        let mut entry = Entry::new(0, 0, method, path);
        entry.set_body(body.as_bytes().to_vec());
        entry.headers = vec![
            ("if-match".to_owned(), "\"1-x\"".to_owned()),
            ("destination".to_owned(), "b?rev=1-x".to_owned()),
        ];
        rewrite(&entry, names).await.unwrap()
    }

    fn text(rewritten: &Rewritten) -> &str {
        std::str::from_utf8(&rewritten.body).unwrap()
    }

    #[tokio::test]
    async fn a_revision_is_replaced_wherever_a_request_names_it() {
        let names = names(&[("a", "1-x", "1-yy", "rev"), ("b", "1-x", "2-b", "rev")]);
        let body = r#"{"n":1.00,"_rev" : "1-x","copy":"1-x","_id":"a"}"#;
        let sent = rewritten("PUT", "/db/a?x=1&rev=1-x&y=2", body, &names).await;
        assert_eq!(sent.path, "/db/a?x=1&rev=1-yy&y=2");
        assert_eq!(
            text(&sent),
            r#"{"n":1.00,"_rev" : "1-yy","copy":"1-x","_id":"a"}"#
        );
        assert_eq!(sent.headers[0].1, "\"1-yy\"");
        assert_eq!(sent.headers[1].1, "b?rev=2-b");
        let attachment = rewritten("PUT", "/db/a/file?rev=1-x", "\u{1}bytes", &names).await;
        assert_eq!(
            (&*attachment.path, text(&attachment)),
            ("/db/a/file?rev=1-yy", "\u{1}bytes")
        );
        let posted = rewritten("POST", "/db", r#"{"_id":"a","_rev":"1-x"}"#, &names).await;
        assert_eq!(text(&posted), r#"{"_id":"a","_rev":"1-yy"}"#);
    }

    #[tokio::test]
    async fn each_document_of_a_bulk_has_its_own_revision() {
        let names = names(&[("a", "1-x", "1-a", "rev"), ("b", "1-x", "1-b", "rev")]);
        let body = r#"{"docs":[{"_id":"a","_rev":"1-x"},{"_rev":"1-x","_id":"b"},{"_id":"c","_rev":"1-x"},{}]}"#;
        let sent = rewritten("POST", "/db/_bulk_docs", body, &names).await;
        let expected = r#"{"docs":[{"_id":"a","_rev":"1-a"},{"_rev":"1-b","_id":"b"},{"_id":"c","_rev":"1-x"},{}]}"#;
        assert_eq!(text(&sent), expected);
        let body = r#"{"docs":[{"id":"b","rev":"1-x"}]}"#;
        let sent = rewritten("POST", "/db/_bulk_get", body, &names).await;
        assert_eq!(text(&sent), r#"{"docs":[{"id":"b","rev":"1-b"}]}"#);
        let body = r#"{"new_edits":false,"docs":[{"_id":"a","_rev":"1-x"}]}"#;
        assert_eq!(
            text(&rewritten("POST", "/db/_bulk_docs", body, &names).await),
            body
        );
    }

    #[tokio::test]
    async fn an_id_that_the_server_made_up_is_replaced_in_path_and_body() {
        let names = names(&[("made/up", "made/up", "an other", "id")]);
        let body = r#"{"_id":"made/up"}"#;
        let sent = rewritten("PUT", "/db/made%2Fup?rev=5-x", body, &names).await;
        assert_eq!(sent.path, "/db/an%20other?rev=5-x");
        // The body had an escape-free text, so it is replaced too.
        assert_eq!(text(&sent), r#"{"_id":"an other"}"#);
    }

    #[tokio::test]
    async fn a_request_without_known_names_is_sent_as_it_was() {
        let names = names(&[("a", "1-x", "1-y", "rev")]);
        for (method, path, body) in [
            ("GET", "/", ""),
            ("GET", "/db", ""),
            ("GET", "/db/", ""),
            ("POST", "/db/_find", r#"{"selector":{"_rev":"1-x"}}"#),
            ("PUT", "/other/a?rev=1-x", r#"{"_rev":"1-x"}"#),
            ("PUT", "/db/b?rev=1-x", r#"{"_rev":"1-x"}"#),
            ("PUT", "/db/a", r#"{"_rev":"1-\u0078"}"#),
            ("PUT", "/db/a", "no json"),
            ("POST", "/db/_bulk_docs", r#"{"docs":1}"#),
        ] {
            let sent = rewritten(method, path, body, &names).await;
            assert_eq!((&*sent.path, text(&sent)), (path, body), "{method} {path}");
        }
    }

    #[test]
    fn the_documents_of_paths() {
        for (path, id) in [
            ("/db/a", Some("a")),
            ("/db/a%2Fb/file.txt?rev=1", Some("a/b")),
            ("/db/_design/d/_view/v", Some("_design/d")),
            ("/db/_local/l", Some("_local/l")),
            ("/db/_all_docs", None),
            ("/db/_design", None),
            ("/db", None),
            ("/", None),
            ("/?a=/b", None),
        ] {
            assert_eq!(document(path).map(|(_, id)| id).as_deref(), id, "{path}");
        }
    }
}
