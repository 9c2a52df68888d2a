//! JSON text of Erlang's terms.
//!
//! Maps are objects: their keys are binaries, or atoms, and are written in the order of their bytes,
//! so that one map always gets the same revision. Other terms are refused, with their path.
//! Nothing here recurses: stacks of schedulers are small.

use std::borrow::Cow;

use document::json::{DEPTH_MAX, write_float};
use document::write_json_string;
use embedded::Error;
use num_bigint::BigInt;
use rustler::schedule::consume_timeslice;
use rustler::{Encoder, Env, MapIterator, NewBinary, Term, TermType};

use crate::error;

mod atoms {
    rustler::atoms! { large, null, nil, true_atom = "true", false_atom = "false" }
}

/// Bytes of text that a normal scheduler writes in one call, in some tens of microseconds.
const SMALL_MAX: usize = 8 << 10;
/// Bytes that take about one per cent of a time slice.
const PERCENT_BYTES: usize = 512;

/// A list or map that is being written.
enum Frame<'a> {
    List {
        rest: Term<'a>,
        index: usize,
    },
    Map {
        rest: std::vec::IntoIter<(Cow<'a, str>, Term<'a>)>,
        key: Cow<'a, str>,
    },
}

enum Refused {
    /// The text is longer than allowed.
    Large,
    NotJson(String),
}

struct Writer<'a> {
    out: Vec<u8>,
    frames: Vec<Frame<'a>>,
    length_max: usize,
}

fn write(term: Term<'_>, length_max: usize) -> Result<Vec<u8>, Refused> {
    let mut writer = Writer {
        out: Vec::new(),
        frames: Vec::new(),
        length_max,
    };
    let mut next = Some(term);
    while let Some(term) = next {
        writer.value(term)?;
        if writer.out.len() > length_max {
            return Err(Refused::Large);
        }
        next = writer.after_value()?;
    }
    Ok(writer.out)
}

impl<'a> Writer<'a> {
    fn refuse<T>(&self, what: impl AsRef<str>) -> Result<T, Refused> {
        let mut place = String::new();
        for frame in &self.frames {
            match frame {
                Frame::Map { key, .. } => place.push_str(&format!(".{key}")),
                Frame::List { index, .. } => place.push_str(&format!("[{index}]")),
            }
        }
        let place = match place.is_empty() {
            true => "the value itself",
            false => &place,
        };
        let reason = format!("{} is not JSON: {place}", what.as_ref());
        Err(Refused::NotJson(reason))
    }

    /// Writes a scalar, or the beginning of a list or map.
    fn value(&mut self, term: Term<'a>) -> Result<(), Refused> {
        match term.get_type() {
            TermType::Binary => self.string(term),
            TermType::Integer => self.integer(term),
            TermType::Float => self.float(term),
            TermType::Atom => self.atom(term),
            TermType::List => {
                let rest = term;
                self.begin(b'[', Frame::List { rest, index: 0 })
            }
            TermType::Map => {
                let rest = self.entries(term)?.into_iter();
                let key = Cow::Borrowed("");
                self.begin(b'{', Frame::Map { rest, key })
            }
            TermType::Fun => self.refuse("a fun"),
            TermType::Pid => self.refuse("a pid"),
            TermType::Port => self.refuse("a port"),
            TermType::Ref => self.refuse("a reference"),
            TermType::Tuple => self.refuse("a tuple"),
            TermType::Unknown => self.refuse("this term"),
        }
    }

    fn begin(&mut self, bracket: u8, frame: Frame<'a>) -> Result<(), Refused> {
        if self.frames.len() >= DEPTH_MAX {
            return self.refuse(format!("a term of more than {DEPTH_MAX} levels"));
        }
        self.out.push(bracket);
        self.frames.push(frame);
        Ok(())
    }

