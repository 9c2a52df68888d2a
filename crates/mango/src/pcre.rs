//! `$regex`: CouchDB's expressions are PCRE's, and are matched here by the engine of the crate
//! `regex`, in linear time.
//!
//! A pattern is read once from left to right and rewritten. Options like `(?i)` are applied during
//! this: every atom is written for the options in effect at its place. A selector tests whether a
//! text matches, not where, so groups do not capture and laziness is dropped. Source:
//! pcrepattern(3) of PCRE 8.44, which is in Erlang/OTP before 28.

mod class;
mod group;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use regex_automata::Input;
use regex_automata::hybrid::dfa::{self, DFA};
use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson;

use crate::work;

/// The reason why a pattern is refused.
type Refusal = &'static str;

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    /// The expression as the engine reads it.
    translation: Arc<str>,
    regex: Regex,
    /// For long texts, which it reads with stops; `None` if the expression needs Unicode's words.
    automaton: OnceLock<Option<Arc<DFA>>>,
    bytes_max: usize,
}

/// A text up to this length is read without a stop.
const WITHOUT_STOP_BYTES: usize = 4 << 10;
/// A longer text that cannot be read with stops is not read: expressions with Unicode's words, and texts beyond ASCII.
const UNSTOPPABLE_BYTES_MAX: usize = 64 << 10;
/// The cost of a byte in the worst case, in bytes of other values.
const WORST_BYTE_STEPS: usize = 1024;
/// Bytes between two stops. A byte takes a nanosecond, and microseconds in the worst case, a state that is new.
const STOP_BYTES: usize = 256;

impl Pattern {
    /// Compiles PCRE's `text` into automata of at most `bytes_max` bytes each, or explains why it is
    /// refused. Each thread that matches texts caches at most `cache_bytes` for each automaton.
    /// `costs` are those of all expressions of the selector.
    pub fn compile(
        text: &str,
        bytes_max: usize,
        cache_bytes: usize,
        costs: &mut ClassCosts,
    ) -> Result<Pattern, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "regular expression is longer than {PATTERN_BYTES_MAX} bytes"
            ));
        }
        let translation = translate(text, costs)?;
        let config = Config::new()
            .nfa_size_limit(Some(bytes_max))
            .hybrid_cache_capacity(cache_bytes);
        let regex = Regex::builder()
            .configure(config)
            .build(&translation)
            .map_err(|error| reason(&error))?;
        Ok(Pattern {
            text: text.into(),
            translation: translation.into(),
            regex,
            automaton: OnceLock::new(),
            bytes_max,
        })
    }

    /// Returns the original expression.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns how much memory it takes at most, in bytes, without the caches of threads.
    pub fn memory_bytes(&self) -> usize {
        let texts = self.text.len() + self.translation.len();
        size_of::<Pattern>() + texts + self.regex.memory_usage() + self.automaton_bytes_max()
    }

    /// Returns the largest size of the automaton for long texts, which may be built later: the
    /// crate's own engine has one of at least its size, unless the expression is only words.
    fn automaton_bytes_max(&self) -> usize {
        let of_words = WORDS_BYTES_MIN + WORD_BYTE_BYTES * self.text.len();
        self.regex.memory_usage().max(of_words)
    }

    /// Returns whether the expression matches, or anything if the time of the document is over.
    pub fn is_match(&self, subject: &str) -> bool {
        if subject.len() > WITHOUT_STOP_BYTES
            && let Some(automaton) = self.automaton()
            && let Some(matches) = with_stops(automaton, subject.as_bytes())
        {
            return matches;
        }
        if subject.len() > UNSTOPPABLE_BYTES_MAX {
            work::give_up();
            return false;
        }
        // Each byte is a step: it may take as long as all states of the expression.
        !work::is_over(64 * subject.len()) && self.regex.is_match(subject)
    }

    /// The crate's own engine cannot be stopped: it falls back to one that takes up to a time proportional to the product of
    /// the lengths of expression and text.
    fn automaton(&self) -> Option<&DFA> {
        let automaton = self.automaton.get_or_init(|| {
            let config = dfa::Config::new()
                .cache_capacity(self.bytes_max)
                .skip_cache_capacity_check(true)
                .unicode_word_boundary(true);
            let built = DFA::builder()
                .configure(config)
                .thompson(
                    thompson::Config::new()
                        .which_captures(thompson::WhichCaptures::None)
                        // It takes more while it is built.
                        .nfa_size_limit(Some(4 * self.automaton_bytes_max())),
                )
                .build(&self.translation);
            built.ok().map(Arc::new)
        });
        automaton.as_deref()
    }
}

