//! Values of other servers that a job keeps: seqs, and short texts. A server may send anything.

use serde_json::Value;

use super::json_limits;

/// Longest seq, in bytes of JSON. Those of CouchDB have some hundred bytes up to a few KB, and must
/// fit into the URL of a request.
pub const SEQ_BYTES_MAX: usize = 16 << 10;
/// Maximum number of values in a seq: BigCouch's are lists of a number and a string.
const SEQ_VALUES_MAX: usize = 64;
/// Longest revision id, or time of a database's creation, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 10;
/// Longest reason of a failure, in characters.
const REASON_CHARS_MAX: usize = 500;

/// Parses a seq.
///
/// # Errors
/// It is too long, has too many values, or is not JSON.
pub fn parse_seq(text: &[u8]) -> Result<Value, String> {
    check_seq_length(text.len())?;
    json_limits::parse(text, SEQ_VALUES_MAX).map_err(|e| format!("a seq is not understood: {e}"))
}

/// Checks the length of a seq's JSON, in bytes.
///
/// # Errors
/// It is too long.
pub fn check_seq_length(bytes: usize) -> Result<(), String> {
    match bytes > SEQ_BYTES_MAX {
        true => Err(format!("a seq is longer than {SEQ_BYTES_MAX} bytes")),
        false => Ok(()),
    }
}

/// Checks a seq that was parsed with other values.
///
/// # Errors
/// Those of [`parse_seq`].
pub fn check_seq(seq: &Value) -> Result<(), String> {
    match seq {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => check_seq_length(text.len()),
        other => parse_seq(other.to_string().as_bytes()).map(drop),
    }
}

/// Returns a text that a job may keep: `None` if it is too long.
pub fn short_text(text: &str) -> Option<String> {
    (text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
}

/// Cuts the reason of a failure, which may quote what a server has sent.
pub fn cut_reason(reason: String) -> String {
    match reason.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => reason[..end].to_owned(),
        None => reason,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn seqs_of_all_servers_are_accepted_and_no_others() {
        let couchdb = format!("1234-{}", "g1AAAACbeJzLYWBgYM".repeat(300));
        for seq in [
            json!(5),
            json!("5"),
            json!(couchdb),
            json!([5, couchdb]),
            json!(null),
        ] {
            assert_eq!(check_seq(&seq), Ok(()));
            assert_eq!(parse_seq(seq.to_string().as_bytes()), Ok(seq));
        }
        let many = json!(vec![[0]; SEQ_VALUES_MAX]);
        for seq in [json!("x".repeat(SEQ_BYTES_MAX + 1)), many] {
            assert!(check_seq(&seq).is_err());
            assert!(parse_seq(seq.to_string().as_bytes()).is_err());
        }
    }

    #[test]
    fn texts_that_are_kept_are_short() {
        assert_eq!(short_text("0-12"), Some("0-12".to_owned()));
        assert_eq!(short_text(&"x".repeat(TEXT_BYTES_MAX + 1)), None);
        let long = cut_reason("é".repeat(REASON_CHARS_MAX + 1));
        assert_eq!(long.chars().count(), REASON_CHARS_MAX);
        assert_eq!(cut_reason("é".to_owned()), "é");
    }
}
