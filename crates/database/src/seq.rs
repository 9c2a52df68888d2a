//! Update sequences as clients see them: `N-opaque`, N the sum over shards, opaque what each shard is at.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use document::varint;

use crate::Error;

/// A place in the updates of every shard of one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seqs {
    /// Tells databases apart that had the same name: a seq of another one starts from the beginning.
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

    /// Appends the text form.
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

    fn sum(&self) -> u64 {
        self.at.iter().sum()
    }

    /// Reads the text form. `0` and a seq of another database or another number of shards are the beginning.
    pub fn parse(text: &str, epoch: u32, shards: usize) -> Result<Seqs, Error> {
        let text = text.trim_matches('"');
        if text == "0" || text.is_empty() {
            return Ok(Seqs::start(epoch, shards));
        }
        let (number, opaque) = text.split_once('-').ok_or(Error::MalformedSeq)?;
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) || opaque.is_empty() {
            return Err(Error::MalformedSeq);
        }
        let raw = URL_SAFE_NO_PAD
            .decode(opaque)
            .map_err(|_| Error::MalformedSeq)?;
        // A seq of another server, or of another database of this name: nothing here is known to it.
        let Some((head, mut rest)) = raw.split_first_chunk::<4>() else {
            return Ok(Seqs::start(epoch, shards));
        };
        if u32::from_be_bytes(*head) != epoch {
            return Ok(Seqs::start(epoch, shards));
        }
        let mut at = vec![];
        while !rest.is_empty() {
            at.push(varint::take(&mut rest).ok_or(Error::MalformedSeq)?);
        }
        if at.len() != shards {
            return Ok(Seqs::start(epoch, shards));
        }
        Ok(Seqs { epoch, at })
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
            prop_assert_eq!(Seqs::parse(&seqs.to_string(), epoch, seqs.at.len()).unwrap(), seqs);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Seqs::parse(&text, 1, 2);
        }
    }

    #[test]
    fn numbers_and_garbage_are_malformed() {
        for bad in ["2", "-1", "garbage", "99999", "5-", "5-!", "x-AAAA"] {
            assert!(Seqs::parse(bad, 1, 1).is_err(), "{bad}");
        }
        assert_eq!(Seqs::parse("0", 1, 2).unwrap(), Seqs::start(1, 2));
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
