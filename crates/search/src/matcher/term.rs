//! Cursor over documents that contain a term.

use std::sync::Arc;

use tantivy::DocSet;
use tantivy::postings::{Postings, SegmentPostings};

use super::{Doc, Matcher};
use crate::column::Lengths;
use crate::similarity::Weight;

/// Documents that contain a term.
pub(crate) struct TermMatcher {
    postings: SegmentPostings,
    weight: Arc<Weight>,
    /// `None` for a field whose length does not count: the length is 1, and so is the frequency.
    lengths: Option<Lengths>,
}

impl TermMatcher {
    pub fn new(
        postings: SegmentPostings,
        weight: Arc<Weight>,
        lengths: Option<Lengths>,
    ) -> TermMatcher {
        TermMatcher {
            postings,
            weight,
            lengths,
        }
    }
}

impl Matcher for TermMatcher {
    fn doc(&self) -> Doc {
        self.postings.doc()
    }

    fn advance(&mut self) -> Doc {
        self.postings.advance()
    }

    fn seek(&mut self, target: Doc) -> Doc {
        if self.postings.doc() >= target {
            return self.postings.doc();
        }
        self.postings.seek(target)
    }

    fn score(&mut self) -> f32 {
        match &self.lengths {
            None => self.weight.plain(),
            Some(lengths) => {
                let length = lengths.get_val(self.postings.doc()) as u32;
                self.weight.score(self.postings.term_freq() as f32, length)
            }
        }
    }

    fn frequency(&mut self) -> Option<(f32, Option<u32>)> {
        Some(match &self.lengths {
            None => (1.0, None),
            Some(lengths) => {
                let length = lengths.get_val(self.postings.doc()) as u32;
                (self.postings.term_freq() as f32, Some(length))
            }
        })
    }

    fn cost(&self) -> u64 {
        u64::from(self.postings.size_hint())
    }
}
