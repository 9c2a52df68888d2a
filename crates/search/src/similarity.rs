//! Scoring: BM25 as in Lucene 9, and TF-IDF as in Lucene 4.6, with their constants, their 8-bit
//! lengths and their order of operations, so that hits come in the same order.

use crate::explanation::Explanation;

/// A scoring model of Lucene.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Similarity {
    /// Lucene 9's.
    #[default]
    Bm25,
    /// Lucene 4.6's.
    TfIdf,
}

/// The weight of a term or phrase, which scores it by its frequency and the field's length.
#[derive(Clone, Debug)]
pub(crate) enum Weight {
    Bm25(Bm25),
    TfIdf(TfIdf),
}

impl Weight {
    /// Returns the score of a document for a frequency. `length` is the value of the column of
    /// lengths.
    #[inline]
    pub fn score(&self, freq: f32, length: u32) -> f32 {
        match self {
            Weight::Bm25(weight) => weight.score(freq, length),
            Weight::TfIdf(weight) => weight.score(freq, decode_norm(length as u8)),
        }
    }

    /// Returns the factors of a score. `length` is as in [`Weight::score`]; `None` where it does
    /// not count.
    pub fn explain(&self, freq: f32, length: Option<u32>) -> Vec<Explanation> {
        match self {
            Weight::Bm25(weight) => weight.explain(freq, length.unwrap_or(1)),
            Weight::TfIdf(weight) => {
                let norm = length.map_or(1.0, |length| decode_norm(length as u8));
                weight.explain(freq, norm)
            }
        }
    }

    /// Returns the score of a document in a field without lengths.
    pub fn plain(&self) -> f32 {
        match self {
            Weight::Bm25(weight) => weight.score(1.0, 1),
            Weight::TfIdf(weight) => weight.score(1.0, 1.0),
        }
    }
}

/// TF-IDF, before the query is normalized.
#[derive(Clone, Debug)]
pub(crate) struct TfIdf {
    boost: f32,
    idf: f32,
    weight: f32,
}

impl TfIdf {
    /// `idf` is that of the term, or the sum over a phrase's terms.
    pub fn new(boost: f32, idf: f32) -> TfIdf {
        TfIdf {
            boost,
            idf,
            weight: boost * idf * idf,
        }
    }

    fn explain(&self, freq: f32, norm: f32) -> Vec<Explanation> {
        vec![
            Explanation::new(
                freq.sqrt(),
                format!("tf, the square root of the frequency {freq}"),
            ),
            Explanation::new(self.idf, "idf, of the query: the rarer, the more"),
            Explanation::new(self.idf, "idf, of the document"),
            Explanation::new(self.boost, "boost, of the query"),
            Explanation::new(
                norm,
                "fieldNorm: the shorter the field, the more, and its boost",
            ),
        ]
    }

    fn score(&self, freq: f32, norm: f32) -> f32 {
        freq.sqrt() * self.weight * norm
    }
}

/// Returns Lucene 4.6's idf, which is higher for rarer terms. `docs` is the number of documents of
/// the index.
pub(crate) fn classic_idf(doc_freq: u64, docs: u64) -> f32 {
    ((docs.max(1) as f64 / (doc_freq + 1) as f64).ln() + 1.0) as f32
}

/// Encodes the length of a field in tokens and its boost as Lucene 4.6 does:
/// `SmallFloat.floatToByte315` of the boost over the square root.
pub(crate) fn norm_of(boost: f32, tokens: u64) -> u8 {
    let norm = boost * (1.0 / (tokens.max(1) as f64).sqrt()) as f32;
    let small = norm.to_bits() as i32 >> (24 - 3);
    let zero = (63 - 15) << 3;
    if small <= zero {
        u8::from(norm.to_bits() as i32 > 0)
    } else if small >= zero + 0x100 {
        u8::MAX
    } else {
        (small - zero) as u8
    }
}

/// `SmallFloat.byte315ToFloat`.
fn decode_norm(norm: u8) -> f32 {
    match norm {
        0 => 0.0,
        norm => f32::from_bits((u32::from(norm) << (24 - 3)) + ((63 - 15) << 24)),
    }
}

