//! Unification of equivalent letter forms.

/// Arabic: forms of alef, yeh and heh as one, without vowel signs and elongation.
pub(super) fn arabic(word: &mut String) {
    map(word, |character| match character {
        'آ' | 'أ' | 'إ' => Some('ا'),
        'ى' => Some('ي'),
        'ة' => Some('ه'),
        '\u{640}' | '\u{64b}'..='\u{652}' => None,
        other => Some(other),
    });
}

/// Persian: its yeh and keheh as Arabic's, forms of heh as one.
pub(super) fn persian(word: &mut String) {
    map(word, |character| match character {
        'ی' | 'ے' => Some('ي'),
        'ک' => Some('ك'),
        'ۀ' | 'ہ' => Some('ه'),
        '\u{654}' => None,
        other => Some(other),
    });
}

/// Romanian: the comma below for the cedilla, which stood for it before Unicode had both.
pub(super) fn romanian(word: &mut String) {
    map(word, |character| {
        Some(match character {
            'Ş' => 'Ș',
            'ş' => 'ș',
            'Ţ' => 'Ț',
            'ţ' => 'ț',
            other => other,
        })
    });
}

/// Changes or drops each character.
fn map(word: &mut String, change: impl Fn(char) -> Option<char>) {
    if !word.is_ascii() {
        *word = word.chars().filter_map(change).collect();
    }
}

/// Hindi: unifies equivalent spellings; removes virama and nukta, shortens vowels.
pub(super) fn hindi(word: &mut String) {
    if word.is_ascii() {
        return;
    }
    let mut out = String::with_capacity(word.len());
    let mut characters = word.chars().peekable();
    while let Some(character) = characters.next() {
        let changed = match character {
            '\u{928}' if characters.next_if_eq(&'\u{94d}').is_some() => '\u{902}',
            '\u{93c}' | '\u{200d}' | '\u{200c}' | '\u{94d}' => continue,
            '\u{901}' => '\u{902}',
            '\u{929}' => '\u{928}',
            '\u{931}' => '\u{930}',
            '\u{934}' => '\u{933}',
            '\u{958}' => '\u{915}',
            '\u{959}' => '\u{916}',
            '\u{95a}' => '\u{917}',
            '\u{95b}' => '\u{91c}',
            '\u{95c}' => '\u{921}',
            '\u{95d}' => '\u{922}',
            '\u{95e}' => '\u{92b}',
            '\u{95f}' => '\u{92f}',
            '\u{945}' | '\u{946}' => '\u{947}',
            '\u{949}' | '\u{94a}' => '\u{94b}',
            '\u{90d}' | '\u{90e}' => '\u{90f}',
            '\u{911}' | '\u{912}' => '\u{913}',
            '\u{972}' => '\u{905}',
            '\u{906}' => '\u{905}',
            '\u{908}' => '\u{907}',
            '\u{90a}' => '\u{909}',
            '\u{960}' => '\u{90b}',
            '\u{961}' => '\u{90c}',
            '\u{910}' => '\u{90f}',
            '\u{914}' => '\u{913}',
            '\u{940}' => '\u{93f}',
            '\u{942}' => '\u{941}',
            '\u{944}' => '\u{943}',
            '\u{963}' => '\u{962}',
            '\u{948}' => '\u{947}',
            '\u{94c}' => '\u{94b}',
            other => other,
        };
        out.push(changed);
    }
    *word = out;
}

/// German: umlauts and their two-letter forms as plain vowels, `ß` as `ss`.
pub(super) fn german(word: &mut String) {
    /// The context of an `e`, from the preceding characters.
    #[derive(PartialEq)]
    enum After {
        /// Anything else.
        Ordinary,
        /// A vowel after which `u` starts no umlaut.
        Vowel,
        /// `a`, `o` or `u`, with which an `e` is an umlaut.
        Umlaut,
    }
    let mut state = After::Ordinary;
    let mut out = String::with_capacity(word.len() + 1);
    for character in word.chars() {
        match character {
            'a' | 'o' => {
                state = After::Umlaut;
                out.push(character);
            }
            'u' => {
                state = if state == After::Ordinary {
                    After::Umlaut
                } else {
                    After::Vowel
                };
                out.push(character);
            }
            'e' => {
                if state != After::Umlaut {
                    out.push(character);
                }
                state = After::Vowel;
            }
            'ß' => {
                state = After::Ordinary;
                out.push_str("ss");
            }
            'i' | 'q' | 'y' | 'ä' | 'ö' | 'ü' => {
                state = After::Vowel;
                out.push(match character {
                    'ä' => 'a',
                    'ö' => 'o',
                    'ü' => 'u',
                    other => other,
                });
            }
            other => {
                state = After::Ordinary;
                out.push(other);
            }
        }
    }
    *word = out;
}

