//! Queries are read as Lucene reads them: compared by its `toString`, or both refuse them.

use crate::common;

use analysis::query::{FieldType, ParseOptions, parse};
use analysis::{FieldAnalyzers, Flavour};
use common::{Differences, recorded};
use serde_json::json;

fn compare(flavour: Flavour, file: &str, named: &[(&str, usize)]) {
    let mut differences = Differences::default();
    for line in recorded(file) {
        let (name, text) = (
            line["analyzer"].as_str().unwrap(),
            line["text"].as_str().unwrap(),
        );
        // Here, ids are always keywords.
        if text == "_id:a" {
            continue;
        }
        let (analyzer, locale) = name
            .split_once('@')
            .map_or((name, None), |(analyzer, locale)| (analyzer, Some(locale)));
        let analyzers = FieldAnalyzers::parse(flavour, Some(&json!(analyzer))).unwrap();
        let field_type = |field: &str| matches!(field, "n" | "m").then_some(FieldType::Number);
        let options = ParseOptions {
            flavour,
            analyzers: &analyzers,
            field_type: &field_type,
            locale,
            go_on: &|| true,
        };
        let ours = parse(text, &options)
            .map(|query| query.to_lucene_string(flavour))
            .map_err(|error| error.to_string());
        let is_same = match (&ours, line["query"].as_str()) {
            // An open end of a range is neither inclusive nor exclusive here.
            (Ok(ours), Some(theirs)) => *ours == theirs.replace("{* TO *}", "[* TO *]"),
            (Err(_), None) => true,
            _ => false,
        };
        differences.compare(analyzer, is_same, || {
            format!("{text:?}: {ours:?} instead of {line}")
        });
    }
    differences.check(named);
}

#[test]
fn queries_are_read_as_lucene_4_reads_them() {
    compare(Flavour::Clouseau, "queries-lucene4", &[]);
}

#[test]
fn queries_are_read_as_lucene_9_reads_them() {
    compare(Flavour::Nouveau, "queries-lucene9", &[]);
}
