//! Erlang's terms of JSON text.
//!
//! Objects become maps with binary keys, strings binaries. Integers of any size and floats keep
//! their kind. The text comes from the database: it is valid.

use document::json::{Number, read_number, read_string, skip};
use embedded::Result;
use num_bigint::{BigInt, Sign};
use rustler::{Atom, Encoder, Env, NewBinary, Term};

use crate::error::internal;

/// How a text is returned: as a term with this atom for `null`, or as it is.
#[derive(Clone, Copy)]
pub enum Shape {
    /// As a term.
    Term {
        /// The atom for `null`.
        null: Atom,
    },
    /// As a binary.
    Text,
}

impl Shape {
    /// Returns a text in this shape.
    pub fn value<'a>(self, env: Env<'a>, text: &[u8]) -> Result<Term<'a>> {
        match self {
            Shape::Term { null } => of_text(env, text, null),
            Shape::Text => Ok(binary(env, text)),
        }
    }

    /// Returns a batch of rows as a list.
    pub fn rows<'a>(self, env: Env<'a>, batch: embedded::Batch) -> Result<Term<'a>> {
        match self {
            Shape::Term { null } => of_text(env, &batch.into_array(), null),
            Shape::Text => {
                let rows = batch.rows().into_iter().map(|row| binary(env, row));
                Ok(rows.collect::<Vec<_>>().encode(env))
            }
        }
    }
}

/// Returns a binary.
pub fn binary<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    NewBinary::from_slice(env, bytes).into()
}

/// A list or map that is being read.
enum Frame<'a> {
    List(Vec<Term<'a>>),
    Map {
        keys: Vec<Term<'a>>,
        values: Vec<Term<'a>>,
    },
}

impl<'a> Frame<'a> {
    fn add(&mut self, value: Term<'a>) {
        match self {
            Frame::List(values) | Frame::Map { values, .. } => values.push(value),
        }
    }

    fn into_term(self, env: Env<'a>) -> Result<Term<'a>> {
        match self {
            Frame::List(values) => Ok(values.encode(env)),
            Frame::Map { keys, values } => {
                if let Ok(map) = Term::map_from_term_arrays(env, &keys, &values) {
                    return Ok(map);
                }
                // A name occurs twice: the last value counts.
                let mut pairs = keys.into_iter().zip(values);
                let put = |map: Term<'a>, (key, value)| map.map_put(key, value);
                let map = pairs.try_fold(Term::map_new(env), put);
                map.map_err(|_| invalid())
            }
        }
    }
}

fn invalid() -> embedded::Error {
    internal("the database returned invalid JSON")
}

/// Returns the term of a JSON text.
pub fn of_text<'a>(env: Env<'a>, text: &[u8], null: Atom) -> Result<Term<'a>> {
    let mut reader = Reader {
        env,
        text,
        at: 0,
        null,
        frames: Vec::new(),
    };
    loop {
        let Some(mut value) = reader.value()? else {
            continue;
        };
        loop {
            let Some(frame) = reader.frames.last_mut() else {
                return Ok(value);
            };
            frame.add(value);
            match reader.after_value()? {
                Some(whole) => value = whole,
                None => break,
            }
        }
    }
}

struct Reader<'a, 't> {
    env: Env<'a>,
    text: &'t [u8],
    at: usize,
    null: Atom,
    frames: Vec<Frame<'a>>,
}

impl<'a> Reader<'a, '_> {
    /// Skips white space, and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        self.at = skip::space(self.text, self.at);
        self.text.get(self.at).copied()
    }

    /// Reads a scalar or an empty list or map; none after the beginning of one with content.
    fn value(&mut self) -> Result<Option<Term<'a>>> {
        let first = self.peek().ok_or_else(invalid)?;
        match first {
            b'[' => self.begin(b']', Frame::List(vec![])),
            b'{' => {
                let (keys, values) = (vec![], vec![]);
                self.begin(b'}', Frame::Map { keys, values })
            }
            b'"' => self.string().map(Some),
            b't' => self.word("true", true.encode(self.env)).map(Some),
            b'f' => self.word("false", false.encode(self.env)).map(Some),
            b'n' => self.word("null", self.null.encode(self.env)).map(Some),
            _ => self.number().map(Some),
        }
    }

    fn begin(&mut self, end: u8, frame: Frame<'a>) -> Result<Option<Term<'a>>> {
        self.at += 1;
        if self.peek() == Some(end) {
            self.at += 1;
            return frame.into_term(self.env).map(Some);
        }
        self.frames.push(frame);
        self.name()?;
        Ok(None)
    }

    /// Reads the name of the next member, in a map.
    fn name(&mut self) -> Result<()> {
        if !matches!(self.frames.last(), Some(Frame::Map { .. })) {
            return Ok(());
        }
        if self.peek() != Some(b'"') {
            return Err(invalid());
        }
        let name = self.string()?;
        if self.peek() != Some(b':') {
            return Err(invalid());
        }
        self.at += 1;
        if let Some(Frame::Map { keys, .. }) = self.frames.last_mut() {
            keys.push(name);
        }
        Ok(())
    }

    /// Reads what follows a value in a list or map, and returns the whole at its end.
    fn after_value(&mut self) -> Result<Option<Term<'a>>> {
        let next = self.peek();
        self.at += 1;
        match next {
            Some(b',') => self.name().map(|()| None),
            Some(b']' | b'}') => {
                let frame = self.frames.pop().ok_or_else(invalid)?;
                frame.into_term(self.env).map(Some)
            }
            _ => Err(invalid()),
        }
    }

    fn string(&mut self) -> Result<Term<'a>> {
        let (text, end) = read_string(self.text, self.at)?;
        self.at = end;
        Ok(binary(self.env, text.as_bytes()))
    }

    fn word(&mut self, word: &str, value: Term<'a>) -> Result<Term<'a>> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return Err(invalid());
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Term<'a>> {
        let (number, end) = read_number(self.text, self.at)?;
        self.at = end;
        Ok(match number {
            Number::Float(float) => float.encode(self.env),
            Number::Integer {
                negative: false,
                magnitude,
            } => magnitude.encode(self.env),
            Number::Integer { magnitude, .. } => match 0_i64.checked_sub_unsigned(magnitude) {
                Some(integer) => integer.encode(self.env),
                None => BigInt::from_biguint(Sign::Minus, magnitude.into()).encode(self.env),
            },
            Number::BigInteger { negative, digits } => {
                let integer = BigInt::parse_bytes(digits, 10).ok_or_else(invalid)?;
                let integer = if negative { -integer } else { integer };
                integer.encode(self.env)
            }
        })
    }
}
