//! Runs of characters of one kind.

use super::{Kind, Raw};
use crate::checkpoints::Checkpoints;

/// Lucene's longest word of a `CharTokenizer`, in UTF-16 units; a longer run is cut.
const LONGEST: usize = 255;

/// Runs of characters that `belongs` accepts.
pub(super) fn runs<'a>(
    text: &'a str,
    belongs: impl Fn(char) -> bool,
    checkpoints: &mut Checkpoints<'_>,
    sink: &mut dyn FnMut(Raw<'a>),
) {
    let mut start = None;
    let mut units = 0;
    let mut emit = |start: usize, end: usize| {
        sink(Raw {
            text: &text[start..end],
            start,
            end,
            kind: Kind::Word,
            increment: 1,
        });
        checkpoints.pass(end - start)
    };
    for (at, character) in text.char_indices() {
        if belongs(character) {
            start.get_or_insert(at);
            units += character.len_utf16();
            if units >= LONGEST {
                units = 0;
                if !emit(start.take().unwrap_or(at), at + character.len_utf8()) {
                    return;
                }
            }
        } else if let Some(start) = start.take() {
            units = 0;
            if !emit(start, at) {
                return;
            }
        }
    }
    if let Some(start) = start {
        emit(start, text.len());
    }
}
