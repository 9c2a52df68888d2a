//! The real map of the declarations, written by hand in Rust: the upper bound of any map function.
//!
//! It is equivalent to `maps/real.js`, members in any order and absent ones included, from the
//! document's bytes to the emitted key and value as JSON text.

use std::io::Write as _;
use std::time::Instant;

use crate::declarations;
use crate::slice::Slice;

/// Documents held in memory and walked again and again: too many for the processor's caches.
const SAMPLE_DOCS: u64 = 4_000;

/// Declarations as a server has them stored, without `_id` and `_rev`.
pub(crate) struct Sample {
    documents: Vec<Vec<u8>>,
}

impl Sample {
    pub(crate) fn of(documents: u64) -> Self {
        let document = |number| {
            let mut text = b"{".to_vec();
            declarations::push_members(&mut text, number);
            text.push(b'}');
            text
        };
        Self {
            documents: (0..documents.min(SAMPLE_DOCS)).map(document).collect(),
        }
    }

    /// Extracts from `documents` documents on all cores.
    pub(crate) fn measure(&self, documents: u64) -> Slice {
        let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let start = Instant::now();
        let extracted: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|at| {
                    let share = documents / threads + u64::from(at < documents % threads);
                    scope.spawn(move || self.extract(at as usize, share))
                })
                .collect();
            let counts = workers.into_iter().map(|worker| worker.join());
            counts.map(|count| count.unwrap_or(0)).sum()
        });
        let elapsed = start.elapsed();
        let mut slice = Slice::new();
        slice.record(extracted, elapsed);
        slice.seconds = elapsed.as_secs_f64();
        let missing = documents - extracted;
        slice
            .errors
            .add(missing, || "not extracted from".to_owned());
        slice
    }

    fn extract(&self, first: usize, count: u64) -> u64 {
        let mut row = Vec::new();
        let mut lifted = Lifted::default();
        let documents = self.documents.iter().cycle().skip(first);
        let emitted = documents.take(count as usize).filter(|document| {
            row.clear();
            let emitted = real(document, &mut lifted, &mut row).is_some();
            // The rows must be made, though they are never read.
            std::hint::black_box(&row);
            emitted
        });
        emitted.count() as u64
    }
}

/// The members that the map reads. They may come in any order, so sums are made when the whole
/// document has been seen.
#[derive(Default)]
struct Lifted {
    /// Year, amount, taxed.
    income: Vec<(i64, i64, bool)>,
    /// Offsets of an owner's code, share, and which asset it belongs to.
    owners: Vec<((usize, usize), i64, usize)>,
    amounts: Vec<i64>,
}

/// Appends key, comma, value; `None` when the map emits nothing or the text is not a declaration.
fn real(text: &[u8], lifted: &mut Lifted, out: &mut Vec<u8>) -> Option<()> {
    lifted.income.clear();
    lifted.owners.clear();
    lifted.amounts.clear();
    let (mut is_declaration, mut year) = (false, 0);
    let (mut region, mut code): (&[u8], &[u8]) = (b"", b"");
    let (mut debts, mut moved) = (0, 0);
    let mut scan = Scan { text, at: 0 };
    scan.object(|scan, name| {
        match name {
            b"type" => is_declaration = scan.string()? == b"declaration",
            b"year" => year = scan.integer()?,
            b"declarant" => scan.object(|scan, name| {
                match name {
                    b"region" => region = scan.string()?,
                    b"code" => code = scan.string()?,
                    _ => scan.skip()?,
                }
                Some(())
            })?,
            b"income" => scan.array(|scan| scan.income(lifted))?,
            b"assets" => scan.array(|scan| scan.asset(lifted))?,
            b"liabilities" => scan.array(|scan| {
                debts += scan.liability()?;
                Some(())
            })?,
            b"transfers" => scan.array(|scan| {
                moved += scan.transfer()?;
                Some(())
            })?,
            _ => scan.skip()?,
        }
        Some(())
    })?;
    is_declaration.then_some(())?;
    let taxed = lifted
        .income
        .iter()
        .filter(|(of, _, taxed)| *of == year && *taxed);
    let income: i64 = taxed.map(|(_, amount, _)| amount).sum();
    let own = lifted
        .owners
        .iter()
        .filter(|((start, end), ..)| &text[*start..*end] == code);
    let assets: i64 = own
        .map(|(_, share, asset)| lifted.amounts[*asset] * share)
        .sum();
    // Writing to a Vec cannot fail. Codes are copied as they are: still escaped, if they were.
    let _ = write!(out, "[{year},\"");
    out.extend_from_slice(region);
    out.extend_from_slice(b"\",\"");
    out.extend_from_slice(code);
    let _ = write!(out, "\"],[{income},{assets},{debts},{moved}]");
    Some(())
}

