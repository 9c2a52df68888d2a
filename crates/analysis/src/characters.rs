//! Character classes read from tables, and Java's mapping to lower case.

use std::sync::LazyLock;

/// A class for each character of Unicode: a byte, 0 for none.
///
/// The first plane has one byte a character; the others, where runs are long, are searched.
pub(crate) struct Classes {
    plane: Box<[u8]>,
    beyond: Vec<(u32, u32, u8)>,
}

const PLANE_LEN: usize = 0x1_0000;

impl Classes {
    /// Parses lines of a class letter and its ranges in hexadecimal digits; lines that start with
    /// `#` are comments.
    pub(crate) fn from_table(table: &str) -> Self {
        Self::from_lines(table, |class| class)
    }

    /// Returns a copy with the class's letter changed.
    pub(crate) fn from_lines(table: &str, class_of: impl Fn(u8) -> u8) -> Self {
        let mut classes = Self {
            plane: vec![0; PLANE_LEN].into_boxed_slice(),
            beyond: Vec::new(),
        };
        for line in table
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
        {
            let (class, ranges) = line.split_at(1);
            for range in ranges.split_ascii_whitespace() {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let number = |digits| {
                    u32::from_str_radix(digits, 16).expect("the table has hexadecimal digits")
                };
                classes.set(number(first), number(last), class_of(class.as_bytes()[0]));
            }
        }
        classes.beyond.sort_unstable();
        classes
    }

    fn set(&mut self, first: u32, last: u32, class: u8) {
        for code in first..=last.min(PLANE_LEN as u32 - 1) {
            self.plane[code as usize] = class;
        }
        if last as usize >= PLANE_LEN {
            self.beyond.push((first.max(PLANE_LEN as u32), last, class));
        }
    }

    /// Returns the class of `character`.
    #[inline]
    pub(crate) fn of(&self, character: char) -> u8 {
        let code = character as u32;
        match self.plane.get(code as usize) {
            Some(class) => *class,
            None => match self
                .beyond
                .partition_point(|(first, ..)| *first <= code)
                .checked_sub(1)
            {
                Some(at) if self.beyond[at].1 >= code => self.beyond[at].2,
                _ => 0,
            },
        }
    }
}

static JAVA_LETTERS: LazyLock<Classes> = LazyLock::new(|| java_class('L'));
static JAVA_DIGITS: LazyLock<Classes> = LazyLock::new(|| java_class('D'));
static JAVA_WHITE: LazyLock<Classes> = LazyLock::new(|| java_class('W'));

fn java_class(class: char) -> Classes {
    let lines: Vec<_> = include_str!("tables/java.txt")
        .lines()
        .filter(|line| line.starts_with(class))
        .collect();
    Classes::from_table(&lines.join("\n"))
}

/// `Character.isLetter` of Java.
pub(crate) fn is_letter(character: char) -> bool {
    JAVA_LETTERS.of(character) != 0
}

/// Java's `Character.isWhitespace`, which excludes no-break spaces.
pub(crate) fn is_whitespace(character: char) -> bool {
    JAVA_WHITE.of(character) != 0
}

/// Returns the value of a decimal digit of any script. Digits stand in runs of ten, from zero.
pub(crate) fn decimal_digit(character: char) -> Option<u8> {
    if JAVA_DIGITS.of(character) == 0 {
        return None;
    }
    let code = character as u32;
    // The mathematical digits are five alphabets in one run, from 1D7CE.
    let value = match code {
        0x1d7ce..=0x1d7ff => (code - 0x1d7ce) % 10,
        _ => {
            let mut value = 0;
            while value < 9
                && char::from_u32(code - value - 1)
                    .is_some_and(|before| JAVA_DIGITS.of(before) != 0)
            {
                value += 1;
            }
            value
        }
    };
    u8::try_from(value).ok()
}

/// `Character.toLowerCase` of Java: one character for one, unlike `str::to_lowercase`.
#[inline]
pub(crate) fn lower(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_lowercase();
    }
    // The only character with a longer lower case; the first of the two is Java's.
    character.to_lowercase().next().unwrap_or(character)
}

/// Puts `text` into lower case, character by character.
pub(crate) fn lower_in_place(text: &mut String) {
    if text.is_ascii() {
        text.make_ascii_lowercase();
    } else if text.chars().any(|character| lower(character) != character) {
        *text = text.chars().map(lower).collect();
    }
}

/// Returns the length of `text` in Java's units, of which characters beyond the first plane are
/// two.
pub(crate) fn java_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_any_script_have_their_value() {
        assert_eq!(decimal_digit('7'), Some(7));
        assert_eq!(decimal_digit('٣'), Some(3));
        assert_eq!(decimal_digit('९'), Some(9));
        assert_eq!(decimal_digit('x'), None);
    }

    #[test]
    fn the_dotted_capital_i_becomes_one_character() {
        assert_eq!(lower('İ'), 'i');
        assert_eq!(lower('Σ'), 'σ');
    }
}