/// Reads a text state by state. Nothing is answered for a text that the automaton does not read to its end: some expressions
/// do not go beyond ASCII.
fn with_stops(automaton: &DFA, text: &[u8]) -> Option<bool> {
    let mut cache = automaton.create_cache();
    let mut state = automaton
        .start_state_forward(&mut cache, &Input::new(text))
        .ok()?;
    for part in text.chunks(STOP_BYTES) {
        if work::is_over(WORST_BYTE_STEPS * part.len()) {
            return Some(false);
        }
        for &byte in part {
            state = automaton.next_state(&mut cache, state, byte).ok()?;
            if state.is_tagged() {
                if state.is_match() {
                    return Some(true);
                }
                if state.is_dead() {
                    return Some(false);
                }
                if state.is_quit() {
                    return None;
                }
            }
        }
    }
    let end = automaton.next_eoi_state(&mut cache, state).ok()?;
    Some(end.is_match())
}

/// Maximum length of a pattern, in bytes: PCRE's programs, with at least a byte for each character,
/// have at most 64 KiB.
const PATTERN_BYTES_MAX: usize = 1 << 16;

/// Maximum length of a translated pattern, in bytes: the compiler takes about 128 bytes for each
/// before it checks sizes. A literal character of a pattern becomes at most four.
const TRANSLATION_BYTES_MAX: usize = 4 * PATTERN_BYTES_MAX;

/// Memory of an automaton of words for each byte of their text, and besides that, in bytes.
const WORD_BYTE_BYTES: usize = 64;
const WORDS_BYTES_MIN: usize = 4 << 10;

/// Returns the reason why an expression is not compiled, in the words of the crate `regex`. The
/// place of a syntax error is drawn over several lines; only the last one contains the reason.
fn reason(error: &BuildError) -> String {
    if let Some(limit) = error.size_limit() {
        return format!("Compiled regex exceeds size limit of {limit} bytes.");
    }
    let text = match error.syntax_error() {
        Some(error) => error.to_string(),
        None => error.to_string(),
    };
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

/// `$` and `\Z`: the end, or before the newline at the end. The newline is consumed, as there is no
/// look-ahead.
const END: &str = r"(?:\n?\z)";
/// `\R`. A `\r` before `\n` is not a newline of its own, which only the assertion can decide.
const NEWLINE: &str = r"(?:\r\n|\r(?Rm:^)|[\n\x0B\x0C\x{85}\x{2028}\x{2029}])";
const REPEAT_MAX: u32 = 65_535;

const BACK_REFERENCE: Refusal = "backreferences are not supported";
const NOTHING_TO_REPEAT: Refusal = "nothing to repeat";
const UNCLOSED_GROUP: Refusal = "unclosed group";

/// Options that can be changed within a pattern. The others (`U`, `J`, `X`) do not change what
/// matches.
#[derive(Clone, Copy, Default)]
struct Flags {
    caseless: bool,
    multi_line: bool,
    dot_all: bool,
    extended: bool,
}

/// The cost of the classes of all expressions of a selector, for which the compiler takes time and
/// memory before it checks sizes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassCosts {
    /// Number of characters of caseless classes.
    folded: u32,
    /// Number of ranges of Unicode's properties, about.
    ranges: u32,
}