/// A walk over compact JSON. Each step is `None` when the text differs from the expected one.
struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn income(&mut self, lifted: &mut Lifted) -> Option<()> {
        let mut item = (0, 0, false);
        self.object(|scan, name| {
            match name {
                b"year" => item.0 = scan.integer()?,
                b"amount" => item.1 = scan.integer()?,
                b"taxed" => item.2 = scan.boolean()?,
                _ => scan.skip()?,
            }
            Some(())
        })?;
        lifted.income.push(item);
        Some(())
    }

    fn asset(&mut self, lifted: &mut Lifted) -> Option<()> {
        let asset = lifted.amounts.len();
        lifted.amounts.push(0);
        self.object(|scan, name| {
            match name {
                b"amount" => lifted.amounts[asset] = scan.integer()?,
                b"owners" => scan.array(|scan| {
                    let owner = scan.owner(asset)?;
                    lifted.owners.push(owner);
                    Some(())
                })?,
                _ => scan.skip()?,
            }
            Some(())
        })
    }

    fn owner(&mut self, asset: usize) -> Option<((usize, usize), i64, usize)> {
        let mut owner = ((0, 0), 0, asset);
        self.object(|scan, name| {
            match name {
                b"code" => {
                    let start = scan.at + 1;
                    owner.0 = (start, start + scan.string()?.len());
                }
                b"share" => owner.1 = scan.integer()?,
                _ => scan.skip()?,
            }
            Some(())
        })?;
        Some(owner)
    }

    fn liability(&mut self) -> Option<i64> {
        let (mut amount, mut settled) = (0, false);
        self.object(|scan, name| {
            match name {
                b"amount" => amount = scan.integer()?,
                b"settled" => settled = scan.boolean()?,
                _ => scan.skip()?,
            }
            Some(())
        })?;
        Some(if settled { 0 } else { amount })
    }

    fn transfer(&mut self) -> Option<i64> {
        let (mut amount, mut comes_in) = (0, false);
        self.object(|scan, name| {
            match name {
                b"amount" => amount = scan.integer()?,
                b"direction" => comes_in = scan.string()? == b"in",
                _ => scan.skip()?,
            }
            Some(())
        })?;
        Some(if comes_in { amount } else { -amount })
    }

    /// Calls `member` with each name; it must consume the value.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            return self.expect(b'}');
        }
        loop {
            let name = self.string()?;
            self.expect(b':')?;
            member(self, name)?;
            if self.next()? == b'}' {
                return Some(());
            }
        }
    }

    fn array(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            return self.expect(b']');
        }
        loop {
            item(self)?;
            if self.next()? == b']' {
                return Some(());
            }
        }
    }

    /// A string's bytes between its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            let rest = self.text.get(self.at..)?;
            self.at += memchr::memchr2(b'"', b'\\', rest)?;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Some(&self.text[start..self.at - 1]);
            }
            self.at += 2;
        }
    }

    fn integer(&mut self) -> Option<i64> {
        let rest = self.text.get(self.at..)?;
        let negative = rest.first() == Some(&b'-');
        let mut value: i64 = 0;
        let mut at = usize::from(negative);
        while let Some(digit) = rest.get(at).filter(|byte| byte.is_ascii_digit()) {
            value = value
                .checked_mul(10)?
                .checked_add(i64::from(digit - b'0'))?;
            at += 1;
        }
        self.at += at;
        Some(if negative { -value } else { value })
    }

    fn boolean(&mut self) -> Option<bool> {
        let is_true = self.peek()? == b't';
        self.at += if is_true { 4 } else { 5 };
        Some(is_true)
    }

    fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' | b'[' => self.skip_container(),
            _ => {
                let rest = &self.text[self.at..];
                self.at += rest
                    .iter()
                    .position(|byte| matches!(byte, b',' | b'}' | b']'))?;
                Some(())
            }
        }
    }

    fn skip_container(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row(text: &[u8]) -> Option<Value> {
        let mut out = b"[".to_vec();
        real(text, &mut Lifted::default(), &mut out)?;
        out.push(b']');
        Some(serde_json::from_slice(&out).unwrap())
    }

    /// The same map over parsed values, written independently of the scanner.
    fn model(doc: &Value) -> Value {
        let items = |name: &str| doc[name].as_array().unwrap().iter();
        let amount = |item: &Value| item["amount"].as_i64().unwrap();
        let income: i64 = items("income")
            .filter(|item| item["year"] == doc["year"] && item["taxed"] == true)
            .map(amount)
            .sum();
        let mut assets = 0;
        for asset in items("assets") {
            for owner in asset["owners"].as_array().unwrap() {
                if owner["code"] == doc["declarant"]["code"] {
                    assets += amount(asset) * owner["share"].as_i64().unwrap();
                }
            }
        }
        let open = items("liabilities").filter(|item| item["settled"] == false);
        let debts: i64 = open.map(amount).sum();
        let moved: i64 = items("transfers")
            .map(|item| amount(item) * if item["direction"] == "in" { 1 } else { -1 })
            .sum();
        let declarant = &doc["declarant"];
        json!([
            [doc["year"], declarant["region"], declarant["code"]],
            [income, assets, debts, moved]
        ])
    }

    #[test]
    fn the_extraction_agrees_with_the_same_map_over_parsed_documents() {
        let sample = Sample::of(300);
        for text in &sample.documents {
            let parsed: Value = serde_json::from_slice(text).unwrap();
            assert_eq!(row(text), Some(model(&parsed)));
            // serde_json sorts members by name, which is another order than the generator's.
            let reordered = serde_json::to_vec(&parsed).unwrap();
            assert_eq!(row(&reordered), Some(model(&parsed)));
        }
        let nonzero = |at: usize| {
            sample
                .documents
                .iter()
                .any(|text| row(text).unwrap()[1][at] != 0)
        };
        assert!((0..4).all(nonzero));
    }

    #[test]
    fn other_documents_and_broken_texts_emit_nothing() {
        assert_eq!(row(br#"{"type":"order"}"#), None);
        let whole = &Sample::of(1).documents[0];
        for cut in 0..whole.len() {
            assert_eq!(row(&whole[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn every_document_is_extracted_from_once() {
        let slice = Sample::of(50).measure(1_001);
        assert_eq!((slice.count, slice.errors.count), (1_001, 0));
    }
}
