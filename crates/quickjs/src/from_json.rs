//! Builds JavaScript values directly from JSON text, without JavaScript's own parser.

use std::ptr::NonNull;

use memchr::memchr2;
use rquickjs_sys as qjs;

use crate::lazy::{self, Text};
use crate::realm::State;
use crate::shapes::Prefix;
use crate::skip::{string_end, value_end};

/// Precedes an object or array of a document that is not a record; no JSON text has this byte
/// there.
///
/// JavaScript accesses nearly every member of a record ([`Form::Records`](crate::Form::Records)),
/// so it is built immediately. Marked values may merely be passed on: they are built when they are
/// accessed.
pub const WHOLE: u8 = 1;

/// Deepest nesting that is built, and written.
pub(crate) const MAX_DEPTH: usize = 1000;

/// Room for elements of arrays that is kept for the next value.
const ELEMENTS_KEPT: usize = 1 << 16;

/// The reason why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The text is not JSON.
    #[error("it is not JSON")]
    Syntax,
    /// It nests deeper than 1,000 levels, or is longer than 4 GiB.
    #[error("it nests too deeply")]
    Depth,
    /// QuickJS could not make a value: an exception is pending, as of [`Interrupted`](crate::Interrupted).
    #[error("there is no memory for it")]
    Exception,
}

/// Builds values in one context.
pub(crate) struct Builder<'a> {
    pub ctx: *mut qjs::JSContext,
    pub state: &'a mut State,
    /// The text of the values, if they are a document's: then objects are built as they are
    /// accessed, and arrays cannot grow, as CouchDB passes documents to map functions.
    pub document: Option<NonNull<Text>>,
    /// Whether the document's objects are built immediately nevertheless, except those marked with
    /// [`WHOLE`]; they are frozen too.
    pub records: bool,
}

/// Reads a JSON text.
pub(crate) struct Reader<'a, 'b> {
    to: &'b mut Builder<'a>,
    json: &'b [u8],
    pub at: usize,
    depth: usize,
    /// Whether the last string has lone surrogates.
    lone: bool,
    /// The array index that the last name that was read is; [`NO_INDEX`] for others.
    pub index: u32,
}

/// No array index, by JavaScript's definition.
pub(crate) const NO_INDEX: u32 = u32::MAX;

/// Returns the array index that a name is.
fn array_index(name: &[u8]) -> u32 {
    let canonical = match name {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.len() < 10 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let text = str::from_utf8(name).ok().filter(|_| canonical);
    text.and_then(|text| text.parse().ok()).unwrap_or(NO_INDEX)
}

/// The location of a string's text without escapes.
#[derive(Clone, Copy)]
enum Unescaped {
    Json(usize, usize),
    Scratch,
}

impl Builder<'_> {
    /// Returns the value of the JSON text that starts at `start` and ends with `json`; the caller
    /// owns it.
    ///
    /// # Safety
    /// `ctx` is a live context entered by this thread, `state` is its own. The document's text
    /// starts with `json`.
    pub unsafe fn build(&mut self, json: &[u8], start: usize) -> Result<qjs::JSValue, BuildError> {
        let mut reader = Reader::new(self, json, start);
        // SAFETY: by the caller, as for all `unsafe` of the reader.
        let value = unsafe { reader.value() };
        let rest = reader.skip_space();
        self.state.members.clear();
        self.state.elements.shrink_to(ELEMENTS_KEPT);
        // SAFETY: by the caller; no name that was given out is used any more. The value is owned
        // here.
        unsafe {
            self.state.names.settle(self.ctx);
            let value = value?;
            if rest.is_some() {
                qjs::JS_FreeValue(self.ctx, value);
                return Err(BuildError::Syntax);
            }
            Ok(value)
        }
    }
}

impl<'a, 'b> Reader<'a, 'b> {
    pub fn new(to: &'b mut Builder<'a>, json: &'b [u8], at: usize) -> Reader<'a, 'b> {
        Reader {
            to,
            json,
            at,
            depth: 0,
            lone: false,
            index: NO_INDEX,
        }
    }

