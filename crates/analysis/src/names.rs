//! The tokenizer and the filters of an analyzer's name, as in the analyzers of Lucene 4.6.1 and
//! 9.12.1.

use crate::analyzer::{Chain, Flavour};
use crate::filter::{Filter, Words};
use crate::stem::{Algorithm, Stemmer};
use crate::stop;
use crate::tokenizer::Tokenizer;

/// The analyzer of words with their prefixes, which CouchDB does not have.
pub(crate) const EDGE_NGRAM: &str = "edge_ngram";

/// The names that both searches know.
pub(crate) const NAMES: [&str; 40] = [
    "arabic",
    "armenian",
    "basque",
    "bulgarian",
    "catalan",
    "chinese",
    "cjk",
    "classic",
    "czech",
    "danish",
    "dutch",
    EDGE_NGRAM,
    "email",
    "english",
    "finnish",
    "french",
    "galician",
    "german",
    "hindi",
    "hungarian",
    "indonesian",
    "irish",
    "italian",
    "japanese",
    "keyword",
    "latvian",
    "norwegian",
    "persian",
    "polish",
    "portuguese",
    "romanian",
    "russian",
    "simple",
    "simple_asciifolding",
    "spanish",
    "standard",
    "swedish",
    "thai",
    "turkish",
    "whitespace",
];

/// Analyzers of Clouseau alone, besides `perfield`.
pub(crate) const CLOUSEAU_NAMES: [&str; 2] = ["brazilian", "greek"];

/// Returns the chain of `name`; `stop_words` replaces the language's own.
pub(crate) fn chain(flavour: Flavour, name: &str, stop_words: Option<Words>) -> Option<Chain> {
    let name = match (flavour, name) {
        // Nouveau's spelling; the right one is taken as well.
        (Flavour::Nouveau, "portugese") => "portuguese",
        (Flavour::Nouveau, name) if CLOUSEAU_NAMES.contains(&name) => return None,
        (_, name) => name,
    };
    match name {
        "keyword" => Some(Chain::new(Tokenizer::Keyword, vec![])),
        "whitespace" => Some(Chain::new(Tokenizer::Whitespace, vec![])),
        "simple" => {
            Some(Chain::new(Tokenizer::Letter, vec![Filter::Lower]).normalized(vec![Filter::Lower]))
        }
        "simple_asciifolding" => {
            let filters = vec![Filter::Lower, Filter::AsciiFolding];
            Some(Chain::new(Tokenizer::Letter, filters.clone()).normalized(filters))
        }
        "standard" | "classic" | "email" | EDGE_NGRAM => Some(general(flavour, name, stop_words)),
        "cjk" | "chinese" | "japanese" => Some(east_asian(flavour, name, stop_words)),
        _ => language(flavour, name, stop_words),
    }
}

fn general(flavour: Flavour, name: &str, stop_words: Option<Words>) -> Chain {
    let stop_words = stop_words.unwrap_or_else(|| match (flavour, name) {
        (Flavour::Nouveau, "standard") | (_, EDGE_NGRAM) => stop::words([]),
        _ => stop::list("en"),
    });
    let (tokenizer, mut filters) = match name {
        "classic" => (Tokenizer::Classic, vec![Filter::Classic]),
        "email" => (Tokenizer::Email(flavour), vec![]),
        _ => (Tokenizer::Standard(flavour), vec![]),
    };
    filters.extend([Filter::Lower, Filter::Stop(stop_words)]);
    Chain::new(tokenizer, filters).normalized(vec![Filter::Lower])
}

/// Chinese and Japanese have dictionaries in Lucene; here they are cut into pairs, as `cjk` is.
fn east_asian(flavour: Flavour, name: &str, stop_words: Option<Words>) -> Chain {
    let stop_words = stop_words.unwrap_or_else(|| {
        if name == "cjk" {
            stop::list("cjk")
        } else {
            stop::words([])
        }
    });
    let width = vec![Filter::CjkWidth, Filter::Lower];
    Chain::new(Tokenizer::Standard(flavour), width.clone())
        .in_pairs(vec![Filter::Stop(stop_words)])
        .normalized(width)
}

/// The steps before the stop words, those after them, and those of query terms with wildcards.
struct Steps {
    before: Vec<Filter>,
    after: Vec<Filter>,
}

fn steps(before: impl Into<Vec<Filter>>, after: impl Into<Vec<Filter>>) -> Steps {
    Steps {
        before: before.into(),
        after: after.into(),
    }
}

fn lower_then(stemmer: Stemmer) -> Steps {
    steps([Filter::Lower], [Filter::Stem(stemmer)])
}

fn snowball(algorithm: Algorithm) -> Steps {
    lower_then(Stemmer::Snowball(algorithm))
}

const FRENCH_ARTICLES: [&str; 13] = [
    "l", "m", "t", "qu", "n", "s", "j", "d", "c", "jusqu", "quoiqu", "lorsqu", "puisqu",
];

const ITALIAN_ARTICLES: [&str; 21] = [
    "c", "l", "all", "dall", "dell", "nell", "sull", "coll", "pell", "gl", "agl", "dagl", "degl",
    "negl", "sugl", "un", "m", "t", "s", "v", "d",
];

fn elision(articles: &[&str]) -> Filter {
    Filter::Elision(stop::words(articles.iter().copied()))
}