    /// Writes what follows a value, up to the next one, which is returned.
    fn after_value(&mut self) -> Result<Option<Term<'a>>, Refused> {
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return Ok(None);
            };
            match frame {
                Frame::List { rest, index } => {
                    let is_first = self.out.last() == Some(&b'[') && *index == 0;
                    if let Ok((head, tail)) = rest.list_get_cell() {
                        *rest = tail;
                        if !is_first {
                            self.out.push(b',');
                            *index += 1;
                        }
                        return Ok(Some(head));
                    }
                    if !rest.is_empty_list() {
                        return self.refuse("an improper list");
                    }
                    self.out.push(b']');
                }
                Frame::Map { rest, key } => {
                    let is_first = self.out.last() == Some(&b'{') && key.is_empty();
                    if let Some((name, value)) = rest.next() {
                        if !is_first {
                            self.out.push(b',');
                        }
                        write_json_string(&name, &mut self.out);
                        self.out.push(b':');
                        *key = name;
                        return Ok(Some(value));
                    }
                    self.out.push(b'}');
                }
            }
            self.frames.pop();
        }
    }

    fn string(&mut self, term: Term<'a>) -> Result<(), Refused> {
        let Ok(binary) = term.into_binary() else {
            return self.refuse("a bit string");
        };
        if binary.len() > self.length_max {
            return Err(Refused::Large);
        }
        match std::str::from_utf8(binary.as_slice()) {
            Ok(text) => write_json_string(text, &mut self.out),
            Err(_) => return self.refuse("a binary that is not UTF-8"),
        }
        Ok(())
    }

    fn integer(&mut self, term: Term<'a>) -> Result<(), Refused> {
        if let Ok(small) = term.decode::<i64>() {
            self.out.extend_from_slice(small.to_string().as_bytes());
            return Ok(());
        }
        let Ok(integer) = term.decode::<BigInt>() else {
            return self.refuse("this integer");
        };
        // The text of a long one takes time that is quadratic in its length.
        if integer.bits() > BITS_MAX {
            return self.refuse("an integer of more than 255 bytes");
        }
        self.out.extend_from_slice(integer.to_string().as_bytes());
        Ok(())
    }

    fn float(&mut self, term: Term<'a>) -> Result<(), Refused> {
        let Ok(float) = term.decode::<f64>() else {
            return self.refuse("this float");
        };
        // The sign of zero counts for the revision.
        match float == 0.0 && float.is_sign_negative() {
            true => self.out.extend_from_slice(b"-0.0"),
            false => write_float(float, &mut self.out),
        }
        Ok(())
    }

    fn atom(&mut self, term: Term<'a>) -> Result<(), Refused> {
        let text: &[u8] = match term.decode::<rustler::Atom>() {
            Ok(atom) if atom == atoms::true_atom() => b"true",
            Ok(atom) if atom == atoms::false_atom() => b"false",
            Ok(atom) if atom == atoms::null() || atom == atoms::nil() => b"null",
            _ => return self.refuse(format!("the atom {term:?}")),
        };
        self.out.extend_from_slice(text);
        Ok(())
    }

    /// Returns the members of a map in the order of their names.
    fn entries(&self, map: Term<'a>) -> Result<Vec<(Cow<'a, str>, Term<'a>)>, Refused> {
        let size = map.map_size().unwrap_or(0);
        if size > self.length_max {
            return Err(Refused::Large);
        }
        let mut entries = Vec::with_capacity(size);
        for (key, value) in MapIterator::new(map).into_iter().flatten() {
            entries.push((self.name(key)?, value));
        }
        entries.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => self.refuse(format!("a map with the key {} twice", pair[0].0)),
            None => Ok(entries),
        }
    }

    fn name(&self, key: Term<'a>) -> Result<Cow<'a, str>, Refused> {
        if key.is_atom()
            && let Ok(name) = key.atom_to_string()
        {
            return Ok(Cow::Owned(name));
        }
        match key.decode::<&'a str>() {
            Ok(name) => Ok(Cow::Borrowed(name)),
            Err(_) => self.refuse(format!("the key {key:?}")),
        }
    }
}

/// Bits of the longest integer that a document can have.
const BITS_MAX: u64 = 255 * 8;

fn answer<'a>(env: Env<'a>, written: Result<Vec<u8>, Refused>) -> Term<'a> {
    match written {
        Ok(text) => NewBinary::from_slice(env, &text).into(),
        Err(Refused::Large) => atoms::large().encode(env),
        Err(Refused::NotJson(reason)) => error::term(env, &Error::bad_request(reason)),
    }
}

/// Returns the JSON text of a term, `large` when it takes too long for a normal scheduler, or
/// `{error, {Code, Reason}}`.
#[rustler::nif]
fn text<'a>(env: Env<'a>, term: Term<'a>) -> Term<'a> {
    let written = write(term, SMALL_MAX);
    let bytes = written.as_ref().map_or(SMALL_MAX, Vec::len);
    let percent = (bytes / PERCENT_BYTES).clamp(1, 100);
    consume_timeslice(env, percent as i32);
    answer(env, written)
}

/// Returns the JSON text of a term of any size, or `{error, {Code, Reason}}`.
#[rustler::nif(schedule = "DirtyCpu")]
fn text_dirty<'a>(env: Env<'a>, term: Term<'a>) -> Term<'a> {
    answer(env, write(term, usize::MAX))
}

/// Returns the JSON text of each term of a list, or `{error, {Code, Reason}}`. A binary is JSON text.
#[rustler::nif(schedule = "DirtyCpu")]
fn texts<'a>(env: Env<'a>, terms: Vec<Term<'a>>) -> Term<'a> {
    let mut texts = Vec::with_capacity(terms.len());
    for term in terms {
        if term.is_binary() {
            texts.push(term);
            continue;
        }
        match write(term, usize::MAX) {
            Ok(text) => texts.push(NewBinary::from_slice(env, &text).into()),
            refused => return answer(env, refused),
        }
    }
    texts.encode(env)
}
