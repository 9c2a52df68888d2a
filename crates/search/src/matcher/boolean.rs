//! Cursors that combine others: and, or, not.

use std::rc::Rc;

use super::{BoxMatcher, Doc, END, Matcher};
use crate::Effort;

/// Documents that all parts match.
pub(crate) struct Intersection {
    parts: Vec<BoxMatcher>,
    doc: Doc,
    effort: Rc<Effort>,
}

impl Intersection {
    /// Takes at least one part. The rarest one leads.
    pub fn new(mut parts: Vec<BoxMatcher>, effort: Rc<Effort>) -> Intersection {
        parts.sort_by_key(|part| part.cost());
        let doc = parts.first().map_or(END, |part| part.doc());
        let mut all = Intersection { parts, doc, effort };
        all.settle(doc);
        all
    }

    /// Returns the first document from `doc` on that all parts match; the first part is at `doc`.
    fn settle(&mut self, mut doc: Doc) -> Doc {
        'next: while doc != END {
            if !self.effort.go_on() {
                doc = END;
                break;
            }
            for i in 1..self.parts.len() {
                let part = &mut self.parts[i];
                let at = if part.doc() < doc {
                    part.seek(doc)
                } else {
                    part.doc()
                };
                if at > doc {
                    doc = match at {
                        END => END,
                        at => self.parts[0].seek(at),
                    };
                    continue 'next;
                }
            }
            break;
        }
        self.doc = doc;
        doc
    }
}

impl Matcher for Intersection {
    fn doc(&self) -> Doc {
        self.doc
    }

    fn advance(&mut self) -> Doc {
        if self.doc == END {
            return END;
        }
        let doc = self.parts[0].advance();
        self.settle(doc)
    }

    fn seek(&mut self, target: Doc) -> Doc {
        if self.doc >= target {
            return self.doc;
        }
        let doc = self.parts[0].seek(target);
        self.settle(doc)
    }

    fn score(&mut self) -> f32 {
        self.parts
            .iter_mut()
            .map(|part| f64::from(part.score()))
            .sum::<f64>() as f32
    }

    fn matching(&mut self) -> u32 {
        self.parts.iter_mut().map(|part| part.matching()).sum()
    }

    fn cost(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.cost())
    }
}

/// Documents that at least `least` parts match.
pub(crate) struct Disjunction {
    /// A heap by document; the smallest is first.
    parts: Vec<BoxMatcher>,
    /// The number of parts that must match.
    least: usize,
    doc: Doc,
    effort: Rc<Effort>,
}

impl Disjunction {
    /// `least` is the number of parts that must match, at least one.
    pub fn new(mut parts: Vec<BoxMatcher>, least: usize, effort: Rc<Effort>) -> Disjunction {
        parts.retain(|part| part.doc() != END);
        parts.sort_by_key(|part| part.doc());
        let mut any = Disjunction {
            parts,
            least: least.max(1),
            doc: END,
            effort,
        };
        any.settle();
        any
    }

    /// Restores the heap below a position.
    fn sink(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            let Some(first) = self.parts.get(left) else {
                return;
            };
            let mut child = left;
            if let Some(right) = self.parts.get(left + 1)
                && right.doc() < first.doc()
            {
                child += 1;
            }
            if self.parts[at].doc() <= self.parts[child].doc() {
                return;
            }
            self.parts.swap(at, child);
            at = child;
        }
    }

    /// Moves all parts that are before `target`, and counts those beyond the first: that one is
    /// part of the step of [`Disjunction::settle`].
    fn move_to(&mut self, target: Doc) {
        let mut moved = 0;
        while let Some(first) = self.parts.first_mut()
            && first.doc() < target
        {
            moved += 1;
            if first.seek(target) == END {
                let last = self.parts.len() - 1;
                self.parts.swap(0, last);
                self.parts.pop();
            }
            self.sink(0);
        }
        if moved > 1 {
            self.effort.spend(moved - 1);
        }
    }

    /// Calls with each part that is at the document. Those are at the top of the heap.
    fn each(&mut self, at: usize, call: &mut dyn FnMut(&mut dyn Matcher)) {
        let doc = self.doc;
        if let Some(part) = self.parts.get_mut(at)
            && part.doc() == doc
        {
            call(part.as_mut());
            self.each(2 * at + 1, call);
            self.each(2 * at + 2, call);
        }
    }

    /// Advances to the first document that enough parts match.
    fn settle(&mut self) -> Doc {
        loop {
            self.doc = self.parts.first().map_or(END, |part| part.doc());
            if !self.effort.go_on() {
                self.doc = END;
            }
            if self.doc == END || self.least == 1 {
                return self.doc;
            }
            let mut matching = 0;
            self.each(0, &mut |_| matching += 1);
            if matching >= self.least {
                return self.doc;
            }
            if self.parts.len() < self.least {
                self.parts.clear();
                continue;
            }
            self.move_to(self.doc + 1);
        }
    }
}

