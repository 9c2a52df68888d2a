//! Texts are cut into the words that Lucene cuts them into. What differs is named here and in the manual
//! (`docs/src/reference/search-analyzers.md`).

mod common;

use analysis::{Analyzer, Flavour};
use common::{Differences, recorded};
use serde_json::{Value, json};
use std::collections::HashMap;

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
        let theirs = line["tokens"].as_array().unwrap();
        if ours.len() == theirs.len() {
            for (ours, theirs) in ours.iter().zip(theirs) {
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
    compare(Flavour::Clouseau, "words-lucene4", &[]);
}

#[test]
fn words_are_those_of_lucene_9() {
    compare(Flavour::Nouveau, "words-lucene9", &[]);
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
        differences.compare(name, ours == line["normalized"].as_str().unwrap(), || {
            format!("{text:?}: {ours:?} instead of {}", line["normalized"])
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
    for (flavour, count) in [(Flavour::Clouseau, 41), (Flavour::Nouveau, 40)] {
        let names = Analyzer::names(flavour);
        assert_eq!(names.len(), count);
        for name in names {
            assert!(Analyzer::named(flavour, name).is_ok(), "{name}");
        }
    }
    let error = Analyzer::named(Flavour::Nouveau, "klingon").unwrap_err();
    assert_eq!(error.to_string(), "klingon is not a valid analyzer name");
}
