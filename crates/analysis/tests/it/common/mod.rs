//! Reads Lucene's recorded results for texts and queries; `tests/oracle/record.py` recorded them.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
pub fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}

/// The lines of a recorded file.
pub fn recorded(name: &str) -> Vec<Value> {
    let path = format!("tests/data/{name}.jsonl.gz");
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Differences from Lucene, for each analyzer, of how many words or queries.
#[derive(Default)]
pub struct Differences {
    counts: BTreeMap<String, (usize, usize)>,
    shown: BTreeMap<String, Vec<String>>,
}

impl Differences {
    /// Counts one comparison.
    pub fn compare(&mut self, of: &str, is_same: bool, show: impl FnOnce() -> String) {
        let (different, all) = self.counts.entry(of.to_owned()).or_default();
        *all += 1;
        if !is_same {
            *different += 1;
            let shown = self.shown.entry(of.to_owned()).or_default();
            if shown.len() < 12 {
                shown.push(show());
            }
        }
    }

    /// Panics unless exactly those differ that are named, each with how many may.
    pub fn check(&self, named: &[(&str, usize)]) {
        let mut problems = Vec::new();
        for (of, (different, all)) in &self.counts {
            let allowed = named
                .iter()
                .find(|(name, _)| name == of)
                .map_or(0, |(_, allowed)| *allowed);
            if *different != allowed {
                let shown = self
                    .shown
                    .get(of)
                    .map_or(String::new(), |shown| shown.join("\n    "));
                problems.push(format!(
                    "{of}: {different} of {all} differ, {allowed} are known to\n    {shown}"
                ));
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
