//! The longest match of a list of rules at each place of a text, as JFlex's scanners find it.
//!
//! Rules are regular expressions over one byte a character: its class. They are compiled into one
//! automaton. Of rules that match equally far, the first counts; where none matches, one character
//! is skipped.

use crate::characters::Classes;
use crate::checkpoints::Checkpoints;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};
use regex_automata::{Anchored, MatchKind};
use std::collections::HashSet;

/// The class of characters that no rule names.
const OTHER: u8 = b' ';

/// How many characters may be read after the last match before it is cached that they led nowhere.
const FREE_LOOKAHEAD: usize = 64;

/// One state of a failed read is cached for this number of bytes, so that the cache is not many
/// times larger than the text. A later read that meets the failed one continues at most this far.
pub(super) const DEAD_END_BYTES: usize = 64;

/// States from which reads failed, and where.
pub(super) type DeadEnds = HashSet<(StateID, usize)>;

pub(super) struct Scanner {
    automaton: dense::DFA<Vec<u32>>,
    start: StateID,
    classes: Classes,
    ascii: [u8; 128],
    /// No match is longer, in UTF-16 units: Lucene 9's scanners see no further than their buffer.
    window: Option<usize>,
}

/// A match: where it ends, and of which rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) rule: usize,
}

impl Scanner {
    /// `rules` are over the letters of `classes`, and `' '` for all other characters.
    pub(super) fn new(rules: &[String], classes: Classes, window: Option<usize>) -> Self {
        let automaton = dense::Builder::new()
            .configure(
                dense::Config::new()
                    .match_kind(MatchKind::All)
                    .start_kind(StartKind::Anchored)
                    .minimize(false),
            )
            .syntax(
                syntax::Config::new()
                    .unicode(false)
                    .utf8(false)
                    .dot_matches_new_line(true),
            )
            .thompson(regex_automata::nfa::thompson::Config::new().utf8(false))
            .build_many(rules)
            .expect("the rules are regular expressions");
        let start = automaton
            .start_state(&start::Config::new().anchored(Anchored::Yes))
            .expect("an anchored search can start");
        let ascii = std::array::from_fn(|code| or_other(classes.of(char::from(code as u8))));
        Self {
            automaton,
            start,
            classes,
            ascii,
            window,
        }
    }

    #[inline]
    fn class_and_width(&self, text: &str, at: usize) -> (u8, usize, usize) {
        let byte = text.as_bytes()[at];
        if byte < 128 {
            return (self.ascii[byte as usize], 1, 1);
        }
        let character = text[at..].chars().next().expect("a character begins here");
        (
            or_other(self.classes.of(character)),
            character.len_utf8(),
            character.len_utf16(),
        )
    }

    /// Calls `sink` with each match, until one of the `checkpoints` ends it.
    pub(super) fn each(
        &self,
        text: &str,
        checkpoints: &mut Checkpoints<'_>,
        sink: &mut dyn FnMut(Match),
    ) {
        let mut dead_ends = DeadEnds::new();
        let mut at = 0;
        while at < text.len() {
            let start = at;
            match self.longest(text, start, &mut dead_ends) {
                Some((end, rule)) => {
                    sink(Match { start, end, rule });
                    at = end;
                }
                None => at += self.class_and_width(text, at).1,
            }
            if !checkpoints.pass(at - start) {
                return;
            }
        }
    }

    /// Returns the longest match at `from`. Failed reads are cached in `dead_ends`, so that a text
    /// is read a bounded number of times: from the same state at the same position, the automaton
    /// fails again. Reads that meet pass the same positions from there on, so that the later one
    /// finds the next position that is cached.
    pub(super) fn longest(
        &self,
        text: &str,
        from: usize,
        dead_ends: &mut DeadEnds,
    ) -> Option<(usize, usize)> {
        let (mut state, mut at, mut units) = (self.start, from, 0);
        let mut last = None;
        let mut behind = 0;
        let mut trail = Vec::new();
        loop {
            let (class, width, wide) = if at < text.len() {
                self.class_and_width(text, at)
            } else {
                (0, 0, 0)
            };
            let is_cut = self.window.is_some_and(|window| units + wide > window);
            let is_end = width == 0 || is_cut;
            let next = if is_end {
                self.automaton.next_eoi_state(state)
            } else {
                self.automaton.next_state(state, class)
            };
            if self.automaton.is_special_state(next) {
                // A match is reported one character late: it ends before the one that was just
                // read.
                if self.automaton.is_match_state(next) {
                    last = (at > from)
                        .then(|| (at, self.automaton.match_pattern(next, 0).as_usize()))
                        .or(last);
                    behind = 0;
                    trail.clear();
                } else if self.automaton.is_dead_state(next) {
                    break;
                }
            }
            if is_end {
                break;
            }
            let before = at;
            (state, at, units, behind) = (next, at + width, units + wide, behind + 1);
            let is_cached = before / DEAD_END_BYTES != at / DEAD_END_BYTES;
            if is_cached && self.window.is_none() {
                if dead_ends.contains(&(state, at)) {
                    break;
                }
                if behind > FREE_LOOKAHEAD {
                    trail.push((state, at));
                }
            }
        }
        // The last state of the trail may itself stand for a match that ends here; then the trail
        // was cleared.
        dead_ends.extend(trail);
        last
    }
}

fn or_other(class: u8) -> u8 {
    if class == 0 { OTHER } else { class }
}
