//! Query strings and paths: percent-encoding with `+` for a space, as CouchDB reads both.

use serde_json::Value;

use crate::error::{Error, Result};

/// Decodes `%XX` and `+`. A stray `%` stands for itself.
pub fn decode(text: &str) -> Vec<u8> {
    decode_with(text, b' ')
}

/// As [`decode`]; `+` is decoded to `plus`.
fn decode_with(text: &str, plus: u8) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = |b: Option<&u8>| b.and_then(|b| (*b as char).to_digit(16));
        match bytes[i] {
            b'+' => out.push(plus),
            b'%' => match (hex(bytes.get(i + 1)), hex(bytes.get(i + 2))) {
                (Some(h), Some(l)) => {
                    out.push((h * 16 + l) as u8);
                    i += 2;
                }
                _ => out.push(b'%'),
            },
            b => out.push(b),
        }
        i += 1;
    }
    out
}

fn decode_text(text: &str) -> String {
    if text.bytes().any(|b| b == b'+' || b == b'%') {
        String::from_utf8_lossy(&decode(text)).into_owned()
    } else {
        text.to_owned()
    }
}

/// Whether every `%` has two hexadecimal digits behind it.
pub fn is_well_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Whether the decoded `text` is UTF-8.
pub fn is_utf8_decoded(text: &str) -> bool {
    !text.contains('%') || std::str::from_utf8(&decode(text)).is_ok()
}

/// Appends `text` as CouchDB encodes ids in a `Location`.
pub fn encode_into(text: &str, out: &mut String) {
    for &b in text.as_bytes() {
        if b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b':') {
            out.push(b as char);
        } else {
            let digit = |n: u8| b"0123456789ABCDEF"[usize::from(n)] as char;
            out.push('%');
            out.push(digit(b >> 4));
            out.push(digit(b & 15));
        }
    }
}

/// The segments of a path, decoded; empty ones are left out, as CouchDB tolerates doubled slashes.
pub fn segments(path: &str) -> Vec<Vec<u8>> {
    segments_with(path, true)
}

/// As [`segments`]; `[chttpd] decode_plus_to_space` decides whether `+` is a space.
pub fn segments_with(path: &str, plus_is_space: bool) -> Vec<Vec<u8>> {
    let plus = if plus_is_space { b' ' } else { b'+' };
    path.split('/')
        .filter(|s| !s.is_empty())
        .map(|s| decode_with(s, plus))
        .collect()
}

/// The names and values of a query or a form, decoded.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let written = text.split(['&', ';']).filter(|pair| !pair.is_empty());
    written.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_text(name), decode_text(value))
    })
}

/// Returns how many pairs a form has at most.
pub fn count_pairs(form: &[u8]) -> u64 {
    memchr::memchr2_iter(b'&', b';', form).count() as u64 + 1
}

/// Parameters in their order. `;` separates them as `&` does.
#[derive(Clone, Debug, Default)]
pub struct Query(pub Vec<(String, String)>);

impl Query {
    /// Reads the text behind the `?`.
    pub fn parse(text: Option<&str>) -> Query {
        let Some(text) = text.filter(|t| !t.is_empty()) else {
            return Query::default();
        };
        Query(pairs(text).collect())
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }

    /// Whether a parameter is the word `true`.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// Returns the last value of a parameter of `_changes`, whose names may be in any case.
    pub fn last(&self, names: &[&str]) -> Option<&str> {
        self.values(names).next_back()
    }

    /// Returns all values of a parameter of `_changes`, in order. Its names may be in any case.
    pub fn values(&self, names: &[&str]) -> impl DoubleEndedIterator<Item = &str> {
        let is_named = move |key: &str| names.iter().any(|name| key.eq_ignore_ascii_case(name));
        let pairs = self.0.iter().filter(move |(key, _)| is_named(key));
        pairs.map(|(_, value)| value.as_str())
    }

    /// A JSON parameter; anything else is refused in CouchDB's words.
    ///
    /// # Errors
    /// [`Error::InvalidJson`].
    pub fn json(&self, name: &str) -> Result<Option<Value>> {
        self.get(name).map(parse_json).transpose()
    }
}

/// The value of a JSON text.
///
/// # Errors
/// [`Error::InvalidJson`].
pub fn parse_json(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|_| Error::InvalidJson)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_repeated_parameter_counts_in_any_case() {
        let query = Query::parse(Some("LIMIT=1&limit=2&since=3&Last-Event-ID=4"));
        assert_eq!(query.last(&["limit"]), Some("2"));
        assert_eq!(query.last(&["since", "last-event-id"]), Some("4"));
        assert_eq!(query.last(&["style"]), None);
        assert_eq!(query.values(&["limit"]).collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn paths_are_split_before_they_are_decoded() {
        let s = segments("//db/a%2Fb//c+d/");
        assert_eq!(s, [b"db".to_vec(), b"a/b".to_vec(), b"c d".to_vec()]);
        assert_eq!(segments_with("c+d%2B", false), [b"c+d+".to_vec()]);
    }

    #[test]
    fn a_stray_percent_stands_for_itself() {
        assert_eq!(decode("100%"), b"100%");
        assert_eq!(decode("%zz%4"), b"%zz%4");
    }

    #[test]
    fn a_percent_needs_two_hexadecimal_digits() {
        assert!(is_well_encoded("/a%2Fb%aa"));
        for bad in ["%", "/a%2", "%zz", "%%20", "%é"] {
            assert!(!is_well_encoded(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_decoded_may_not_be_utf8() {
        for good in ["", "k=%C3%A9&l=\u{e9}", "a%26b", "100%"] {
            assert!(is_utf8_decoded(good), "{good}");
        }
        for bad in ["styl%FF=all_docs", "k=%E9", "%C3&%A9"] {
            assert!(!is_utf8_decoded(bad), "{bad}");
        }
    }

    #[test]
    fn the_first_of_equal_parameters_counts() {
        let q = Query::parse(Some("count=1&count=2&=x&flag"));
        assert_eq!(q.get("count"), Some("1"));
        assert_eq!(q.get("flag"), Some(""));
        assert_eq!(q.get(""), Some("x"));
        let q = Query::parse(Some(";skip=5;limit=%3B"));
        assert_eq!((q.get("skip"), q.get("limit")), (Some("5"), Some(";")));
    }

    #[test]
    fn locations_are_encoded_like_couchdbs() {
        let mut s = String::new();
        encode_into("a,b/é:.", &mut s);
        assert_eq!(s, "a%2Cb%2F%C3%A9:.");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            segments(&text);
            Query::parse(Some(&text));
        }
    }
}
