//! Headers of parts, and the parameters in their values.

use super::{Limits, MultipartError};

/// The headers of one part: names in lower case, values without surrounding blanks, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Reads lines that end in CRLF. A line that begins with a blank continues the one before.
    pub(super) fn parse(block: &[u8], limits: &Limits) -> Result<Headers, MultipartError> {
        let mut headers: Vec<(String, String)> = Vec::new();
        let mut rest = block;
        while !rest.is_empty() {
            let end = memchr::memmem::find(rest, b"\r\n").unwrap_or(rest.len());
            let line = text(&rest[..end]);
            rest = rest.get(end + 2..).unwrap_or_default();
            if line.starts_with([' ', '\t']) {
                let (_, value) = headers.last_mut().ok_or(MultipartError::Header)?;
                value.push(' ');
                value.push_str(line.trim());
                continue;
            }
            let (name, value) = line.split_once(':').ok_or(MultipartError::Header)?;
            let name = name.trim();
            if name.is_empty() || name.contains(char::is_whitespace) {
                return Err(MultipartError::Header);
            }
            if headers.len() == limits.headers_max {
                return Err(MultipartError::HeadersTooLong);
            }
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Headers(headers))
    }

    /// Returns the first value of a header; `name` in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(n, _)| n == name)?;
        Some(&found.1)
    }

    /// Returns the part's content type, if it has one.
    pub fn content_type(&self) -> Option<ContentType> {
        ContentType::parse(self.get("content-type")?)
    }

    /// Returns the name of the form field in a `multipart/form-data` (RFC 7578).
    pub fn form_field(&self) -> Option<String> {
        let (kind, parameters) = split_parameters(self.get("content-disposition")?);
        if !kind.eq_ignore_ascii_case("form-data") {
            return None;
        }
        let (_, name) = parameters.into_iter().find(|(name, _)| name == "name")?;
        Some(name)
    }

    /// Returns the file name in `Content-Disposition`: an attachment's name. The extended form (RFC
    /// 5987) in UTF-8 goes first.
    pub fn filename(&self) -> Option<String> {
        let disposition = self.get("content-disposition")?;
        let (_, parameters) = split_parameters(disposition);
        let of = |wanted: &str| {
            let found = parameters.iter().find(|(name, _)| name == wanted)?;
            Some(found.1.as_str())
        };
        of("filename*")
            .and_then(extended)
            .or_else(|| of("filename").map(str::to_owned))
    }
}

/// Header values are UTF-8 by habit and Latin-1 by the old standards.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// A media type with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType {
    /// `type/subtype` in lower case.
    pub essence: String,
    /// Names in lower case, values without quotes.
    pub parameters: Vec<(String, String)>,
}

impl ContentType {
    /// Reads a `Content-Type` value; `None` when it has no `type/subtype`.
    pub fn parse(value: &str) -> Option<ContentType> {
        let (essence, parameters) = split_parameters(value);
        let (kind, subtype) = essence.split_once('/')?;
        if kind.is_empty() || subtype.is_empty() {
            return None;
        }
        Some(ContentType {
            essence: essence.to_ascii_lowercase(),
            parameters,
        })
    }

    /// Returns a parameter's value; `name` in lower case.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(n, _)| n == name)?;
        Some(&found.1)
    }

    /// Returns the boundary, when this is a multipart type that has one.
    pub fn boundary(&self) -> Option<&str> {
        if !self.essence.starts_with("multipart/") {
            return None;
        }
        self.parameter("boundary")
    }
}

/// Splits `essence; name=value; name="quoted \" value"`.
fn split_parameters(value: &str) -> (&str, Vec<(String, String)>) {
    let (essence, mut rest) = value.split_once(';').unwrap_or((value, ""));
    let mut parameters = Vec::new();
    // Each byte is searched once: an element without `=` ends at its own semicolon.
    while let Some(at) = memchr::memchr2(b'=', b';', rest.as_bytes()) {
        let (name, after) = (&rest[..at], &rest[at + 1..]);
        if rest.as_bytes()[at] == b';' {
            rest = after;
            continue;
        }
        let name = name.trim().to_ascii_lowercase();
        let after = after.trim_start();
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        parameters.push((name, value));
        rest = left
            .find(';')
            .map_or("", |semicolon| &left[semicolon + 1..]);
    }
    (essence.trim(), parameters)
}

/// Reads up to the closing quote; a missing one is assumed at the end.
fn unquote(quoted: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

/// Reads `UTF-8'language'percent-encoded`.
fn extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_, encoded) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches the whole rest for both signs at each element.
    fn split_slowly(value: &str) -> (&str, Vec<(String, String)>) {
        let (essence, mut rest) = value.split_once(';').unwrap_or((value, ""));
        let mut parameters = Vec::new();
        while !rest.trim().is_empty() {
            let semicolon = rest.find(';').unwrap_or(rest.len());
            let Some(equals) = rest.find('=').filter(|&equals| equals < semicolon) else {
                rest = rest.get(semicolon + 1..).unwrap_or("");
                continue;
            };
            let name = rest[..equals].trim().to_ascii_lowercase();
            let after = rest[equals + 1..].trim_start();
            let (value, left) = match after.strip_prefix('"') {
                Some(quoted) => unquote(quoted),
                None => {
                    let end = after.find(';').unwrap_or(after.len());
                    (after[..end].trim().to_owned(), &after[end..])
                }
            };
            parameters.push((name, value));
            rest = left.split_once(';').map_or("", |(_, rest)| rest);
        }
        (essence.trim(), parameters)
    }

    proptest! {
        #[test]
        fn parameters_are_those_of_a_search_at_each_element(value in "[ab;;==\" \\\\é]{0,30}") {
            prop_assert_eq!(split_parameters(&value), split_slowly(&value));
        }
    }

    /// A search of the whole rest at each of these would take minutes.
    #[test]
    fn four_megabytes_of_parameters_are_read_at_once() {
        for part in [
            ";", "a;", "\"", "=;", "=\"\";", "=\"", "=\\", " ", "; ", "=  ",
        ] {
            let value = format!("a/b;{}", part.repeat((4 << 20) / part.len()));
            let read = ContentType::parse(&value);
            assert_eq!(read.unwrap().essence, "a/b", "{part:?}");
        }
    }
}
