//! Responses of a query server.

use document::DocError;

use crate::language::{Emit, Emits, Error};

/// One line of a query server, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Anything else: compact JSON.
    Value(Vec<u8>),
    /// `["log", text]`: no answer to anything.
    Log(String),
    /// `["error", name, reason]`: the command failed; the process is as before.
    Failed {
        name: String,
        reason: String,
    },
    /// `["fatal", name, reason]`, or `{"error": name, "reason": reason}`: the process must not be
    /// used any more.
    Fatal {
        name: String,
        reason: String,
    },
    Forbidden(String),
    Unauthorized(String),
}

/// The reason why a line is not a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Not JSON at all: user code prints, or the server is broken.
    NotJson,
    /// JSON with a value that cannot be stored: too deep, or too large a number.
    Unusable(DocError),
}

impl Answer {
    pub fn read(line: &[u8]) -> Result<Self, Unreadable> {
        let text = match document::normalise(line) {
            Ok(text) => text,
            Err(DocError::InvalidJson) => {
                let mended = mend(line).ok_or(Unreadable::NotJson)?;
                document::normalise(&mended).map_err(|error| match error {
                    DocError::InvalidJson => Unreadable::NotJson,
                    error => Unreadable::Unusable(error),
                })?
            }
            Err(error) => return Err(Unreadable::Unusable(error)),
        };
        Ok(Self::of(text))
    }

    fn of(text: Vec<u8>) -> Self {
        if text.starts_with(b"[\"") {
            let elements = elements(&text);
            let string = |at: usize| {
                elements
                    .get(at)
                    .map_or_else(String::new, |json| plain(json))
            };
            match elements.first().copied() {
                Some(b"\"log\"") => return Self::Log(string(1)),
                Some(b"\"error\"") => {
                    return Self::Failed {
                        name: string(1),
                        reason: string(2),
                    };
                }
                Some(b"\"fatal\"") => {
                    return Self::Fatal {
                        name: string(1),
                        reason: string(2),
                    };
                }
                _ => {}
            }
        } else if text.starts_with(b"{\"") {
            if let Some(reason) = member(&text, "forbidden") {
                return Self::Forbidden(plain(reason));
            }
            if let Some(reason) = member(&text, "unauthorized") {
                return Self::Unauthorized(plain(reason));
            }
            if let Some(name) = member(&text, "error") {
                return Self::Fatal {
                    name: plain(name),
                    reason: member(&text, "reason").map_or_else(String::new, plain),
                };
            }
        }
        Self::Value(text)
    }
}

/// Repairs two kinds of invalid JSON that languages' own JSON libraries write: halves of surrogate
/// pairs (JavaScript), which become U+FFFD as in CouchDB, and `NaN`, `Infinity` and `-Infinity`
/// (Python), which become null as JavaScript writes them. `None` when there are no such values.
fn mend(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len() + 16);
    let mut at = 0;
    let mut in_string = false;
    let mut changed = false;
    while let Some(&byte) = line.get(at) {
        let rest = &line[at..];
        let (length, instead): (usize, Option<&[u8]>) = if in_string {
            match (byte, unit(rest)) {
                (_, Some(0xD800..=0xDBFF))
                    if matches!(rest.get(6..).and_then(unit), Some(0xDC00..=0xDFFF)) =>
                {
                    (12, None)
                }
                (_, Some(0xD800..=0xDFFF)) => (6, Some(b"\\ufffd")),
                (b'\\', _) => (2, None),
                (b'"', _) => {
                    in_string = false;
                    (1, None)
                }
                _ => (1, None),
            }
        } else {
            let word = ["NaN", "Infinity", "-Infinity"]
                .into_iter()
                .find(|word| rest.starts_with(word.as_bytes()));
            in_string = byte == b'"';
            match word {
                Some(word) => (word.len(), Some(b"null")),
                None => (1, None),
            }
        };
        let end = (at + length).min(line.len());
        out.extend_from_slice(instead.unwrap_or(&line[at..end]));
        changed |= instead.is_some();
        at = end;
    }
    changed.then_some(out)
}

/// Returns the number of `\uXXXX` at the start of `text`.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.first_chunk::<4>()?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the end of the value that starts at `at` of normalised text.
fn value_end(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => at = string_end(text, at) - 1,
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 0 => return at,
            b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' | b':' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// Returns the end of the string that starts at `at` of normalised text, including its closing
/// quote.
fn string_end(text: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &text[at.min(text.len())..]) {
        at += found + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// Returns the elements of a normal array as (start, end).
fn ranges(text: &[u8], array: usize) -> Option<Ranges<'_>> {
    (text.get(array) == Some(&b'[')).then_some(Ranges {
        text,
        at: array + 1,
    })
}

struct Ranges<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Ranges<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        if self.text.get(self.at) == Some(&b',') {
            self.at += 1;
        }
        if matches!(self.text.get(self.at), None | Some(b']')) {
            return None;
        }
        let start = self.at;
        self.at = value_end(self.text, start);
        Some((start, self.at))
    }
}

