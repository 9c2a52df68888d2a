//! BM25 as Lucene 9 computes it: with its constants, its lengths of eight bits and its order of operations, so that hits come in
//! the same order.

/// How quickly more of a term counts less.
const K1: f32 = 1.2;
/// How much the length of a field counts.
const B: f32 = 0.75;

/// What is known of a field of all documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldStatistics {
    /// Documents that have it.
    pub docs: u64,
    /// Their tokens.
    pub tokens: u64,
}

impl FieldStatistics {
    pub fn add(&mut self, other: FieldStatistics) {
        self.docs += other.docs;
        self.tokens += other.tokens;
    }
}

/// What a term or a phrase weighs.
#[derive(Clone, Debug)]
pub(crate) struct Bm25 {
    weight: f32,
    /// By the length's code.
    inverse: Box<[f32; 256]>,
}

/// The rarer, the more.
pub(crate) fn idf(doc_freq: u64, docs: u64) -> f32 {
    let (n, of) = (doc_freq as f64, docs as f64);
    (1.0 + (of - n + 0.5) / (n + 0.5)).ln() as f32
}

impl Bm25 {
    /// `idf`: of the term, or of a phrase's terms together.
    pub fn new(boost: f32, idf: f32, field: FieldStatistics) -> Bm25 {
        let average = (field.tokens as f64 / field.docs.max(1) as f64) as f32;
        let mut inverse = Box::new([0.0; 256]);
        for (code, inverse) in inverse.iter_mut().enumerate() {
            *inverse = 1.0 / (K1 * ((1.0 - B) + B * decode_length(code as u8) as f32 / average));
        }
        Bm25 {
            weight: boost * idf,
            inverse,
        }
    }

    /// Of a document in whose field, of so many tokens, it is so often.
    #[inline]
    pub fn score(&self, freq: f32, length: u32) -> f32 {
        let inverse = self.inverse[usize::from(encode_length(length))];
        self.weight - self.weight / (1.0 + freq * inverse)
    }
}

/// Lengths up to this are kept as they are.
const EXACT: u32 = 24;

/// Lucene's `SmallFloat.intToByte4`.
fn encode_length(length: u32) -> u8 {
    if length < EXACT {
        return length as u8;
    }
    let n = length - EXACT;
    let bits = 32 - n.leading_zeros();
    let code = if bits < 4 {
        n
    } else {
        let shift = bits - 4;
        ((n >> shift) & 0x07) | ((shift + 1) << 3)
    };
    (EXACT + code).min(255) as u8
}

/// Lucene's `SmallFloat.byte4ToInt`.
fn decode_length(code: u8) -> u64 {
    let code = u64::from(code);
    let exact = u64::from(EXACT);
    if code < exact {
        return code;
    }
    let n = code - exact;
    let (bits, shift) = (n & 0x07, n >> 3);
    match shift {
        0 => exact + bits,
        shift => exact + ((bits | 0x08) << (shift - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_as_lucene_rounds_them() {
        for length in 0..40 {
            assert_eq!(decode_length(encode_length(length)), u64::from(length));
        }
        // From Lucene's SmallFloat: byte4ToInt(intToByte4(n)).
        for (length, rounded) in [
            (40, 40),
            (41, 40),
            (42, 42),
            (100, 96),
            (1000, 984),
            (100_000, 98_328),
        ] {
            assert_eq!(decode_length(encode_length(length)), rounded, "{length}");
        }
        for length in (0..100_000).step_by(7) {
            let rounded = decode_length(encode_length(length));
            assert!(
                rounded <= u64::from(length) && rounded * 9 >= u64::from(length) * 8,
                "{length}"
            );
        }
    }

    #[test]
    fn scores_are_those_of_lucene() {
        // One term in 2 of 12 documents, average length 10, found 3 times in 17 tokens.
        let field = FieldStatistics {
            docs: 12,
            tokens: 120,
        };
        let weight = Bm25::new(1.0, idf(2, 12), field);
        let expected = {
            let idf = (1.0f64 + (12.0 - 2.0 + 0.5) / 2.5).ln();
            let norm = 1.2 * (0.25 + 0.75 * 17.0 / 10.0);
            idf * 3.0 / (3.0 + norm)
        };
        assert!((f64::from(weight.score(3.0, 17)) - expected).abs() < 1e-6);
    }
}