impl Matcher for Disjunction {
    fn doc(&self) -> Doc {
        self.doc
    }

    fn advance(&mut self) -> Doc {
        if self.doc == END {
            return END;
        }
        self.move_to(self.doc + 1);
        self.settle()
    }

    fn seek(&mut self, target: Doc) -> Doc {
        if self.doc >= target {
            return self.doc;
        }
        self.move_to(target);
        self.settle()
    }

    fn score(&mut self) -> f32 {
        let mut sum = 0.0f64;
        self.each(0, &mut |part| sum += f64::from(part.score()));
        sum as f32
    }

    fn matching(&mut self) -> u32 {
        let mut sum = 0;
        self.each(0, &mut |part| sum += part.matching());
        sum
    }

    fn cost(&self) -> u64 {
        self.parts.iter().map(|part| part.cost()).sum()
    }
}

/// Documents that one part matches and another does not.
pub(crate) struct Exclusion {
    inner: BoxMatcher,
    not: BoxMatcher,
    doc: Doc,
    effort: Rc<Effort>,
}

impl Exclusion {
    pub fn new(inner: BoxMatcher, not: BoxMatcher, effort: Rc<Effort>) -> Exclusion {
        let doc = inner.doc();
        let mut excluding = Exclusion {
            inner,
            not,
            doc,
            effort,
        };
        excluding.settle(doc);
        excluding
    }

    /// Returns the first document from `doc` on that is not excluded; the inner part is at `doc`.
    fn settle(&mut self, mut doc: Doc) -> Doc {
        while doc != END {
            if self.not.doc() < doc {
                self.not.seek(doc);
            }
            if self.not.doc() != doc {
                break;
            }
            doc = match self.effort.go_on() {
                true => self.inner.advance(),
                false => END,
            };
        }
        self.doc = doc;
        doc
    }
}

impl Matcher for Exclusion {
    fn doc(&self) -> Doc {
        self.doc
    }

    fn advance(&mut self) -> Doc {
        if self.doc == END {
            return END;
        }
        let doc = self.inner.advance();
        self.settle(doc)
    }

    fn seek(&mut self, target: Doc) -> Doc {
        if self.doc >= target {
            return self.doc;
        }
        let doc = self.inner.seek(target);
        self.settle(doc)
    }

    fn score(&mut self) -> f32 {
        self.inner.score()
    }

    fn matching(&mut self) -> u32 {
        self.inner.matching()
    }

    fn cost(&self) -> u64 {
        self.inner.cost()
    }
}

/// Documents that one part matches; those that others match as well score higher.
pub(crate) struct Preference {
    needed: BoxMatcher,
    preferred: BoxMatcher,
}

impl Preference {
    pub fn new(needed: BoxMatcher, preferred: BoxMatcher) -> Preference {
        Preference { needed, preferred }
    }

    /// Returns whether the others match the document as well.
    fn is_preferred(&mut self) -> bool {
        let doc = self.needed.doc();
        if self.preferred.doc() < doc {
            self.preferred.seek(doc);
        }
        self.preferred.doc() == doc
    }
}

