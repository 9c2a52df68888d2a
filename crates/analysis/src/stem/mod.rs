//! Words without their endings, language by language. Where Lucene uses a stemmer of the Snowball project, so does this.

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

fn snowball(algorithm: Algorithm, word: &mut String) {
    let stemmed = snowball_stemmers_rs::Stemmer::create(algorithm).stem(word);
    if stemmed != *word {
        *word = stemmed.into_owned();
    }
}
