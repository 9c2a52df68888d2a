//! Long runs of combining marks, which are divided before the collator reads them.
//!
//! The collator reads the marks after a letter together and orders them by their classes. For each
//! mark of a run it moves all those behind it, and compares some with them, so its time grows with
//! the square of the run. Unicode's Stream-Safe Text Format (UAX #15) inserts U+034F, a starter
//! without weight, after 30 marks. Here it is inserted after more, so that the keys of nearly all
//! texts remain the collator's.

use icu_normalizer::properties::CanonicalCombiningClassMapBorrowed;

/// Most marks that follow each other in a divided text.
pub(super) const RUN_MAX: usize = 256;

/// U+034F.
const DIVIDER: &str = "\u{34f}";

/// The first mark.
const FIRST_MARK: char = '\u{300}';

/// Returns the text with divided runs; `None` without a run of more than [`RUN_MAX`] marks.
pub(super) fn divide(text: &[u8]) -> Option<Vec<u8>> {
    // A mark has two bytes or more, none of them ASCII. So one of these pieces is within a long run.
    let has_ascii = |piece: &[u8]| piece.iter().any(u8::is_ascii);
    if text.chunks_exact(RUN_MAX + 1).all(has_ascii) {
        return None;
    }
    let classes = CanonicalCombiningClassMapBorrowed::new();
    let mut divided = Vec::new();
    let (mut copied, mut at, mut run) = (0, 0, 0);
    for chunk in text.utf8_chunks() {
        for (offset, character) in chunk.valid().char_indices() {
            if !is_mark(&classes, character) {
                run = 0;
                continue;
            }
            if run == RUN_MAX {
                divided.extend_from_slice(&text[copied..at + offset]);
                divided.extend_from_slice(DIVIDER.as_bytes());
                copied = at + offset;
                run = 0;
            }
            run += 1;
        }
        at += chunk.valid().len() + chunk.invalid().len();
        if !chunk.invalid().is_empty() {
            run = 0;
        }
    }
    if divided.is_empty() {
        return None;
    }
    divided.extend_from_slice(&text[copied..]);
    Some(divided)
}

/// Whether the decomposition of a character begins with one that has a combining class.
pub(super) fn is_mark(classes: &CanonicalCombiningClassMapBorrowed<'_>, character: char) -> bool {
    // Three Tibetan vowels have no class, but their decompositions have.
    character >= FIRST_MARK
        && (classes.get_u8(character) != 0
            || matches!(character, '\u{f73}' | '\u{f75}' | '\u{f81}'))
}
