//! Entry points for fuzzing: each takes any bytes, must not panic, and asserts what always holds.
//!
//! `fuzz/` runs them with cargo-fuzz, `tests/fuzz.rs` of each crate with proptest in every test
//! run.

use crate::attachment::{StoredBody, append_attachments};
use crate::collation::{self, Collator, compare_erlang, first_elements, group_prefix};
use crate::json::{Elements, MemberIter, members, read_string, skip};
use crate::multipart::{ContentType, Event, Limits, Parser};
use crate::{RevTree, body_term, has_negative_zero, normalise, parse_bulk_docs, parse_document};

/// Fuzzes the JSON parser and the functions on stored text: the normal form is its own normal form,
/// it has a term, and it can be skipped and walked to its end.
pub fn json(bytes: &[u8]) {
    skipping_any_bytes(bytes);
    let _ = parse_bulk_docs(bytes);
    if let Ok(doc) = parse_document(bytes) {
        assert_normal(&doc.body);
        let derived = body_term(&doc.body);
        assert!(derived.is_ok());
        if !has_negative_zero(&doc.body_term) {
            assert_eq!(derived.as_ref(), Ok(&doc.body_term));
        }
    }
    let Ok(text) = normalise(bytes) else {
        return;
    };
    assert_normal(&text);
    assert!(body_term(&text).is_ok());
    assert_eq!(skip::value(&text, 0), Some(text.len()));
    let start = skip::space(bytes, 0);
    let end = skip::value(bytes, start).map(|end| skip::space(bytes, end));
    assert_eq!(end, Some(bytes.len()));
    match text[0] {
        b'{' => {
            let length: usize = members(&text).map(|(_, value)| value.len()).sum();
            assert!(length < text.len());
        }
        b'[' => {
            let elements: Vec<&[u8]> = Elements::of(&text).collect();
            assert_eq!([b"[", &*elements.join(&b','), b"]"].concat(), text);
        }
        b'"' => assert_eq!(read_string(&text, 0).map(|(_, end)| end), Ok(text.len())),
        _ => {}
    }
}

/// A normal form is its own.
fn assert_normal(text: &[u8]) {
    assert_eq!(normalise(text).as_deref(), Ok(text));
}

/// Functions that trust their text to be JSON do not read outside of it otherwise.
fn skipping_any_bytes(bytes: &[u8]) {
    let inside = |end: usize| end <= bytes.len();
    assert!(skip::value(bytes, 0).is_none_or(inside));
    assert!(skip::container(bytes, 0).is_none_or(inside));
    assert!(skip::string(bytes, 0).is_none_or(|(end, _)| inside(end)));
    let whole = skip::StringEnd::default().find(bytes);
    assert_eq!(whole, skip::string(bytes, 0).map(|(end, _)| end));
    for middle in 0..bytes.len().min(40) {
        let (first, second) = bytes.split_at(middle);
        let mut end = skip::StringEnd::default();
        let found = end.find(first);
        let found = found.or_else(|| Some(middle + end.find(second)?));
        assert_eq!(found, whole);
    }
    let _ = MemberIter::of(bytes).name();
    let _ = (members(bytes).count(), Elements::of(bytes).count());
}

/// Fuzzes the parser of multipart bodies: the splitting of the bytes has no effect. The first byte
/// determines the pieces.
pub fn multipart(bytes: &[u8]) {
    let (piece, body) = match bytes.split_first() {
        Some((piece, body)) => (usize::from(*piece) + 1, body),
        None => return,
    };
    let _ = ContentType::parse(&String::from_utf8_lossy(body));
    let whole = events(&mut std::iter::once(body));
    let pieces = events(&mut body.chunks(piece));
    assert_eq!(whole, pieces);
}

