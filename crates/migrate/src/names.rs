//! Which databases are meant.

/// Databases of CouchDB's own that are not copied: the target keeps its own.
const OWN: [&str; 5] = ["_global_changes", "_metadata", "_nodes", "_dbs", "_cassim"];

/// The user's choice of databases.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Patterns; all databases when empty.
    pub only: Vec<String>,
    pub except: Vec<String>,
}

impl Choice {
    /// Returns whether a database is copied.
    pub fn includes(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|p| matches(p, name));
        !OWN.contains(&name) && (self.only.is_empty() || any(&self.only)) && !any(&self.except)
    }

    pub fn is_all(&self) -> bool {
        self.only.is_empty() && self.except.is_empty()
    }
}

/// Returns whether the documents of a database start replications.
pub fn is_replicator(name: &str) -> bool {
    name == "_replicator" || name.ends_with("/_replicator")
}

/// Returns whether a name matches a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        // The first place that fits leaves most room for what follows.
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "a"),
            ("a*c", "abbc"),
            ("*/_replicator", "x/_replicator"),
            ("a*b*c", "a-b-b-c"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a", "ab"),
            ("a*c", "ab"),
            ("a*a", "a"),
            ("*b*b", "b"),
            ("", "x"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_excepted_is_not_copied_even_if_it_is_asked_for() {
        let choice = Choice {
            only: vec!["log-*".into(), "_users".into()],
            except: vec!["log-old*".into()],
        };
        let names = ["log-a", "log-old-1", "_users", "other", "_global_changes"];
        let kept: Vec<_> = names.into_iter().filter(|n| choice.includes(n)).collect();
        assert_eq!(kept, ["log-a", "_users"]);
        assert!(!Choice::default().includes("_global_changes"));
    }
}
