//! Which documents of a segment match, and with which score: cursors over documents in their order.

mod boolean;
mod docs;
mod interval;
mod phrase;
mod term;

pub(crate) use boolean::{Coordinated, Disjunction, Excluding, Intersection, Preferring};
pub(crate) use docs::{DocList, DocSetBuilder, Everything};
pub(crate) use interval::IntervalMatcher;
pub(crate) use phrase::{PhraseMatcher, PhrasePosition};
pub(crate) use term::TermMatcher;

/// A document of a segment.
pub(crate) type Doc = u32;
/// What a cursor is at when there are no more.
pub(crate) const END: Doc = tantivy::TERMINATED;

/// A cursor over documents that match. It is at the first one when it is made.
pub(crate) trait Matcher {
    /// The document that it is at.
    fn doc(&self) -> Doc;

    /// Goes to the next document.
    fn advance(&mut self) -> Doc;

    /// Goes to the first document from `target` on, which is not before the one that it is at.
    fn seek(&mut self, target: Doc) -> Doc {
        let mut doc = self.doc();
        while doc < target {
            doc = self.advance();
        }
        doc
    }

    /// Whether a document matches, which is not before the last one that was asked for. It may be at a later one already.
    fn has(&mut self, doc: Doc) -> bool {
        if self.doc() < doc {
            self.seek(doc);
        }
        self.doc() == doc
    }

    /// The score of the document that it is at.
    fn score(&mut self) -> f32;

    /// How many parts of a query it stands for match the document that it is at, of those that count for a score.
    fn matching(&mut self) -> u32 {
        1
    }

    /// How often a term or phrase is in the document that it is at, and how long the field is, if that counts; `None` of anything else.
    fn frequency(&mut self) -> Option<(f32, Option<u32>)> {
        None
    }

    /// Of what scores by how many parts match: how many do.
    fn matching_of_parts(&mut self) -> Option<u32> {
        None
    }

    /// About how many documents there are.
    fn cost(&self) -> u64;
}

pub(crate) type BoxMatcher = Box<dyn Matcher>;
