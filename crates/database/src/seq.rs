//! Update sequences as clients see them: `N-opaque`, N the sum over shards, opaque the sequences of
//! the shards.
//!
//! There are two forms of the opaque part, both in base64 for URLs. Both are accepted everywhere.
//!
//! - The short form, of feeds, whose rows all have one: the epoch in 4 bytes, and a varint for each shard.
//! - The form of information about databases and views: an Erlang term, as CouchDB's sequences are,
//!   which some tools decode. It is a list of `{Node, [First, Last], {Seq, Epoch}}`, one for each shard
//!   with its range of CRCs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use document::varint;

use crate::Error;
use crate::hash_ranges::range_of;

/// Tags of Erlang's external term format.
mod tag {
    pub const VERSION: u8 = 131;
    pub const INTEGER: u8 = 98;
    pub const SMALL_TUPLE: u8 = 104;
    pub const NIL: u8 = 106;
    pub const LIST: u8 = 108;
    pub const BINARY: u8 = 109;
    pub const SMALL_BIG: u8 = 110;
    pub const SMALL_ATOM: u8 = 119;
}

/// The name of the node in terms.
const NODE: &[u8; 6] = b"settee";
/// Bytes of the term but for those of shards.
const TERM_BYTES: usize = 7;
/// Bytes of a shard's tuple at most.
const SHARD_BYTES_MAX: usize = 56;

/// A place in the updates of every shard of one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seqs {
    /// Distinguishes databases that had the same name: a seq of another one starts from the beginning.
    pub epoch: u32,
    pub at: Vec<u64>,
}

impl Seqs {
    pub fn start(epoch: u32, shards: usize) -> Seqs {
        Seqs {
            epoch,
            at: vec![0; shards],
        }
    }

    /// Appends the short form.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut raw = [0u8; 4 + varint::LENGTH_MAX * 16];
        let mut n = 4;
        raw[..4].copy_from_slice(&self.epoch.to_be_bytes());
        if self.at.len() > 16 {
            return self.write_many(out);
        }
        for &s in &self.at {
            n += varint::write(s, &mut raw[n..]);
        }
        write_parts(self.sum(), &raw[..n], out);
    }

    fn write_many(&self, out: &mut Vec<u8>) {
        let mut raw = self.epoch.to_be_bytes().to_vec();
        let mut buffer = [0; varint::LENGTH_MAX];
        for &s in &self.at {
            let n = varint::write(s, &mut buffer);
            raw.extend_from_slice(&buffer[..n]);
        }
        write_parts(self.sum(), &raw, out);
    }

    /// Returns the form that is an Erlang term.
    pub fn to_term(&self) -> String {
        let mut raw = vec![0; TERM_BYTES + self.at.len() * SHARD_BYTES_MAX];
        let length = self.write_term(&mut raw);
        let mut out = vec![];
        write_parts(self.sum(), &raw[..length], &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Writes the term, and returns its length.
    fn write_term(&self, raw: &mut [u8]) -> usize {
        let mut term = Term { raw, length: 0 };
        let shards = self.at.len();
        term.put(&[tag::VERSION]);
        term.put_list(shards);
        for (index, seq) in self.at.iter().enumerate() {
            term.put(&[tag::SMALL_TUPLE, 3, tag::SMALL_ATOM, NODE.len() as u8]);
            term.put(NODE);
            let (first, last) = range_of(index, shards);
            term.put_list(2);
            term.put_number(u64::from(first));
            term.put_number(u64::from(last));
            term.put(&[tag::NIL, tag::SMALL_TUPLE, 2]);
            term.put_number(*seq);
            term.put(&[tag::BINARY, 0, 0, 0, 4]);
            term.put(&self.epoch.to_be_bytes());
        }
        term.put(&[tag::NIL]);
        term.length
    }

    fn sum(&self) -> u64 {
        self.at.iter().sum()
    }

    /// Reads either form, with the number before it or without, as CouchDB does. `0` and a seq of
    /// another database or another number of shards are the beginning.
    ///
    /// # Errors
    /// [`Error::MalformedSeq`]: neither CouchDB nor Settee writes such a seq.
    pub fn parse(text: &str, epoch: u32, shards: usize) -> Result<Seqs, Error> {
        let text = text.trim_matches('"');
        if text == "0" {
            return Ok(Seqs::start(epoch, shards));
        }
        let is_number =
            |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let (is_numbered, opaque) = match text.split_once('-') {
            Some((number, opaque)) if is_number(number) => (true, opaque),
            _ => (false, text),
        };
        let raw = URL_SAFE_NO_PAD
            .decode(opaque)
            .map_err(|_| Error::MalformedSeq)?;
        let is_term = raw.first() == Some(&tag::VERSION);
        let read = match is_term {
            // Terms of CouchDB are not read: their nodes are not this server.
            true => read_term(&raw, shards).or(read_varints(&raw, shards).ok()),
            false => Some(read_varints(&raw, shards)?),
        };
        // Many words are base64: without a number, only this database's form is one.
        let is_known = read.as_ref().is_some_and(|seqs| seqs.epoch == epoch);
        if !is_numbered && !is_term && !is_known {
            return Err(Error::MalformedSeq);
        }
        // A seq of another server, or of another database of this name: nothing here is known to it.
        let known = read.filter(|seqs| seqs.epoch == epoch && seqs.at.len() == shards);
        Ok(known.unwrap_or_else(|| Seqs::start(epoch, shards)))
    }
}

/// Reads a term of [`Seqs::write_term`] with this number of shards.
fn read_term(raw: &[u8], shards: usize) -> Option<Seqs> {
    let mut term = TermReader { rest: raw };
    term.expect(&[tag::VERSION])?;
    term.expect_list(shards)?;
    let mut epoch = None;
    let mut at = Vec::with_capacity(shards);
    for index in 0..shards {
        term.expect(&[tag::SMALL_TUPLE, 3, tag::SMALL_ATOM, NODE.len() as u8])?;
        term.expect(NODE)?;
        term.expect_list(2)?;
        let range = (term.number()?, term.number()?);
        let (first, last) = range_of(index, shards);
        if range != (first.into(), last.into()) {
            return None;
        }
        term.expect(&[tag::NIL, tag::SMALL_TUPLE, 2])?;
        at.push(term.number()?);
        term.expect(&[tag::BINARY, 0, 0, 0, 4])?;
        let (of_shard, rest) = term.rest.split_first_chunk::<4>()?;
        term.rest = rest;
        let of_shard = u32::from_be_bytes(*of_shard);
        if *epoch.get_or_insert(of_shard) != of_shard {
            return None;
        }
    }
    term.expect(&[tag::NIL])?;
    let epoch = epoch.filter(|_| term.rest.is_empty())?;
    Some(Seqs { epoch, at })
}

/// Reads the short form. Of more seqs than shards one too many is kept: it is of another database.
///
/// # Errors
/// [`Error::MalformedSeq`]: no numbers follow the epoch, or the last one is cut off.
fn read_varints(raw: &[u8], shards: usize) -> Result<Seqs, Error> {
    let (epoch, mut rest) = raw.split_first_chunk::<4>().ok_or(Error::MalformedSeq)?;
    let mut at = vec![];
    while !rest.is_empty() {
        let seq = varint::take(&mut rest).ok_or(Error::MalformedSeq)?;
        if at.len() <= shards {
            at.push(seq);
        }
    }
    if at.is_empty() {
        return Err(Error::MalformedSeq);
    }
    Ok(Seqs {
        epoch: u32::from_be_bytes(*epoch),
        at,
    })
}

/// An Erlang term that is being written.
struct Term<'a> {
    /// Long enough for the whole term.
    raw: &'a mut [u8],
    length: usize,
}