/// Returns the elements of a normal array; empty for other values.
pub(crate) fn elements(text: &[u8]) -> Vec<&[u8]> {
    ranges(text, 0)
        .into_iter()
        .flatten()
        .map(|(start, end)| &text[start..end])
        .collect()
}

/// Returns the value of a member, whose name needs no escapes, of a normal object.
fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut at = 1;
    while object.get(at) == Some(&b'"') {
        let colon = string_end(object, at);
        let end = value_end(object, colon + 1);
        if &object[at + 1..colon - 1] == name.as_bytes() {
            return Some(&object[colon + 1..end]);
        }
        at = end + 1;
    }
    None
}

/// Returns a string's text, and any other value's JSON.
pub(crate) fn plain(json: &[u8]) -> String {
    let text = String::from_utf8_lossy(json);
    let Some(inner) = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    else {
        return text.into_owned();
    };
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                // Normal text escapes only control characters so: one unit is one character.
                let digits: String = chars.by_ref().take(4).collect();
                out.push(
                    u32::from_str_radix(&digits, 16)
                        .ok()
                        .and_then(char::from_u32)
                        .unwrap_or(char::REPLACEMENT_CHARACTER),
                );
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

/// Adds what `map_doc` answered for one document: `[[[key, value], …], …]`, an array for each of
/// `views` functions.
pub(crate) fn add_emits(text: &[u8], doc: u32, views: usize, out: &mut Emits) -> Result<(), Error> {
    let nonsense = || {
        Error::Process(
            "the query server's answer to map_doc is not a list of rows for each function"
                .to_owned(),
        )
    };
    let base = out.bytes.len();
    if u32::try_from(base + text.len()).is_err() {
        return Err(Error::Process(
            "the functions emitted more than 4 GiB in one call".to_owned(),
        ));
    }
    let offset = |(start, end): (usize, usize)| ((base + start) as u32, (base + end) as u32);
    let rows_before = out.rows.len();
    let mut view = 0u32;
    for (rows, _) in ranges(text, 0).ok_or_else(nonsense)? {
        for (row, _) in ranges(text, rows).ok_or_else(nonsense)? {
            let mut pair = ranges(text, row).ok_or_else(nonsense)?;
            let (Some(key), Some(value), None) = (pair.next(), pair.next(), pair.next()) else {
                return Err(nonsense());
            };
            out.rows.push(Emit {
                doc,
                view,
                key: offset(key),
                value: offset(value),
            });
        }
        view += 1;
    }
    if view as usize != views {
        return Err(nonsense());
    }
    if out.rows.len() > rows_before {
        out.bytes.extend_from_slice(text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Answer, Unreadable> {
        Answer::read(line.as_bytes())
    }

    fn value(text: &str) -> Answer {
        Answer::Value(text.as_bytes().to_vec())
    }

    #[test]
    fn answers_are_told_apart_by_their_first_element_or_member() {
        assert_eq!(
            read(r#" [true, [1.50, "\u00e9"]] "#),
            Ok(value(r#"[true,[1.5,"é"]]"#))
        );
        assert_eq!(read(r#"["log", "a\nb"]"#), Ok(Answer::Log("a\nb".into())));
        assert_eq!(
            read(r#"["log", {"a": 1}]"#),
            Ok(Answer::Log(r#"{"a":1}"#.into()))
        );
        assert_eq!(read(r#"["log"]"#), Ok(Answer::Log(String::new())));
        let (name, reason) = ("n".to_owned(), "r".to_owned());
        assert_eq!(
            read(r#"["error","n","r"]"#),
            Ok(Answer::Failed {
                name: name.clone(),
                reason: reason.clone()
            })
        );
        assert_eq!(
            read(r#"["fatal","n","r"]"#),
            Ok(Answer::Fatal {
                name: name.clone(),
                reason: reason.clone()
            })
        );
        assert_eq!(
            read(r#"{"reason":"r","error":"n"}"#),
            Ok(Answer::Fatal { name, reason })
        );
        assert_eq!(
            read(r#"{"forbidden":"no \"entry\""}"#),
            Ok(Answer::Forbidden("no \"entry\"".into()))
        );
        assert_eq!(
            read(r#"{"unauthorized":{"a":[]}}"#),
            Ok(Answer::Unauthorized(r#"{"a":[]}"#.into()))
        );
        assert_eq!(
            read(r#"["resp",{"error":1}]"#),
            Ok(value(r#"["resp",{"error":1}]"#))
        );
        assert_eq!(read(r#"[["log","x"]]"#), Ok(value(r#"[["log","x"]]"#)));
    }

    #[test]
    fn what_json_libraries_write_beside_json_is_mended() {
        assert_eq!(
            read(r#"[NaN,-Infinity,Infinity,"NaN\"Infinity","\ud83d\ude00\ud83dx\ude00\\ud800"]"#),
            Ok(value(r#"[null,null,null,"NaN\"Infinity","😀�x�\\ud800"]"#))
        );
        for garbage in [
            "", "hello", "[NaN", "\\", "\"\\", "[1,]", "NaNa", "\u{0}", "\"\\u12",
        ] {
            assert_eq!(read(garbage), Err(Unreadable::NotJson), "{garbage}");
        }
    }

    #[test]
    fn what_cannot_be_stored_is_not_taken_for_garbage() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(read(&deep), Err(Unreadable::Unusable(DocError::TooDeep)));
        assert_eq!(
            read(&"9".repeat(700)),
            Err(Unreadable::Unusable(DocError::IntegerTooLarge))
        );
    }

    #[test]
    fn rows_are_found_whatever_is_in_their_keys_and_values() {
        let mut out = Emits::default();
        let text = br#"[[["]\"[,",{"a":"}\\","b":[1,[]]}],[null,-1.5]],[],[[[],{}]]]"#;
        add_emits(text, 7, 3, &mut out).unwrap();
        add_emits(b"[[],[],[]]", 8, 3, &mut out).unwrap();
        add_emits(br#"[[[1,"x"]],[],[]]"#, 9, 3, &mut out).unwrap();
        let rows: Vec<_> = out
            .rows
            .iter()
            .map(|row| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                (row.doc, row.view, text(out.key(row)), text(out.value(row)))
            })
            .collect();
        let row = |doc, view, key: &str, value: &str| (doc, view, key.to_owned(), value.to_owned());
        assert_eq!(
            rows,
            [
                row(7, 0, r#""]\"[,""#, r#"{"a":"}\\","b":[1,[]]}"#),
                row(7, 0, "null", "-1.5"),
                row(7, 2, "[]", "{}"),
                row(9, 0, "1", r#""x""#),
            ]
        );
    }

    #[test]
    fn answers_of_another_shape_are_refused() {
        for text in [
            "true",
            "{}",
            "[]",
            "[[]]",
            "[[],[],[]]",
            "[[1],[]]",
            "[[[1]],[]]",
            "[[[1,2,3]],[]]",
            "[{},[]]",
        ] {
            let mut out = Emits::default();
            assert!(
                add_emits(text.as_bytes(), 0, 2, &mut out).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn strings_are_unescaped_and_other_values_left_as_json() {
        assert_eq!(plain(br#""a\n\t\"\\\u001Fz""#), "a\n\t\"\\\u{1f}z");
        assert_eq!(plain(b"[1,2]"), "[1,2]");
        assert_eq!(plain(b"null"), "null");
        assert_eq!(plain(b"\""), "\"");
    }

    /// Lines of pieces of JSON, many of them nearly answers.
    fn lines() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        use proptest::prelude::*;
        const PIECES: &[&[u8]] = &[
            b"[",
            b"]",
            b"[[",
            b"]]",
            b"{",
            b"}",
            b",",
            b":",
            b"\"",
            b"\"a\"",
            b"\"log\"",
            b"\"error\"",
            b"\"forbidden\":",
            b"[[[1,2]]]",
            b"[[\"k\",null]]",
            b"\\",
            b"\\u",
            b"\\ud83d",
            b"\\ude00",
            b"\\n",
            b"NaN",
            b"-Infinity",
            b"1",
            b"-0.0",
            b"true",
            b"null",
            b" ",
            b"\xff",
            "é".as_bytes(),
            b"\r",
        ];
        proptest::collection::vec(proptest::sample::select(PIECES), 0..12)
            .prop_map(|parts| parts.concat())
    }

    proptest::proptest! {
        #[test]
        fn no_line_does_harm_and_all_rows_are_json(line in lines()) {
            if let Ok(Answer::Value(text)) = Answer::read(&line) {
                proptest::prop_assert_eq!(document::normalise(&text), Ok(text.clone()));
                for part in elements(&text) {
                    proptest::prop_assert_eq!(document::normalise(part), Ok(part.to_vec()));
                    plain(part);
                }
                for views in 0..3 {
                    let mut out = Emits { bytes: b"before".to_vec(), ..Emits::default() };
                    if add_emits(&text, 0, views, &mut out).is_ok() {
                        for row in &out.rows {
                            for part in [out.key(row), out.value(row)] {
                                proptest::prop_assert_eq!(document::normalise(part), Ok(part.to_vec()));
                            }
                        }
                    }
                }
            }
        }
    }
}
