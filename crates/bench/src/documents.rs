//! The documents that the workloads write, and their ids.

use std::cell::Cell;
use std::io::Write as _;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{declarations, words};

/// A document's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// `{"foo":"bar"}`, as in the CouchDB guide's chapter on performance.
    Foo,
    /// About 75 bytes with the id: a number and a short text.
    Bytes75,
    /// About 300 bytes with the id: texts, numbers, a list and a nested object.
    Bytes300,
    /// About 300 bytes with the id: a number and a text of many different words.
    Words,
    /// `{"n":NUMBER}`: for indexes of very many small rows.
    Tiny,
    /// About 16 KB of nested objects and arrays.
    Declaration,
    /// This number of bytes with the id: the numbers and names of [`Shape::Bytes300`], which views
    /// and queries read, and a text of many different words.
    Sized(usize),
}

/// Bytes of a document in a bulk besides its members: `{"_id":"…",…}` with an id of 32 digits.
const FRAME_BYTES: usize = 43;
/// Bytes of a bulk of documents of any size.
const BULK_BYTES: usize = 2 << 20;

/// How ids follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    /// 32 hexadecimal digits that only grow, like CouchDB's `sequential` uuids.
    Sequential,
    /// 32 hexadecimal digits of UUIDs of version 7: the time, then random bits. They only grow.
    Time,
    /// 32 random hexadecimal digits.
    Random,
}

/// Parts of a millisecond that an id sorted by time has: 12 bits.
const PARTS_OF_MS: u128 = 1 << 12;
/// Version 7, and the variant, at their places in the halves of a UUID.
const VERSION_7: u64 = 7 << 12;
const VARIANT: u64 = 1 << 63;

/// A source of ids that all clients of a loop share.
#[derive(Debug, Clone)]
pub(crate) struct Ids {
    order: Order,
    prefix: u64,
    next: Rc<Cell<u64>>,
    /// The time of the last id that was sorted by time, in parts of a millisecond since 1970.
    last: Rc<Cell<u64>>,
}

impl Ids {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            prefix: fastrand::u64(..),
            next: Rc::new(Cell::new(0)),
            last: Rc::new(Cell::new(0)),
        }
    }

    /// How many ids have been taken.
    pub(crate) fn taken(&self) -> u64 {
        self.next.get()
    }

    /// Appends the next id; returns its number, from 0.
    pub(crate) fn push_next(&self, out: &mut Vec<u8>) -> u64 {
        let number = self.next.replace(self.next.get() + 1);
        match self.order {
            Order::Sequential => self.push_nth(out, number),
            Order::Time => {
                let at = self.later_time();
                let (ms, part) = (at / PARTS_OF_MS as u64, at % PARTS_OF_MS as u64);
                push_hex(out, (ms << 16) | VERSION_7 | part);
                push_hex(out, VARIANT | (fastrand::u64(..) >> 2));
            }
            Order::Random => {
                push_hex(out, fastrand::u64(..));
                push_hex(out, fastrand::u64(..));
            }
        }
        number
    }

    /// Returns the time, or the next possible one after that of the last id.
    fn later_time(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let ns = since_1970.unwrap_or_default().as_nanos();
        let now = u64::try_from(ns * PARTS_OF_MS / 1_000_000).unwrap_or(u64::MAX);
        let at = now.max(self.last.get() + 1);
        self.last.set(at);
        at
    }

    /// Appends the id of that number of a sequential source.
    pub(crate) fn push_nth(&self, out: &mut Vec<u8>, number: u64) {
        push_hex(out, self.prefix);
        push_hex(out, number);
    }

    /// The next id as text.
    pub(crate) fn next_text(&self) -> String {
        let mut id = Vec::with_capacity(32);
        self.push_next(&mut id);
        String::from_utf8_lossy(&id).into_owned()
    }
}

fn push_hex(out: &mut Vec<u8>, value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |at: usize| DIGITS[(value >> (60 - 4 * at) & 15) as usize];
    out.extend_from_slice(&std::array::from_fn::<u8, 16, _>(digit));
}

impl Shape {
    /// Documents in one `_bulk_docs` request: some hundred kilobytes, at most two megabytes.
    pub(crate) fn bulk_docs(self) -> u64 {
        match self {
            Self::Declaration => 100,
            Self::Sized(bytes) => (BULK_BYTES / bytes.max(1)).clamp(1, 1_000) as u64,
            _ => 1_000,
        }
    }

    /// Appends a body without `_id`, for a PUT to the document's path.
    pub(crate) fn push_body(self, out: &mut Vec<u8>, number: u64) {
        out.push(b'{');
        self.push_members(out, number);
        out.push(b'}');
    }

