//! Texts to search in, and words to search for: the same for all systems, since both are generated
//! from a number.

use std::fmt::Write as _;

/// Syllables of a consonant and a vowel.
const CONSONANTS: &[u8; 14] = b"bdfghklmnprstv";
const VOWELS: &[u8; 5] = b"aeiou";
const SYLLABLES: u64 = 70;
/// How many words there are. The more than [`SYLLABLES`]² that are rare have three syllables.
const WORDS: u64 = 20_000;
/// Letters of a text; a document with it has about 300 bytes.
const TEXT_BYTES: usize = 222;

/// The subject of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchKind {
    /// A word.
    Term,
    /// Two words, both of them.
    And,
    /// Two words, the one behind the other.
    Phrase,
    /// Words that begin so.
    Prefix,
}

/// The word of a rank: the first are in most texts, the last in few.
pub(crate) fn word(rank: u64) -> String {
    let mut word = String::with_capacity(6);
    let mut push = |syllable: u64| {
        word.push(char::from(CONSONANTS[(syllable / 5 % 14) as usize]));
        word.push(char::from(VOWELS[(syllable % 5) as usize]));
    };
    let (high, low) = (rank / SYLLABLES, rank % SYLLABLES);
    push(low);
    push(high % SYLLABLES);
    if high >= SYLLABLES {
        push(high / SYLLABLES);
    }
    word
}

/// How the word of a rank begins: its first syllable and a consonant, as some twenty words do.
fn prefix(rank: u64) -> String {
    let mut word = word(rank);
    word.truncate(3);
    word
}

/// Numbers that look random, and are the same for the same number (SplitMix64).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Words by Zipf's law: that of rank n is n times as rare as the first.
    fn rank(&mut self) -> u64 {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = ((WORDS as f64).ln() * share).exp() as u64;
        rank.clamp(1, WORDS) - 1
    }
}

/// The words of the document with this number.
fn words(number: u64) -> Vec<String> {
    let mut mixed = SplitMix(number);
    let mut words = vec![];
    let mut bytes = 0;
    while bytes < TEXT_BYTES {
        let word = word(mixed.rank());
        bytes += word.len() + 1;
        words.push(word);
    }
    words
}

/// The text of the document with this number: it has neither quotes nor backslashes.
pub(crate) fn text(number: u64) -> String {
    words(number).join(" ")
}

/// Appends `bytes` letters and spaces, of such words.
pub(crate) fn push_letters(out: &mut Vec<u8>, number: u64, bytes: usize) {
    let mut mixed = SplitMix(number);
    let end = out.len() + bytes;
    while out.len() < end {
        out.extend_from_slice(word(mixed.rank()).as_bytes());
        out.push(b' ');
    }
    out.truncate(end);
}

impl SearchKind {
    /// All, in the order in which they are measured.
    pub(crate) const ALL: [Self; 4] = [Self::Term, Self::And, Self::Phrase, Self::Prefix];

    /// The words of one query of many: a phrase is one of the texts' of `documents` documents.
    pub(crate) fn any(self, documents: u64) -> Vec<String> {
        match self {
            Self::Term => vec![word(fastrand::u64(100..2_000))],
            Self::And => vec![
                word(fastrand::u64(20..500)),
                word(fastrand::u64(500..1_000)),
            ],
            Self::Phrase => Self::phrase(fastrand::u64(..documents)),
            Self::Prefix => vec![prefix(fastrand::u64(350..2_100))],
        }
    }

    /// The words of one query that is always the same, and finds few.
    pub(crate) fn fixed(self) -> Vec<String> {
        match self {
            Self::Term => vec![word(1_300)],
            Self::And => vec![word(50), word(100)],
            Self::Phrase => Self::phrase(7),
            Self::Prefix => vec![prefix(2_000)],
        }
    }

    fn phrase(number: u64) -> Vec<String> {
        let mut words = words(number);
        words.drain(2..4).collect()
    }

    /// In Lucene's syntax, for a field `text`.
    pub(crate) fn in_lucene(self, words: &[String]) -> String {
        match self {
            Self::Term => format!("text:{}", words[0]),
            Self::And => format!("text:{} AND text:{}", words[0], words[1]),
            Self::Phrase => format!("text:\"{}\"", words.join(" ")),
            Self::Prefix => format!("text:{}*", words[0]),
        }
    }

    /// As PostgreSQL's `to_tsquery` reads it.
    pub(crate) fn in_postgres(self, words: &[String]) -> String {
        match self {
            Self::Term => words[0].clone(),
            Self::And => words.join(" & "),
            Self::Phrase => words.join(" <-> "),
            Self::Prefix => format!("{}:*", words[0]),
        }
    }

    /// As FTS5 of SQLite reads it.
    pub(crate) fn in_fts5(self, words: &[String]) -> String {
        match self {
            Self::Term => words[0].clone(),
            Self::And => words.join(" AND "),
            Self::Phrase => format!("\"{}\"", words.join(" ")),
            Self::Prefix => format!("{}*", words[0]),
        }
    }
}

/// A word that no text has.
pub(crate) fn unheard_of() -> String {
    let mut word = String::from("x");
    // Writing to a String cannot fail.
    let _ = write!(word, "{:016x}", fastrand::u64(..));
    word
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn words_differ_and_are_letters() {
        let all: HashSet<String> = (0..WORDS).map(word).collect();
        assert_eq!(all.len() as u64, WORDS);
        assert!(
            all.iter()
                .all(|word| word.len() >= 4 && word.bytes().all(|b| b.is_ascii_lowercase()))
        );
    }

    #[test]
    fn a_text_is_the_same_each_time_and_of_many_words() {
        assert_eq!(text(17), text(17));
        assert_ne!(text(17), text(18));
        let count = text(17).split(' ').count();
        assert!((20..=60).contains(&count), "{count}");
    }

    #[test]
    fn frequent_words_are_frequent() {
        let texts: Vec<Vec<String>> = (0..20_000).map(words).collect();
        let having = |word: &String| texts.iter().filter(|text| text.contains(word)).count();
        let counts = [0, 10, 100, 1_000].map(|rank| having(&word(rank)));
        assert!(
            counts.is_sorted_by(|a, b| a > b) && counts[0] > 15_000 && counts[3] > 20,
            "{counts:?}"
        );
    }

    #[test]
    fn what_is_fixed_is_found_in_few_of_few_texts() {
        // Those of a run at a scale of 0.002.
        let texts: Vec<Vec<String>> = (0..400).map(words).collect();
        for wanted in SearchKind::ALL {
            let fixed = wanted.fixed();
            let finds = |text: &&Vec<String>| match wanted {
                SearchKind::Term | SearchKind::And => fixed.iter().all(|word| text.contains(word)),
                SearchKind::Phrase => text.windows(2).any(|pair| pair == fixed),
                SearchKind::Prefix => text.iter().any(|word| word.starts_with(&fixed[0])),
            };
            let hits = texts.iter().filter(finds).count();
            assert!((1..=20).contains(&hits), "{wanted:?}: {hits}");
        }
    }

    #[test]
    fn a_prefix_is_that_of_many_words() {
        for rank in (350..2_100).step_by(175) {
            let prefix = prefix(rank);
            let words = (0..WORDS).filter(|&rank| word(rank).starts_with(&prefix));
            assert!(words.count() >= 20, "{prefix}");
        }
    }
}
