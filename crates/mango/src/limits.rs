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
    /// Maximum memory of one compiled regular expression (`max_regex_size`), in bytes.
    pub regex_bytes_max: usize,
}

impl Limits {
    /// Limits of stored selectors: a user who was allowed to write one is allowed to use it, within
    /// reason.
    pub const OF_INDEXES: Limits = Limits {
        selector_depth_max: DEPTH_MAX,
        selector_conditions_max: 100_000,
        regexes_max: 1_000,
        regex_bytes_max: 16 << 20,
    };
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
            regex_bytes_max: 384 << 10,
        }
    }
}