#[derive(Default)]
struct Translation<'a> {
    /// The unread rest.
    rest: &'a str,
    output: String,
    flags: Flags,
    /// The flags around each open group.
    outer: Vec<Flags>,
    /// Number of capturing groups so far.
    groups: u32,
    /// Whether a quantifier can follow.
    repeatable: bool,
    costs: ClassCosts,
    /// `(*UTF8)` or `(*UCP)`: without them only ASCII letters have two cases.
    unicode_cases: bool,
    /// `(*UCP)`: `\d`, `\w`, `\s`, `\b` and POSIX classes use Unicode.
    unicode_classes: bool,
}

/// Translates an expression into the syntax of the crate `regex`.
fn translate(pattern: &str, costs: &mut ClassCosts) -> Result<String, Refusal> {
    let mut translation = Translation {
        rest: pattern,
        costs: *costs,
        ..Translation::default()
    };
    translation.options();
    translation.skip_blanks()?;
    while let Some(c) = translation.next() {
        translation.token(c)?;
        translation.skip_blanks()?;
    }
    *costs = translation.costs;
    if !translation.outer.is_empty() {
        return Err(UNCLOSED_GROUP);
    }
    if translation.output.len() > TRANSLATION_BYTES_MAX {
        return Err("regular expression is too long");
    }
    Ok(translation.output)
}

