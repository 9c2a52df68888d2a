//! Galician: rules for plurals, adverbs, diminutives, nouns, verbs and vowels, one step after the
//! other.

use super::word::Word;
use std::collections::HashMap;
use std::sync::LazyLock;

struct Rule {
    ending: &'static str,
    least: usize,
    replacement: &'static str,
    exceptions: Vec<&'static str>,
}

struct Step {
    least: usize,
    exceptions_are_words: bool,
    endings: Vec<&'static str>,
    rules: Vec<Rule>,
}

static STEPS: LazyLock<HashMap<&'static str, Step>> = LazyLock::new(|| {
    let mut steps = HashMap::new();
    let mut last = "";
    for line in include_str!("galician.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let mut words = line.trim_matches(['[', ']']).split(' ');
        let mut next = || words.next().unwrap_or_default();
        let first = next();
        let least: usize = next()
            .parse()
            .expect("a rule has the least length of its stem");
        if line.starts_with('[') {
            let exceptions_are_words = next() == "1";
            last = first;
            steps.insert(
                last,
                Step {
                    least,
                    exceptions_are_words,
                    endings: words.collect(),
                    rules: Vec::new(),
                },
            );
        } else {
            let replacement = next().trim_start_matches('-');
            let step = steps.get_mut(last).expect("rules belong to a step");
            step.rules.push(Rule {
                ending: first,
                least,
                replacement,
                exceptions: words.collect(),
            });
        }
    }
    for step in steps.values_mut().filter(|step| step.least == 0) {
        step.least = step
            .rules
            .iter()
            .map(|rule| rule.least + rule.ending.chars().count())
            .min()
            .unwrap_or(0);
    }
    steps
});

/// Applies the first rule of a step that fits; whether the length changed.
fn apply(step: &str, word: &mut Word) -> bool {
    let step = &STEPS[step];
    let len = word.len();
    if len < step.least || (!step.endings.is_empty() && !word.ends_in(&step.endings)) {
        return false;
    }
    let fits = |rule: &&Rule| {
        len >= rule.ending.chars().count() + rule.least
            && word.ends(rule.ending)
            && !(if step.exceptions_are_words {
                word.is_in(&rule.exceptions)
            } else {
                word.ends_in(&rule.exceptions)
            })
    };
    if let Some(rule) = step.rules.iter().find(fits) {
        word.cut(rule.ending.chars().count());
        word.restore(rule.replacement.chars().count());
        word.write_end(rule.replacement);
    }
    word.len() != len
}

pub(super) fn stem(word: &mut Word) {
    for step in ["Plural", "Unification", "Adverb"] {
        apply(step, word);
    }
    while apply("Augmentative", word) {}
    if !apply("Noun", word) {
        apply("Verb", word);
    }
    apply("Vowel", word);
    word.map(|letter| match letter {
        'á' => 'a',
        'é' | 'ê' => 'e',
        'í' => 'i',
        'ó' => 'o',
        'ú' => 'u',
        other => other,
    });
}
