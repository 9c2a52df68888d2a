//! The findings of checks.

use serde_json::{Value, json};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know; nothing has to be done.
    Note,
    /// An administrator should act.
    Warning,
    /// Something does not work, or will soon not.
    Error,
}

impl Severity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Something that is wrong. It names databases, documents and fields, and holds neither values nor passwords.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The subject of the problem: a database, a view, a user, the server.
    pub subject: String,
    /// A sentence with the evidence.
    pub says: String,
    /// The numbers of it.
    pub evidence: Value,
    /// Suggested actions: commands and settings, with a comment after `#`.
    pub act: Vec<String>,
}

impl Finding {
    /// A finding about a subject.
    pub fn new(severity: Severity, subject: impl Into<String>, says: impl Into<String>) -> Finding {
        Finding {
            severity,
            subject: subject.into(),
            says: says.into(),
            evidence: json!({}),
            act: vec![],
        }
    }

    /// The numbers that show it.
    pub fn evidence(mut self, numbers: Value) -> Finding {
        self.evidence = numbers;
        self
    }

    /// Adds a command, or a setting, that fixes the problem.
    pub fn act(mut self, command: impl Into<String>) -> Finding {
        // Names may contain line breaks, followed by a command of an attacker.
        let command = command.into();
        self.act.push(command.replace(char::is_control, "\u{fffd}"));
        self
    }
}

/// The server's URL with an admin's name and password, in commands.
const SERVER: &str = "$S";

/// A curl command with a path of segments that are encoded here.
pub fn curl(method: &str, segments: &[&str], body: Option<&Value>) -> String {
    let path: String = segments
        .iter()
        .map(|s| format!("/{}", encoded(s)))
        .collect();
    match body {
        None if method == "GET" => format!("curl \"{SERVER}{path}\""),
        None => format!("curl -X {method} \"{SERVER}{path}\" -H 'Content-Type: application/json'"),
        Some(body) => format!(
            "curl -X {method} \"{SERVER}{path}\" -H 'Content-Type: application/json' -d {}",
            quoted(&body.to_string())
        ),
    }
}

/// A curl command that changes a setting of the running server and keeps it in `local.ini`.
pub fn set(section: &str, key: &str, value: &str) -> String {
    curl(
        "PUT",
        &["_node", "_local", "_config", section, key],
        Some(&value.into()),
    )
}

/// Encodes a segment of a path. That of a design document keeps its slash.
fn encoded(segment: &str) -> String {
    if let Some(name) = segment.strip_prefix("_design/") {
        return format!("_design/{}", encoded(name));
    }
    if matches!(segment, "." | "..") {
        // Clients take these for the way up, which would name something else.
        return segment.replace('.', "%2E");
    }
    let mut out = String::new();
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte.into())
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A word of a shell's command.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A number of things, as `1 file` or `2 files`: one of the things lacks the final `s`.
pub fn counted<N: std::fmt::Display>(number: N, things: &str) -> String {
    let number = number.to_string();
    let things = match number.as_str() {
        "1" => things.strip_suffix('s').unwrap_or(things),
        _ => things,
    };
    format!("{number} {things}")
}

/// Bytes as people read them.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut size, mut unit) = (n as f64, 0);
    while size >= 1024.0 && unit < UNITS.len() - 1 {
        size /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => counted(n, "bytes"),
        _ => format!("{size:.1} {}", UNITS[unit]),
    }
}

/// A share in percent, rounded; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> u64 {
    let (part, whole) = (u128::from(part), u128::from(whole));
    (part * 100 + whole / 2).checked_div(whole).unwrap_or(0) as u64
}

/// `n / of`, with one digit when it is less than 10.
pub fn times(n: u64, of: u64) -> String {
    let ratio = n as f64 / of.max(1) as f64;
    match ratio < 10.0 {
        true => format!("{ratio:.1}"),
        false => format!("{ratio:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_several() {
        let of = |n: u64| counted(n, "deleted documents");
        let all = [0, 1, 2].map(of);
        let expected = [
            "0 deleted documents",
            "1 deleted document",
            "2 deleted documents",
        ];
        assert_eq!(all, expected);
        assert_eq!((bytes(1), bytes(11)), ("1 byte".into(), "11 bytes".into()));
    }

    #[test]
    fn commands_survive_a_shell_and_odd_names() {
        let body = json!({"index": {"fields": ["it's"]}});
        assert_eq!(
            curl("POST", &["a/b", "_index"], Some(&body)),
            r#"curl -X POST "$S/a%2Fb/_index" -H 'Content-Type: application/json' -d '{"index":{"fields":["it'\''s"]}}'"#
        );
        assert_eq!(
            curl("GET", &["db", "_design/a$b"], None),
            r#"curl "$S/db/_design/a%24b""#
        );
    }

    #[test]
    fn numbers_are_rounded_for_people() {
        assert_eq!(
            (bytes(1023), bytes(1536)),
            ("1023 bytes".to_owned(), "1.5 KiB".to_owned())
        );
        assert_eq!((percent(1, 3), percent(2, 3), percent(1, 0)), (33, 67, 0));
    }

    #[test]
    fn names_lead_nowhere_else() {
        let up = curl("DELETE", &["db", "_design/.."], None);
        assert!(up.contains("/db/_design/%2E%2E\""), "{up}");
        let finding = Finding::new(Severity::Note, "a view", "says");
        let finding = finding.act("# take x\nrm -rf /\u{1b}[2J out of it");
        assert!(
            !finding.act[0].contains(char::is_control),
            "{:?}",
            finding.act
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
