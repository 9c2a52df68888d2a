//! Matches of a segment that are kept, so that they are not searched for again.

use std::rc::Rc;

use super::{Doc, END, Matcher};
use crate::Effort;

/// A matching document and its score.
pub(crate) type Match = (Doc, f32);

/// The first capacity for matches.
const MATCHES_MIN: usize = 256;

/// Keeps the matches of a segment, unless they take too much memory.
pub(crate) struct MatchKeeper<'a> {
    /// `None` when they take too much.
    matches: Option<Vec<Match>>,
    bytes: usize,
    bytes_max: usize,
    effort: &'a Effort,
}

impl MatchKeeper<'_> {
    /// Creates a keeper for at most `bytes_max` bytes, which are charged to the search.
    pub fn new(bytes_max: usize, effort: &Effort) -> MatchKeeper<'_> {
        MatchKeeper {
            matches: Some(vec![]),
            bytes: 0,
            bytes_max,
            effort,
        }
    }

    /// Adds a match, behind the last one.
    pub fn put(&mut self, doc: Doc, score: f32) {
        let Some(matches) = &mut self.matches else {
            return;
        };
        if matches.len() == matches.capacity() {
            let more = matches.capacity().max(MATCHES_MIN);
            let bytes = more * size_of::<Match>();
            // The search also works without what is kept.
            if self.bytes + bytes > self.bytes_max || self.effort.take(bytes).is_err() {
                self.matches = None;
                self.effort.give_back_to(self.effort.taken() - self.bytes);
                self.bytes = 0;
                return;
            }
            self.bytes += bytes;
            matches.reserve_exact(more);
        }
        matches.push((doc, score));
    }

    /// Returns the matches, unless they took too much memory, and their size in bytes.
    pub fn finish(self) -> (Option<KeptMatches>, usize) {
        let kept = self
            .matches
            .map(|matches| KeptMatches::new(Rc::new(matches)));
        (kept, self.bytes)
    }
}

/// A cursor over matches that were kept.
pub(crate) struct KeptMatches {
    matches: Rc<Vec<Match>>,
    at: usize,
}

impl KeptMatches {
    /// `matches` are in the order of their documents.
    pub fn new(matches: Rc<Vec<Match>>) -> KeptMatches {
        KeptMatches { matches, at: 0 }
    }
}

impl Matcher for KeptMatches {
    fn doc(&self) -> Doc {
        self.matches.get(self.at).map_or(END, |(doc, _)| *doc)
    }

    fn advance(&mut self) -> Doc {
        self.at += 1;
        self.doc()
    }

    fn score(&mut self) -> f32 {
        self.matches.get(self.at).map_or(0.0, |(_, score)| *score)
    }

    fn cost(&self) -> u64 {
        self.matches.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn kept(count: u32, bytes_max: usize, effort: &Effort) -> (Option<Vec<Match>>, usize) {
        let mut keeper = MatchKeeper::new(bytes_max, effort);
        (0..count).for_each(|n| keeper.put(2 * n, n as f32));
        let (kept, bytes) = keeper.finish();
        let matches = kept.map(|mut kept| {
            let mut read = vec![];
            while kept.doc() != END {
                read.push((kept.doc(), kept.score()));
                kept.advance();
            }
            read
        });
        (matches, bytes)
    }

    #[test]
    fn matches_are_kept_within_their_memory() {
        let all = |count: u32| (0..count).map(|n| (2 * n, n as f32)).collect::<Vec<_>>();
        let first = MATCHES_MIN * size_of::<Match>();
        for (count, bytes) in [(0, 0), (1, first), (256, first), (257, 2 * first)] {
            let effort = Effort::default();
            let found = kept(count, 2 * first, &effort);
            assert_eq!(found, (Some(all(count)), bytes));
            assert_eq!(effort.taken(), bytes);
        }
        // Beyond their own limit, and beyond that of the search, which goes on without them.
        for (bytes_max, of_search) in [(2 * first, 9 * first), (9 * first, 2 * first)] {
            let effort = Effort::new(Duration::from_secs(600), of_search);
            assert_eq!(kept(1_000, bytes_max, &effort), (None, 0));
            assert_eq!(effort.taken(), 0);
            assert!(effort.step().is_ok());
        }
    }
}