impl<'a> Translation<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn eat(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the longest prefix of such characters.
    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !wanted(c))
            .unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Parses `(*UTF8)` and similar options at the start; [`Self::group`] refuses those elsewhere.
    fn options(&mut self) {
        while let Some((name, rest)) = self
            .rest
            .strip_prefix("(*")
            .and_then(|verb| verb.split_once(')'))
        {
            match name {
                "UTF8" | "UTF" => self.unicode_cases = true,
                "UCP" => (self.unicode_cases, self.unicode_classes) = (true, true),
                // The default anyway.
                "LF" | "BSR_UNICODE" | "NO_START_OPT" | "NO_AUTO_POSSESS" => {}
                _ => return,
            }
            self.rest = rest;
        }
    }

    /// Skips comments, and the white space of `(?x)`: the rest is parsed as if they were absent.
    fn skip_blanks(&mut self) -> Result<(), Refusal> {
        loop {
            if self.flags.extended {
                self.take_while(|c| matches!(c, ' ' | '\t'..='\r'));
            }
            if self.flags.extended && self.eat("#") {
                self.take_while(|c| c != '\n');
            } else if self.eat("(?#") {
                self.take_while(|c| c != ')');
                if !self.eat(")") {
                    return Err("unclosed comment");
                }
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self, c: char) -> Result<(), Refusal> {
        match c {
            '\\' => return self.escape(),
            '[' => return self.class(),
            '(' => return self.group(),
            ')' => return self.close(),
            '|' => self.assertion("|"),
            '^' if self.flags.multi_line => self.assertion("(?m:^)"),
            '^' => self.assertion(r"\A"),
            '$' if self.flags.multi_line => self.assertion("(?m:$)"),
            '$' => self.assertion(END),
            '.' if self.flags.dot_all => self.atom("(?s:.)"),
            '.' => self.atom(r"[^\n]"),
            '*' => return self.repeat("*"),
            '+' => return self.repeat("+"),
            '?' => return self.repeat("?"),
            '{' => match self.counts()? {
                Some(counts) => return self.repeat(&counts),
                None => self.literal('{'),
            },
            c => self.literal(c),
        }
        Ok(())
    }

    /// Writes an atom, which a quantifier can follow.
    fn atom(&mut self, text: &str) {
        self.output.push_str(text);
        self.repeatable = true;
    }

    /// Writes an assertion, which no quantifier can follow.
    fn assertion(&mut self, text: &str) {
        self.output.push_str(text);
        self.repeatable = false;
    }

    fn literal(&mut self, c: char) {
        if self.flags.caseless && self.unicode_cases {
            self.output.push_str("(?i:");
            class::write_char(&mut self.output, c);
            self.output.push(')');
        } else if self.flags.caseless && c.is_ascii_alphabetic() {
            let cases = [c.to_ascii_lowercase(), c.to_ascii_uppercase()];
            self.output.push('[');
            self.output.extend(cases);
            self.output.push(']');
        } else {
            class::write_char(&mut self.output, c);
        }
        self.repeatable = true;
    }

    fn repeat(&mut self, quantifier: &str) -> Result<(), Refusal> {
        if !self.repeatable {
            return Err(NOTHING_TO_REPEAT);
        }
        self.assertion(quantifier);
        self.skip_blanks()?;
        if !self.eat("?") && self.eat("+") {
            return Err("possessive quantifiers are not supported");
        }
        Ok(())
    }

    /// Parses the rest of `{2}`, `{2,}` or `{2,5}`; any other brace is an ordinary character.
    fn counts(&mut self) -> Result<Option<String>, Refusal> {
        let start = self.rest;
        let low = self.take_while(|c| c.is_ascii_digit());
        let comma = !low.is_empty() && self.eat(",");
        let high = self.take_while(|c| comma && c.is_ascii_digit());
        if low.is_empty() || !self.eat("}") {
            self.rest = start;
            return Ok(None);
        }
        let number = |digits: &str| match digits.parse::<u32>() {
            Ok(n) if n <= REPEAT_MAX => Ok(n),
            _ => Err("number too big in {} quantifier"),
        };
        let low = number(low)?;
        Ok(Some(match (comma, high) {
            (false, _) => format!("{{{low}}}"),
            (true, "") => format!("{{{low},}}"),
            (true, high) => match number(high)? {
                high if high < low => return Err("numbers out of order in {} quantifier"),
                high => format!("{{{low},{high}}}"),
            },
        }))
    }

    /// Parses the rest of an escape outside of classes.
    fn escape(&mut self) -> Result<(), Refusal> {
        match self.next().ok_or(r"\ at end of pattern")? {
            'Q' => {
                while !self.eat(r"\E")
                    && let Some(c) = self.next()
                {
                    self.literal(c);
                }
            }
            'E' => {}
            // The search starts at the beginning.
            'A' | 'G' => self.assertion(r"\A"),
            'Z' => self.assertion(END),
            'z' => self.assertion(r"\z"),
            'b' if self.unicode_classes => self.assertion(r"\b"),
            'b' => self.assertion(r"(?-u:\b)"),
            'B' if self.unicode_classes => self.assertion(r"\B"),
            'B' => self.assertion(r"(?-u:\B)"),
            'N' => {
                let name = self.rest.strip_prefix('{');
                if name.is_some_and(|name| !name.starts_with(|c: char| c.is_ascii_digit())) {
                    return Err(r"\N{name} is not supported");
                }
                self.atom(r"[^\n]");
            }
            'R' => self.atom(NEWLINE),
            'K' => return Err(r"\K is not supported"),
            'X' => return Err(r"\X is not supported"),
            'C' => return Err(r"\C is not supported"),
            'k' | 'g' => return Err(BACK_REFERENCE),
            digit @ '1'..='9' if self.is_back_reference(digit) => return Err(BACK_REFERENCE),
            c => match self.set(c)? {
                Some(members) => self.atom(&format!("[{members}]")),
                None => {
                    let c = self.character(c)?;
                    self.literal(c);
                }
            },
        }
        Ok(())
    }

    /// Returns whether it is a back reference: numbers up to 7, or of existing groups; others are
    /// octal or literal.
    fn is_back_reference(&self, first: char) -> bool {
        let more = self.rest.bytes().take_while(u8::is_ascii_digit);
        let digits = first.to_digit(10).into_iter();
        let number = digits
            .chain(more.map(|digit| u32::from(digit - b'0')))
            .fold(0_u32, |n, digit| n.saturating_mul(10).saturating_add(digit));
        number < 8 || number <= self.groups
    }
}
