//! Limits of the cost of a query, before it runs.

/// Limits on selectors, from `[mango]` in the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum depth of conditions (`max_selector_depth`).
    pub selector_depth_max: usize,
    /// Maximum number of operators and field names (`max_selector_conditions`).
    pub selector_conditions_max: usize,
    /// Maximum number of regular expressions (`max_selector_regexes`).
    pub regexes_max: usize,
    /// Maximum memory of one automaton of a regular expression (`max_regex_size`), in bytes. An
    /// expression has two or three.
    pub regex_bytes_max: usize,
    /// Maximum memory of all compiled regular expressions of a selector together, in bytes.
    pub regexes_bytes_max: usize,
}

/// Memory of all compiled regular expressions of a selector, at most, in bytes.
const REGEXES_BYTES_MAX: usize = 32 << 20;
/// Memory of one automaton of a regular expression, at most, in bytes.
const REGEX_BYTES_MAX: usize = 384 << 10;
/// A selector may always have one expression of the maximum size.
const AUTOMATA_MAX: usize = 8;

impl Limits {
    /// Limits of stored selectors: a user who was allowed to write one is allowed to use it, within
    /// reason. Their expressions are compiled for every user, so that the setting does not count.
    pub const OF_INDEXES: Limits = Limits {
        selector_depth_max: DEPTH_MAX,
        selector_conditions_max: 100_000,
        regexes_max: 1_000,
        regex_bytes_max: REGEX_BYTES_MAX,
        regexes_bytes_max: REGEXES_BYTES_MAX,
    };

    /// Returns the maximum memory of all expressions of a selector if one automaton may have at most
    /// `regex_bytes_max`, in bytes.
    #[must_use]
    pub fn regexes_bytes_max_of(regex_bytes_max: usize) -> usize {
        REGEXES_BYTES_MAX.max(AUTOMATA_MAX.saturating_mul(regex_bytes_max))
    }

    /// Returns the lower one of each limit.
    #[must_use]
    pub fn and(self, other: Limits) -> Limits {
        Limits {
            selector_depth_max: self.selector_depth_max.min(other.selector_depth_max),
            selector_conditions_max: self
                .selector_conditions_max
                .min(other.selector_conditions_max),
            regexes_max: self.regexes_max.min(other.regexes_max),
            regex_bytes_max: self.regex_bytes_max.min(other.regex_bytes_max),
            regexes_bytes_max: self.regexes_bytes_max.min(other.regexes_bytes_max),
        }
    }
}

/// Maximum depth, whatever the setting: selectors are parsed by recursion, and the stack is
/// limited.
pub const DEPTH_MAX: usize = 256;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            selector_depth_max: 64,
            selector_conditions_max: 10_000,
            regexes_max: 64,
            regex_bytes_max: REGEX_BYTES_MAX,
            regexes_bytes_max: REGEXES_BYTES_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::{Selector, SelectorError};

    #[test]
    fn a_selector_takes_memory_for_all_that_it_is_parsed_into() {
        let bytes = |selector: Value| Selector::parse(&selector).unwrap().memory_bytes();
        assert!(bytes(json!({"a": 1})) < 4 << 10);
        // Each condition repeats the name above.
        let below: Map<String, Value> = (0..1_000).map(|n| (n.to_string(), json!(1))).collect();
        let long = "x".repeat(1_000);
        assert!(bytes(json!({&long: below.clone()})) > 3_000_000);
        assert!(bytes(Value::Object(below)) > 1_000_000);
        let regexes = |count: usize| {
            let regex = |n: usize| json!({"a": {"$regex": format!("(?:a{{1000}}){{9}}b{n}")}});
            json!({"$or": (0..count).map(regex).collect::<Vec<_>>()})
        };
        assert!(bytes(regexes(10)) > 4_000_000);
        let most = Limits::default().regexes_bytes_max;
        let refused = Selector::parse(&regexes(Limits::default().regexes_max)).err();
        assert_eq!(refused, Some(SelectorError::LargeRegexes(most)));
        // One expression that the limit allows is never too large.
        let large = Limits {
            regex_bytes_max: 16 << 20,
            regexes_bytes_max: Limits::regexes_bytes_max_of(16 << 20),
            ..Limits::default()
        };
        let one = json!({"a": {"$regex": "(?:a{1000}){400}"}});
        assert!(Selector::parse_within(&one, &large).is_ok());
        let stored = Selector::parse_within(&one, &large.and(Limits::OF_INDEXES));
        assert!(matches!(stored, Err(SelectorError::BadRegex { .. })));
    }
}
