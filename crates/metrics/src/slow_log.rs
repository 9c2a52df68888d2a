//! The output of the slow log: one line for each slow request.

use std::io::Write;

use serde_json::Value;

/// Returns a line as text. JSON escapes ASCII's control characters; this escapes the others, and
/// Unicode's line separators and direction overrides.
fn text(line: &Value) -> String {
    let is_unsafe = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let text = line.to_string();
    if !text.contains(is_unsafe) {
        return text;
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_unsafe(c) {
            true => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => safe.push(c),
        }
    }
    safe
}

/// Where the lines go.
pub type Writer = Box<dyn Write + Send>;

/// Writes a line to the slow log, or to the log.
pub fn write(to: Option<&mut Writer>, line: &Value) {
    let line = text(line);
    let Some(to) = to else {
        tracing::warn!(target: "slow", "{line}");
        return;
    };
    let written = to.write_all(format!("{line}\n").as_bytes());
    if let Err(e) = written.and_then(|()| to.flush()) {
        tracing::error!(error = %e, "the slow log cannot be written");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_one_whatever_names_say() {
        let evil = "a\n\u{85}\u{2028}\u{202e}\u{7f}b";
        let line = json!({"user": evil});
        let text = text(&line);
        assert!(text.chars().all(|c| matches!(c, ' '..='~')), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), line);
    }
}
