//! Cursors over documents with terms at given positions, or near them.

use std::rc::Rc;
use std::sync::Arc;

use tantivy::DocSet;
use tantivy::postings::{Postings, SegmentPostings};

use super::{Doc, END, Matcher};
use crate::Effort;
use crate::column::Lengths;
use crate::similarity::Weight;

/// A position of a phrase, with the postings of its alternative terms.
pub(crate) struct PhrasePosition {
    offset: u32,
    terms: Vec<SegmentPostings>,
    /// In the current document: the positions of the terms, each minus the offset.
    positions: Vec<i64>,
    buffer: Vec<u32>,
    /// Memory taken for the positions, in bytes.
    held: usize,
}

impl PhrasePosition {
    pub fn new(offset: u32, terms: Vec<SegmentPostings>) -> PhrasePosition {
        PhrasePosition {
            offset,
            terms,
            positions: vec![],
            buffer: vec![],
            held: 0,
        }
    }

    fn doc(&self) -> Doc {
        self.terms
            .iter()
            .map(|term| term.doc())
            .min()
            .unwrap_or(END)
    }

    fn seek(&mut self, target: Doc) -> Doc {
        for term in &mut self.terms {
            if term.doc() < target {
                term.seek(target);
            }
        }
        self.doc()
    }

    fn cost(&self) -> u64 {
        self.terms
            .iter()
            .map(|term| u64::from(term.size_hint()))
            .sum()
    }

    /// Returns whether there were time and memory for it.
    fn read_positions(&mut self, doc: Doc, effort: &Effort) -> bool {
        self.positions.clear();
        let several = self.terms.len() > 1;
        let here = self.terms.iter().filter(|term| term.doc() == doc);
        let places: usize = here.map(|term| term.term_freq() as usize).sum();
        let wanted = places * (size_of::<i64>() + size_of::<u32>());
        if !effort.spend(places) || !effort.hold(wanted.saturating_sub(self.held)) {
            return false;
        }
        self.held = self.held.max(wanted);
        for term in self.terms.iter_mut().filter(|term| term.doc() == doc) {
            term.positions(&mut self.buffer);
            let offset = i64::from(self.offset);
            self.positions
                .extend(self.buffer.iter().map(|p| i64::from(*p) - offset));
        }
        if several {
            self.positions.sort_unstable();
            self.positions.dedup();
        }
        true
    }
}

/// Documents that contain a phrase.
pub(crate) struct PhraseMatcher {
    phrase_positions: Vec<PhrasePosition>,
    slop: u32,
    weight: Arc<Weight>,
    lengths: Option<Lengths>,
    doc: Doc,
    freq: f32,
    effort: Rc<Effort>,
}

impl PhraseMatcher {
    pub fn new(
        mut phrase_positions: Vec<PhrasePosition>,
        slop: u32,
        weight: Arc<Weight>,
        lengths: Option<Lengths>,
        effort: Rc<Effort>,
    ) -> PhraseMatcher {
        phrase_positions.sort_by_key(PhrasePosition::cost);
        let doc = phrase_positions.first().map_or(END, PhrasePosition::doc);
        let mut phrase = PhraseMatcher {
            phrase_positions,
            slop,
            weight,
            lengths,
            doc,
            freq: 0.0,
            effort,
        };
        phrase.settle(doc);
        phrase
    }

    fn settle(&mut self, mut doc: Doc) -> Doc {
        'next: while doc != END {
            if !self.effort.go_on() {
                doc = END;
                break;
            }
            for i in 0..self.phrase_positions.len() {
                let at = self.phrase_positions[i].seek(doc);
                if at > doc {
                    doc = at;
                    continue 'next;
                }
            }
            let effort = &self.effort;
            let mut phrase_positions = self.phrase_positions.iter_mut();
            if !phrase_positions.all(|p| p.read_positions(doc, effort)) {
                doc = END;
                break;
            }
            self.freq = match self.slop {
                0 => self.exact() as f32,
                slop => self.sloppy(i64::from(slop)),
            };
            if self.freq > 0.0 {
                break;
            }
            doc += 1;
        }
        self.doc = doc;
        doc
    }

    /// Returns the number of exact matches.
    fn exact(&self) -> usize {
        let Some((first, others)) = self.phrase_positions.split_first() else {
            return 0;
        };
        let everywhere = |p: &&i64| {
            others
                .iter()
                .take_while(|_| self.effort.go_on())
                .all(|other| other.positions.binary_search(p).is_ok())
        };
        first.positions.iter().filter(everywhere).count()
    }

    /// Returns Lucene's sum over sloppy matches: the nearer, the higher.
    fn sloppy(&self, slop: i64) -> f32 {
        let mut next = vec![0; self.phrase_positions.len()];
        let mut at: Vec<i64> = self
            .phrase_positions
            .iter()
            .map(|p| p.positions[0])
            .collect();
        let mut end = at.iter().copied().max().unwrap_or_default();
        let least = |at: &[i64]| {
            (0..at.len())
                .min_by_key(|i| (at[*i], self.phrase_positions[*i].offset))
                .unwrap_or_default()
        };
        let mut freq = 0.0;
        let mut moving = least(&at);
        let second = |at: &[i64], moving: usize| {
            let others = at.iter().enumerate().filter(|(i, _)| *i != moving);
            others.map(|(_, p)| *p).min().unwrap_or(i64::MAX)
        };
        let mut limit = second(&at, moving);
        let mut width = end - at[moving];
        while self.effort.spend(self.phrase_positions.len()) {
            next[moving] += 1;
            let Some(position) = self.phrase_positions[moving].positions.get(next[moving]) else {
                break;
            };
            at[moving] = *position;
            end = end.max(*position);
            if *position > limit {
                if width <= slop {
                    freq += 1.0 / (1.0 + width as f32);
                }
                moving = least(&at);
                limit = second(&at, moving);
                width = end - at[moving];
            } else {
                width = width.min(end - position);
            }
        }
        if width <= slop {
            freq += 1.0 / (1.0 + width as f32);
        }
        freq
    }
}

impl PhraseMatcher {
    /// Returns the length in the current document, from the column of lengths.
    fn length(&self) -> u32 {
        match &self.lengths {
            None => 1,
            Some(lengths) => lengths.get_val(self.doc) as u32,
        }
    }
}

impl Matcher for PhraseMatcher {
    fn doc(&self) -> Doc {
        self.doc
    }

    fn advance(&mut self) -> Doc {
        if self.doc == END {
            return END;
        }
        self.settle(self.doc + 1)
    }

    fn seek(&mut self, target: Doc) -> Doc {
        if self.doc >= target {
            return self.doc;
        }
        self.settle(target)
    }

    fn score(&mut self) -> f32 {
        self.weight.score(self.freq, self.length())
    }

    fn frequency(&mut self) -> Option<(f32, Option<u32>)> {
        Some((self.freq, Some(self.length())))
    }

    fn cost(&self) -> u64 {
        self.phrase_positions
            .first()
            .map_or(0, PhrasePosition::cost)
    }
}
