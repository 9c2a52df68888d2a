//! The tokenizer that was Lucene's standard one before 3.1. It is the same in 4.6 and 9.
//!
//! The classes are those of `tables/classic.txt`: L letter, D digit, T Thai, J Chinese and
//! Japanese, and the significant punctuation, as itself.

use super::scanner::Scanner;
use super::{Kind, Raw, standard};
use crate::characters::Classes;
use crate::checkpoints::Checkpoints;
use std::sync::LazyLock;

static SCANNER: LazyLock<Scanner> = LazyLock::new(|| {
    let table = format!(
        "{}\n' 27\n& 26\n@ 40\n. 2e\n- 2d\n_ 5f\n/ 2f\n, 2c\n",
        include_str!("../tables/classic.txt")
    );
    Scanner::new(&rules(), Classes::from_table(&table), None)
});

const KINDS: [Kind; 9] = [
    Kind::Word,
    Kind::Apostrophe,
    Kind::Acronym,
    Kind::TrailingPoint,
    Kind::Other,
    Kind::Other,
    Kind::Other,
    Kind::Number,
    Kind::Ideographic,
];

fn rules() -> Vec<String> {
    let word = "[LDT]+";
    let digits = "(?:[LD]*D[LD]*)";
    let p = r"[_\-/.,]";
    vec![
        word.to_owned(),
        "L+(?:'L+)+".to_owned(),
        r"L\.(?:L\.)+".to_owned(),
        format!(r"{word}\.(?:{word}\.)+"),
        "L+[&@]L+".to_owned(),
        format!(r"{word}(?:[.\-_]{word})*@{word}(?:[.\-]{word})+"),
        format!(r"{word}(?:\.{word})+"),
        format!(
            "{word}{p}{digits}|{digits}{p}{word}|{word}(?:{p}{digits}{p}{word})+|{digits}(?:{p}{word}{p}{digits})+\
             |{word}{p}{digits}(?:{p}{word}{p}{digits})+|{digits}{p}{word}(?:{p}{digits}{p}{word})+"
        ),
        "J".to_owned(),
    ]
}

/// Calls `sink` with each word of `text`.
pub(super) fn each<'a>(
    text: &'a str,
    checkpoints: &mut Checkpoints<'_>,
    sink: &mut dyn FnMut(Raw<'a>),
) {
    standard::each_of(&SCANNER, &KINDS, text, checkpoints, &mut |raw| {
        // The point after a host is not part of the word, but of its span in the text.
        let text = if raw.kind == Kind::TrailingPoint {
            &raw.text[..raw.text.len() - 1]
        } else {
            raw.text
        };
        sink(Raw { text, ..raw });
    });
}
