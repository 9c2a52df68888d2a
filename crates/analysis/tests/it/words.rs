//! Texts are cut into the words that Lucene cuts them into. Differences are listed here and in the
//! manual (`docs/src/reference/search-analyzers.md`).

use crate::common;

use analysis::{Analyzer, FieldAnalyzers, Flavour, Token};
use common::{Differences, recorded};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Romanian letters of which Lucene 9 knows only those with cedillas, and Lucene 10 both.
const COMMAS: [char; 4] = ['Ș', 'ș', 'Ț', 'ț'];

/// Returns a word of Lucene 9 as Lucene 10 writes it.
fn with_commas(word: &str) -> String {
    word.replace('ş', "ș").replace('ţ', "ț")
}

/// Recorded texts, word by word where both have as many, else as one.
fn compare(flavour: Flavour, file: &str, named: &[(&str, usize)]) {
    let mut differences = Differences::default();
    let mut analyzers = HashMap::new();
    for line in recorded(file) {
        let (name, text) = (
            line["analyzer"].as_str().unwrap().to_owned(),
            line["text"].as_str().unwrap(),
        );
        let analyzer = analyzers
            .entry(name.clone())
            .or_insert_with(|| Analyzer::named(flavour, &name).unwrap());
        let ours: Vec<Value> = analyzer
            .tokens(text)
            .into_iter()
            .map(|t| json!([t.text, t.position, t.start, t.end]))
            .collect();
        let mut theirs = line["tokens"].as_array().unwrap().clone();
        if flavour == Flavour::Nouveau && name == "romanian" {
            if text.contains(COMMAS) {
                continue;
            }
            for token in &mut theirs {
                token[0] = json!(with_commas(token[0].as_str().unwrap()));
            }
        }
        if ours.len() == theirs.len() {
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let of = |token: &Value| {
                    text.get(
                        token[2].as_u64().unwrap() as usize..token[3].as_u64().unwrap() as usize,
                    )
                    .map(str::to_owned)
                };
                differences.compare(&name, ours == theirs, || {
                    format!("{:?}: {ours} instead of {theirs}", of(theirs))
                });
            }
        } else {
            differences.compare(&name, false, || {
                format!(
                    "{text:?}:\n      {}\n      instead of\n      {}",
                    json!(ours),
                    json!(theirs)
                )
            });
        }
    }
    differences.check(named);
}

#[test]
fn words_are_those_of_lucene_4() {
    compare(
        Flavour::Clouseau,
        "words-lucene4",
        &[
            ("finnish", 1),
            ("norwegian", 3),
            ("swedish", 2),
            ("thai", 4),
        ],
    );
}

#[test]
fn words_are_those_of_lucene_9() {
    compare(
        Flavour::Nouveau,
        "words-lucene9",
        &[("norwegian", 1), ("swedish", 2), ("thai", 4)],
    );
}

/// Recorded from Nouveau on Lucene 10.4.
#[test]
fn words_of_romanian_are_those_of_lucene_10() {
    let words = |flavour, text: &str| -> Vec<String> {
        let analyzer = Analyzer::named(flavour, "romanian").unwrap();
        let tokens = analyzer.tokens(text).into_iter();
        tokens.map(|token| token.text.to_string()).collect()
    };
    for text in [
        "Cărțile sunt pe mesele și scaunele noastre",
        // With cedillas.
        "Cărţile sunt pe mesele şi scaunele noastre",
    ] {
        assert_eq!(words(Flavour::Nouveau, text), ["cărț", "mes", "scaun"]);
    }
    let cedilla = words(Flavour::Clouseau, "cărţile și scaunele");
    assert_eq!(cedilla, ["cărţ", "și", "scaun"]);
}

#[test]
fn terms_are_normalized_as_in_lucene_9() {
    let mut differences = Differences::default();
    for line in recorded("normalized-lucene9") {
        let (name, text) = (
            line["analyzer"].as_str().unwrap(),
            line["text"].as_str().unwrap(),
        );
        let ours = Analyzer::named(Flavour::Nouveau, name)
            .unwrap()
            .normalize(text);
        let theirs = line["normalized"].as_str().unwrap();
        let theirs = match name {
            "romanian" => with_commas(theirs),
            _ => theirs.to_owned(),
        };
        differences.compare(name, ours == theirs, || {
            format!("{text:?}: {ours:?} instead of {theirs}")
        });
    }
    differences.check(&[]);
}

