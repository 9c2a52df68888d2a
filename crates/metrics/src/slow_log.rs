//! The output of the slow log: one line for each slow request, of which the last ones are kept.

use std::collections::VecDeque;
use std::io::Write;

use serde_json::Value;

/// Returns a line as text. JSON escapes ASCII's control characters; this escapes the others, and
/// Unicode's line separators and direction overrides.
pub(crate) fn text(line: &Value) -> String {
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

/// The number of lines that are kept; each has a few KiB.
const KEPT_MAX: usize = 100;

/// The last lines.
#[derive(Default)]
pub(crate) struct RecentLines(VecDeque<String>);

impl RecentLines {
    /// Appends a line, in place of the earliest one if there are enough.
    pub(crate) fn add(&mut self, line: String) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    /// Returns the lines, the latest first.
    pub(crate) fn latest_first(&self) -> Vec<String> {
        self.0.iter().rev().cloned().collect()
    }
}

/// Writes a line to the slow log, or to the log.
pub(crate) fn write(to: Option<&mut Writer>, line: &str) {
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
    fn the_last_lines_are_kept() {
        let mut recent = RecentLines::default();
        for number in 0..KEPT_MAX + 5 {
            recent.add(number.to_string());
        }
        let lines = recent.latest_first();
        assert_eq!((lines.len(), lines[0].as_str()), (KEPT_MAX, "104"));
        assert_eq!(lines.last().map(String::as_str), Some("5"));
    }

    #[test]
    fn a_line_is_one_whatever_names_say() {
        let evil = "a\n\u{85}\u{2028}\u{202e}\u{7f}b";
        let line = json!({"user": evil});
        let text = text(&line);
        assert!(text.chars().all(|c| matches!(c, ' '..='~')), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), line);
    }
}
