//! Arabic and Hindi: the light stemmers of Larkey, Ballesteros and Connell, and of Ramanathan and
//! Rao; Indonesian, by Fadillah Z. Tala.

use super::word::Word;

pub(super) fn arabic(word: &mut Word) {
    let prefixes = ["ال", "وال", "بال", "كال", "فال", "لل", "و"];
    let is_it = |prefix: &&&str| {
        let count = prefix.chars().count();
        let shortest = if count == 1 { 4 } else { count + 2 };
        word.len() >= shortest && word.begins(prefix)
    };
    if let Some(prefix) = prefixes.iter().find(is_it) {
        word.cut_beginning(prefix.chars().count());
    }
    for suffix in ["ها", "ان", "ات", "ون", "ين", "يه", "ية", "ه", "ة", "ي"] {
        let count = suffix.chars().count();
        word.cut_first(&[(count + 1, &[suffix], count)]);
    }
}

const HINDI: [(usize, &[&str], usize); 5] = [
    (
        6,
        &["ाएंगी", "ाएंगे", "ाऊंगी", "ाऊंगा", "ाइयाँ", "ाइयों", "ाइयां"],
        5,
    ),
    (
        5,
        &[
            "ाएगी",
            "ाएगा",
            "ाओगी",
            "ाओगे",
            "एंगी",
            "ेंगी",
            "एंगे",
            "ेंगे",
            "ूंगी",
            "ूंगा",
            "ातीं",
            "नाओं",
            "नाएं",
            "ताओं",
            "ताएं",
            "ियाँ",
            "ियों",
            "ियां",
        ],
        4,
    ),
    (
        4,
        &[
            "ाकर",
            "ाइए",
            "ाईं",
            "ाया",
            "ेगी",
            "ेगा",
            "ोगी",
            "ोगे",
            "ाने",
            "ाना",
            "ाते",
            "ाती",
            "ाता",
            "तीं",
            "ाओं",
            "ाएं",
            "ुओं",
            "ुएं",
            "ुआं",
        ],
        3,
    ),
    (
        3,
        &[
            "कर", "ाओ", "िए", "ाई", "ाए", "ने", "नी", "ना", "ते", "ीं", "ती", "ता", "ाँ", "ां", "ों", "ें",
        ],
        2,
    ),
    (2, &["ो", "े", "ू", "ु", "ी", "ि", "ा"], 1),
];

pub(super) fn hindi(word: &mut Word) {
    word.cut_first(&HINDI);
}

/// The parts removed from an Indonesian word, by which some endings stay.
#[derive(Default)]
struct Removed {
    ke: bool,
    peng: bool,
    di: bool,
    meng: bool,
    ter: bool,
    ber: bool,
    pe: bool,
}

struct Indonesian<'a> {
    word: &'a mut Word,
    /// Vowels, less one for each affix that was cut off.
    syllables: i32,
    removed: Removed,
}

fn is_vowel(letter: Option<&char>) -> bool {
    matches!(letter, Some('a' | 'e' | 'i' | 'o' | 'u'))
}

pub(super) fn indonesian(word: &mut Word) {
    let syllables = word
        .left()
        .iter()
        .filter(|letter| is_vowel(Some(letter)))
        .count();
    let mut stemmer = Indonesian {
        syllables: i32::try_from(syllables).unwrap_or(i32::MAX),
        word,
        removed: Removed::default(),
    };
    stemmer.cut_one(&["kah", "lah", "pun"]);
    stemmer.cut_one(&["ku", "mu", "nya"]);
    if stemmer.first_prefix() {
        if stemmer.suffix() {
            stemmer.second_prefix();
        }
    } else {
        stemmer.second_prefix();
        stemmer.suffix();
    }
}

impl Indonesian<'_> {
    fn is_long(&self) -> bool {
        self.syllables > 2
    }

    /// Cuts one of these endings off.
    fn cut_one(&mut self, endings: &[&str]) -> bool {
        if !self.is_long() {
            return false;
        }
        let Some(ending) = endings.iter().find(|ending| self.word.ends(ending)) else {
            return false;
        };
        self.word.cut(ending.len());
        self.syllables -= 1;
        true
    }

    /// Removes `count` letters at the start; `letter` then replaces the first one.
    fn cut_prefix(&mut self, count: usize, letter: Option<char>) -> bool {
        self.word.cut_beginning(count);
        if let Some(letter) = letter {
            self.word.left_mut()[0] = letter;
        }
        self.syllables -= 1;
        true
    }

    fn first_prefix(&mut self) -> bool {
        if !self.is_long() {
            return false;
        }
        let has_vowel_at = |at: usize| is_vowel(self.word.left().get(at));
        let (count, letter) = if self.word.begins("meng") {
            (4, None)
        } else if self.word.begins("meny") && has_vowel_at(4) {
            (3, Some('s'))
        } else if self.word.begins("men") || self.word.begins("mem") {
            (3, None)
        } else if self.word.begins("me") {
            (2, None)
        } else {
            return self.other_first_prefix();
        };
        self.removed.meng = true;
        self.cut_prefix(count, letter)
    }

    fn other_first_prefix(&mut self) -> bool {
        let has_vowel_at = |at: usize| is_vowel(self.word.left().get(at));
        let peng = if self.word.begins("peng") {
            Some((4, None))
        } else if self.word.begins("peny") {
            Some(if has_vowel_at(4) {
                (3, Some('s'))
            } else {
                (4, None)
            })
        } else if self.word.begins("pen") {
            Some(if has_vowel_at(3) {
                (2, Some('t'))
            } else {
                (3, None)
            })
        } else if self.word.begins("pem") {
            Some((3, None))
        } else {
            None
        };
        if let Some((count, letter)) = peng {
            self.removed.peng = true;
            return self.cut_prefix(count, letter);
        }
        if self.word.begins("di") {
            self.removed.di = true;
            self.cut_prefix(2, None)
        } else if self.word.begins("ter") {
            self.removed.ter = true;
            self.cut_prefix(3, None)
        } else if self.word.begins("ke") {
            self.removed.ke = true;
            self.cut_prefix(2, None)
        } else {
            false
        }
    }

    fn second_prefix(&mut self) -> bool {
        if !self.is_long() {
            return false;
        }
        let letters = self.word.left();
        let is_be_er = self.word.begins("be")
            && letters.len() > 4
            && !is_vowel(letters.get(2))
            && letters[3] == 'e'
            && letters[4] == 'r';
        if self.word.begins("ber") || self.word.is("belajar") {
            self.removed.ber = true;
            self.cut_prefix(3, None)
        } else if is_be_er {
            self.removed.ber = true;
            self.cut_prefix(2, None)
        } else if self.word.begins("per") || self.word.is("pelajar") {
            self.cut_prefix(3, None)
        } else if self.word.begins("pe") {
            self.removed.pe = true;
            self.cut_prefix(2, None)
        } else {
            false
        }
    }

    fn suffix(&mut self) -> bool {
        let Removed {
            ke,
            peng,
            di,
            meng,
            ter,
            ber,
            pe,
        } = self.removed;
        (!(ke || peng || pe) && self.cut_one(&["kan"]))
            || (!(di || meng || ter) && self.cut_one(&["an"]))
            || (!(ber || ke || peng || self.word.ends("si")) && self.cut_one(&["i"]))
    }
}
