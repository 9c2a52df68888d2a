//! Times as text, in the form of `since`.

use chrono::{DateTime, NaiveDateTime, SecondsFormat};

use crate::Error;

/// The form of a time in `since`: with seconds, in UTC. As in CouchDB, other forms of RFC 3339 are not accepted.
const FORMAT: &str = "%Y-%m-%dT%H:%M:%SZ";

/// Writes a time in seconds since 1970.
pub(crate) fn time_text(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok();
    let time = time.and_then(|time| DateTime::from_timestamp(time, 0));
    time.unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Reads a `since` that is a time, in seconds since 1970; `None` for other values.
///
/// # Errors
/// [`Error::BadRequest`] for a time that does not exist.
pub(crate) fn time_of(since: &str) -> Option<Result<u64, Error>> {
    let bytes = since.as_bytes();
    let has_form = bytes.len() == 20
        && [
            (4, b'-'),
            (7, b'-'),
            (10, b'T'),
            (13, b':'),
            (16, b':'),
            (19, b'Z'),
        ]
        .iter()
        .all(|(at, separator)| bytes[*at] == *separator);
    has_form.then(|| {
        let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
        let time = NaiveDateTime::parse_from_str(since, FORMAT).ok();
        let time = time.filter(|_| digits == 14);
        let time = time.ok_or_else(|| Error::BadRequest("invalid_time_format".into()))?;
        Ok(u64::try_from(time.and_utc().timestamp()).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_seqs() {
        let time = |since| time_of(since).map(Result::ok);
        assert_eq!(time("1970-01-01T00:00:00Z"), Some(Some(0)));
        assert_eq!(time("2025-08-01T00:00:00Z"), Some(Some(1_754_006_400)));
        assert_eq!(time("1969-12-31T23:59:59Z"), Some(Some(0)));
        assert_eq!(time("9999-12-31T23:59:59Z"), Some(Some(253_402_300_799)));
        for bad in [
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "xxxx-xx-xxTxx:xx:xxZ",
            "+026-01-01T00:00:00Z",
            "2026- 1- 1T 0: 0: 0Z",
        ] {
            assert_eq!(time(bad), Some(None), "{bad}");
        }
        for other in [
            "",
            "0",
            "3-AAAAAAAD",
            "2026-11-28",
            "2026-11-28T13:00:00z",
            "2026-11-28T13:00:00.5Z",
            "\"2026-11-28T13:00:00Z\"",
            "2026-11-28 13:00:00Z",
        ] {
            assert_eq!(time(other), None, "{other}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for time in ["1970-01-01T00:00:00Z", "2026-11-28T12:00:00Z"] {
            let unix_s = time_of(time).and_then(Result::ok);
            assert_eq!(unix_s.map(time_text).as_deref(), Some(time));
        }
    }
}
