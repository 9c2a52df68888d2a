//! What a query may cost at most, before it is run.

/// Limits on selectors; the configuration has them in `[mango]`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Levels of conditions in a selector (`max_selector_depth`).
    pub selector_depth_max: usize,
    /// Operators and field names in a selector (`max_selector_conditions`).
    pub selector_conditions_max: usize,
    /// Regular expressions in a selector (`max_selector_regexes`).
    pub regexes_max: usize,
    /// Memory of one compiled regular expression (`max_regex_size`), in bytes.
    pub regex_bytes_max: usize,
}

impl Limits {
    /// Of selectors that are stored: whoever was allowed to write one is allowed to use it, within reason.
    pub const OF_INDEXES: Limits = Limits {
        selector_depth_max: DEPTH_MAX,
        selector_conditions_max: 1_000_000,
        regexes_max: 10_000,
        regex_bytes_max: 16 << 20,
    };
}

/// Selectors are read by recursion, so that no setting may allow more levels than the stack does.
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