/// Scripts that follow each other by 0x80 characters from 0x900 on: Devanagari, Bengali, Gurmukhi,
/// Gujarati, Oriya, Tamil, Telugu, Kannada, Malayalam. A script's bit in the table is its number.
const SCRIPTS: u32 = 9;

/// Stands for the zero-width joiner as the third character.
const JOINER: u32 = 0xff;

/// Two or three characters, counted from the start of their script, and the one written for them;
/// for which scripts. From Unicode 5.2, and from the table of Indian scripts that Lucene's
/// `IndicNormalizer` cites.
const COMPOSITIONS: [(u32, u32, Option<u32>, u32, u32); 72] = [
    (0x05, 0x3e, Some(0x45), 0x11, 0x009),
    (0x05, 0x3e, Some(0x46), 0x12, 0x001),
    (0x05, 0x3e, Some(0x47), 0x13, 0x009),
    (0x05, 0x3e, Some(0x48), 0x14, 0x009),
    (0x05, 0x3e, None, 0x06, 0x01f),
    (0x05, 0x45, None, 0x72, 0x001),
    (0x05, 0x45, None, 0x0d, 0x008),
    (0x05, 0x46, None, 0x04, 0x001),
    (0x05, 0x47, None, 0x0f, 0x008),
    (0x05, 0x48, None, 0x10, 0x00c),
    (0x05, 0x49, None, 0x11, 0x009),
    (0x05, 0x4a, None, 0x12, 0x001),
    (0x05, 0x4b, None, 0x13, 0x009),
    (0x05, 0x4c, None, 0x14, 0x00d),
    (0x06, 0x45, None, 0x11, 0x009),
    (0x06, 0x46, None, 0x12, 0x001),
    (0x06, 0x47, None, 0x13, 0x009),
    (0x06, 0x48, None, 0x14, 0x009),
    (0x07, 0x57, None, 0x08, 0x100),
    (0x09, 0x41, None, 0x0a, 0x001),
    (0x09, 0x57, None, 0x0a, 0x120),
    (0x0e, 0x46, None, 0x10, 0x100),
    (0x0f, 0x45, None, 0x0d, 0x001),
    (0x0f, 0x46, None, 0x0e, 0x001),
    (0x0f, 0x47, None, 0x10, 0x001),
    (0x0f, 0x57, None, 0x10, 0x010),
    (0x12, 0x3e, None, 0x13, 0x100),
    (0x12, 0x4c, None, 0x14, 0x0c0),
    (0x12, 0x55, None, 0x13, 0x040),
    (0x12, 0x57, None, 0x14, 0x120),
    (0x13, 0x57, None, 0x14, 0x010),
    (0x15, 0x3c, None, 0x58, 0x001),
    (0x16, 0x3c, None, 0x59, 0x005),
    (0x17, 0x3c, None, 0x5a, 0x005),
    (0x1c, 0x3c, None, 0x5b, 0x005),
    (0x21, 0x3c, None, 0x5c, 0x013),
    (0x22, 0x3c, None, 0x5d, 0x013),
    (0x23, 0x4d, Some(0xff), 0x7a, 0x100),
    (0x24, 0x4d, Some(0xff), 0x4e, 0x002),
    (0x28, 0x3c, None, 0x29, 0x001),
    (0x28, 0x4d, Some(0xff), 0x7b, 0x100),
    (0x2b, 0x3c, None, 0x5e, 0x005),
    (0x2f, 0x3c, None, 0x5f, 0x003),
    (0x2c, 0x41, Some(0x41), 0x0b, 0x040),
    (0x30, 0x3c, None, 0x31, 0x001),
    (0x30, 0x4d, Some(0xff), 0x7c, 0x100),
    (0x32, 0x4d, Some(0xff), 0x7d, 0x100),
    (0x33, 0x3c, None, 0x34, 0x001),
    (0x33, 0x4d, Some(0xff), 0x7e, 0x100),
    (0x35, 0x41, None, 0x2e, 0x040),
    (0x3e, 0x45, None, 0x49, 0x009),
    (0x3e, 0x46, None, 0x4a, 0x001),
    (0x3e, 0x47, None, 0x4b, 0x009),
    (0x3e, 0x48, None, 0x4c, 0x009),
    (0x3f, 0x55, None, 0x40, 0x080),
    (0x41, 0x41, None, 0x42, 0x004),
    (0x46, 0x3e, None, 0x4a, 0x120),
    (0x46, 0x42, Some(0x55), 0x4b, 0x080),
    (0x46, 0x42, None, 0x4a, 0x080),
    (0x46, 0x46, None, 0x48, 0x100),
    (0x46, 0x55, None, 0x47, 0x0c0),
    (0x46, 0x56, None, 0x48, 0x0c0),
    (0x46, 0x57, None, 0x4c, 0x120),
    (0x47, 0x3e, None, 0x4b, 0x132),
    (0x47, 0x57, None, 0x4c, 0x012),
    (0x4a, 0x55, None, 0x4b, 0x080),
    (0x72, 0x3f, None, 0x07, 0x004),
    (0x72, 0x40, None, 0x08, 0x004),
    (0x72, 0x47, None, 0x0f, 0x004),
    (0x73, 0x41, None, 0x09, 0x004),
    (0x73, 0x42, None, 0x0a, 0x004),
    (0x73, 0x4b, None, 0x13, 0x004),
];