#[expect(clippy::too_many_lines, reason = "a table of languages")]
fn language(flavour: Flavour, name: &str, stop_words: Option<Words>) -> Option<Chain> {
    let is_new = flavour == Flavour::Nouveau;
    let digits = || is_new.then_some(Filter::DecimalDigits);
    let old_snowball = |algorithm| {
        if is_new {
            Stemmer::Snowball(algorithm)
        } else {
            Stemmer::OldSnowball(algorithm)
        }
    };
    let lower_and_digits = || {
        [Filter::Lower]
            .into_iter()
            .chain(digits())
            .collect::<Vec<_>>()
    };
    let (list, Steps { before, after }) = match name {
        "arabic" => (
            "ar",
            steps(
                lower_and_digits(),
                [Filter::ArabicNormalization, Filter::Stem(Stemmer::Arabic)],
            ),
        ),
        "armenian" => ("hy", snowball(Algorithm::Armenian)),
        "basque" => ("eu", snowball(Algorithm::Basque)),
        "brazilian" => ("br", lower_then(Stemmer::Brazilian)),
        "bulgarian" => ("bg", lower_then(Stemmer::Bulgarian)),
        "catalan" => {
            let before = [elision(&["d", "l", "m", "n", "s", "t"]), Filter::Lower];
            (
                "ca",
                steps(
                    before,
                    [Filter::Stem(Stemmer::Snowball(Algorithm::Catalan))],
                ),
            )
        }
        "czech" => ("cz", lower_then(Stemmer::Czech)),
        "danish" => ("da", snowball(Algorithm::Danish)),
        "dutch" => ("nl", lower_then(Stemmer::Dutch)),
        "english" => (
            "en",
            steps(
                [Filter::EnglishPossessive, Filter::Lower],
                [Filter::Stem(Stemmer::Porter)],
            ),
        ),
        "finnish" => ("fi", snowball(Algorithm::Finnish)),
        "french" => (
            "fr",
            steps(
                [elision(&FRENCH_ARTICLES), Filter::Lower],
                [Filter::Stem(Stemmer::French)],
            ),
        ),
        "galician" => ("gl", lower_then(Stemmer::Galician)),
        "german" => (
            "de",
            steps(
                [Filter::Lower],
                [Filter::GermanNormalization, Filter::Stem(Stemmer::German)],
            ),
        ),
        "greek" => (
            "el",
            steps([Filter::GreekLower], [Filter::Stem(Stemmer::Greek)]),
        ),
        "hindi" => {
            let mut before = lower_and_digits();
            before.extend([Filter::IndicNormalization, Filter::HindiNormalization]);
            ("hi", steps(before, [Filter::Stem(Stemmer::Hindi)]))
        }
        "hungarian" => ("hu", lower_then(old_snowball(Algorithm::Hungarian))),
        "indonesian" => ("id", lower_then(Stemmer::Indonesian)),
        "irish" => {
            let hyphenated = Filter::StopAnyCase(stop::words(["h", "n", "t"]));
            let before = [hyphenated, elision(&["d", "m", "b"]), Filter::IrishLower];
            (
                "ga",
                steps(before, [Filter::Stem(Stemmer::Snowball(Algorithm::Irish))]),
            )
        }
        "italian" => (
            "it",
            steps(
                [elision(&ITALIAN_ARTICLES), Filter::Lower],
                [Filter::Stem(Stemmer::Italian)],
            ),
        ),
        "latvian" => ("lv", lower_then(Stemmer::Latvian)),
        "norwegian" => ("no", snowball(Algorithm::Norwegian)),
        "persian" => {
            let mut before = lower_and_digits();
            before.extend([Filter::ArabicNormalization, Filter::PersianNormalization]);
            ("fa", steps(before, []))
        }
        "polish" => ("pl", snowball(Algorithm::Polish)),
        "portuguese" => ("pt", lower_then(Stemmer::Portuguese)),
        "romanian" => match flavour {
            Flavour::Clouseau => ("ro", lower_then(Stemmer::OldSnowball(Algorithm::Romanian))),
            // As in Lucene 10, which writes the comma for the older cedilla.
            Flavour::Nouveau => {
                let before = [Filter::Lower, Filter::RomanianNormalization];
                let stemmer = Stemmer::Snowball(Algorithm::Romanian);
                ("ro10", steps(before, [Filter::Stem(stemmer)]))
            }
        },
        "russian" => ("ru", lower_then(old_snowball(Algorithm::Russian))),
        "spanish" => ("es", lower_then(Stemmer::Spanish)),
        "swedish" => ("sv", snowball(Algorithm::Swedish)),
        "thai" => ("th", steps(lower_and_digits(), [])),
        "turkish" => {
            let apostrophe = is_new.then_some(Filter::Apostrophe);
            let before: Vec<_> = apostrophe
                .into_iter()
                .chain([Filter::TurkishLower])
                .collect();
            (
                "tr",
                steps(before, [Filter::Stem(old_snowball(Algorithm::Turkish))]),
            )
        }
        _ => return None,
    };
    let list = match (flavour, list) {
        (Flavour::Clouseau, "fi") => "fi46",
        (Flavour::Clouseau, "fr") => "fr46",
        (Flavour::Clouseau, "ga") => "ga46",
        (_, list) => list,
    };
    let normalized = before
        .iter()
        .chain(&after)
        .filter(|filter| is_normalizing(filter))
        .cloned()
        .collect();
    let mut filters = before;
    filters.push(Filter::Stop(stop_words.unwrap_or_else(|| stop::list(list))));
    filters.extend(after);
    let tokenizer = match name {
        "persian" => Tokenizer::Persian(flavour),
        "thai" => Tokenizer::Thai(flavour),
        _ => Tokenizer::Standard(flavour),
    };
    Some(Chain::new(tokenizer, filters).normalized(normalized))
}

/// Returns whether Lucene 9 has the filter in its `normalize`, too.
fn is_normalizing(filter: &Filter) -> bool {
    !matches!(
        filter,
        Filter::Stop(_)
            | Filter::StopAnyCase(_)
            | Filter::Stem(_)
            | Filter::EnglishPossessive
            | Filter::Apostrophe
            | Filter::Classic
    )
}