impl Term<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.raw[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    /// The beginning of a list.
    fn put_list(&mut self, elements: usize) {
        self.put(&[tag::LIST]);
        self.put(&(elements as u32).to_be_bytes());
    }

    fn put_number(&mut self, number: u64) {
        if let Ok(number) = i32::try_from(number) {
            self.put(&[tag::INTEGER]);
            self.put(&number.to_be_bytes());
        } else {
            let bytes = number.to_le_bytes();
            let length = 8 - number.leading_zeros() as usize / 8;
            self.put(&[tag::SMALL_BIG, length as u8, 0]);
            self.put(&bytes[..length]);
        }
    }
}

/// The rest of a term.
struct TermReader<'a> {
    rest: &'a [u8],
}

impl TermReader<'_> {
    fn expect(&mut self, bytes: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(bytes)?;
        Some(())
    }

    fn expect_list(&mut self, elements: usize) -> Option<()> {
        self.expect(&[tag::LIST])?;
        self.expect(&(elements as u32).to_be_bytes())
    }

    fn number(&mut self) -> Option<u64> {
        let (&kind, rest) = self.rest.split_first()?;
        if kind == tag::INTEGER {
            let (number, rest) = rest.split_first_chunk::<4>()?;
            self.rest = rest;
            return u64::try_from(i32::from_be_bytes(*number)).ok();
        }
        let (&[length @ 0..=8, 0], rest) = rest.split_first_chunk::<2>()? else {
            return None;
        };
        if kind != tag::SMALL_BIG {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(usize::from(length))?;
        self.rest = rest;
        let mut bytes = [0; 8];
        bytes[..digits.len()].copy_from_slice(digits);
        Some(u64::from_le_bytes(bytes))
    }
}

