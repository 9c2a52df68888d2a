//! Words without their endings, language by language. Where Lucene uses a stemmer of the Snowball
//! project, so does this.

mod asian;
mod brazilian;
mod galician;
mod german;
mod greek;
mod porter;
mod romance;
mod slavic;
mod word;

pub(crate) use snowball_stemmers_rs::Algorithm;

use word::Word;

/// Which stemmer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stemmer {
    Arabic,
    Brazilian,
    Bulgarian,
    Czech,
    /// Snowball's, but for four words.
    Dutch,
    French,
    Galician,
    German,
    Greek,
    Hindi,
    Indonesian,
    Italian,
    Latvian,
    /// English: Porter's first algorithm.
    Porter,
    Portuguese,
    Snowball(Algorithm),
    /// Snowball's as it was in Lucene 4.6: other letters are known to it.
    OldSnowball(Algorithm),
    Spanish,
}

/// Dutch words that Lucene does not leave to its stemmer.
const DUTCH: [(&str, &str); 4] = [
    ("fiets", "fiets"),
    ("bromfiets", "bromfiets"),
    ("ei", "eier"),
    ("kind", "kinder"),
];

impl Stemmer {
    /// Removes the endings of `word`, which is in lower case.
    pub(crate) fn stem(self, word: &mut String) {
        match self {
            Self::Porter => porter::stem(word),
            Self::Brazilian => brazilian::stem(word),
            Self::Dutch => match DUTCH.iter().find(|(dutch, _)| dutch == word) {
                Some((_, stem)) => *word = (*stem).to_owned(),
                None => snowball(Algorithm::DutchPorter, word),
            },
            Self::Snowball(algorithm) => snowball(algorithm, word),
            Self::OldSnowball(algorithm) => {
                exchange(word, old_letters(algorithm));
                snowball(algorithm, word);
                if algorithm == Algorithm::Romanian {
                    // Today's stemmer puts the comma for the cedilla.
                    *word = word.replace('ș', "ş").replace('ț', "ţ");
                }
                exchange(word, old_letters(algorithm));
            }
            Self::Arabic => Word::change(word, asian::arabic),
            Self::Bulgarian => Word::change(word, slavic::bulgarian),
            Self::Czech => Word::change(word, slavic::czech),
            Self::French => Word::change(word, romance::french),
            Self::Galician => Word::change(word, galician::stem),
            Self::German => Word::change(word, german::light),
            Self::Greek => Word::change(word, greek::stem),
            Self::Hindi => Word::change(word, asian::hindi),
            Self::Indonesian => Word::change(word, asian::indonesian),
            Self::Italian => Word::change(word, romance::italian),
            Self::Latvian => Word::change(word, slavic::latvian),
            Self::Portuguese => Word::change(word, romance::portuguese),
            Self::Spanish => Word::change(word, romance::spanish),
        }
    }
}

/// Letters that change places around today's stemmer, so that it does what the old one did:
/// Hungarian's was written for an encoding without `ő` and `ű`, Romanian's knows the cedilla only,
/// Russian's no `ё`, and Turkish's no apostrophe. The other letter of the last pairs stands in no
/// word.
fn old_letters(algorithm: Algorithm) -> &'static [(char, char)] {
    match algorithm {
        Algorithm::Hungarian => &[('ő', 'õ'), ('ű', 'û')],
        Algorithm::Romanian => &[('ș', '\u{1}'), ('ț', '\u{2}')],
        Algorithm::Russian => &[('ё', '\u{1}')],
        Algorithm::Turkish => &[('\'', '\u{1}')],
        _ => &[],
    }
}

fn exchange(word: &mut String, letters: &[(char, char)]) {
    if letters.is_empty() {
        return;
    }
    let other = |letter: char| {
        let pair = letters
            .iter()
            .find(|(one, other)| letter == *one || letter == *other);
        pair.map_or(
            letter,
            |(one, other)| if letter == *one { *other } else { *one },
        )
    };
    *word = word.chars().map(other).collect();
}

fn snowball(algorithm: Algorithm, word: &mut String) {
    let stemmed = snowball_stemmers_rs::Stemmer::create(algorithm).stem(word);
    if stemmed != *word {
        *word = stemmed.into_owned();
    }
}
