//! Encodes the terms and positions of a document for tantivy in one text, which the tokenizer
//! splits again. So no term is an allocation of its own on the way.
//!
//! A field is `F`, its name's length in bytes, `:` and the name; a token is `T`, its position, `,`,
//! its length in bytes, `:` and the token. A token that starts with the one before, at the same
//! position, is `E` and the rest in the same form. So a word with all its prefixes takes little
//! more than the word.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use crate::Error;
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
/// that one: of a word with its prefixes, the word remains.
const EXTENDED_MAX: usize = 4_000_000;

/// Memory that tantivy takes for a term besides its field's name and its text, in bytes.
const TERM_BYTES: usize = 75;
/// Memory that it takes for each place of a term, in bytes.
const PLACE_BYTES: usize = 3;
/// The maximum memory of the different terms of a document, in bytes: tantivy compares a segment's
/// memory with its limit only after each document, and fails at 4 GiB.
const TERMS_BYTES_MAX: usize = 256 << 20;
/// The maximum length of all terms of a document with repetitions, in bytes: tantivy hashes each
/// with its field's name, so these take a few seconds.
const REPEATED_BYTES_MAX: usize = 4 << 30;
/// Terms that take less memory than this with repetitions are not compared with each other.
const COMPARED_BYTES_MIN: usize = 16 << 20;

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
    /// The memory of all terms with repetitions, in bytes.
    repeated_bytes: usize,
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
            repeated_bytes: 0,
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
        self.repeated_bytes += self.field + 1 + token.len() + TERM_BYTES;
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

    /// Returns about how much memory the terms take while they are indexed, in bytes.
    ///
    /// # Errors
    /// [`Error::TooManyTerms`]
    pub fn term_bytes(&self) -> Result<usize, Error> {
        if self.repeated_bytes <= COMPARED_BYTES_MIN {
            return Ok(self.repeated_bytes);
        }
        let bytes = match self.repeated_bytes > REPEATED_BYTES_MAX {
            true => usize::MAX,
            false => distinct_bytes(&self.text, TERMS_BYTES_MAX),
        };
        match bytes > TERMS_BYTES_MAX {
            true => Err(Error::TooManyTerms {
                max: TERMS_BYTES_MAX,
            }),
            false => Ok(bytes),
        }
    }
}

/// A token's shortest form, `E0:`, in bytes.
const TOKEN_BYTES_MIN: usize = 3;
/// Bits for each token, so that few different ones have the same.
const BITS_PER_TOKEN: usize = 16;
/// The minimum and the maximum number of bits.
const BITS_MIN: usize = 1 << 20;
const BITS_MAX: usize = 1 << 27;

/// Returns the memory that the terms of an encoded text take, each once, in bytes. It stops
/// counting beyond `max`. Terms with the same bit count once: a few percent of very many.
fn distinct_bytes(text: &str, max: usize) -> usize {
    let tokens_max = text.len() / TOKEN_BYTES_MIN;
    let bits = (tokens_max * BITS_PER_TOKEN)
        .next_power_of_two()
        .clamp(BITS_MIN, BITS_MAX);
    let mut seen = vec![0u64; bits / 64];
    // Its keys are random, so that nobody can choose terms with the same bit.
    let hasher = RandomState::new();
    let mut decoder = Decoder;
    let mut tokens = decoder.token_stream(text);
    let mut bytes = 0;
    while bytes <= max && tokens.advance() {
        bytes += PLACE_BYTES;
        let term = &tokens.token.text[tokens.prefix..];
        let bit = hasher.hash_one((tokens.fields, term)) as usize % bits;
        let known = &mut seen[bit / 64];
        if *known & (1 << (bit % 64)) == 0 {
            *known |= 1 << (bit % 64);
            bytes += tokens.token.text.len() + TERM_BYTES;
        }
    }
    bytes
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
            fields: 0,
        }
    }
}

pub(crate) struct DecodedToken<'a> {
    rest: &'a str,
    token: Token,
    /// Length of the field's name with its separator, in bytes.
    prefix: usize,
    /// The number of fields so far.
    fields: usize,
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
                self.fields += 1;
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

    #[test]
    fn many_different_terms_of_a_long_name_are_too_many() {
        let terms_of = |name: &str, words: usize, times: usize| {
            let mut encoder = Encoder::default();
            encoder.field(name);
            for n in 0..words * times {
                encoder.token(&format!("w{}", n % words), n as u32);
            }
            encoder
        };
        let long = "f".repeat(60_000);
        let many = terms_of(&long, 5_000, 1);
        assert!(many.finish().len() < 200_000);
        let refused = terms_of(&long, 5_000, 1).term_bytes().unwrap_err();
        assert!(refused.is_of_document(), "{refused}");
        // Few different words count as one.
        let counted = terms_of(&long, 4_000, 1).term_bytes().unwrap();
        assert!(counted > 3_900 * 60_000, "{counted}");
        // Repeated words take little more memory, but time.
        let repeated = terms_of(&long, 10, 1_000).term_bytes().unwrap();
        assert!((600_000..700_000).contains(&repeated), "{repeated}");
        assert!(terms_of(&long, 10, 8_000).term_bytes().is_err());
    }

    #[test]
    fn the_same_word_of_two_fields_is_two_terms() {
        let mut encoder = Encoder::default();
        for field in ["a", "b"] {
            encoder.field(field);
            (0..1000).for_each(|position| encoder.token("x", position));
        }
        let text = encoder.finish();
        let expected = 2 * (3 + TERM_BYTES) + 2000 * PLACE_BYTES;
        assert_eq!(distinct_bytes(&text, usize::MAX), expected);
        assert!(distinct_bytes(&text, 100) < 200);
    }

    proptest! {
        #[test]
        fn different_terms_are_counted(words in prop::collection::vec("[a-z]{0,6}", 0..2000)) {
            let mut encoder = Encoder::default();
            encoder.field("n");
            (0..).zip(&words).for_each(|(position, word)| encoder.token(word, position));
            let different: std::collections::HashSet<_> = words.iter().collect();
            let terms: usize = different.iter().map(|word| 2 + word.len() + TERM_BYTES).sum();
            let counted = distinct_bytes(&encoder.finish(), usize::MAX) - words.len() * PLACE_BYTES;
            prop_assert!(counted <= terms && counted >= terms * 8 / 10, "{counted} of {terms}");
        }

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
