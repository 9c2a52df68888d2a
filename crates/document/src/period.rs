//! Periods, as CouchDB writes them in settings and in `_auto_purge`: `30_days`.

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// Reads a number, `_` and a unit, in seconds; `None` for anything else. A month has 30 days, a
/// year 365. A period that is too long for 64 bits is the longest one.
///
/// ```
/// assert_eq!(document::period_s("2_weeks"), Some(2 * 7 * 24 * 3600));
/// assert_eq!(document::period_s("2 weeks"), None);
/// ```
pub fn period_s(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once('_')?;
    let unit_s = match unit {
        "s" | "sec" | "second" | "seconds" => 1,
        "min" | "minute" | "minutes" => MINUTE_S,
        "h" | "hrs" | "hour" | "hours" => HOUR_S,
        "d" | "day" | "days" => DAY_S,
        "w" | "week" | "weeks" => 7 * DAY_S,
        "mon" | "month" | "months" => 30 * DAY_S,
        "y" | "year" | "years" => 365 * DAY_S,
        _ => return None,
    };
    let digits = number.strip_prefix('+').unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().unwrap_or(u64::MAX);
    (number > 0).then(|| number.saturating_mul(unit_s))
}