/// Scripts of India: what can be written as one character or as several, as one.
pub(super) fn indic(word: &mut String) {
    if word.is_ascii() {
        return;
    }
    let characters: Vec<char> = word.chars().collect();
    word.clear();
    let mut rest = characters.as_slice();
    while let Some(first) = rest.first() {
        let (character, len) = composition(rest).unwrap_or((*first, 1));
        word.push(character);
        rest = &rest[len..];
    }
}

/// Returns the script of a character, and its place in it.
fn script(character: char) -> Option<(u32, u32)> {
    let code = (character as u32).checked_sub(0x900)?;
    (code < SCRIPTS * 0x80).then_some((code / 0x80, code % 0x80))
}

fn composition(characters: &[char]) -> Option<(char, usize)> {
    let (number, first) = script(*characters.first()?)?;
    let (_, second) = script(*characters.get(1)?).filter(|(other, _)| *other == number)?;
    let third = characters.get(2).and_then(|third| match third {
        '\u{200d}' => Some(JOINER),
        other => script(*other)
            .filter(|(other, _)| *other == number)
            .map(|(_, place)| place),
    });
    let is_it = |(a, b, c, _, scripts): &&(u32, u32, Option<u32>, u32, u32)| {
        *a == first && *b == second && scripts & (1 << number) != 0 && (c.is_none() || *c == third)
    };
    let (.., c, composed, _) = COMPOSITIONS.iter().find(is_it)?;
    Some((
        char::from_u32(0x900 + number * 0x80 + composed)?,
        2 + usize::from(c.is_some()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves what follows each composed character, one after the other.
    fn indic_slowly(word: &str) -> String {
        let mut characters: Vec<char> = word.chars().collect();
        let mut at = 0;
        while at < characters.len() {
            if let Some((composed, len)) = composition(&characters[at..]) {
                characters.splice(at..at + len, [composed]);
            }
            at += 1;
        }
        characters.into_iter().collect()
    }

    #[test]
    fn characters_of_india_are_composed_one_after_the_other() {
        let letters = [
            '\u{905}', '\u{93e}', '\u{945}', '\u{b92}', '\u{bd7}', '\u{200d}', 'a',
        ];
        for number in 0..letters.len().pow(5) {
            let letter = |at: u32| letters[number / letters.len().pow(at) % letters.len()];
            let mut word: String = (0..5).map(letter).collect();
            let slow = indic_slowly(&word);
            indic(&mut word);
            assert_eq!(word, slow);
        }
    }
}