    fn push_members(self, out: &mut Vec<u8>, number: u64) {
        match self {
            Self::Foo => out.extend_from_slice(br#""foo":"bar""#),
            Self::Words => push(
                out,
                format_args!(r#""number":{number},"text":"{}""#, words::text(number)),
            ),
            Self::Tiny => push(out, format_args!(r#""n":{number}"#)),
            Self::Declaration => declarations::push_members(out, number),
            Self::Bytes75 => push(out, format_args!(r#""n":{number},"name":"document""#)),
            Self::Bytes300 => {
                push_order(out, number);
                out.extend_from_slice(
                br#""tags":["red","green","blue"],"address":{"street":"1 Sofa Lane","city":"Upholstery","zip":"12345"},"text":"Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod.""#,
                );
            }
            Self::Sized(bytes) => {
                let end = (out.len() + bytes).saturating_sub(FRAME_BYTES);
                push_order(out, number);
                out.extend_from_slice(br#""text":""#);
                let letters = end.saturating_sub(out.len() + 1);
                words::push_letters(out, number, letters);
                out.push(b'"');
            }
        }
    }

    /// Appends `{"docs":[…]}` with `count` new documents.
    pub(crate) fn push_bulk(self, out: &mut Vec<u8>, ids: &Ids, count: u64) {
        out.extend_from_slice(br#"{"docs":["#);
        for at in 0..count {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(br#"{"_id":""#);
            let number = ids.push_next(out);
            out.extend_from_slice(br#"","#);
            self.push_members(out, number);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
    }
}

/// The members of an order that views and queries read.
fn push_order(out: &mut Vec<u8>, number: u64) {
    let (customer, amount) = (number % 1_000, number % 997);
    push(
        out,
        format_args!(
            r#""type":"order","number":{number},"customer":"customer-{customer}","amount":{amount}.25,"#
        ),
    );
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn bulk(shape: Shape, order: Order, count: u64) -> Vec<Value> {
        let mut text = Vec::new();
        shape.push_bulk(&mut text, &Ids::new(order), count);
        let parsed: Value = serde_json::from_slice(&text).unwrap();
        parsed["docs"].as_array().unwrap().clone()
    }

    #[test]
    fn sequential_ids_are_32_digits_and_only_grow() {
        let docs = bulk(Shape::Foo, Order::Sequential, 300);
        let ids: Vec<&str> = docs
            .iter()
            .map(|doc| doc["_id"].as_str().unwrap())
            .collect();
        assert!(ids.iter().all(|id| id.len() == 32));
        assert!(ids.is_sorted() && ids.len() == 300);
        assert_eq!(docs[0]["foo"], "bar");
    }

    #[test]
    fn ids_sorted_by_time_have_the_time_and_only_grow() {
        let ms = || {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
            since_1970.unwrap().as_millis() as u64
        };
        let before = ms();
        let docs = bulk(Shape::Foo, Order::Time, 3_000);
        let ids: Vec<&str> = docs
            .iter()
            .map(|doc| doc["_id"].as_str().unwrap())
            .collect();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]));
        let first = u64::from_str_radix(&ids[0][..12], 16).unwrap();
        assert!((before..=ms()).contains(&first), "{first}");
        for id in &ids {
            assert_eq!((id.len(), &id[12..13]), (32, "7"), "{id}");
            assert!("89ab".contains(&id[16..17]), "{id}");
        }
        let random: std::collections::BTreeSet<&str> = ids.iter().map(|id| &id[16..]).collect();
        assert_eq!(random.len(), ids.len());
    }

    #[test]
    fn random_ids_are_in_no_order() {
        let docs = bulk(Shape::Foo, Order::Random, 300);
        assert!(
            !docs
                .iter()
                .map(|doc| doc["_id"].as_str().unwrap())
                .is_sorted()
        );
    }

    #[test]
    fn documents_have_the_size_that_their_name_says() {
        for (shape, bytes) in [
            (Shape::Bytes75, 75),
            (Shape::Bytes300, 300),
            (Shape::Words, 300),
        ] {
            let docs = bulk(shape, Order::Sequential, 123_457);
            let size = serde_json::to_vec(&docs[123_456]).unwrap().len();
            assert!(size.abs_diff(bytes) <= bytes / 10, "{shape:?}: {size}");
        }
        for bytes in [150, 300, 1_000, 100_000] {
            let docs = bulk(Shape::Sized(bytes), Order::Sequential, 12);
            for doc in &docs {
                assert_eq!(serde_json::to_vec(doc).unwrap().len(), bytes);
                assert!(doc["number"].is_u64() && doc["amount"].is_f64());
            }
            assert_ne!(docs[1]["text"], docs[2]["text"]);
        }
    }
}
