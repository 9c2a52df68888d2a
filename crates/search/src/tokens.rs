//! Encodes the terms and positions of a document for tantivy in one text, which the tokenizer
//! splits again. So no term is an allocation of its own on the way.
//!
//! A field is `F`, its name's length in bytes, `:` and the name; a token is `T`, its position, `,`,
//! its length in bytes, `:` and the token. A token that starts with the one before, at the same
//! position, is `E` and the rest in the same form. So a word with all its prefixes takes little
//! more than the word.

use std::borrow::Cow;
use std::ops::Range;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use crate::schema::ID;

/// The tokenizer's name in the schema.
pub(crate) const TOKENIZER: &str = "settee";

/// Longer terms are left out: this is tantivy's limit, including the field's name and the
/// separator.
pub(crate) const TERM_BYTES_MAX: usize = 65_000;

/// Returns the field and the term that identify a document, for replacement. Ids may be longer than
/// terms: these are hashed, in a field that no document can have.
pub(crate) fn id_term(id: &str) -> (&'static str, Cow<'_, str>) {
    match ID.len() + 1 + id.len() <= TERM_BYTES_MAX {
        true => (ID, Cow::Borrowed(id)),
        false => (
            LONG_ID,
            blake3::hash(id.as_bytes()).to_hex().to_string().into(),
        ),
    }
}

/// The field of the hashes of long ids.
const LONG_ID: &str = "_long_id";

/// The maximum number of tokens of a document that extend the one before. Beyond it each replaces
/// that one: of a word with its prefixes, the word remains. All of them have to fit into the memory
/// of one segment, which is at most 4 GiB, at about 75 bytes a term.
const EXTENDED_MAX: usize = 4_000_000;

/// Encodes the terms of a document.
#[derive(Debug)]
pub(crate) struct Encoder {
    text: String,
    field: usize,
    /// The position of the token before, if it is of this field.
    position: Option<u32>,
    /// Where the token before was written.
    record: usize,
    /// The bytes of that token, if it was written in full.
    whole: Range<usize>,
    /// That token, if it was not.
    extended: String,
    extended_left: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            text: String::new(),
            field: 0,
            position: None,
            record: 0,
            whole: 0..0,
            extended: String::new(),
            extended_left: EXTENDED_MAX,
        }
    }
}

impl Encoder {
    /// Starts a field: the tokens that follow are its own.
    pub fn field(&mut self, name: &str) {
        self.field = name.len();
        self.position = None;
        self.put('F', None, name);
    }

    /// Adds a token at a position, which must not decrease.
    pub fn token(&mut self, token: &str, position: u32) {
        if self.field + 1 + token.len() > TERM_BYTES_MAX {
            return;
        }
        if self.position == Some(position) && token.starts_with(self.last()) {
            if self.extended_left > 0 {
                self.extended_left -= 1;
                let more = &token[self.last().len()..];
                self.record = self.text.len();
                self.put('E', None, more);
                self.extended.clear();
                self.extended.push_str(token);
                return;
            }
            self.text.truncate(self.record);
        }
        self.record = self.text.len();
        self.put('T', Some(position), token);
        self.whole = self.text.len() - token.len()..self.text.len();
        self.extended.clear();
        self.position = Some(position);
    }

    fn last(&self) -> &str {
        match self.extended.is_empty() {
            true => &self.text[self.whole.clone()],
            false => &self.extended,
        }
    }

    fn put(&mut self, kind: char, position: Option<u32>, text: &str) {
        self.text.push(kind);
        if let Some(position) = position {
            put_number(position as usize, &mut self.text);
            self.text.push(',');
        }
        put_number(text.len(), &mut self.text);
        self.text.push(':');
        self.text.push_str(text);
    }

    pub fn finish(self) -> String {
        self.text
    }
}

fn put_number(n: usize, out: &mut String) {
    if n >= 10 {
        put_number(n / 10, out);
    }
    out.push(char::from(b'0' + (n % 10) as u8));
}

/// Splits the text into terms.
#[derive(Clone, Default)]
pub(crate) struct Decoder;

impl Tokenizer for Decoder {
    type TokenStream<'a> = DecodedToken<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> DecodedToken<'a> {
        DecodedToken {
            rest: text,
            token: Token::default(),
            prefix: 0,
        }
    }
}

