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

    /// Returns the first pattern of `only` that matches none of the names: a typing error.
    pub fn unmatched(&self, names: &[&str]) -> Option<&str> {
        let matched = |pattern: &str| {
            let mut names = names.iter();
            names.any(|name| !OWN.contains(name) && matches(pattern, name))
        };
        let mut patterns = self.only.iter().map(String::as_str);
        patterns.find(|pattern| !matched(pattern))
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
    fn each_pattern_matches_a_name() {
        let unmatched = |only: &[&str]| {
            let only = only.iter().map(|&pattern| pattern.to_owned()).collect();
            let except = vec!["shop".to_owned()];
            let choice = Choice { only, except };
            let names = ["shop", "log-a", "_users", "_global_changes"];
            choice.unmatched(&names).map(str::to_owned)
        };
        assert_eq!(unmatched(&[]), None);
        assert_eq!(unmatched(&["log-*", "_users", "shop"]), None);
        assert_eq!(unmatched(&["shop", "shpo"]).as_deref(), Some("shpo"));
        assert_eq!(unmatched(&["logs-*"]).as_deref(), Some("logs-*"));
        let own = unmatched(&["_global_changes"]);
        assert_eq!(own.as_deref(), Some("_global_changes"));
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