/// Returns the events of a body that arrives in pieces, with each part's data joined, and how it
/// ended.
fn events(pieces: &mut dyn Iterator<Item = &[u8]>) -> (Vec<String>, String) {
    let limits = Limits {
        header_bytes_max: 200,
        headers_max: 4,
        depth_max: 2,
    };
    let mut parser = Parser::new("b", limits).expect("the boundary is one");
    let (mut events, mut data) = (vec![], Vec::new());
    for piece in pieces {
        parser.push(piece);
        loop {
            match parser.next_event() {
                Ok(Some(Event::Data(more))) => data.extend_from_slice(&more),
                Ok(Some(event)) => {
                    events.push(format!("{:?} then {event:?}", std::mem::take(&mut data)));
                    let nested =
                        matches!(&event, Event::Part(headers) if headers.get("n").is_some());
                    if nested {
                        let _ = parser.enter("c");
                    }
                }
                Ok(None) => break,
                Err(error) => return (events, error.to_string()),
            }
        }
    }
    (events, format!("{:?}", parser.finish()))
}

/// Fuzzes sort keys of strings and doubles: they compare like their values. The bytes are two
/// values, concatenated.
pub fn sort_keys(bytes: &[u8]) {
    let (left, right) = bytes.split_at(bytes.len() / 2);
    let collator = Collator::root();
    let key = |json: &[u8]| {
        let mut key = Vec::new();
        collator.write_sort_key(json, &mut key).map(|()| key)
    };
    let quoted = |text: &str| {
        let mut json = Vec::new();
        crate::write_json_string(text, &mut json);
        json
    };
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (a, b) = (text(left), text(right));
    let order = key(&quoted(&a)).and_then(|a| Ok(a.cmp(&key(&quoted(&b))?)));
    assert_eq!(order, Ok(collator.compare_strings(&a, &b)), "{a:?} {b:?}");
    assert_eq!(compare_erlang(&quoted(&a), &quoted(&b)), a.cmp(&b));
    if let (Some(a), Some(b)) = (left.first_chunk(), right.first_chunk()) {
        let (a, b) = (f64::from_le_bytes(*a), f64::from_le_bytes(*b));
        if a.is_finite() && b.is_finite() {
            let json = |number| {
                let mut json = Vec::new();
                crate::json::write_float(number, &mut json);
                json
            };
            let order = key(&json(a)).and_then(|a| Ok(a.cmp(&key(&json(b))?)));
            assert_eq!(order.ok(), a.partial_cmp(&b), "{a} {b}");
        }
    }
    for json in [left, right, bytes] {
        let Ok(key) = key(json) else {
            continue;
        };
        assert_eq!(collation::skip(&key), Some(key.len()));
        assert!((0x10..0x30).contains(&key[0]));
        for count in 0..4 {
            assert!(group_prefix(&key, count).is_some_and(|length| length <= key.len()));
            assert!(normalise(&first_elements(json, count)).is_ok());
        }
        assert!(compare_erlang(json, json).is_eq());
    }
    // Stored keys may be damaged.
    let _ = (collation::skip(bytes), group_prefix(bytes, 2));
}

/// Fuzzes stored revision trees and attachments: whatever decodes encodes to the same bytes.
pub fn stored(bytes: &[u8]) {
    if let Ok((tree, rest)) = RevTree::decode_prefix(bytes) {
        let mut again = Vec::new();
        tree.encode(&mut again);
        assert_eq!([&again, rest].concat(), bytes);
        let _ = (tree.winner(), tree.leaves());
        let stored = &bytes[..again.len()];
        assert_eq!(RevTree::stored_leaf_bytes(stored), Ok(tree.leaf_bytes()));
    }
    let _ = RevTree::stored_leaf_bytes(bytes);
    let body = StoredBody::split(bytes);
    assert!(body.json.len() + body.attachments.len() <= bytes.len());
    if let Some(attachments) = body.attachments()
        && !attachments.is_empty()
    {
        let mut again = body.json.to_vec();
        append_attachments(&attachments, 0, &mut again);
        assert_eq!(StoredBody::split(&again).attachments(), Some(attachments));
    }
}
