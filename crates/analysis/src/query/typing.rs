//! Query texts that are still being written.

/// Operators of the query language, which are not words.
const OPERATORS: [&str; 4] = ["AND", "OR", "NOT", "TO"];

/// Returns the query text with its last word also matched as a prefix, if it may continue: `red fo`
/// is `red (fo OR fo*)`. A text that does not end in a word, as in a phrase, a range or a pattern,
/// stays as it is.
#[must_use]
pub fn as_you_type(text: &str) -> String {
    let before = text.trim_end_matches(char::is_alphanumeric);
    let word = &text[before.len()..];
    let may_begin = |c: char| c.is_whitespace() || matches!(c, '(' | ':' | '+' | '-' | '!');
    let begins = before.chars().next_back().is_none_or(may_begin);
    if word.is_empty() || !begins || OPERATORS.contains(&word) || is_within(before) {
        return text.to_owned();
    }
    format!("{before}({word} OR {word}*)")
}

/// Returns whether a text ends within a phrase, a regular expression or a range.
fn is_within(text: &str) -> bool {
    let mut open = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (open, c) {
            (_, '\\') => {
                chars.next();
            }
            (None, '"' | '/') => open = Some(c),
            (None, '[' | '{') => open = Some(']'),
            (Some('"'), '"') | (Some('/'), '/') | (Some(']'), ']' | '}') => open = None,
            _ => {}
        }
    }
    open.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_may_go_on() {
        for (text, asked) in [
            ("f", "(f OR f*)"),
            ("red fo", "red (fo OR fo*)"),
            ("+red +fo", "+red +(fo OR fo*)"),
            ("title:fo", "title:(fo OR fo*)"),
            ("red AND (dog OR Fö", "red AND (dog OR (Fö OR Fö*)"),
            ("\"red fox\" do", "\"red fox\" (do OR do*)"),
            ("[a TO b] do", "[a TO b] (do OR do*)"),
            ("say \\\" do", "say \\\" (do OR do*)"),
            ("/a[b]/ do", "/a[b]/ (do OR do*)"),
            ("東京", "(東京 OR 東京*)"),
        ] {
            assert_eq!(as_you_type(text), asked);
        }
    }

    #[test]
    fn what_is_no_word_or_has_ended_stays_as_it_is() {
        for text in [
            "",
            "red ",
            "red fo*",
            "red fo~",
            "fo~1",
            "fox^2",
            "\"red fo",
            "[a TO b",
            "/re",
            "red AND",
            "NOT",
            "red\\fo",
            "a?b",
            "(red)",
            "red.fo",
            "\"red fox\"",
        ] {
            assert_eq!(as_you_type(text), text);
        }
    }
}
