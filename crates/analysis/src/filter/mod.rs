//! Filters of words: lower case, stop words, stemming.

mod cjk;
mod elision;
mod fold;
mod lowercase;
mod normalization;

pub(crate) use cjk::{Bigrams, Piece};

use crate::stem::Stemmer;
use crate::tokenizer::Kind;
use std::collections::HashSet;
use std::sync::Arc;

/// Words that are dropped.
pub(crate) type Words = Arc<HashSet<String>>;

/// A step in an analyzer's chain; each changes one word, or drops it.
#[derive(Debug, Clone)]
pub(crate) enum Filter {
    /// Into lower case, as Java does it: character by character.
    Lower,
    /// Lower case for Greek: without accents, final sigma as sigma.
    GreekLower,
    /// Lower case for Turkish: `I` becomes `ı`.
    TurkishLower,
    /// Lower case for Irish: prefixed `t` and `n` get a hyphen before a capital vowel.
    IrishLower,
    /// Drops these words.
    Stop(Words),
    /// As above, ignoring case.
    StopAnyCase(Words),
    /// Removes an article before an apostrophe.
    Elision(Words),
    /// Removes `'s`.
    EnglishPossessive,
    /// Removes an apostrophe and what follows.
    Apostrophe,
    /// Removes `'s` and the dots of acronyms, as the classic tokenizer marks them.
    Classic,
    /// Digits of any script become ASCII's.
    DecimalDigits,
    /// ASCII letters for those with accents.
    AsciiFolding,
    /// Half-width katakana and full-width ASCII become the usual ones.
    CjkWidth,
    /// Unifies equivalent Arabic forms.
    ArabicNormalization,
    /// Persian equivalent forms.
    PersianNormalization,
    /// Equivalent forms in the scripts of India.
    IndicNormalization,
    /// Hindi equivalent spellings.
    HindiNormalization,
    /// Umlauts and ß.
    GermanNormalization,
    /// Romanian letters with a comma for those with a cedilla.
    RomanianNormalization,
    /// Removes endings.
    Stem(Stemmer),
}

impl Filter {
    /// Changes `word`; whether it is kept.
    pub(crate) fn apply(&self, word: &mut String, kind: Kind) -> bool {
        match self {
            Self::Lower => crate::characters::lower_in_place(word),
            Self::GreekLower => lowercase::greek(word),
            Self::TurkishLower => lowercase::turkish(word),
            Self::IrishLower => lowercase::irish(word),
            Self::Stop(words) => return !words.contains(word.as_str()),
            Self::StopAnyCase(words) => return !words.contains(&lowercase::lowered(word)),
            Self::Elision(articles) => elision::remove_article(word, articles),
            Self::EnglishPossessive => elision::remove_possessive(word),
            Self::Apostrophe => elision::cut_at_apostrophe(word),
            Self::Classic => elision::classic(word, kind),
            Self::DecimalDigits => fold::digits(word),
            Self::AsciiFolding => fold::ascii(word),
            Self::CjkWidth => cjk::width(word),
            Self::ArabicNormalization => normalization::arabic(word),
            Self::PersianNormalization => normalization::persian(word),
            Self::IndicNormalization => normalization::indic(word),
            Self::HindiNormalization => normalization::hindi(word),
            Self::GermanNormalization => normalization::german(word),
            Self::RomanianNormalization => normalization::romanian(word),
            Self::Stem(stemmer) => stemmer.stem(word),
        }
        true
    }
}