pub(crate) struct DecodedToken<'a> {
    rest: &'a str,
    token: Token,
    /// Length of the field's name with its separator, in bytes.
    prefix: usize,
}

impl<'a> DecodedToken<'a> {
    fn number(&mut self) -> Option<usize> {
        let end = self.rest.bytes().position(|b| !b.is_ascii_digit())?;
        let n = self.rest[..end].parse().ok()?;
        self.rest = &self.rest[end + 1..];
        Some(n)
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.number()?;
        let (text, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(text)
    }

    fn next_token(&mut self) -> Option<()> {
        loop {
            let kind = self.rest.chars().next()?;
            self.rest = &self.rest[1..];
            if kind == 'F' {
                let name = self.text()?;
                self.token.text.clear();
                self.token.text.push_str(name);
                self.token.text.push('\0');
                self.prefix = self.token.text.len();
                continue;
            }
            if kind == 'T' {
                self.token.position = self.number()?;
                self.token.text.truncate(self.prefix);
            }
            let text = self.text()?;
            self.token.text.push_str(text);
            return Some(());
        }
    }
}

impl TokenStream for DecodedToken<'_> {
    fn advance(&mut self) -> bool {
        self.next_token().is_some()
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(text: &str) -> Vec<(String, usize)> {
        let mut decoder = Decoder;
        let mut stream = decoder.token_stream(text);
        let mut tokens = vec![];
        while let Some(token) = stream.next() {
            tokens.push((token.text.clone(), token.position));
        }
        tokens
    }

    #[test]
    fn a_term_that_is_too_long_is_left_out() {
        let mut encoder = Encoder::default();
        encoder.field("f");
        encoder.token(&"x".repeat(TERM_BYTES_MAX), 0);
        encoder.token("y", 1);
        assert_eq!(decoded(&encoder.finish()), [("f\0y".to_owned(), 1)]);
    }

    #[test]
    fn a_word_with_its_beginnings_takes_little_more() {
        let word = "ab".repeat(25);
        let mut encoder = Encoder::default();
        encoder.field("f");
        let beginnings: Vec<_> = (1..=50).map(|n| &word[..n]).collect();
        beginnings.iter().for_each(|token| encoder.token(token, 7));
        let expected: Vec<_> = beginnings
            .iter()
            .map(|token| (format!("f\0{token}"), 7))
            .collect();
        let text = encoder.finish();
        assert!(text.len() <= 4 * 50 + 10, "{text}");
        assert_eq!(decoded(&text), expected);
    }

    #[test]
    fn beyond_so_many_beginnings_words_stay_alone() {
        let mut encoder = Encoder {
            extended_left: 3,
            ..Encoder::default()
        };
        encoder.field("f");
        let words = ["abc", "abd", "c", "xyz"];
        for (position, word) in (0..).zip(words) {
            (1..=word.len()).for_each(|n| encoder.token(&word[..n], position));
        }
        let expected =
            ["a", "ab", "abc", "a", "abd", "c", "xyz"].map(|token| format!("f\0{token}"));
        let came: Vec<_> = decoded(&encoder.finish())
            .into_iter()
            .map(|(token, _)| token)
            .collect();
        assert_eq!(came, expected);
    }

    proptest! {
        #[test]
        fn tokens_at_few_places_come_back(tokens in prop::collection::vec(("[ab]{0,4}", 0u32..3), 0..40)) {
            let mut encoder = Encoder::default();
            encoder.field("n");
            tokens.iter().for_each(|(token, position)| encoder.token(token, *position));
            let expected: Vec<_> = tokens.iter().map(|(token, position)| (format!("n\0{token}"), *position as usize)).collect();
            prop_assert_eq!(decoded(&encoder.finish()), expected);
        }

        #[test]
        fn tokens_come_back(fields in prop::collection::vec((any::<String>(), prop::collection::vec(any::<(String, u32)>(), 0..40)), 0..20)) {
            let mut encoder = Encoder::default();
            let mut expected = vec![];
            for (name, tokens) in &fields {
                encoder.field(name);
                for (token, position) in tokens {
                    encoder.token(token, *position);
                    expected.push((format!("{name}\0{token}"), *position as usize));
                }
            }
            prop_assert_eq!(decoded(&encoder.finish()), expected);
        }
    }
}
