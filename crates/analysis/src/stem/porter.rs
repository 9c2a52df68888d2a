//! Porter's algorithm for English of 1980, with its author's later departures, as Lucene has it.

/// Removes the endings of `word`.
pub(super) fn stem(word: &mut String) {
    // Short words stay. Lengths are Java's; only the endings, which are ASCII, are compared by
    // letter.
    if word.chars().map(char::len_utf16).sum::<usize>() <= 2 {
        return;
    }
    let mut stemmer = Porter {
        letters: std::mem::take(word).chars().collect(),
        stem: 0,
    };
    stemmer.plurals();
    stemmer.final_y();
    stemmer.double_suffixes();
    stemmer.more_suffixes();
    stemmer.last_suffixes();
    stemmer.final_e();
    *word = stemmer.letters.into_iter().collect();
}

struct Porter {
    letters: Vec<char>,
    /// Number of letters before the ending that was found last.
    stem: usize,
}

const DOUBLE: [(char, &[(&str, &str)]); 8] = [
    ('a', &[("ational", "ate"), ("tional", "tion")]),
    ('c', &[("enci", "ence"), ("anci", "ance")]),
    ('e', &[("izer", "ize")]),
    (
        'l',
        &[
            ("bli", "ble"),
            ("alli", "al"),
            ("entli", "ent"),
            ("eli", "e"),
            ("ousli", "ous"),
        ],
    ),
    (
        'o',
        &[("ization", "ize"), ("ation", "ate"), ("ator", "ate")],
    ),
    (
        's',
        &[
            ("alism", "al"),
            ("iveness", "ive"),
            ("fulness", "ful"),
            ("ousness", "ous"),
        ],
    ),
    ('t', &[("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")]),
    ('g', &[("logi", "log")]),
];

const MORE: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

const LAST: [&str; 18] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism",
    "ate", "iti", "ous", "ive", "ize",
];

impl Porter {
    fn is_consonant(&self, at: usize) -> bool {
        match self.letters[at] {
            'a' | 'e' | 'i' | 'o' | 'u' => false,
            // A `y` is the opposite of the letter before it; in a row of them they alternate.
            'y' => {
                let first = (0..=at)
                    .rev()
                    .find(|at| self.letters[*at] != 'y')
                    .map_or(0, |before| before + 1);
                let is_first_consonant = first == 0 || !self.is_consonant(first - 1);
                is_first_consonant == ((at - first).is_multiple_of(2))
            }
            _ => true,
        }
    }

    /// Returns how many times a vowel is followed by a consonant in the stem.
    fn measure(&self) -> usize {
        let mut count = 0;
        let mut after_vowel = false;
        for at in 0..self.stem {
            let is_consonant = self.is_consonant(at);
            count += usize::from(after_vowel && is_consonant);
            after_vowel = !is_consonant;
        }
        count
    }

    fn has_vowel(&self) -> bool {
        (0..self.stem).any(|at| !self.is_consonant(at))
    }

    fn is_double_consonant(&self, len: usize) -> bool {
        len >= 2 && self.letters[len - 1] == self.letters[len - 2] && self.is_consonant(len - 1)
    }

    /// Consonant, vowel, consonant at the end of the first `len` letters, the last not w, x or y.
    fn is_short_syllable(&self, len: usize) -> bool {
        len >= 3
            && self.is_consonant(len - 1)
            && !self.is_consonant(len - 2)
            && self.is_consonant(len - 3)
            && !matches!(self.letters[len - 1], 'w' | 'x' | 'y')
    }

    /// Returns whether the word has this ending; then [`Self::stem`] is the part before it.
    fn ends(&mut self, ending: &str) -> bool {
        let Some(stem) = self.letters.len().checked_sub(ending.len()) else {
            return false;
        };
        let is_so = self.letters[stem..].iter().copied().eq(ending.chars());
        if is_so {
            self.stem = stem;
        }
        is_so
    }

    fn set(&mut self, ending: &str) {
        self.letters.truncate(self.stem);
        self.letters.extend(ending.chars());
    }

