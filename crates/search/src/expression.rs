//! Regular expressions that match whole words, and can be stopped.

use std::cell::RefCell;

use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::{Effort, Error};

/// The maximum size of the program of an expression, and of the states of its automaton, in bytes.
/// Large programs have larger states, at most twice as much.
const PART_BYTES_MAX: usize = 256 << 10;
/// The memory of a compiled expression, in bytes.
const BYTES: usize = 3 * PART_BYTES_MAX;
/// The cost of compiling an expression, up to a few milliseconds.
const COMPILE_STEPS: usize = 16 << 10;

/// A word is read up to this length without a stop, in bytes.
const STOP_BYTES: usize = 64;
/// The cost of a byte that leads to a new state of the automaton, which takes up to 100 µs.
const NEW_STATE_STEPS: usize = 64;
/// Another byte may also lead for the first time from one state to another. It costs a step for
/// this number of the program's instructions.
const STEP_INSTRUCTIONS: usize = 256;

/// A compiled expression. Its automaton is built while words are read, and restarted when it is
/// too large: the time of a word is linear in its length.
pub(crate) struct WholeRegex {
    automaton: DFA,
    cache: RefCell<Cache>,
    /// The cost of a byte.
    byte_steps: usize,
}

impl WholeRegex {
    /// Compiles an expression, and charges its time and memory.
    ///
    /// # Errors
    /// [`Error::Regex`], [`Error::TooLong`], or [`Error::TooMuch`] or [`Error::Busy`].
    pub fn new(pattern: &str, effort: &Effort) -> Result<WholeRegex, Error> {
        effort.take(BYTES)?;
        effort.steps(COMPILE_STEPS)?;
        // Parsed alone first: unbalanced parentheses could match those added around it.
        syntax::parse(pattern).map_err(|error| Error::Regex(reason(&error)))?;
        let config = Config::new()
            .cache_capacity(PART_BYTES_MAX)
            .skip_cache_capacity_check(true);
        let automaton = DFA::builder()
            .configure(config)
            .thompson(
                thompson::Config::new()
                    .which_captures(thompson::WhichCaptures::None)
                    .nfa_size_limit(Some(PART_BYTES_MAX)),
            )
            .build(&format!("^(?s:{pattern})$"))
            .map_err(|error| Error::Regex(reason(&error)))?;
        let cache = RefCell::new(automaton.create_cache());
        let byte_steps = automaton.get_nfa().states().len() / STEP_INSTRUCTIONS;
        Ok(WholeRegex {
            automaton,
            cache,
            byte_steps,
        })
    }

    /// Returns whether it matches a word; false when time runs out.
    pub fn is_match(&self, word: &str, effort: &Effort) -> bool {
        let cache = &mut self.cache.borrow_mut();
        // An automaton without a limit of its clearings, and without words of Unicode, does not
        // give up.
        self.read(cache, word.as_bytes(), effort).unwrap_or(false)
    }

    fn read(&self, cache: &mut Cache, word: &[u8], effort: &Effort) -> Option<bool> {
        let mut size = size_of_states(cache);
        let input = Input::new(word).anchored(Anchored::Yes);
        let mut state = self.automaton.start_state_forward(cache, &input).ok()?;
        for part in word.chunks(STOP_BYTES) {
            for &byte in part {
                state = self.automaton.next_state(cache, state, byte).ok()?;
                if state.is_tagged() && (state.is_dead() || state.is_quit()) {
                    break;
                }
            }
            let now = size_of_states(cache);
            let byte_steps = match now == size {
                true => self.byte_steps,
                false => NEW_STATE_STEPS,
            };
            if byte_steps > 0 && !effort.spend(byte_steps * part.len()) {
                return None;
            }
            size = now;
            if state.is_tagged() && (state.is_dead() || state.is_quit()) {
                return Some(false);
            }
        }
        let end = self.automaton.next_eoi_state(cache, state).ok()?;
        Some(end.is_match())
    }
}

/// Returns a value that each new state changes.
fn size_of_states(cache: &Cache) -> (usize, usize) {
    (cache.clear_count(), cache.memory_usage())
}

/// Returns the innermost cause of an error. The place of a syntax error is drawn over several
/// lines; only the last one contains the reason.
fn reason(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let text = innermost.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;

    fn is_match(pattern: &str, word: &str) -> bool {
        let effort = Effort::default();
        let regex = WholeRegex::new(pattern, &effort).unwrap();
        regex.is_match(word, &effort)
    }

    #[test]
    fn an_expression_matches_whole_words() {
        for (pattern, word, expected) in [
            ("a|b", "a", true),
            ("a|b", "ab", false),
            ("a|b", "", false),
            ("", "", true),
            ("", "a", false),
            ("a.c", "aüc", true),
            ("a.c", "a\nc", true),
            (".*", &"é".repeat(1_000)[..], true),
            (".*b", &"a".repeat(1_000)[..], false),
            ("[a-c]{500}", &"abcab".repeat(100)[..], true),
            ("[a-c]{500}", &"abcab".repeat(99)[..], false),
            ("(?:x|y)*", "xyyxy", true),
            ("[^\\s\\S]", "a", false),
        ] {
            assert_eq!(is_match(pattern, word), expected, "{pattern} {word}");
        }
    }

    #[test]
    fn reasons_are_one_line() {
        let refused = |pattern: &str| match WholeRegex::new(pattern, &Effort::default()) {
            Err(Error::Regex(reason)) => reason,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{pattern} is allowed"),
        };
        assert_eq!(refused("[a"), "unclosed character class");
        assert_eq!(refused("a)|(?:b"), "unopened group");
        let large = refused("(?:a{1000}){1000}");
        assert!(large.contains("limit"), "{large}");
        assert!(!large.contains('\n'), "{large}");
    }

    #[test]
    fn an_expression_takes_memory_and_steps() {
        let effort = Effort::default();
        WholeRegex::new("a", &effort).unwrap();
        assert_eq!(effort.taken(), BYTES);
        let over = Effort::new(Duration::ZERO, usize::MAX);
        let refused = WholeRegex::new("a", &over).err();
        assert!(matches!(refused, Some(Error::TooLong)));
        let little = Effort::new(Duration::from_secs(600), BYTES - 1);
        let refused = WholeRegex::new("a", &little).err();
        assert!(matches!(refused, Some(Error::TooMuch { .. })));
    }

    #[test]
    fn a_long_word_is_read_with_stops() {
        let pauses = Rc::new(Cell::new(0));
        let counts = pauses.clone();
        let effort = Effort::default().with_pauses(move || {
            counts.set(counts.get() + 1);
            Duration::ZERO
        });
        // Each byte leads to a new state: it remembers where each `a` of the last 500 bytes was.
        let regex = WholeRegex::new("[ab]*a[ab]{500}", &effort).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let word: String = (0..6_400)
            .map(|_| random.choice(['a', 'b']).unwrap())
            .collect();
        let before = pauses.get();
        regex.is_match(&word, &effort);
        assert!(pauses.get() - before >= 90, "{}", pauses.get() - before);
        // States that are known cost nothing.
        let known = WholeRegex::new("[ab]*", &effort).unwrap();
        known.is_match(&word, &effort);
        let before = pauses.get();
        for _ in 0..100 {
            assert!(known.is_match(&word, &effort));
        }
        assert_eq!(pauses.get(), before);
    }
}
