//! Cursors over the matching documents of a segment, in document order, with their scores.

mod boolean;
mod docs;
mod interval;
mod kept;
mod phrase;
mod term;

pub(crate) use boolean::{Coordination, Disjunction, Exclusion, Intersection, Preference};
pub(crate) use docs::{AllDocs, DocList, DocSetBuilder};
pub(crate) use interval::IntervalMatcher;
pub(crate) use kept::{KeptMatches, Match, MatchKeeper};
pub(crate) use phrase::{PhraseMatcher, PhrasePosition};
pub(crate) use term::TermMatcher;

/// A document's number in a segment.
pub(crate) type Doc = u32;
/// The position of a cursor that is exhausted.
pub(crate) const END: Doc = tantivy::TERMINATED;

/// A cursor over matching documents. A new one is at the first match.
pub(crate) trait Matcher {
    /// Returns the current document.
    fn doc(&self) -> Doc;

    /// Advances to the next document.
    fn advance(&mut self) -> Doc;

    /// Advances to the first document from `target` on, which is not before the current one.
    fn seek(&mut self, target: Doc) -> Doc {
        let mut doc = self.doc();
        while doc < target {
            doc = self.advance();
        }
        doc
    }

    /// Returns whether a document matches, which must not be before the last one tested. The cursor
    /// may already be past it.
    fn has(&mut self, doc: Doc) -> bool {
        if self.doc() < doc {
            self.seek(doc);
        }
        self.doc() == doc
    }

    /// Returns the score of the current document.
    fn score(&mut self) -> f32;

    /// Returns the number of scoring clauses that match the current document.
    fn matching(&mut self) -> u32 {
        1
    }

    /// Returns the frequency of a term or phrase in the current document, and the length of the
    /// field, if that counts; `None` for other queries.
    fn frequency(&mut self) -> Option<(f32, Option<u32>)> {
        None
    }

    /// Returns the number of matching parts of a query that scores by it.
    fn matching_of_parts(&mut self) -> Option<u32> {
        None
    }

    /// Returns roughly the number of documents.
    fn cost(&self) -> u64;
}

pub(crate) type BoxMatcher = Box<dyn Matcher>;
