//! Lower case in languages that have their own.

use crate::characters::lower;

/// `word` in lower case.
pub(super) fn lowered(word: &str) -> String {
    word.chars().map(lower).collect()
}

/// Greek: without accents and diaeresis, and with one kind of sigma.
pub(super) fn greek(word: &mut String) {
    *word = word
        .chars()
        .map(|character| match character {
            'ς' => 'σ',
            'Ά' | 'ά' => 'α',
            'Έ' | 'έ' => 'ε',
            'Ή' | 'ή' => 'η',
            'Ί' | 'Ϊ' | 'ί' | 'ϊ' | 'ΐ' => 'ι',
            'Ύ' | 'Ϋ' | 'ύ' | 'ϋ' | 'ΰ' => 'υ',
            'Ό' | 'ό' => 'ο',
            'Ώ' | 'ώ' => 'ω',
            '\u{3a2}' => 'ς',
            other => lower(other),
        })
        .collect();
}

/// Turkish: `I` without a dot stays without one, and a dot that follows it as a mark of its own
/// joins it.
pub(super) fn turkish(word: &mut String) {
    let mut out = String::with_capacity(word.len());
    let characters: Vec<char> = word.chars().collect();
    let mut after_capital_i = false;
    let mut at = 0;
    while at < characters.len() {
        let character = characters[at];
        after_capital_i = character == 'I' || (after_capital_i && is_mark(character));
        at += 1;
        if after_capital_i {
            match character {
                // The dot was put onto the `i` already.
                '\u{307}' => continue,
                'I' if is_before_dot(&characters[at..]) => out.push('i'),
                'I' => {
                    out.push('ı');
                    // The dot may only be dropped after marks that lie below.
                    after_capital_i = false;
                }
                other => out.push(lower(other)),
            }
        } else {
            out.push(lower(character));
        }
    }
    *word = out;
}

fn is_before_dot(rest: &[char]) -> bool {
    for character in rest {
        match character {
            '\u{307}' => return true,
            other if is_mark(*other) => {}
            _ => return false,
        }
    }
    false
}

/// Returns whether it is a combining mark of those that may stand between `I` and its dot.
fn is_mark(character: char) -> bool {
    matches!(character as u32, 0x300..=0x36f | 0x483..=0x487 | 0x1ab0..=0x1abd | 0x1dc0..=0x1dff | 0x20d0..=0x20dc | 0xfe20..=0xfe2f)
}

/// Irish: `nAthair` and `tAthair` become `n-athair` and `t-athair`.
pub(super) fn irish(word: &mut String) {
    let mut characters = word.chars();
    let prefix = characters.next().filter(|first| matches!(first, 'n' | 't'));
    let is_vowel = |character: char| {
        matches!(
            character,
            'A' | 'E' | 'I' | 'O' | 'U' | 'Á' | 'É' | 'Í' | 'Ó' | 'Ú'
        )
    };
    match (prefix, characters.next()) {
        (Some(prefix), Some(second)) if is_vowel(second) => {
            let rest = lowered(&word[prefix.len_utf8()..]);
            *word = format!("{prefix}-{rest}");
        }
        _ => crate::characters::lower_in_place(word),
    }
}
