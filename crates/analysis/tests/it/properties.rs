//! No text breaks an analyzer or a parser, and none keeps them busy.

use analysis::query::{Error, FieldType, ParseOptions, parse};
use analysis::{Analyzer, FieldAnalyzers, Flavour};
use proptest::prelude::*;
use std::sync::LazyLock;

use crate::common::rounds;

static ALL: LazyLock<Vec<(Flavour, &str, Analyzer)>> = LazyLock::new(|| {
    let of = |flavour| {
        Analyzer::names(flavour)
            .into_iter()
            .map(move |name| (flavour, name, Analyzer::named(flavour, name).unwrap()))
    };
    of(Flavour::Clouseau).chain(of(Flavour::Nouveau)).collect()
});

/// Texts of letters and signs that are significant to some analyzer.
fn odd_text() -> impl Strategy<Value = String> {
    let letters: Vec<char> = "abesxyz'’-_.,:;@/&#1٣ äßéıİIΣςжйאבג\"دةيकि्क़ไทย漢字ひカｶﾞ한글ー\u{301}\u{307}\u{200c}\u{200d}\u{ad}😀👍🏽🇩🇪\u{20e3}\u{fe0f}𝐀\u{20000}\n"
        .chars()
        .collect();
    prop_oneof![
        prop::collection::vec(prop::sample::select(letters), 0..60).prop_map(String::from_iter),
        any::<String>()
    ]
}

fn check_tokens(name: &str, analyzer: &Analyzer, text: &str) -> Result<(), TestCaseError> {
    let mut last = None;
    for token in analyzer.tokens(text) {
        let (start, end) = (token.start as usize, token.end as usize);
        prop_assert!(start <= end, "{name}: {token:?}");
        prop_assert!(
            text.get(start..end).is_some(),
            "{name}: {token:?} of {text:?}"
        );
        prop_assert!(
            last.is_none_or(|last| last < token.position + u32::from(name == "edge_ngram")),
            "{name}: {token:?} of {text:?}"
        );
        last = Some(token.position);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn offsets_lie_between_characters_and_positions_rise(text in odd_text()) {
        for (_, name, analyzer) in ALL.iter() {
            check_tokens(name, analyzer, &text)?;
        }
    }

    #[test]
    fn normalizing_never_fails(text in odd_text()) {
        for (.., analyzer) in ALL.iter() {
            let _ = analyzer.normalize(&text);
        }
    }

    #[test]
    fn any_text_is_a_query_or_refused(text in prop_oneof![odd_text(), r#"[a-z0-9 +!&|()\[\]{}^"~*?:/\\<>=@-]{0,40}"#]) {
        for flavour in [Flavour::Clouseau, Flavour::Nouveau] {
            let analyzers = FieldAnalyzers::parse(flavour, None).unwrap();
            let field_type = |field: &str| (field == "n").then_some(FieldType::Number);
            let options = ParseOptions { field_type: &field_type, ..ParseOptions::new(flavour, &analyzers) };
            match parse(&text, &options) {
                Ok(query) => prop_assert!(query.to_lucene_string(flavour).len() < 100 + 40 * text.len()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

/// Long texts that look ahead far, back far, or have no end; each would take minutes if work were
/// not linear.
#[test]
fn long_texts_of_anything_are_cut_at_once() {
    let bytes = rounds(20_000, 50_000);
    let long = |part: &str| part.repeat(bytes / part.len() + 1);
    for part in [
        "x",
        "_",
        "a_",
        "_a",
        "a'",
        "1.",
        "a.",
        "\u{301}",
        "a\u{301}",
        "漢",
        "ｶﾞ",
        "ไ",
        "@a.",
        "a@",
        "http://",
        "a-",
        "😀\u{200d}",
        "ß",
        "'",
        "ae",
        "क्",
        "\u{200c}",
        "\"a",
        "\"a\".",
        "a.\"b\".",
        ".\"a\"",
        "\".\"",
        "y",
        "1_,",
        "abcdefghijklmnopqrst ",
    ] {
        let text = long(part);
        for (_, name, analyzer) in ALL.iter() {
            let mut count = 0_usize;
            analyzer.visit(&text, &mut |token| count += token.text.len());
            // A word of 20 letters has beginnings of 210.
            let times = if *name == "edge_ngram" { 11 } else { 4 };
            assert!(count <= times * text.len(), "{name} {part}");
        }
    }
}

/// The `keyword` analyzer does not read the text.
#[test]
fn reading_a_long_text_can_be_stopped() {
    let text = "qvx ".repeat(100_000);
    for (_, name, analyzer) in ALL.iter().filter(|(_, name, _)| *name != "keyword") {
        let checks = std::cell::Cell::new(0);
        let go_on = || {
            checks.set(checks.get() + 1);
            checks.get() < 3
        };
        let mut end = 0;
        let is_all = analyzer.visit_while(&text, &go_on, &mut |token| end = token.end as usize);
        assert!(!is_all, "{name}");
        assert_eq!(checks.get(), 3, "{name} continues after the last check");
        assert!((1..text.len() / 2).contains(&end), "{name} {end}");
    }
}

#[test]
fn parsing_a_long_query_can_be_stopped() {
    let text = format!("\"{}\"", "ab ".repeat(100_000));
    for flavour in [Flavour::Clouseau, Flavour::Nouveau] {
        let analyzers = FieldAnalyzers::parse(flavour, None).unwrap();
        let options = ParseOptions {
            go_on: &|| false,
            ..ParseOptions::new(flavour, &analyzers)
        };
        assert!(matches!(parse(&text, &options), Err(Error::Stopped)));
        assert!(parse("ab", &options).is_ok(), "short texts are not checked");
    }
}

#[test]
fn a_megabyte_of_query_is_read_or_refused_at_once() {
    let analyzers = [Flavour::Clouseau, Flavour::Nouveau]
        .map(|flavour| (flavour, FieldAnalyzers::parse(flavour, None).unwrap()));
    for part in [
        "x ",
        "(",
        "\"",
        "\\",
        "/",
        "/\\",
        "+",
        "[a",
        "[a TO b] ",
        "~",
        "^2",
        "a:",
        "fn:or(",
        "fn:",
        "AND ",
        "(a ",
        "\\u",
        "x AND ",
        "-(",
        "{ ",
        "[\"\\",
    ] {
        let text = part.repeat(1_000_000 / part.len());
        for (flavour, analyzers) in &analyzers {
            let _ = parse(&text, &ParseOptions::new(*flavour, analyzers));
        }
    }
}