    /// Returns the next member of an object whose text ends with `json`: its name, which lives
    /// until names are settled, and where its value is. The opening brace is taken with the `first`
    /// one.
    ///
    /// # Safety
    /// As for [`Builder::build`].
    pub unsafe fn member(
        &mut self,
        first: bool,
    ) -> Result<Option<(qjs::JSAtom, usize, usize)>, BuildError> {
        let before = self.skip_space();
        match before {
            Some(b'{') if first => {
                self.at += 1;
                if self.skip_space() == Some(b'}') {
                    return Ok(None);
                }
            }
            Some(b',') if !first => self.at += 1,
            Some(b'}') if !first => return Ok(None),
            _ => return Err(BuildError::Syntax),
        }
        // SAFETY: by the caller.
        let (atom, _) = unsafe { self.name() }?;
        self.skip_space();
        let start = self.at;
        let marked = self.json.get(start) == Some(&WHOLE);
        self.at = value_end(self.json, start + usize::from(marked)).ok_or(BuildError::Syntax)?;
        Ok(Some((atom, start, self.at)))
    }

    /// Returns the next byte that is not white space, not taken.
    #[inline]
    fn skip_space(&mut self) -> Option<u8> {
        loop {
            match self.json.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    #[inline]
    fn checked(value: qjs::JSValue) -> Result<qjs::JSValue, BuildError> {
        // SAFETY: it reads the value's tag.
        if unsafe { qjs::JS_IsException(value) } {
            return Err(BuildError::Exception);
        }
        Ok(value)
    }

    unsafe fn value(&mut self) -> Result<qjs::JSValue, BuildError> {
        match self.skip_space().ok_or(BuildError::Syntax)? {
            b'"' => {
                self.at += 1;
                // SAFETY: see `build`.
                unsafe { self.string() }
            }
            WHOLE if self.to.records => {
                self.at += 1;
                self.to.records = false;
                // SAFETY: see `build`.
                let value = unsafe { self.value() };
                self.to.records = true;
                value
            }
            b'{' if self.to.document.is_some() && !self.to.records => {
                // SAFETY: see `build`.
                unsafe { self.later() }
            }
            b'{' => {
                self.at += 1;
                // SAFETY: see `build`.
                unsafe { self.nested(Self::object) }
            }
            b'[' => {
                self.at += 1;
                // SAFETY: see `build`.
                unsafe { self.nested(Self::array) }
            }
            b't' => self.word(b"true", qjs::JS_TRUE),
            b'f' => self.word(b"false", qjs::JS_FALSE),
            b'n' => self.word(b"null", qjs::JS_NULL),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(BuildError::Syntax),
        }
    }

    fn word(&mut self, word: &[u8], value: qjs::JSValue) -> Result<qjs::JSValue, BuildError> {
        if self.json[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        Err(BuildError::Syntax)
    }

    #[inline]
    unsafe fn nested(
        &mut self,
        read: unsafe fn(&mut Self) -> Result<qjs::JSValue, BuildError>,
    ) -> Result<qjs::JSValue, BuildError> {
        if self.depth == MAX_DEPTH {
            return Err(BuildError::Depth);
        }
        self.depth += 1;
        // SAFETY: see `build`.
        let value = unsafe { read(self) };
        self.depth -= 1;
        value
    }

    /// Creates an object that is built from its part of the text when it is accessed.
    unsafe fn later(&mut self) -> Result<qjs::JSValue, BuildError> {
        let document = self.to.document.ok_or(BuildError::Syntax)?;
        let start = self.at;
        self.at = value_end(self.json, start).ok_or(BuildError::Syntax)?;
        // SAFETY: see `build`.
        Self::checked(unsafe { lazy::object(self.to.ctx, document, start, self.at) })
    }

    unsafe fn object(&mut self) -> Result<qjs::JSValue, BuildError> {
        // SAFETY: the object is owned by this function until it is answered, and freed when a
        // member fails.
        unsafe {
            let object = Self::checked(qjs::JS_NewObject(self.to.ctx))?;
            match self.members(object) {
                Ok(()) => {
                    if self.to.document.is_some() {
                        qjs::JS_PreventExtensions(self.to.ctx, object);
                    }
                    Ok(object)
                }
                Err(error) => {
                    qjs::JS_FreeValue(self.to.ctx, object);
                    Err(error)
                }
            }
        }
    }

    unsafe fn members(&mut self, object: qjs::JSValue) -> Result<(), BuildError> {
        let flags = match self.to.document {
            Some(_) => qjs::JS_PROP_ENUMERABLE,
            None => qjs::JS_PROP_C_W_E,
        };
        if self.skip_space() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        let mut prefix = Prefix::new(flags);
        let first = self.to.state.members.len();
        loop {
            // SAFETY: see `build`.
            let (atom, hash) = unsafe { self.name() }?;
            // SAFETY: see `build`. `JS_DefinePropertyValue` takes ownership of the value, whatever
            // its result.
            unsafe {
                let value = self.value()?;
                let ctx = self.to.ctx;
                if qjs::JS_DefinePropertyValue(ctx, object, atom, value, flags as i32) < 0 {
                    return Err(BuildError::Exception);
                }
                prefix.push(hash);
                self.to.state.members.push(atom);
                if self.to.state.shapes.is_wanted(prefix) {
                    let names = &self.to.state.members[first..];
                    self.to.state.shapes.keep(ctx, names, flags);
                }
            }
            match self.skip_space() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    self.to.state.members.truncate(first);
                    return Ok(());
                }
                _ => return Err(BuildError::Syntax),
            }
        }
    }

    /// Returns a member's name, with its hash, and its colon.
    #[inline]
    unsafe fn name(&mut self) -> Result<(qjs::JSAtom, u64), BuildError> {
        if self.skip_space() != Some(b'"') {
            return Err(BuildError::Syntax);
        }
        self.at += 1;
        let text = match self.text()? {
            Unescaped::Json(from, to) => &self.json[from..to],
            Unescaped::Scratch => &self.to.state.scratch,
        };
        self.index = array_index(text);
        // SAFETY: see `build`.
        let (atom, hash) = unsafe { self.to.state.names.atom(self.to.ctx, text) };
        if atom == 0 {
            return Err(BuildError::Exception);
        }
        if self.skip_space() != Some(b':') {
            return Err(BuildError::Syntax);
        }
        self.at += 1;
        Ok((atom, hash))
    }

    unsafe fn array(&mut self) -> Result<qjs::JSValue, BuildError> {
        let start = self.to.state.elements.len();
        // SAFETY: see `build`.
        let read = unsafe { self.elements() };
        // SAFETY: the elements from `start` are ours. `JS_NewArrayFrom` takes them over, also when
        // it fails, so they are dropped from the list without being freed.
        unsafe {
            if let Err(error) = read {
                for value in self.to.state.elements.drain(start..) {
                    qjs::JS_FreeValue(self.to.ctx, value);
                }
                return Err(error);
            }
            let elements = &self.to.state.elements[start..];
            let count = i32::try_from(elements.len()).map_err(|_| BuildError::Depth)?;
            let array = qjs::JS_NewArrayFrom(self.to.ctx, count, elements.as_ptr());
            self.to.state.elements.truncate(start);
            let array = Self::checked(array)?;
            if let Some(document) = self.to.document {
                qjs::JS_PreventExtensions(self.to.ctx, array);
                let exposed = &document.as_ref().exposed;
                exposed.set(exposed.get() || count > 0);
            }
            Ok(array)
        }
    }

    unsafe fn elements(&mut self) -> Result<(), BuildError> {
        if self.skip_space() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            // SAFETY: see `build`.
            let value = unsafe { self.value() }?;
            self.to.state.elements.push(value);
            match self.skip_space() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(BuildError::Syntax),
            }
        }
    }

    fn number(&mut self) -> Result<qjs::JSValue, BuildError> {
        let start = self.at;
        let negative = self.json[start] == b'-';
        let mut at = start + usize::from(negative);
        let digits = at;
        let mut integer = 0i64;
        while let Some(digit @ b'0'..=b'9') = self.json.get(at) {
            integer = integer
                .wrapping_mul(10)
                .wrapping_add(i64::from(digit - b'0'));
            at += 1;
        }
        if at == digits {
            return Err(BuildError::Syntax);
        }
        let fraction = matches!(self.json.get(at), Some(b'.' | b'e' | b'E'));
        let zero = negative && integer == 0;
        if !fraction && at - digits <= 15 && !zero {
            self.at = at;
            let integer = if negative { -integer } else { integer };
            return Ok(match i32::try_from(integer) {
                Ok(small) => qjs::JS_MKVAL(qjs::JS_TAG_INT, small),
                Err(_) => qjs::JS_NewFloat64(integer as f64),
            });
        }
        while let Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') = self.json.get(at) {
            at += 1;
        }
        self.at = at;
        let text = str::from_utf8(&self.json[start..at]).map_err(|_| BuildError::Syntax)?;
        let number: f64 = text.parse().map_err(|_| BuildError::Syntax)?;
        Ok(qjs::JS_NewFloat64(number))
    }

    /// Returns a string's value; its opening quote is taken.
    #[inline]
    unsafe fn string(&mut self) -> Result<qjs::JSValue, BuildError> {
        let ctx = self.to.ctx;
        let text = match self.text()? {
            Unescaped::Json(from, to) => &self.json[from..to],
            Unescaped::Scratch => &self.to.state.scratch,
        };
        // SAFETY: the text is live during the call.
        unsafe {
            if self.lone {
                let wide = wide(text);
                return Self::checked(qjs::JS_NewStringUTF16(ctx, wide.as_ptr(), wide.len() as _));
            }
            let text = qjs::JS_NewStringLen(ctx, text.as_ptr().cast(), text.len() as _);
            Self::checked(text)
        }
    }

    /// Returns a string's text without escapes, up to and with its closing quote. Lone surrogates
    /// come as three bytes each.
    #[inline]
    fn text(&mut self) -> Result<Unescaped, BuildError> {
        let start = self.at;
        let (end, escapes) = string_end(self.json, start).ok_or(BuildError::Syntax)?;
        if escapes {
            return self.escaped();
        }
        self.at = end + 1;
        self.lone = false;
        Ok(Unescaped::Json(start, end))
    }

    #[cold]
    fn escaped(&mut self) -> Result<Unescaped, BuildError> {
        self.lone = false;
        self.to.state.scratch.clear();
        loop {
            let rest = &self.json[self.at..];
            let plain = memchr2(b'"', b'\\', rest).ok_or(BuildError::Syntax)?;
            self.to.state.scratch.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Ok(Unescaped::Scratch);
            }
            let escape = *self.json.get(self.at).ok_or(BuildError::Syntax)?;
            self.at += 1;
            let byte = match escape {
                b'"' | b'\\' | b'/' => escape,
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'u' => {
                    self.unicode()?;
                    continue;
                }
                _ => return Err(BuildError::Syntax),
            };
            self.to.state.scratch.push(byte);
        }
    }

    fn hex(&mut self) -> Result<u32, BuildError> {
        let digits = self.json.get(self.at..self.at + 4);
        let digits = digits.ok_or(BuildError::Syntax)?;
        self.at += 4;
        digits.iter().try_fold(0, |code, &digit| {
            let digit = char::from(digit).to_digit(16);
            Ok(code << 4 | digit.ok_or(BuildError::Syntax)?)
        })
    }

    fn unicode(&mut self) -> Result<(), BuildError> {
        let mut code = self.hex()?;
        if (0xd800..0xdc00).contains(&code) && self.json[self.at..].starts_with(b"\\u") {
            let after = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
            } else {
                self.at = after;
            }
        }
        match char::from_u32(code) {
            Some(character) => {
                let mut utf8 = [0; 4];
                let utf8 = character.encode_utf8(&mut utf8);
                self.to.state.scratch.extend_from_slice(utf8.as_bytes());
            }
            None => {
                self.lone = true;
                self.to.state.scratch.extend_from_slice(&[
                    0xe0 | (code >> 12) as u8,
                    0x80 | (code >> 6 & 0x3f) as u8,
                    0x80 | (code & 0x3f) as u8,
                ]);
            }
        }
        Ok(())
    }
}

/// Returns the start of the three bytes of a lone surrogate: no other character has an 0xED
/// followed by an 0xA0 or more.
#[inline]
pub(crate) fn lone_surrogate(text: &[u8]) -> Option<usize> {
    memchr::memchr_iter(0xed, text).find(|&at| text.get(at + 1).is_some_and(|&next| next >= 0xa0))
}

/// UTF-16 of a text, lone surrogates included.
fn wide(text: &[u8]) -> Vec<u16> {
    let mut wide = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let plain = lone_surrogate(rest).unwrap_or(rest.len());
        wide.extend(String::from_utf8_lossy(&rest[..plain]).encode_utf16());
        rest = &rest[plain..];
        if let [_, second, third, tail @ ..] = rest {
            wide.push(0xd000 | u16::from(second & 0x3f) << 6 | u16::from(third & 0x3f));
            rest = tail;
        } else {
            break;
        }
    }
    wide
}