/// BM25's k1: how quickly more occurrences count less.
const K1: f32 = 1.2;
/// BM25's b: how much the length of a field counts.
const B: f32 = 0.75;

/// The statistics of a field over all documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldStatistics {
    /// The number of documents that have it.
    pub docs: u64,
    /// The number of their tokens.
    pub tokens: u64,
}

impl FieldStatistics {
    pub fn add(&mut self, other: FieldStatistics) {
        self.docs += other.docs;
        self.tokens += other.tokens;
    }
}

/// The BM25 weight of a term or a phrase.
#[derive(Clone, Debug)]
pub(crate) struct Bm25 {
    boost: f32,
    idf: f32,
    average: f32,
    weight: f32,
    /// Indexed by the encoded length.
    inverse: Box<[f32; 256]>,
}

/// Returns BM25's idf, which is higher for rarer terms.
pub(crate) fn idf(doc_freq: u64, docs: u64) -> f32 {
    let (n, of) = (doc_freq as f64, docs as f64);
    (1.0 + (of - n + 0.5) / (n + 0.5)).ln() as f32
}

impl Bm25 {
    /// `idf` is that of the term, or the sum over a phrase's terms.
    pub fn new(boost: f32, idf: f32, field: FieldStatistics) -> Bm25 {
        let average = (field.tokens as f64 / field.docs.max(1) as f64) as f32;
        let mut inverse = Box::new([0.0; 256]);
        for (code, inverse) in inverse.iter_mut().enumerate() {
            *inverse = 1.0 / (K1 * ((1.0 - B) + B * decode_length(code as u8) as f32 / average));
        }
        Bm25 {
            boost,
            idf,
            average,
            weight: boost * idf,
            inverse,
        }
    }

    fn explain(&self, freq: f32, length: u32) -> Vec<Explanation> {
        let code = encode_length(length);
        let tf = 1.0 - 1.0 / (1.0 + freq * self.inverse[usize::from(code)]);
        let numbers = vec![
            Explanation::new(freq, "freq, how often it is in the field"),
            Explanation::new(K1, "k1"),
            Explanation::new(B, "b"),
            Explanation::new(decode_length(code) as f32, "dl, tokens of the field"),
            Explanation::new(self.average, "avgdl, tokens of the field on average"),
        ];
        vec![
            Explanation::new(self.boost, "boost, of the query"),
            Explanation::new(self.idf, "idf: the rarer, the more"),
            Explanation::of(
                tf,
                "tf, freq / (freq + k1 * (1 - b + b * dl / avgdl)), of",
                numbers,
            ),
        ]
    }

    /// Returns the score for a frequency in a field of `length` tokens.
    #[inline]
    pub fn score(&self, freq: f32, length: u32) -> f32 {
        let inverse = self.inverse[usize::from(encode_length(length))];
        self.weight - self.weight / (1.0 + freq * inverse)
    }
}

/// Lengths up to this are encoded exactly.
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
    fn norms_are_those_of_lucene() {
        // From Lucene 4.6's DefaultSimilarity: decodeNormValue(encodeNormValue(1 / sqrt(n))).
        for (tokens, norm) in [
            (1, 1.0),
            (2, 0.625),
            (3, 0.5),
            (4, 0.5),
            (5, 0.4375),
            (7, 0.375),
            (10, 0.3125),
            (100, 0.09375),
        ] {
            assert_eq!(decode_norm(norm_of(1.0, tokens)), norm, "{tokens}");
        }
        assert_eq!(decode_norm(norm_of(2.0, 1)), 2.0);
        assert_eq!(decode_norm(norm_of(0.0, 1)), 0.0);
    }

    #[test]
    fn a_term_twice_counts_as_the_square_root() {
        let weight = TfIdf::new(1.0, classic_idf(1, 4));
        let idf = (4.0f64 / 2.0).ln() + 1.0;
        let expected = 2f64.sqrt() * idf * idf * 0.5;
        let score = weight.score(2.0, decode_norm(norm_of(1.0, 4)));
        assert!(
            (f64::from(score) - expected).abs() < 1e-5,
            "{score} {expected}"
        );
    }

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
