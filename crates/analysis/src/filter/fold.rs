//! Letters with accents as ASCII's, digits of any script as ASCII's.

use crate::characters::decimal_digit;
use std::collections::HashMap;
use std::sync::LazyLock;

static ASCII: LazyLock<HashMap<char, &'static str>> = LazyLock::new(|| {
    let mut folded = HashMap::new();
    for line in include_str!("../tables/fold.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (ascii, ranges) = line
            .split_once(' ')
            .expect("a line is an ASCII text and its characters");
        // In the table, only `#` itself is escaped.
        let ascii = if ascii == r"\#" { "#" } else { ascii };
        for range in ranges.split(' ') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let code =
                |digits| u32::from_str_radix(digits, 16).expect("the table has hexadecimal digits");
            for character in (code(first)..=code(last)).filter_map(char::from_u32) {
                folded.insert(character, ascii);
            }
        }
    }
    folded
});

/// `é` becomes `e`, `Æ` becomes `AE`.
pub(super) fn ascii(word: &mut String) {
    if word.is_ascii() {
        return;
    }
    let mut folded = String::with_capacity(word.len());
    for character in word.chars() {
        match ASCII.get(&character) {
            Some(ascii) => folded.push_str(ascii),
            None => folded.push(character),
        }
    }
    *word = folded;
}

/// `٣` becomes `3`.
pub(super) fn digits(word: &mut String) {
    if !word.is_ascii() {
        *word = word
            .chars()
            .map(|character| {
                decimal_digit(character).map_or(character, |digit| char::from(b'0' + digit))
            })
            .collect();
    }
}
