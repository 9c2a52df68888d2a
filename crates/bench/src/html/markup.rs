//! Text, tables and figures as HTML.

use std::time::{Duration, UNIX_EPOCH};

use crate::numbers::short;

/// The columns of a comparison.
pub(super) const LETTERS: [&str; 2] = ["A", "B"];

/// Text as it may stand in HTML, between tags and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Seconds since 1970 as a date and a time.
pub(super) fn date(seconds: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn tagged<'a>(tag: &str, cells: impl Iterator<Item = &'a str>) -> String {
    cells.map(|cell| format!("<{tag}>{cell}</{tag}>")).collect()
}

/// A table; the cells are HTML.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let rows: String = rows
        .iter()
        .map(|row| {
            let cells = tagged("td", row.iter().map(String::as_str));
            format!("<tr>{cells}</tr>")
        })
        .collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>{rows}</tbody></table></div>",
        tagged("th", header.iter().copied())
    )
}

pub(super) fn figure(caption: &str, svg: &str) -> String {
    format!(
        "<figure><figcaption>{}</figcaption>{svg}</figure>",
        escape(caption)
    )
}

/// How much of a ceiling is used, in percent.
pub(super) fn percent(value: f64, ceiling: f64) -> String {
    let share = value / ceiling * 100.0;
    if share > 999.0 {
        "over 999 %".to_owned()
    } else if share.is_finite() {
        format!("{} %", short(share))
    } else {
        "–".to_owned()
    }
}
