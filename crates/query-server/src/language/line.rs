//! Text of users' code, as one line of a log.

/// Escapes everything that could end a line, or that a terminal could interpret.
pub fn one_line(text: &str) -> String {
    let unsafe_char = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => line.push(c),
            c if unsafe_char(c) => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_is_one_line() {
        let forged = "said\n2026 ERROR \u{1b}[31m\r\u{2028}\u{2029}\u{85}\0 caf\u{e9}\t.";
        assert_eq!(
            one_line(forged),
            "said\\n2026 ERROR \\u{1b}[31m\\r\\u{2028}\\u{2029}\\u{85}\\u{0} caf\u{e9}\t."
        );
    }
}
