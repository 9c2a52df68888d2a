//! Times to live, as CouchDB writes them.

use std::fmt;

use document::period_s;
use serde::{Deserialize, Serialize};

/// How long deleted documents are kept, as an administrator wrote it: `30_days`, or `infinity`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ttl {
    text: String,
    /// `None`: for ever.
    seconds: Option<u64>,
}

impl Ttl {
    /// Reads `NUMBER_UNIT`, as CouchDB does, or `infinity`; `None` for anything else. A month has 30 days, a year 365.
    pub fn parse(text: &str) -> Option<Ttl> {
        let seconds = match text {
            "infinity" => None,
            period => Some(period_s(period)?),
        };
        Some(Ttl {
            text: text.to_owned(),
            seconds,
        })
    }

    /// In seconds; `None` for ever.
    pub fn seconds(&self) -> Option<u64> {
        self.seconds
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Ttl> for String {
    fn from(ttl: Ttl) -> String {
        ttl.text
    }
}

impl TryFrom<String> for Ttl {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Ttl, &'static str> {
        Ttl::parse(&text).ok_or("a time to live is a number, _ and a unit, or infinity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: u64 = 3600;
    const DAY_S: u64 = 24 * HOUR_S;

    #[test]
    fn times_to_live_are_read_as_couchdb_reads_them() {
        let seconds = |text| Ttl::parse(text).map(|ttl| ttl.seconds());
        for (text, expected) in [
            ("1_s", 1),
            ("2_sec", 2),
            ("5_min", 300),
            ("3_hrs", 3 * HOUR_S),
            ("+1_day", DAY_S),
            ("2_w", 14 * DAY_S),
            ("1_mon", 30 * DAY_S),
            ("01_years", 365 * DAY_S),
            ("99999999999999999999_y", u64::MAX),
        ] {
            assert_eq!(seconds(text), Some(Some(expected)), "{text}");
        }
        assert_eq!(seconds("infinity"), Some(None));
        for text in [
            "",
            "1",
            "1_",
            "_day",
            "0_s",
            "00_s",
            "-1_day",
            "1.5_days",
            "1 day",
            " 1_day",
            "1_day ",
            "1__day",
            "1_Day",
            "1_m",
            "1_ms",
            "1_day_2_hours",
            "monday",
            "Infinity",
            "++1_day",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_to_live_is_stored_as_it_was_written() {
        let ttl: Ttl = serde_json::from_str(r#""+1_day""#).unwrap();
        assert_eq!(serde_json::to_string(&ttl).unwrap(), r#""+1_day""#);
        assert!(serde_json::from_str::<Ttl>(r#""soon""#).is_err());
    }
}
