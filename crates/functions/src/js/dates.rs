//! Reads dates as SpiderMonkey, CouchDB's engine, does: in the forms of ISO 8601, and in others like
//! `2011/12/25`, `Dec 25, 1995 10:00 PM` and `25 Dec 1995 13:30 +0430`.
//!
//! The words and numbers of the other forms may stand in any order. A number is what its neighbours
//! and the numbers before it leave for it. The answers were compared with those of SpiderMonkey 78
//! and 102 for random texts. They differ for texts in which SpiderMonkey reads a negative year
//! (`Jan 1 -2000`): here these are no dates.

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// The last time of JavaScript, in milliseconds from 1970 in both directions.
const TIME_MAX_MS: i64 = 8_640_000_000_000_000;
/// Larger numbers count as this one: no date has them.
const NUMBER_MAX: i64 = 1_000_000;
/// The last year of ISO 8601.
const YEAR_MAX: i64 = 275_943;

/// A time in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// In UTC.
    Utc(i64),
    /// In the time zone of dates: of the same date and time of day in UTC.
    Local(i64),
}

/// Returns the time of a text; `None` if it is no date.
pub fn read(text: &str) -> Option<Time> {
    let time = iso(text.as_bytes()).or_else(|| Fields::read(text)?.time())?;
    let (Time::Utc(ms) | Time::Local(ms)) = time;
    (ms.abs() <= TIME_MAX_MS).then_some(time)
}

/// Returns the time of a date, whose months are from 1, in UTC.
fn date_ms(year: i64, month: i64, day: i64) -> i64 {
    let year = year + (month - 1).div_euclid(12);
    let month = (month - 1).rem_euclid(12) + 1;
    // Years begin in March, so that a leap day is at their end.
    let year = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    (year * 365 + leap_days + day_of_year - 719_468) * DAY_MS
}

// ---- ISO 8601 ----

/// A text that is read from its start.
struct Rest<'t> {
    text: &'t [u8],
    /// A number had one digit where the form has two.
    is_short: bool,
}

impl Rest<'_> {
    fn next_is(&self, wanted: u8) -> bool {
        self.text.first() == Some(&wanted)
    }

    /// Takes a character, if it is the next.
    fn take(&mut self, wanted: u8) -> bool {
        let is_next = self.next_is(wanted);
        if is_next {
            self.text = &self.text[1..];
        }
        is_next
    }

    /// Takes a number with this many digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.text.split_at_checked(digits)?;
        self.text = rest;
        let add = |sum: i64, byte: &u8| {
            byte.is_ascii_digit()
                .then(|| sum * 10 + i64::from(byte - b'0'))
        };
        number.iter().try_fold(0, add)
    }

    /// Takes a number with two digits, or with one.
    fn field(&mut self) -> Option<i64> {
        let is_long = self.text.get(1).is_some_and(u8::is_ascii_digit);
        self.is_short |= !is_long;
        self.number(if is_long { 2 } else { 1 })
    }

    /// Takes the digits of a fraction of a second. Returns milliseconds.
    fn fraction(&mut self) -> Option<i64> {
        let digits = self.text.iter().take_while(|byte| byte.is_ascii_digit());
        let count = digits.count();
        // As SpiderMonkey adds them: it rounds down what is not exact.
        let (mut fraction, mut factor) = (0.0, 0.1);
        for byte in &self.text[..count] {
            fraction += f64::from(byte - b'0') * factor;
            factor *= 0.1;
        }
        self.text = &self.text[count..];
        (count > 0).then_some((fraction * 1000.0) as i64)
    }

    /// Takes the time of day. Returns milliseconds since midnight.
    fn time_of_day(&mut self) -> Option<i64> {
        let hour = self.field()?;
        if !self.take(b':') {
            return None;
        }
        let minute = self.field()?;
        let (mut second, mut ms) = (0, 0);
        if self.take(b':') {
            second = self.field()?;
            if self.take(b'.') {
                ms = self.fraction()?;
            }
        }
        let is_time = hour < 24 && minute < 60 && second < 60;
        let is_midnight = (hour, minute, second) == (24, 0, 0);
        let time = (hour * 60 + minute) * MINUTE_MS + second * 1000 + ms;
        (is_time || is_midnight).then_some(time)
    }

    /// Takes the time zone at the end. Returns minutes east of UTC, `None` for the local one.
    fn zone(&mut self) -> Option<Option<i64>> {
        if self.take(b'Z') {
            return Some(Some(0));
        }
        let sign = match self.text.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Some(None),
        };
        self.text = &self.text[1..];
        let hours = self.number(2)?;
        self.take(b':');
        let minutes = self.number(2)?;
        (hours < 24 && minutes < 60).then_some(Some(sign * (hours * 60 + minutes)))
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Reads a text of ISO 8601. A space may stand for the T, and then, or without a time, one digit for
/// two.
fn iso(text: &[u8]) -> Option<Time> {
    let mut rest = Rest {
        text,
        is_short: false,
    };
    let sign = if rest.next_is(b'-') { -1 } else { 1 };
    let is_long = rest.take(b'+') || rest.take(b'-');
    let year = rest.number(if is_long { 6 } else { 4 })?;
    let (mut month, mut day) = (1, 1);
    if rest.take(b'-') {
        month = rest.field()?;
        if rest.take(b'-') {
            day = rest.field()?;
        }
    }
    let has_t = rest.take(b'T');
    let (mut time, mut zone) = (0, Some(0));
    if has_t || rest.take(b' ') {
        time = rest.time_of_day()?;
        zone = rest.zone()?;
    }
    let is_date = year <= YEAR_MAX
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day);
    if !is_date || !rest.text.is_empty() || (has_t && rest.is_short) {
        return None;
    }
    let ms = date_ms(sign * year, month, day) + time;
    Some(match zone {
        Some(minutes) => Time::Utc(ms - minutes * MINUTE_MS),
        None => Time::Local(ms),
    })
}

