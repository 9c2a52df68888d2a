//! Boundaries of a text's words.

mod classic;
mod email;
mod scanner;
mod simple;
mod standard;
mod thai;

use crate::analyzer::Flavour;
use crate::checkpoints::Checkpoints;

/// A tokenizer's kind of a word, for the filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Number,
    Apostrophe,
    Acronym,
    /// A host with a point after it.
    TrailingPoint,
    Ideographic,
    Hiragana,
    Katakana,
    Hangul,
    SoutheastAsian,
    Other,
}

/// A word as it is in the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    pub(crate) text: &'a str,
    /// Its start, in bytes.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: Kind,
    /// Positions since the word before: more than one when words in between were dropped.
    pub(crate) increment: u32,
}

/// Lucene's tokenizers that CouchDB's analyzers use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokenizer {
    /// The whole text is one word.
    Keyword,
    /// Runs of letters.
    Letter,
    /// Text between white space.
    Whitespace,
    /// Words by Unicode's rules (UAX #29).
    Standard(Flavour),
    /// `standard` before Lucene 3.1: hosts, addresses, companies and acronyms are words.
    Classic,
    /// `standard`, and URLs and addresses are words.
    Email(Flavour),
    /// `standard`, where zero-width non-joiners end words.
    Persian(Flavour),
    /// Thai, whose words are not separated.
    Thai(Flavour),
}

impl Tokenizer {
    /// Calls `sink` with each word, in order, until one of the `checkpoints` ends it.
    pub(crate) fn each<'a>(
        self,
        text: &'a str,
        checkpoints: &mut Checkpoints<'_>,
        sink: &mut dyn FnMut(Raw<'a>),
    ) {
        match self {
            Self::Keyword => sink(Raw {
                text,
                start: 0,
                end: text.len(),
                kind: Kind::Word,
                increment: 1,
            }),
            Self::Letter => simple::runs(text, crate::characters::is_letter, checkpoints, sink),
            Self::Whitespace => simple::runs(
                text,
                |character| !crate::characters::is_whitespace(character),
                checkpoints,
                sink,
            ),
            Self::Standard(flavour) => standard::each(flavour, text, checkpoints, sink),
            Self::Classic => classic::each(text, checkpoints, sink),
            Self::Email(flavour) => email::each(flavour, text, checkpoints, sink),
            Self::Persian(flavour) => standard::each_persian(flavour, text, checkpoints, sink),
            Self::Thai(flavour) => thai::each(flavour, text, checkpoints, sink),
        }
    }
}
