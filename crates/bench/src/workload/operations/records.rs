//! YCSB's records: ten fields of a hundred bytes, under keys that lie in no order.

use super::distribution::fnv_64;
use crate::error::BenchError;
use crate::progress;
use crate::slice::{Check, ClosedLoop, Requests};
use crate::system::System;
use std::cell::Cell;
use std::rc::Rc;

const FIELDS: usize = 10;
pub(crate) const FIELD_BYTES: usize = 100;
const BULK: u64 = 1_000;
const FILL_CLIENTS: usize = 2;

/// YCSB's name for a record: "user" and the hash of its number.
pub(crate) fn key(number: u64) -> String {
    format!("user{}", fnv_64(number))
}

/// A field's content: letters and digits, which JSON needs not escape.
pub(crate) fn content(rng: &mut fastrand::Rng) -> [u8; FIELD_BYTES] {
    std::array::from_fn(|_| rng.alphanumeric() as u8)
}

/// The beginning of a field that is chosen at random, up to its content.
pub(crate) fn any_field(rng: &mut fastrand::Rng) -> Vec<u8> {
    format!(r#""field{}":""#, rng.usize(..FIELDS)).into_bytes()
}

/// Appends the members of a new record.
fn push_members(out: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    for field in 0..FIELDS {
        if field > 0 {
            out.push(b',');
        }
        out.extend_from_slice(format!(r#""field{field}":""#).as_bytes());
        out.extend_from_slice(&content(rng));
        out.push(b'"');
    }
}

/// The body of a new record.
pub(crate) fn body(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut out = b"{".to_vec();
    push_members(&mut out, rng);
    out.push(b'}');
    out
}

/// Writes the records below `records` into an empty database.
pub(crate) async fn load(system: &System, database: &str, records: u64) -> Result<(), BenchError> {
    let next = Rc::new(Cell::new(0));
    let bar = progress::bar(records, format!("filling {database}"));
    let path = format!("/{database}/_bulk_docs");
    let requests = |client| -> Requests {
        let (target, next) = (Rc::clone(&system.target), Rc::clone(&next));
        let (path, bar) = (path.clone(), bar.clone());
        let mut rng = fastrand::Rng::with_seed(client as u64);
        let mut bulk = Vec::new();
        Box::new(move |request| {
            let from = next.get();
            let to = records.min(from + BULK);
            (from < to).then_some(())?;
            next.set(to);
            bar.set_position(to);
            bulk.clear();
            push_bulk(&mut bulk, from..to, &mut rng);
            target.write_request(request, "POST", &path, "", Some(&bulk));
            Some(to - from)
        })
    };
    let loading = ClosedLoop::exhaustive(&system.target, Check::Bulk);
    let slice = loading.run(FILL_CLIENTS, requests).await;
    bar.finish_and_clear();
    match slice?.errors.first {
        None => Ok(()),
        Some(body) => Err(BenchError::Refused {
            what: format!("POST {path}"),
            status: 0,
            body,
        }),
    }
}

fn push_bulk(out: &mut Vec<u8>, numbers: std::ops::Range<u64>, rng: &mut fastrand::Rng) {
    out.extend_from_slice(br#"{"docs":["#);
    for number in numbers {
        if !out.ends_with(b"[") {
            out.push(b',');
        }
        out.extend_from_slice(format!(r#"{{"_id":"{}","#, key(number)).as_bytes());
        push_members(out, rng);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_record_has_ten_fields_of_a_hundred_bytes() {
        let mut rng = fastrand::Rng::with_seed(1);
        let record: Value = serde_json::from_slice(&body(&mut rng)).unwrap();
        let fields = record.as_object().unwrap();
        assert_eq!(fields.len(), 10);
        assert!(
            fields
                .values()
                .all(|value| value.as_str().unwrap().len() == 100)
        );
        assert_ne!(fields["field0"], fields["field9"]);
    }

    #[test]
    fn a_bulk_has_the_keys_of_its_numbers() {
        let mut bulk = Vec::new();
        push_bulk(&mut bulk, 3..6, &mut fastrand::Rng::with_seed(1));
        let bulk: Value = serde_json::from_slice(&bulk).unwrap();
        let docs = bulk["docs"].as_array().unwrap().iter();
        let ids: Vec<&str> = docs.map(|doc| doc["_id"].as_str().unwrap()).collect();
        assert_eq!(ids, [key(3), key(4), key(5)]);
    }
}