impl std::fmt::Display for Seqs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = vec![];
        self.write_to(&mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

fn write_parts(sum: u64, raw: &[u8], out: &mut Vec<u8>) {
    write_u64(sum, out);
    out.push(b'-');
    let start = out.len();
    out.resize(start + raw.len().div_ceil(3) * 4, 0);
    let n = URL_SAFE_NO_PAD
        .encode_slice(raw, &mut out[start..])
        .unwrap_or(0);
    out.truncate(start + n);
}

/// Appends a number in decimal.
pub fn write_u64(mut n: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut i = digits.len();
    loop {
        i -= 1;
        digits[i] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[i..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(epoch: u32, at in prop::collection::vec(0u64..1 << 60, 1..20)) {
            let seqs = Seqs { epoch, at };
            let read = |text: &str| Seqs::parse(text, epoch, seqs.at.len()).unwrap();
            prop_assert_eq!(&read(&seqs.to_string()), &seqs);
            prop_assert_eq!(&read(&seqs.to_term()), &seqs);
        }

        #[test]
        fn seqs_of_more_shards_are_not_kept(more in 1..1000_usize) {
            let seqs = Seqs { epoch: 1, at: vec![5; 2 + more] };
            let raw = URL_SAFE_NO_PAD.decode(seqs.to_string().split_once('-').unwrap().1).unwrap();
            prop_assert_eq!(read_varints(&raw, 2).unwrap().at, [5, 5, 5]);
            prop_assert_eq!(Seqs::parse(&seqs.to_string(), 1, 2).unwrap(), Seqs::start(1, 2));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Seqs::parse(&text, 1, 2);
        }
    }

    #[test]
    fn a_term_has_these_bytes() {
        let seqs = Seqs {
            epoch: 0x0102_0304,
            at: vec![5, 1 << 40],
        };
        let mut raw = [0; TERM_BYTES + 2 * SHARD_BYTES_MAX];
        let length = seqs.write_term(&mut raw);
        let expected: &[&[u8]] = &[
            b"\x83l\0\0\0\x02",
            b"h\x03w\x06setteel\0\0\0\x02b\0\0\0\0b\x7f\xff\xff\xffj",
            b"h\x02b\0\0\0\x05m\0\0\0\x04\x01\x02\x03\x04",
            b"h\x03w\x06setteel\0\0\0\x02n\x04\0\0\0\0\x80n\x04\0\xff\xff\xff\xffj",
            b"h\x02n\x06\0\0\0\0\0\0\x01m\0\0\0\x04\x01\x02\x03\x04",
            b"j",
        ];
        assert_eq!(raw[..length], expected.concat());
        assert!(seqs.to_term().starts_with("1099511627781-g2wAAAAC"));
    }

    #[test]
    fn a_term_of_another_database_or_server_starts_over() {
        let seqs = Seqs {
            epoch: 7,
            at: vec![3, 4],
        };
        assert_eq!(
            Seqs::parse(&seqs.to_term(), 7, 1).unwrap(),
            Seqs::start(7, 1)
        );
        // Of CouchDB: a compressed term.
        let theirs = "5-g1AAAACTeJzLYWBgYMpgTmHgz8tPSTV0MDQy1zMAQsMckEQiQ1L9____szKYExlzgQLsRsZmFilJBtgU4zElSQFIJtmDDEpkwKfIAaQoHqSICZ-iBJCievyKkkCKchOZQAqTgDxD41RDQ1OLLADXnSc2";
        assert_eq!(Seqs::parse(theirs, 7, 2).unwrap(), Seqs::start(7, 2));
    }

    #[test]
    fn numbers_and_garbage_are_malformed() {
        for bad in [
            "", "2", "-1", "garbage", "nonsense", "99999", "5-", "5-!", "x-AAAA", "1-abc",
            "1-AAAAAA",
        ] {
            assert!(Seqs::parse(bad, 1, 1).is_err(), "{bad}");
        }
        assert_eq!(Seqs::parse("0", 1, 2).unwrap(), Seqs::start(1, 2));
    }

    #[test]
    fn a_seq_is_read_without_the_number_before_it() {
        let seqs = Seqs {
            epoch: 7,
            at: vec![3, 4],
        };
        for text in [seqs.to_string(), seqs.to_term()] {
            let (_, opaque) = text.split_once('-').unwrap();
            assert_eq!(Seqs::parse(opaque, 7, 2).unwrap(), seqs);
        }
    }

    #[test]
    fn a_short_seq_that_is_cut_off_is_malformed() {
        let seqs = Seqs {
            epoch: 7,
            at: vec![1 << 40],
        };
        let text = seqs.to_string();
        // Two characters are more than a byte.
        let cut = &text[..text.len() - 2];
        assert!(matches!(Seqs::parse(cut, 7, 1), Err(Error::MalformedSeq)));
        assert!(matches!(Seqs::parse(cut, 8, 1), Err(Error::MalformedSeq)));
    }

    #[test]
    fn a_seq_of_another_database_starts_over() {
        let other = Seqs {
            epoch: 7,
            at: vec![9],
        };
        assert_eq!(
            Seqs::parse(&other.to_string(), 8, 1).unwrap(),
            Seqs::start(8, 1)
        );
    }
}