    fn letter_before_end(&self, back: usize) -> Option<char> {
        self.letters
            .len()
            .checked_sub(back)
            .map(|at| self.letters[at])
    }

    /// Step 1a and 1b: plurals, `-ed` and `-ing`.
    fn plurals(&mut self) {
        if self.letter_before_end(1) == Some('s') {
            if self.ends("sses") {
                self.letters.truncate(self.letters.len() - 2);
            } else if self.ends("ies") {
                self.set("i");
            } else if self.letter_before_end(2) != Some('s') {
                self.letters.pop();
            }
        }
        if self.ends("eed") {
            if self.measure() > 0 {
                self.letters.pop();
            }
        } else if (self.ends("ed") || self.ends("ing")) && self.has_vowel() {
            self.letters.truncate(self.stem);
            if self.ends("at") || self.ends("bl") || self.ends("iz") {
                self.letters.push('e');
            } else if self.is_double_consonant(self.letters.len()) {
                if !matches!(self.letter_before_end(1), Some('l' | 's' | 'z')) {
                    self.letters.pop();
                }
            } else if self.measure() == 1 && self.is_short_syllable(self.letters.len()) {
                self.letters.push('e');
            }
        }
    }

    /// Step 1c.
    fn final_y(&mut self) {
        if self.ends("y") && self.has_vowel() {
            self.set("i");
        }
    }

    /// Step 2.
    fn double_suffixes(&mut self) {
        let Some(letter) = self.letter_before_end(2) else {
            return;
        };
        let suffixes = DOUBLE
            .iter()
            .find(|(before_last, _)| *before_last == letter)
            .map_or(&[][..], |(_, suffixes)| suffixes);
        self.replace_first(suffixes);
    }

    /// Step 3.
    fn more_suffixes(&mut self) {
        self.replace_first(&MORE);
    }

    /// Replaces the first of the suffixes that the word has, if the stem has a measure.
    fn replace_first(&mut self, suffixes: &[(&str, &str)]) {
        for (suffix, replacement) in suffixes {
            if self.ends(suffix) {
                if self.measure() > 0 {
                    self.set(replacement);
                }
                return;
            }
        }
    }

    /// Step 4.
    fn last_suffixes(&mut self) {
        let is_ion =
            self.ends("ion") && self.stem > 0 && matches!(self.letters[self.stem - 1], 's' | 't');
        if (is_ion || LAST.iter().any(|suffix| self.ends(suffix))) && self.measure() > 1 {
            self.letters.truncate(self.stem);
        }
    }

    /// Step 5.
    fn final_e(&mut self) {
        self.stem = self.letters.len();
        if self.letter_before_end(1) == Some('e') {
            let measure = self.measure();
            if measure > 1 || (measure == 1 && !self.is_short_syllable(self.letters.len() - 1)) {
                self.letters.pop();
                // A vowel at the end adds nothing to the measure.
                self.stem = self.letters.len();
            }
        }
        if self.letter_before_end(1) == Some('l')
            && self.is_double_consonant(self.letters.len())
            && self.measure() > 1
        {
            self.letters.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_end_with_a_double_l_and_e_lose_both_their_last_letters() {
        // Step 5 by hand: the measure of both is that of the part before the `e`.
        for (word, stemmed) in [
            ("gazelle", "gazel"),
            ("nacelle", "nacel"),
            ("belle", "bell"),
        ] {
            let mut text = word.to_owned();
            stem(&mut text);
            assert_eq!(text, stemmed);
        }
    }

    #[test]
    fn every_word_of_few_letters_has_a_stem() {
        let letters = ['a', 'e', 'l', 's', 'y', 'd', 'n', 'i', 'g', 't'];
        for number in 0..letters.len().pow(6) {
            let digits = (0..6).scan(number, |rest, _| {
                let digit = *rest % letters.len();
                *rest /= letters.len();
                Some(letters[digit])
            });
            let mut word: String = digits.collect();
            let length = word.len();
            stem(&mut word);
            assert!(!word.is_empty() && word.len() <= length + 1);
        }
    }
}
