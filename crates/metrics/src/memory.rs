//! Parts of the server's memory.

use serde_json::{Value, json};

/// A part of the server's memory.
pub struct MemoryPart {
    /// Its name in metrics.
    pub name: &'static str,
    /// Limit, current and largest use, in bytes.
    pub budget: u64,
    /// See `budget`.
    pub used: u64,
    /// See `budget`.
    pub peak: Option<u64>,
}

impl MemoryPart {
    /// As a member of a JSON object.
    pub fn to_member(&self) -> (String, Value) {
        let mut value = json!({"budget": self.budget, "used": self.used});
        if let Some(peak) = self.peak {
            value["peak"] = peak.into();
        }
        (self.name.to_owned(), value)
    }
}