// ---- other forms ----

/// The meaning of a word.
#[derive(Clone, Copy)]
enum Word {
    /// A day of the week, which does not count.
    Day,
    /// From 1.
    Month(i64),
    /// Hours after noon, 12, or before, 0.
    Half(i64),
    /// Minutes west of UTC.
    Zone(i64),
}

/// A text may cut a word short (`Decem`). Of several the last one is meant.
const WORDS: [(&str, Word); 32] = [
    ("am", Word::Half(0)),
    ("pm", Word::Half(12)),
    ("monday", Word::Day),
    ("tuesday", Word::Day),
    ("wednesday", Word::Day),
    ("thursday", Word::Day),
    ("friday", Word::Day),
    ("saturday", Word::Day),
    ("sunday", Word::Day),
    ("january", Word::Month(1)),
    ("february", Word::Month(2)),
    ("march", Word::Month(3)),
    ("april", Word::Month(4)),
    ("may", Word::Month(5)),
    ("june", Word::Month(6)),
    ("july", Word::Month(7)),
    ("august", Word::Month(8)),
    ("september", Word::Month(9)),
    ("october", Word::Month(10)),
    ("november", Word::Month(11)),
    ("december", Word::Month(12)),
    ("gmt", Word::Zone(0)),
    ("ut", Word::Zone(0)),
    ("utc", Word::Zone(0)),
    ("est", Word::Zone(300)),
    ("edt", Word::Zone(240)),
    ("cst", Word::Zone(360)),
    ("cdt", Word::Zone(300)),
    ("mst", Word::Zone(420)),
    ("mdt", Word::Zone(360)),
    ("pst", Word::Zone(480)),
    ("pdt", Word::Zone(420)),
];

fn word(text: &str) -> Option<Word> {
    let is_meant = |(name, _): &&(&str, Word)| {
        let start = name.get(..text.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(text))
    };
    let found = WORDS.iter().rev().find(is_meant).filter(|_| text.len() > 1);
    found.map(|(_, word)| *word)
}

/// The parts of a date that were read so far.
#[derive(Default)]
struct Fields {
    year: Option<i64>,
    /// From 1; until all is read it may be the day or the year.
    month: Option<i64>,
    day: Option<i64>,
    hour: Option<i64>,
    minute: Option<i64>,
    second: Option<i64>,
    /// Minutes west of UTC.
    zone: Option<i64>,
    /// An offset from UTC was read.
    has_sign: bool,
    /// The name of a month was read.
    is_named: bool,
    /// The year has four digits.
    is_full: bool,
}

/// Sets a field, unless it is known. Returns whether it was not.
fn set(field: &mut Option<i64>, value: i64) -> bool {
    let is_new = field.is_none();
    field.get_or_insert(value);
    is_new
}

