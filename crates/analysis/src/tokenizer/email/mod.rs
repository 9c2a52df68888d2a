//! `standard`, where URLs and addresses of mail are words too: the longest reading wins.

mod address;
mod host;
mod url;

use super::scanner::{DeadEnds, Match};
use super::standard::{KINDS, LONGEST, scanner};
use super::{Kind, Raw};
use crate::analyzer::Flavour;
use crate::characters::java_len;
use crate::checkpoints::Checkpoints;
use host::Hosts;

/// A text being parsed, with its known hosts.
struct Reader<'a> {
    flavour: Flavour,
    text: &'a str,
    /// Nothing is read beyond: of Lucene 9's 255 characters of lookahead, and at the end of the
    /// text.
    end: usize,
    hosts: Hosts,
    address: address::Seen,
}

impl Reader<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        (at < self.end).then(|| self.text.as_bytes()[at])
    }

    /// Returns where a run of bytes that `belongs` accepts ends.
    fn run(&self, from: usize, belongs: impl Fn(u8) -> bool) -> usize {
        self.text.as_bytes()[from.min(self.end)..self.end]
            .iter()
            .position(|byte| !belongs(*byte))
            .map_or(self.end, |len| from + len)
    }

    /// Returns whether the text continues with this, in any case.
    fn goes_on(&self, at: usize, ascii: &str) -> bool {
        self.text.as_bytes()[at..self.end]
            .get(..ascii.len())
            .is_some_and(|bytes| bytes.eq_ignore_ascii_case(ascii.as_bytes()))
    }
}

impl<'a> Reader<'a> {
    fn new(flavour: Flavour, text: &'a str) -> Self {
        Self {
            flavour,
            text,
            end: text.len(),
            hosts: Hosts::default(),
            address: address::Seen::default(),
        }
    }
}

/// Calls `sink` with each word of `text`, until one of the `checkpoints` ends it.
pub(super) fn each<'a>(
    flavour: Flavour,
    text: &'a str,
    checkpoints: &mut Checkpoints<'_>,
    sink: &mut dyn FnMut(Raw<'a>),
) {
    let scanner = scanner(flavour);
    let mut reader = Reader::new(flavour, text);
    let mut dead_ends = DeadEnds::new();
    let mut increment = 1;
    let mut at = 0;
    while at < text.len() {
        let start = at;
        reader.end = window_end(flavour, text, start);
        let word = scanner.longest(text, start, &mut dead_ends);
        let word_len = word.map_or(0, |(end, _)| end - start);
        let special = reader.special(start, word_len);
        let found = match special {
            Some(end) => Some((end, 0, Kind::Word)),
            None => word.map(|(end, rule)| (end, rule, KINDS[rule])),
        };
        match found {
            Some((end, rule, kind)) => {
                let found = Match { start, end, rule };
                emit(text, found, kind, &mut increment, sink);
                at = end;
            }
            None => at += text[start..].chars().next().map_or(1, char::len_utf8),
        }
        if !checkpoints.pass(at - start) {
            return;
        }
    }
}

fn emit<'a>(
    text: &'a str,
    found: Match,
    kind: Kind,
    increment: &mut u32,
    sink: &mut dyn FnMut(Raw<'a>),
) {
    let Match { start, end, .. } = found;
    let word = &text[start..end];
    if word.len() > LONGEST && java_len(word) > LONGEST {
        *increment += 1;
        return;
    }
    sink(Raw {
        text: word,
        start,
        end,
        kind,
        increment: *increment,
    });
    *increment = 1;
}

/// Returns how far may be read from `at`.
fn window_end(flavour: Flavour, text: &str, at: usize) -> usize {
    if flavour == Flavour::Clouseau || text.len() - at <= LONGEST {
        return text.len();
    }
    let mut units = 0;
    for (offset, character) in text[at..].char_indices() {
        units += character.len_utf16();
        if units > LONGEST {
            return at + offset;
        }
    }
    text.len()
}

impl Reader<'_> {
    /// Returns the end of a URL, an address or the word `mailto` at `at`, if one is read further
    /// than the word that is `word_len` bytes long.
    fn special(&mut self, at: usize, word_len: usize) -> Option<usize> {
        let first = self.byte(at)?;
        // Every match starts with such a character.
        if !first.is_ascii_graphic() {
            return None;
        }
        let url = self.url(at);
        let mailto = (matches!(first, b'm' | b'M') && self.goes_on(at, "mailto:"))
            .then(|| self.address(at + 7))
            .flatten();
        let address = self.address(at);
        // Read in the order of Lucene's rules, of which the first wins among equals.
        let mut best: Option<(usize, Option<usize>)> = None;
        let readings = [
            url.map(|url| (url.read - at, url.end)),
            mailto.map(|end| (end - at, Some(at + 6))),
            address.map(|end| (end - at, Some(end))),
        ];
        for (read, end) in readings.into_iter().flatten() {
            if best.is_none_or(|(longest, _)| read > longest) {
                best = Some((read, end));
            }
        }
        let (read, end) = best?;
        if read < word_len {
            return None;
        }
        // A host directly followed by a word is not one; an address may still start with it.
        end.or_else(|| address.filter(|address| address - at >= word_len))
    }
}
