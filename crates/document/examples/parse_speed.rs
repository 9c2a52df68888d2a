//! Measures how fast documents are parsed and hashed, and revision trees are decoded, merged and
//! encoded. Prints nanoseconds: the median of 31 runs, with the fastest and the slowest.

#![allow(clippy::unwrap_used, reason = "its input is its own")]

use std::hint::black_box;
use std::time::Instant;

use document::{
    Rev, RevHash, RevPath, RevTree, Revision, UuidAlgorithm, UuidGenerator, normalise,
    parse_bulk_docs, parse_document, revision_id,
};

const RUNS: usize = 31;

fn measure<T>(name: &str, bytes: usize, count: usize, mut work: impl FnMut() -> T) {
    let mut nanos: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..count {
                black_box(work());
            }
            start.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    let median = nanos[RUNS / 2];
    print!(
        "{name:44} {median:10.0} ns ({:.0} to {:.0})",
        nanos[0],
        nanos[RUNS - 1]
    );
    match bytes {
        0 => println!(),
        _ => println!("  {bytes} bytes, {:.0} MB/s", bytes as f64 * 1e3 / median),
    }
}

fn documents() {
    let small = br#"{"_id":"0123456789abcdef0123456789abcdef","type":"a","n":12345,"name":"Ana"}"#;
    let medium = concat!(
        r#"{"_id":"0123456789abcdef0123456789abcdef","type":"order","customer":{"name":"Ana Maria","email":"a@example.org"},"#,
        r#""lines":[{"sku":"A-1","quantity":2,"price":9.99},{"sku":"B-2","quantity":1,"price":10.0}],"total":29.98,"#,
        r#""note":"left at the door, as agreed with the neighbour","paid":true,"created":"2024-05-01T12:00:00Z"}"#
    );
    let text = format!(
        r#"{{"_id":"a","text":"{}"}}"#,
        "lorem ipsum dolor sit amet ".repeat(600)
    );
    let unicode = format!(
        r#"{{"_id":"a","text":"{}"}}"#,
        "Grüße aus Århus, où ça va… ".repeat(600)
    );
    let keys: Vec<String> = (0..300)
        .map(|index| format!(r#""member{index}":{index}"#))
        .collect();
    let wide = format!("{{{}}}", keys.join(","));
    let inputs = [
        ("small", small.as_slice()),
        ("medium", medium.as_bytes()),
        ("16 KB of ASCII", text.as_bytes()),
        ("20 KB of other letters", unicode.as_bytes()),
        ("300 members", wide.as_bytes()),
    ];
    for (name, input) in inputs {
        let count = 4_000_000 / (input.len() + 200);
        measure(&format!("{name}: parse"), input.len(), count, || {
            parse_document(input).unwrap()
        });
        measure(
            &format!("{name}: parse and hash"),
            input.len(),
            count,
            || {
                let edit = parse_document(input).unwrap();
                let rev = revision_id(edit.deleted, None, &edit.body_term, &[]);
                (edit, rev)
            },
        );
        measure(&format!("{name}: normalise"), input.len(), count, || {
            normalise(input).unwrap()
        });
    }
    bulk(medium);
}

fn bulk(medium: &str) {
    let bulk = format!(r#"{{"docs":[{}]}}"#, vec![medium; 1000].join(","));
    measure("bulk of 1000 medium: parse", bulk.len(), 10, || {
        parse_bulk_docs(bulk.as_bytes()).unwrap()
    });
    measure(
        "bulk of 1000 medium: parse and hash",
        bulk.len(),
        10,
        || {
            let request = parse_bulk_docs(bulk.as_bytes()).unwrap();
            request
                .docs
                .iter()
                .map(|doc| revision_id(false, None, &doc.body_term, &[]).generation)
                .sum::<u64>()
        },
    );
}

fn chain(length: u64) -> RevPath {
    let hash = |generation: u64| {
        let mut bytes = [7; 16];
        bytes[..8].copy_from_slice(&generation.to_be_bytes());
        RevHash::Md5(bytes)
    };
    RevPath {
        start: length,
        ids: (1..=length).rev().map(hash).collect(),
    }
}

fn trees() {
    let revision = Revision {
        deleted: false,
        seq: 1_000_000,
        size: 300,
    };
    for length in [1, 2, 10, 1000] {
        let path = chain(length);
        let mut tree = RevTree::new();
        for end in 1..=length {
            tree.merge(&chain(end), revision);
        }
        let mut encoded = Vec::new();
        tree.encode(&mut encoded);
        let count = 200_000 / length as usize + 10;
        let next = RevPath {
            start: length + 1,
            ids: vec![RevHash::Md5([9; 16]), path.ids[0].clone()],
        };
        measure(&format!("tree of {length}: decode"), 0, count, || {
            RevTree::decode(&encoded).unwrap()
        });
        measure(
            &format!("tree of {length}: encode"),
            encoded.len(),
            count,
            || {
                let mut out = Vec::with_capacity(encoded.len());
                tree.encode(&mut out);
                out
            },
        );
        measure(
            &format!("tree of {length}: make of a path"),
            0,
            count,
            || {
                let mut tree = RevTree::new();
                tree.merge(&path, revision);
                tree
            },
        );
        measure(
            &format!("tree of {length}: decode, edit, encode"),
            0,
            count,
            || {
                let mut tree = RevTree::decode(&encoded).unwrap();
                tree.merge(&next, revision);
                let mut out = Vec::with_capacity(encoded.len() + 32);
                tree.encode(&mut out);
                out
            },
        );
    }
    new_document(revision);
}

fn new_document(revision: Revision) {
    let rev = Rev::parse("1-967a00dff5e02add41819138abb3284d").unwrap();
    measure("new document: merge and encode", 0, 200_000, || {
        let mut tree = RevTree::new();
        tree.merge(&RevPath::single(rev.clone()), revision);
        let mut out = Vec::with_capacity(32);
        tree.encode(&mut out);
        out
    });
}

fn main() {
    documents();
    trees();
    let uuids = UuidGenerator::new(UuidAlgorithm::Sequential);
    measure("sequential uuid", 0, 100_000, || uuids.next());
}
