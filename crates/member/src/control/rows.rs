//! Rows of the control slot.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A row of the slot: key and new value, or its removal.
pub type Row = (Vec<u8>, Option<Vec<u8>>);

/// Returns a value as JSON text.
pub(super) fn text(value: &impl Serialize) -> Vec<u8> {
    // Strings and numbers always serialise.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reads a value from JSON text.
pub(super) fn json<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}
