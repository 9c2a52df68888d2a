//! Cursors over documents with a constant score: lists, bit sets, and all documents.

use tantivy::DocSet;
use tantivy::postings::SegmentPostings;

use super::{BoxMatcher, Doc, END, Matcher};
use crate::{Effort, Error};

/// All documents of a segment.
pub(crate) struct AllDocs {
    doc: Doc,
    docs: Doc,
    score: f32,
}

impl AllDocs {
    pub fn new(docs: Doc, score: f32) -> AllDocs {
        let doc = if docs == 0 { END } else { 0 };
        AllDocs { doc, docs, score }
    }
}

impl Matcher for AllDocs {
    fn doc(&self) -> Doc {
        self.doc
    }

    fn advance(&mut self) -> Doc {
        self.seek(self.doc.saturating_add(1).min(END))
    }

    fn seek(&mut self, target: Doc) -> Doc {
        self.doc = if target < self.docs { target } else { END };
        self.doc
    }

    fn score(&mut self) -> f32 {
        self.score
    }

    fn cost(&self) -> u64 {
        u64::from(self.docs)
    }
}

/// Documents of a list.
pub(crate) struct DocList {
    docs: Vec<Doc>,
    at: usize,
    score: f32,
}

impl DocList {
    /// `docs` is sorted and has no duplicates.
    pub fn new(docs: Vec<Doc>, score: f32) -> DocList {
        DocList { docs, at: 0, score }
    }
}

impl Matcher for DocList {
    fn doc(&self) -> Doc {
        self.docs.get(self.at).copied().unwrap_or(END)
    }

    fn advance(&mut self) -> Doc {
        self.at += 1;
        self.doc()
    }

    fn seek(&mut self, target: Doc) -> Doc {
        // Gallops, since the target is usually near.
        let mut step = 1;
        while self
            .docs
            .get(self.at + step)
            .is_some_and(|doc| *doc < target)
        {
            step *= 2;
        }
        let end = (self.at + step + 1).min(self.docs.len());
        let near = self.docs.get(self.at..end).unwrap_or_default();
        self.at += near.partition_point(|doc| *doc < target);
        self.doc()
    }

    fn score(&mut self) -> f32 {
        self.score
    }

    fn cost(&self) -> u64 {
        self.docs.len() as u64
    }
}

/// Documents of a bit set.
struct DocBits {
    bits: Vec<u64>,
    doc: Doc,
    count: u64,
    score: f32,
}

impl DocBits {
    /// Returns the first document from `target` on.
    fn find(&mut self, target: Doc) -> Doc {
        let mut word = target as usize / 64;
        let mut bits = match self.bits.get(word) {
            Some(bits) => bits & (!0 << (target % 64)),
            None => 0,
        };
        while bits == 0 {
            word += 1;
            match self.bits.get(word) {
                Some(next) => bits = *next,
                None => {
                    self.doc = END;
                    return END;
                }
            }
        }
        self.doc = word as u32 * 64 + bits.trailing_zeros();
        self.doc
    }
}

impl Matcher for DocBits {
    fn doc(&self) -> Doc {
        self.doc
    }

    fn advance(&mut self) -> Doc {
        if self.doc == END {
            return END;
        }
        self.find(self.doc + 1)
    }

    fn seek(&mut self, target: Doc) -> Doc {
        if self.doc >= target {
            return self.doc;
        }
        self.find(target)
    }

    fn score(&mut self) -> f32 {
        self.score
    }

    fn cost(&self) -> u64 {
        self.count
    }
}

/// Documents are a list up to one in this number of the segment's documents, and a bit set above.
const LIST_PART: usize = 32;

/// Collects documents of many terms.
pub(crate) struct DocSetBuilder {
    docs: Doc,
    list: Vec<Doc>,
    bits: Option<Vec<u64>>,
}

impl DocSetBuilder {
    /// `docs` is the number of documents of the segment.
    pub fn new(docs: Doc) -> DocSetBuilder {
        DocSetBuilder {
            docs,
            list: vec![],
            bits: None,
        }
    }

    /// Returns the maximum size of a set, in bytes.
    pub fn bytes_max(docs: Doc) -> usize {
        docs as usize / LIST_PART * size_of::<Doc>() * 2 + 1024
    }

    pub fn add(&mut self, mut postings: SegmentPostings, effort: &Effort) -> Result<(), Error> {
        let mut doc = postings.doc();
        while doc != END {
            effort.step()?;
            self.put(doc);
            doc = postings.advance();
        }
        Ok(())
    }

    /// Adds a document. Documents may come in any order, and repeatedly.
    pub fn put(&mut self, doc: Doc) {
        if let Some(bits) = &mut self.bits {
            bits[doc as usize / 64] |= 1 << (doc % 64);
            return;
        }
        self.list.push(doc);
        if self.list.len() > self.docs as usize / LIST_PART + 64 {
            self.bits = Some(vec![0; (self.docs as usize).div_ceil(64)]);
            for doc in std::mem::take(&mut self.list) {
                self.put(doc);
            }
        }
    }

    /// Returns a cursor over the documents, with a constant score.
    pub fn finish(mut self, score: f32) -> BoxMatcher {
        let Some(bits) = self.bits else {
            self.list.sort_unstable();
            self.list.dedup();
            return Box::new(DocList::new(self.list, score));
        };
        let count = bits.iter().map(|word| u64::from(word.count_ones())).sum();
        let mut bits = DocBits {
            bits,
            doc: 0,
            count,
            score,
        };
        bits.find(0);
        Box::new(bits)
    }
}