impl Matcher for Preference {
    fn doc(&self) -> Doc {
        self.needed.doc()
    }

    fn advance(&mut self) -> Doc {
        self.needed.advance()
    }

    fn seek(&mut self, target: Doc) -> Doc {
        self.needed.seek(target)
    }

    fn score(&mut self) -> f32 {
        let mut score = self.needed.score();
        if self.is_preferred() {
            score += self.preferred.score();
        }
        score
    }

    fn matching(&mut self) -> u32 {
        let mut matching = self.needed.matching();
        if self.is_preferred() {
            matching += self.preferred.matching();
        }
        matching
    }

    fn cost(&self) -> u64 {
        self.needed.cost()
    }
}

/// Documents of several parts, which score more the more parts match: Lucene 4.6's `coord`.
pub(crate) struct Coordination {
    inner: BoxMatcher,
    parts: u32,
}

impl Coordination {
    /// `parts` is the number of scoring parts; 0 when all count alike, and the whole is one part of
    /// another query.
    pub fn new(inner: BoxMatcher, parts: usize) -> Coordination {
        Coordination {
            inner,
            parts: parts as u32,
        }
    }
}

impl Matcher for Coordination {
    fn doc(&self) -> Doc {
        self.inner.doc()
    }

    fn advance(&mut self) -> Doc {
        self.inner.advance()
    }

    fn seek(&mut self, target: Doc) -> Doc {
        self.inner.seek(target)
    }

    fn score(&mut self) -> f32 {
        let coord = match self.parts {
            0 => 1.0,
            parts => self.inner.matching() as f32 / parts as f32,
        };
        self.inner.score() * coord
    }

    fn matching_of_parts(&mut self) -> Option<u32> {
        Some(self.inner.matching())
    }

    fn cost(&self) -> u64 {
        self.inner.cost()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{AllDocs, DocList};
    use super::*;
    use crate::Error;

    fn all_docs(docs: Doc) -> BoxMatcher {
        Box::new(AllDocs::new(docs, 1.0))
    }

    fn docs_of(mut matcher: impl Matcher) -> Vec<Doc> {
        let mut docs = vec![];
        while matcher.doc() != END {
            docs.push(matcher.doc());
            matcher.advance();
        }
        docs
    }

    #[test]
    fn excluded_documents_are_left_out() {
        let list = |docs: &[Doc]| -> BoxMatcher { Box::new(DocList::new(docs.to_vec(), 1.0)) };
        let effort = Rc::new(Effort::default());
        let excluding =
            |not: &[Doc]| Exclusion::new(list(&[1, 3, 5, 7, 9]), list(not), effort.clone());
        assert_eq!(docs_of(excluding(&[])), [1, 3, 5, 7, 9]);
        assert_eq!(docs_of(excluding(&[0, 1, 2, 5, 9, 10])), [3, 7]);
        assert!(docs_of(excluding(&[1, 3, 5, 7, 9])).is_empty());
        let mut some = excluding(&[5, 7]);
        assert_eq!((some.seek(4), some.seek(2), some.doc()), (9, 9, 9));
        assert_eq!(
            (some.advance(), some.advance(), some.seek(20)),
            (END, END, END)
        );
    }

    #[test]
    fn each_excluded_document_is_a_step() {
        let over = Rc::new(Effort::new(Duration::ZERO, usize::MAX));
        let excluding = Exclusion::new(all_docs(10_000), all_docs(10_000), over.clone());
        assert_eq!(excluding.doc(), END);
        assert!(matches!(over.step(), Err(Error::TooLong)));
    }

    #[test]
    fn each_moved_part_is_a_step() {
        let over = Rc::new(Effort::new(Duration::ZERO, usize::MAX));
        let parts = (0..1_100).map(|_| all_docs(10)).collect();
        let mut any = Disjunction::new(parts, 1, over.clone());
        assert_eq!(any.doc(), 0);
        assert_eq!(any.advance(), END);
        assert!(matches!(over.step(), Err(Error::TooLong)));
    }
}
