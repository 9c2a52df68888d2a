//! Text before and after apostrophes.

use super::{Words, lowercase};
use crate::tokenizer::Kind;

/// Removes an article and its apostrophe: `l'avion` becomes `avion`.
pub(super) fn remove_article(word: &mut String, articles: &Words) {
    if let Some(at) = word.find(['\'', '\u{2019}'])
        && articles.contains(&lowercase::lowered(&word[..at]))
    {
        let width = word[at..].chars().next().map_or(1, char::len_utf8);
        word.drain(..at + width);
    }
}

/// Removes `'s` from the end.
pub(super) fn remove_possessive(word: &mut String) {
    if !matches!(word.as_bytes().last(), Some(b's' | b'S')) {
        return;
    }
    let owner = &word[..word.len() - 1];
    if let Some(owner) = owner.strip_suffix(['\'', '\u{2019}', '\u{ff07}']) {
        word.truncate(owner.len());
    }
}

/// Cuts the word at its first apostrophe.
pub(super) fn cut_at_apostrophe(word: &mut String) {
    if let Some(at) = word.find(['\'', '\u{2019}']) {
        word.truncate(at);
    }
}

/// Removes `'s` of words that the classic tokenizer marked as apostrophes, and the dots of
/// acronyms.
pub(super) fn classic(word: &mut String, kind: Kind) {
    match kind {
        Kind::Apostrophe if word.ends_with("'s") || word.ends_with("'S") => {
            word.truncate(word.len() - 2)
        }
        Kind::Acronym => word.retain(|character| character != '.'),
        _ => {}
    }
}