/// Returns the length of the beginning of a text whose bytes are of a kind.
fn count(text: &str, is: fn(&u8) -> bool) -> usize {
    text.bytes().take_while(is).count()
}

fn number(digits: &str) -> i64 {
    digits.parse().unwrap_or(NUMBER_MAX).min(NUMBER_MAX)
}

/// Returns the length of a comment that begins after its parenthesis.
fn comment(text: &str) -> usize {
    let mut depth = 1;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

impl Fields {
    /// Reads all words and numbers of a text. `None` if some are not of a date.
    fn read(text: &str) -> Option<Fields> {
        let mut fields = Fields::default();
        // A sign before the next number.
        let mut sign = None;
        let mut at = fields.read_dashed(text);
        while let Some(&byte) = text.as_bytes().get(at) {
            let start = at;
            at += 1;
            match byte {
                b'0'..=b'9' => {
                    at = start + count(&text[start..], u8::is_ascii_digit);
                    let next = text.as_bytes().get(at).copied();
                    if !fields.take_number(&text[start..at], sign.take(), next) {
                        return None;
                    }
                }
                b'(' => at += comment(&text[at..]),
                b'-' if !text[at..].starts_with(|c: char| c.is_ascii_digit()) => {}
                b'-' | b'/' | b':' | b'+' => sign = Some(byte),
                b',' | ..=b' ' => {}
                _ if byte.is_ascii_alphabetic() => {
                    at = start + count(&text[start..], u8::is_ascii_alphabetic);
                    sign = None;
                    if !fields.take_word(word(&text[start..at])?) {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        Some(fields)
    }

    /// Reads a date like `25-Dec-1995` at the start of a text. Returns where it ends: 0 without
    /// one.
    fn read_dashed(&mut self, text: &str) -> usize {
        let mut parts = text.splitn(3, '-');
        let (Some(day), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return 0;
        };
        let digits = count(rest, u8::is_ascii_digit);
        let is_number = !day.is_empty() && day.bytes().all(|byte| byte.is_ascii_digit());
        let is_long = day.len() > 2 && digits > 2;
        let named = word(month).filter(|_| month.len() > 2);
        let Some(Word::Month(named)) = named.filter(|_| is_number && digits > 0 && !is_long) else {
            return 0;
        };
        self.day = Some(number(day));
        self.month = Some(named);
        self.year = Some(number(&rest[..digits]));
        self.is_named = true;
        self.is_full = digits >= 4;
        day.len() + month.len() + 2 + digits
    }

    /// Takes a number, with the sign before it and the byte after it. Returns whether it is one of a
    /// date.
    fn take_number(&mut self, digits: &str, sign: Option<u8>, next: Option<u8>) -> bool {
        let number = number(digits);
        if let Some(sign @ (b'+' | b'-')) = sign {
            return self.take_offset(number, sign);
        }
        let is_apart = next.is_none_or(|byte| byte <= b' ' || byte == b',');
        let is_date = self.month.is_some() && self.day.is_some();
        if sign == Some(b'/') && is_date && self.year.is_none() {
            self.year = Some(number);
            return is_apart || next == Some(b'/');
        }
        match next {
            Some(b':') => set(&mut self.hour, number) || set(&mut self.minute, number),
            Some(b'/') => set(&mut self.month, number) || set(&mut self.day, number),
            Some(b'-' | b'(') => self.take_plain(digits, sign),
            _ => is_apart && self.take_plain(digits, sign),
        }
    }

    /// Takes an offset from UTC: hours, or hours and minutes in four digits.
    fn take_offset(&mut self, number: i64, sign: u8) -> bool {
        let west = if number < 24 {
            number * 60
        } else {
            number % 100 + number / 100 * 60
        };
        let is_new = self.zone.is_none_or(|zone| zone == 0);
        self.zone = Some(if sign == b'+' { -west } else { west });
        self.has_sign = true;
        is_new
    }

    /// Takes a number that is neither followed by a sign of times or dates, nor an offset.
    fn take_plain(&mut self, digits: &str, sign: Option<u8>) -> bool {
        let number = number(digits);
        if let Some(zone) = self.zone.filter(|_| self.has_sign && number < 60) {
            // The minutes of `GMT-3:30`.
            self.zone = Some(if zone < 0 {
                zone - number
            } else {
                zone + number
            });
            return true;
        }
        if self.hour.is_some() && set(&mut self.minute, number) {
            return true;
        }
        let is_second = sign == Some(b':') && self.minute.is_some();
        if is_second && set(&mut self.second, number) {
            return true;
        }
        if set(&mut self.month, number) || set(&mut self.day, number) {
            return true;
        }
        self.is_full = digits.len() >= 4;
        set(&mut self.year, number)
    }

    fn take_word(&mut self, word: Word) -> bool {
        match word {
            Word::Day => true,
            Word::Month(month) => self.take_month(month),
            Word::Zone(west) => {
                self.zone = Some(west);
                true
            }
            Word::Half(hours) => match self.hour {
                Some(hour @ ..=12) => {
                    self.hour = Some(hour % 12 + hours);
                    true
                }
                _ => false,
            },
        }
    }

    /// Takes the name of a month. Returns whether it is the first.
    fn take_month(&mut self, month: i64) -> bool {
        let is_first = !self.is_named;
        self.is_named = true;
        // A number that was taken for the month is the day, one that was taken for the day the year.
        if let Some(before) = self.month.replace(month)
            && let Some(day) = self.day.replace(before)
        {
            return is_first && set(&mut self.year, day);
        }
        is_first
    }

    /// Decides which number is what. Returns year, month and day.
    fn date(&self) -> Option<(i64, i64, i64)> {
        let (year, month, day) = (self.year?, self.month?, self.day?);
        let (year, month, day) = match self.is_named {
            true if year >= 100 && day >= 100 => return None,
            true if year > 0 && (day == 0 || day > 31) && !self.is_full => (day, month, year),
            true => (year, month, day),
            false if (1..=12).contains(&month) && (1..=31).contains(&day) => (year, month, day),
            false if month > 31 && day <= 12 && year <= 31 => (month, day, year),
            false => return None,
        };
        if self.is_named && !(1..=31).contains(&day) {
            return None;
        }
        let century = match year {
            _ if self.is_full => 0,
            ..50 => 2000,
            50..100 => 1900,
            _ => 0,
        };
        Some((year + century, month, day))
    }

    fn time(&self) -> Option<Time> {
        let (year, month, day) = self.date()?;
        let of = |field: Option<i64>| field.unwrap_or(0);
        let minutes = of(self.hour) * 60 + of(self.minute);
        let ms = date_ms(year, month, day) + minutes * MINUTE_MS + of(self.second) * 1000;
        Some(match self.zone {
            Some(west) => Time::Utc(ms + west * MINUTE_MS),
            None => Time::Local(ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_date_has_its_time() {
        let of = |year, month, day| date_ms(year, month, day) / DAY_MS;
        assert_eq!((of(1970, 1, 1), of(1969, 12, 31)), (0, -1));
        assert_eq!((of(2000, 2, 29), of(2000, 3, 1)), (11_016, 11_017));
        assert_eq!((of(2015, 0, 31), of(2014, 12, 31)), (16_435, 16_435));
        assert_eq!(of(0, 1, 1), -719_528);
    }

    #[test]
    fn texts_are_in_utc_in_another_zone_or_in_that_of_dates() {
        let noon = date_ms(2015, 7, 1) + DAY_MS / 2;
        for text in [
            "2015-07-01T12:00Z",
            "2015-07-01T14:00+02:00",
            "1 Jul 2015 8:00 EDT",
        ] {
            assert_eq!(read(text), Some(Time::Utc(noon)), "{text}");
        }
        for text in [
            "2015-07-01T12:00",
            "2015-7-1 12:00",
            "7/1/2015 12:00 PM",
            "1-Jul-15 12:00",
        ] {
            assert_eq!(read(text), Some(Time::Local(noon)), "{text}");
        }
        for text in [
            "",
            "x",
            "2015-02-30",
            "Jul 2015",
            "2015-07-01T12",
            "+275944-01-01",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(text in "([0-9]{0,12}[-+/:., (TZé]?(jan|pm|gmt|x)?){0,8}") {
            let in_range = |ms: i64| ms.abs() <= TIME_MAX_MS;
            prop_assert!(read(&text).is_none_or(|(Time::Utc(ms) | Time::Local(ms))| in_range(ms)));
        }
    }
}