#[test]
fn stop_words_of_a_definition_replace_those_of_the_language() {
    let definition = json!({"name": "english", "stopwords": ["fox"]});
    let analyzer = Analyzer::parse(Flavour::Clouseau, &definition).unwrap();
    let words: Vec<_> = analyzer
        .tokens("the fox runs")
        .into_iter()
        .map(|token| (token.text, token.position))
        .collect();
    assert_eq!(words, [("the".to_owned(), 0), ("run".to_owned(), 2)]);
}

#[test]
fn both_spellings_of_portuguese_are_taken() {
    for name in ["portugese", "portuguese"] {
        assert_eq!(
            Analyzer::named(Flavour::Nouveau, name)
                .unwrap()
                .tokens("canções")[0]
                .text,
            "canca"
        );
    }
    assert!(Analyzer::named(Flavour::Clouseau, "portugese").is_err());
}

#[test]
fn all_names_are_known() {
    for (flavour, count) in [(Flavour::Clouseau, 42), (Flavour::Nouveau, 41)] {
        let names = Analyzer::names(flavour);
        assert_eq!(names.len(), count);
        for name in names {
            assert!(Analyzer::named(flavour, name).is_ok(), "{name}");
        }
    }
    let error = Analyzer::named(Flavour::Nouveau, "klingon").unwrap_err();
    assert_eq!(error.to_string(), "klingon is not a valid analyzer name");
}

#[test]
fn beginnings_of_words_are_indexed_and_whole_words_looked_for() {
    let grams = json!({"name": "edge_ngram", "min_gram": 2, "max_gram": 4});
    for flavour in [Flavour::Clouseau, Flavour::Nouveau] {
        let analyzer = Analyzer::parse(flavour, &grams).unwrap();
        let of = |tokens: Vec<Token>| -> Vec<_> {
            let of = |token: Token| (token.text, token.position, token.start, token.end);
            tokens.into_iter().map(of).collect()
        };
        let expected = [
            ("a", 0, 0, 1),
            ("fö", 1, 2, 10),
            ("föx", 1, 2, 10),
            ("föxe", 1, 2, 10),
            ("föxesß", 1, 2, 10),
            ("to", 2, 11, 13),
        ]
        .map(|(text, position, start, end)| (text.to_owned(), position, start, end));
        assert_eq!(of(analyzer.tokens("A Föxesß to")), expected);
        let words = [0, 4, 5].map(|n| expected[n].clone());
        let of_query = analyzer.query_tokens("A Föxesß to", usize::MAX, &|| true);
        assert_eq!(of(of_query.unwrap()), words);
        assert_eq!(analyzer.normalize("Föx"), "föx");
    }
    let plain = Analyzer::named(Flavour::Nouveau, "edge_ngram").unwrap();
    let long = "ab".repeat(30);
    let texts: Vec<_> = plain.tokens(&long).into_iter().map(|t| t.text).collect();
    let begins = (1..=20).map(|n| long[..n].to_owned());
    assert_eq!(texts, begins.chain([long.clone()]).collect::<Vec<_>>());
}

#[test]
fn lengths_of_beginnings_that_are_none_are_refused() {
    for options in [
        json!({"min_gram": 0}),
        json!({"min_gram": 21}),
        json!({"min_gram": 3, "max_gram": 2}),
        json!({"max_gram": 51}),
        json!({"max_gram": 1.5}),
        json!({"max_gram": "3"}),
        json!({"min_gram": null}),
        json!({"max_gram": -1}),
    ] {
        let mut definition = options.clone();
        definition["name"] = "edge_ngram".into();
        let error = Analyzer::parse(Flavour::Nouveau, &definition).unwrap_err();
        assert!(
            error.to_string().contains("from 1 to 50"),
            "{options}: {error}"
        );
        let within = json!({"name": "perfield", "default": definition});
        let within = FieldAnalyzers::parse(Flavour::Clouseau, Some(&within));
        assert_eq!(within.unwrap_err(), error);
        let of_field = json!({"name": "perfield", "fields": {"a": definition}});
        let of_field = FieldAnalyzers::parse(Flavour::Clouseau, Some(&of_field));
        assert_eq!(of_field.unwrap_err(), error);
    }
}
