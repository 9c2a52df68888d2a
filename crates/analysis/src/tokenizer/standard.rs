//! Words by Unicode's rules of text segmentation (UAX #29), as Lucene's StandardTokenizer tailors
//! them: sequences of Thai, Lao, Khmer and Burmese characters are one word, each Chinese character
//! and each hiragana is one.
//!
//! The classes are those of `tables/words46.txt` and `tables/words9.txt`: A letter, W Hebrew
//! letter, G Hangul, O letter that is an emoji too, N digit (0 of ASCII), K katakana, L, M and B
//! between letters, between digits and between both, Q the apostrophe, D the quotation mark, U as
//! `_`, F characters that join the one before, S Southeast Asian, T one that joins too, H Chinese,
//! I hiragana. Of emoji: E one, P a skin tone, R half of a flag, Z the joiner, V and v the
//! selectors, C the keycap, J bases of keycaps besides digits, Y and X tags and their end.

use super::scanner::{Match, Scanner};
use super::{Kind, Raw};
use crate::analyzer::Flavour;
use crate::characters::{Classes, java_len};
use crate::checkpoints::Checkpoints;
use std::sync::LazyLock;

/// Lucene's longest word, in UTF-16 units: a longer one is dropped by 4.6, and cut by 9.
pub(super) const LONGEST: usize = 255;

static LUCENE_4: LazyLock<Scanner> = LazyLock::new(|| {
    Scanner::new(
        &rules(Flavour::Clouseau),
        Classes::from_table(include_str!("../tables/words46.txt")),
        None,
    )
});
static LUCENE_9: LazyLock<Scanner> = LazyLock::new(|| {
    Scanner::new(
        &rules(Flavour::Nouveau),
        Classes::from_table(include_str!("../tables/words9.txt")),
        Some(LONGEST),
    )
});

/// The kinds of [`rules`], in their order.
pub(super) const KINDS: [Kind; 8] = [
    Kind::Other,
    Kind::Number,
    Kind::Hangul,
    Kind::Katakana,
    Kind::Word,
    Kind::SoutheastAsian,
    Kind::Ideographic,
    Kind::Hiragana,
];

/// Returns the rules of words, over the letters of classes.
pub(super) fn rules(flavour: Flavour) -> Vec<String> {
    let join = match flavour {
        Flavour::Clouseau => "[FT]*",
        Flavour::Nouveau => "[FTPZVvCYX]*",
    };
    let of = |classes: &str| format!("(?:[{classes}]{join})");
    let (number, katakana, under) = (of("N0"), of("K"), of("U"));
    let (letter, mid_letter, mid_number) = (of("AGWO"), of("LBQ"), of("MBQ"));
    let numbers = format!("(?:{number}(?:{under}*{number}|{mid_number}{number})*)");
    let letters = match flavour {
        Flavour::Clouseau => format!("(?:{letter}(?:{under}*{letter}|{mid_letter}{letter})*)"),
        Flavour::Nouveau => {
            let (hebrew, single, double) = (of("W"), of("Q"), of("D"));
            format!(
                "(?:{hebrew}(?:{single}|{double}{hebrew})|{letter}(?:{under}*{letter}|{mid_letter}{letter})*)"
            )
        }
    };
    let part = format!("(?:{katakana}(?:{under}*{katakana})*|(?:{numbers}|{letters})+)");
    let (emoji, southeast) = match flavour {
        // Lucene 4.6 knows no emoji; nothing is of this class there.
        Flavour::Clouseau => ("E".to_owned(), "[ST]+".to_owned()),
        Flavour::Nouveau => (emoji(), format!("(?:[ST]{join})+")),
    };
    vec![
        emoji,
        format!("{under}*{number}(?:{under}+{number}|{mid_number}{number}|{number})*{under}*"),
        format!("{}+", of("G")),
        format!("{katakana}+"),
        format!("{under}*{part}(?:{under}+{part})*{under}*"),
        southeast,
        of("H"),
        of("I"),
    ]
}

/// Emoji and their sequences (UTS #51): with skin tones, joined ones, tags, keycaps and flags.
fn emoji() -> String {
    let join = "[FTPZCYX]*";
    let one = format!("(?:Z*[EO]{join}V?|(?:Z*[EO]{join})?P{join})");
    let keycap = format!("[0J]{join}V?C{join}");
    let flag = "(?:R[FTPZVvCYX]*){2}";
    format!("(?:{one}(?:(?:Z{one})*|Y+X)|{keycap}|{flag})")
}

/// Calls `sink` with each word of `text`.
pub(super) fn each<'a>(
    flavour: Flavour,
    text: &'a str,
    checkpoints: &mut Checkpoints<'_>,
    sink: &mut dyn FnMut(Raw<'a>),
) {
    each_of(scanner(flavour), &KINDS, text, checkpoints, sink);
}

/// Returns the scanner of [`rules`].
pub(super) fn scanner(flavour: Flavour) -> &'static Scanner {
    match flavour {
        Flavour::Clouseau => &LUCENE_4,
        Flavour::Nouveau => &LUCENE_9,
    }
}

/// Visits words like the plain one, with zero-width non-joiners as if they were spaces.
pub(super) fn each_persian<'a>(
    flavour: Flavour,
    text: &'a str,
    checkpoints: &mut Checkpoints<'_>,
    sink: &mut dyn FnMut(Raw<'a>),
) {
    let mut at = 0;
    for part in text.split_inclusive('\u{200c}') {
        let words = part.strip_suffix('\u{200c}').unwrap_or(part);
        each(flavour, words, checkpoints, &mut |raw| {
            sink(Raw {
                start: at + raw.start,
                end: at + raw.end,
                ..raw
            })
        });
        if !checkpoints.pass(part.len() - words.len()) {
            return;
        }
        at += part.len();
    }
}

/// Calls `sink` with each match of `scanner`; those that are too long leave a gap.
pub(super) fn each_of<'a>(
    scanner: &Scanner,
    kinds: &[Kind],
    text: &'a str,
    checkpoints: &mut Checkpoints<'_>,
    sink: &mut dyn FnMut(Raw<'a>),
) {
    let mut increment = 1;
    scanner.each(text, checkpoints, &mut |Match { start, end, rule }| {
        let word = &text[start..end];
        if word.len() > LONGEST && java_len(word) > LONGEST {
            increment += 1;
            return;
        }
        sink(Raw {
            text: word,
            start,
            end,
            kind: kinds[rule],
            increment,
        });
        increment = 1;
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::scanner::{DEAD_END_BYTES, DeadEnds};

    #[test]
    fn reads_that_lead_nowhere_take_little_memory() {
        let text = "_".repeat(8 << 20);
        let mut dead_ends = DeadEnds::new();
        for from in 0..1000 {
            let found = scanner(Flavour::Clouseau).longest(&text, from, &mut dead_ends);
            assert_eq!(found, None);
        }
        assert!(!dead_ends.is_empty(), "all thousand read everything");
        assert!(dead_ends.len() <= text.len() / DEAD_END_BYTES);
    }
}
