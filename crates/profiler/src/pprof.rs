//! The format of pprof: a compressed protocol buffer. Its definition is `profile.proto` of
//! github.com/google/pprof.
//!
//! It has seven kinds of fields, of two types: writing them takes less code than would be generated
//! for them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::profile::{Profile, Unit};

/// A message of the protocol.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn number(&mut self, field: u64, n: u64) {
        self.varint(field << 3);
        self.varint(n);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn numbers(&mut self, field: u64, all: &[u64]) {
        let mut packed = Message::default();
        all.iter().for_each(|n| packed.varint(*n));
        self.bytes(field, &packed.0);
    }
}

/// Texts, by the numbers that stand for them. The first is empty.
struct StringTable<'a> {
    numbers: HashMap<&'a str, u64>,
    all: Vec<&'a str>,
}

impl<'a> StringTable<'a> {
    fn number(&mut self, text: &'a str) -> u64 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() as u64 - 1
        })
    }
}

/// Type and unit of a value.
fn value_type(kind: u64, unit: u64) -> Vec<u8> {
    let mut message = Message::default();
    message.number(1, kind);
    message.number(2, unit);
    message.0
}

impl Profile {
    /// Encodes the profile for `go tool pprof`. `duration` is that of the profile.
    ///
    /// # Errors
    /// None: it is written to memory.
    pub fn pprof(&self, duration: Duration) -> io::Result<Vec<u8>> {
        let mut texts = StringTable {
            numbers: HashMap::new(),
            all: vec![],
        };
        texts.number("");
        let (kind, period_ns) = match self.unit {
            Unit::Samples { hz } => ("cpu", 1_000_000_000 / u64::from(hz.max(1))),
            Unit::Microseconds => ("wall", 1_000),
        };
        let (samples, count) = (texts.number("samples"), texts.number("count"));
        let (kind, nanoseconds) = (texts.number(kind), texts.number("nanoseconds"));
        let mut out = Message::default();
        out.bytes(1, &value_type(samples, count));
        out.bytes(1, &value_type(kind, nanoseconds));
        // Each function has one place, of the same number.
        let mut functions: HashMap<&str, u64> = HashMap::new();
        let mut names = vec![];
        for (stack, count) in &self.stacks {
            let places = stack.rsplit(';').map(|frame| {
                *functions.entry(frame).or_insert_with(|| {
                    names.push(texts.number(frame));
                    names.len() as u64
                })
            });
            let mut sample = Message::default();
            sample.numbers(1, &places.collect::<Vec<_>>());
            sample.numbers(2, &[*count, count * period_ns]);
            out.bytes(2, &sample.0);
        }
        for (n, name) in names.iter().enumerate() {
            let id = n as u64 + 1;
            let (mut line, mut place, mut function) = <(Message, Message, Message)>::default();
            line.number(1, id);
            place.number(1, id);
            place.bytes(4, &line.0);
            out.bytes(4, &place.0);
            function.number(1, id);
            function.number(2, *name);
            out.bytes(5, &function.0);
        }
        for text in &texts.all {
            out.bytes(6, text.as_bytes());
        }
        out.number(10, duration.as_nanos() as u64);
        out.bytes(11, &value_type(kind, nanoseconds));
        out.number(12, period_ns);
        let mut packed = GzEncoder::new(vec![], Compression::default());
        packed.write_all(&out.0)?;
        packed.finish()
    }
}
