//! When a document expires.

use chrono::DateTime;

/// 9999-12-31T23:59:59Z. A number beyond is not one of seconds: milliseconds, for instance.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// The time when a document expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiryTime {
    /// Nothing.
    Never,
    /// At this time, in seconds since 1970. Fractions are rounded up, and earlier times are 0.
    At(u64),
    /// Something that is not a time.
    Invalid,
}

impl ExpiryTime {
    /// Reads the member of a document's body: an RFC 3339 time, or seconds since 1970.
    pub fn of(body: &[u8], member: &str) -> ExpiryTime {
        let Some(text) = document::json::member(body, member) else {
            return ExpiryTime::Never;
        };
        let time = match text.first() {
            Some(b'"') => of_text(text),
            Some(b'-' | b'0'..=b'9') => of_number(text),
            _ => None,
        };
        time.map_or(ExpiryTime::Invalid, ExpiryTime::At)
    }
}

fn of_text(json: &[u8]) -> Option<u64> {
    let text: String = serde_json::from_slice(json).ok()?;
    let time = DateTime::parse_from_rfc3339(&text).ok()?;
    let has_fraction = time.timestamp_subsec_nanos() > 0;
    let seconds = time.timestamp() + i64::from(has_fraction);
    Some(u64::try_from(seconds).unwrap_or(0))
}

fn of_number(json: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(json).ok()?;
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        // Converts numbers below 0 to 0, and those beyond 64 bits to the greatest.
        Err(_) => text.parse::<f64>().ok()?.ceil() as u64,
    };
    (seconds <= UNIX_S_MAX).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> ExpiryTime {
        let body = format!(r#"{{"a":{{"t":1}},"t":{value},"z":"2026"}}"#);
        ExpiryTime::of(body.as_bytes(), "t")
    }

    #[test]
    fn times_are_texts_with_an_offset_or_seconds() {
        for (value, expected) in [
            ("0", 0),
            ("1767225600", 1_767_225_600),
            ("1767225600.0", 1_767_225_600),
            ("1767225600.25", 1_767_225_601),
            ("1.7672256e9", 1_767_225_600),
            ("-5", 0),
            ("-0.0", 0),
            ("253402300799", UNIX_S_MAX),
            (r#""2026-01-01T00:00:00Z""#, 1_767_225_600),
            (r#""2026-01-01T00:00:00.001Z""#, 1_767_225_601),
            (r#""2026-01-01T02:00:00+02:00""#, 1_767_225_600),
            (r#""2025-12-31T19:00:00.000-05:00""#, 1_767_225_600),
            (r#""9999-12-31T23:59:59Z""#, UNIX_S_MAX),
            (r#""1969-12-31T23:59:59Z""#, 0),
        ] {
            assert_eq!(of(value), ExpiryTime::At(expected), "{value}");
        }
    }

    #[test]
    fn other_values_are_invalid() {
        for value in [
            "null",
            "true",
            "[]",
            "[1767225600]",
            "{}",
            r#""""#,
            r#""soon""#,
            r#""1767225600""#,
            r#""2026-01-01""#,
            r#""2026-01-01T00:00:00""#,
            r#""2026-02-30T00:00:00Z""#,
            r#""2026-01-01T24:00:00Z""#,
            "1767225600000",
            "253402300800",
            "253402300799.5",
            "1e300",
            "99999999999999999999999999",
        ] {
            assert_eq!(of(value), ExpiryTime::Invalid, "{value}");
        }
    }

    #[test]
    fn only_a_member_at_the_top_counts() {
        for body in ["{}", r#"{"a":{"t":1}}"#, r#"{"T":1}"#] {
            assert_eq!(ExpiryTime::of(body.as_bytes(), "t"), ExpiryTime::Never);
        }
        let body = r#"{"a.b":5,"a":{"b":6}}"#;
        assert_eq!(ExpiryTime::of(body.as_bytes(), "a.b"), ExpiryTime::At(5));
    }
}
