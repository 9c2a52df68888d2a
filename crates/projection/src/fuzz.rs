//! Entry points for fuzzing: each takes any bytes, must not panic, and asserts what always holds.

use crate::{Projection, WHOLE};

/// Map functions that touch members in different ways.
const MAPS: [&str; 4] = [
    "function (doc) { emit(doc.a, doc.b.c); }",
    "function (doc) { emit(doc.a[0], doc.b.length); }",
    "function (doc) { for (var n in doc.a) { emit(n, doc.a[n].b); } }",
    "function (doc) { emit(doc); }",
];

/// Runs the scanner: the output for a JSON object is JSON, marked or not.
pub fn scanner(bytes: &[u8]) {
    let body = document::normalise(bytes).ok();
    for map in MAPS {
        lift(map, body.as_deref().unwrap_or(bytes), body.is_some());
    }
}

/// Fuzzes the analysis of a map function, the bytes before the first zero, and the scanner with its
/// result.
pub fn analysis(bytes: &[u8]) {
    let at = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let (source, rest) = bytes.split_at(at);
    let body = document::normalise(rest.get(1..).unwrap_or(b"{}")).ok();
    let source = String::from_utf8_lossy(source);
    lift(&source, body.as_deref().unwrap_or(rest), body.is_some());
}

fn lift(source: &str, body: &[u8], is_json: bool) {
    let Ok(projection) = Projection::analyse(source) else {
        return;
    };
    let (mut plain, mut marked) = (vec![], vec![]);
    projection.project(b"\"_id\":\"x\"", body, &mut plain);
    projection.project_records(body, &mut marked);
    if is_json && body.first() == Some(&b'{') {
        marked.retain(|b| *b != WHOLE);
        for lifted in [&plain, &marked] {
            assert!(document::normalise(lifted).is_ok(), "{source}: {lifted:?}");
        }
    }
}
