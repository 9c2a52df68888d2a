//! JavaScript values made straight from JSON text, without JavaScript's own parser.

use memchr::memchr2;
use rquickjs_sys as qjs;

use super::names::Names;
use super::shapes::{Prefix, Shapes};

/// Deepest nesting that is built, and written.
pub(super) const MAX_DEPTH: usize = 1000;

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuildError {
    /// The text is not JSON.
    Syntax,
    /// It nests deeper than [`MAX_DEPTH`].
    Depth,
    /// QuickJS could not make a value: an exception is pending.
    Exception,
}

/// What was built.
pub(super) struct Built {
    /// Owned by the caller.
    pub value: qjs::JSValue,
    /// The text is what `JSON.stringify` would write, and no array is in it: a frozen value of it stays equal to the text.
    pub verbatim: bool,
}

/// Builds values in one context.
pub(super) struct Builder<'a> {
    pub ctx: *mut qjs::JSContext,
    pub names: &'a mut Names,
    /// Elements of arrays that are not complete; owned values.
    pub elements: &'a mut Vec<qjs::JSValue>,
    pub shapes: &'a mut Shapes,
    /// Names of members of objects that are not complete. The table of names keeps them alive while building.
    pub members: &'a mut Vec<qjs::JSAtom>,
    /// Text of a string with escapes.
    pub scratch: &'a mut Vec<u8>,
    /// Whether objects cannot be changed and arrays cannot grow, as CouchDB gives documents to map functions.
    pub frozen: bool,
}

struct Reader<'a, 'b> {
    to: &'b mut Builder<'a>,
    json: &'b [u8],
    at: usize,
    depth: usize,
    verbatim: bool,
    /// Whether the last string that was read has lone surrogates.
    lone: bool,
}

/// Where a string's text without escapes is.
#[derive(Clone, Copy)]
enum Text {
    Json(usize, usize),
    Scratch,
}

impl Builder<'_> {
    /// The value of a JSON text.
    ///
    /// # Safety
    /// `ctx` is a live context of the runtime that `names` is for, entered by this thread.
    pub unsafe fn build(&mut self, json: &[u8]) -> Result<Built, BuildError> {
        let mut reader = Reader {
            to: self,
            json,
            at: 0,
            depth: 0,
            verbatim: true,
            lone: false,
        };
        // SAFETY: by the caller, as for all `unsafe` of the reader.
        let value = unsafe { reader.value() };
        let rest = reader.skip_space();
        let verbatim = reader.verbatim;
        self.members.clear();
        // SAFETY: by the caller; no name that was given out is used any more.
        unsafe { self.names.settle(self.ctx) };
        let value = value?;
        if rest.is_some() {
            // SAFETY: the value is owned here.
            unsafe { qjs::JS_FreeValue(self.ctx, value) };
            return Err(BuildError::Syntax);
        }
        Ok(Built { value, verbatim })
    }
}

impl<'b> Reader<'_, 'b> {
    /// The next byte that is not white space, not taken.
    #[inline]
    fn skip_space(&mut self) -> Option<u8> {
        loop {
            match self.json.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => {
                    self.verbatim = false;
                    self.at += 1;
                }
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
            b'{' => {
                self.at += 1;
                // SAFETY: see `build`.
                unsafe { self.nested(Self::object) }
            }
            b'[' => {
                self.at += 1;
                self.verbatim = false;
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

    unsafe fn object(&mut self) -> Result<qjs::JSValue, BuildError> {
        // SAFETY: the object is owned by this function until it is answered, and freed when a member fails.
        unsafe {
            let object = Self::checked(qjs::JS_NewObject(self.to.ctx))?;
            match self.members(object) {
                Ok(()) => {
                    if self.to.frozen {
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
        let flags = if self.to.frozen {
            qjs::JS_PROP_ENUMERABLE
        } else {
            qjs::JS_PROP_C_W_E
        };
        if self.skip_space() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        let mut prefix = Prefix::new(flags);
        let first = self.to.members.len();
        loop {
            // SAFETY: see `build`.
            let (atom, hash) = unsafe { self.name() }?;
            // SAFETY: see `build`. `JS_DefinePropertyValue` takes the value over, whatever comes of it.
            unsafe {
                let value = self.value()?;
                let ctx = self.to.ctx;
                if qjs::JS_DefinePropertyValue(ctx, object, atom, value, flags as i32) < 0 {
                    return Err(BuildError::Exception);
                }
                prefix.push(hash);
                self.to.members.push(atom);
                if self.to.shapes.is_wanted(prefix) {
                    let names = &self.to.members[first..];
                    self.to.shapes.keep(ctx, names, flags);
                }
            }
            match self.skip_space() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    self.to.members.truncate(first);
                    return Ok(());
                }
                _ => return Err(BuildError::Syntax),
            }
        }
    }

    /// A member's name, with its hash, and its colon.
    #[inline]
    unsafe fn name(&mut self) -> Result<(qjs::JSAtom, u64), BuildError> {
        if self.skip_space() != Some(b'"') {
            return Err(BuildError::Syntax);
        }
        self.at += 1;
        let text = match self.text()? {
            Text::Json(from, to) => &self.json[from..to],
            Text::Scratch => self.to.scratch,
        };
        // JavaScript puts members whose names are numbers first.
        if text.first().is_some_and(u8::is_ascii_digit) {
            self.verbatim = false;
        }
        // SAFETY: see `build`.
        let (atom, hash) = unsafe { self.to.names.atom(self.to.ctx, text) };
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
        let start = self.to.elements.len();
        // SAFETY: see `build`.
        let read = unsafe { self.elements() };
        // SAFETY: the elements from `start` are ours. `JS_NewArrayFrom` takes them over, also when it fails, so they are
        // dropped from the list without being freed.
        unsafe {
            if let Err(error) = read {
                for value in self.to.elements.drain(start..) {
                    qjs::JS_FreeValue(self.to.ctx, value);
                }
                return Err(error);
            }
            let elements = &self.to.elements[start..];
            let count = i32::try_from(elements.len()).map_err(|_| BuildError::Depth)?;
            let array = qjs::JS_NewArrayFrom(self.to.ctx, count, elements.as_ptr());
            self.to.elements.truncate(start);
            let array = Self::checked(array)?;
            if self.to.frozen {
                qjs::JS_PreventExtensions(self.to.ctx, array);
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
            self.to.elements.push(value);
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
        self.verbatim = false;
        while let Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') = self.json.get(at) {
            at += 1;
        }
        self.at = at;
        let text = str::from_utf8(&self.json[start..at]).map_err(|_| BuildError::Syntax)?;
        let number: f64 = text.parse().map_err(|_| BuildError::Syntax)?;
        Ok(qjs::JS_NewFloat64(number))
    }

    /// A string's value; its opening quote is taken.
    #[inline]
    unsafe fn string(&mut self) -> Result<qjs::JSValue, BuildError> {
        let ctx = self.to.ctx;
        let text = match self.text()? {
            Text::Json(from, to) => &self.json[from..to],
            Text::Scratch => self.to.scratch,
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

    /// A string's text without escapes, up to and with its closing quote. Lone surrogates come as three bytes each.
    #[inline]
    fn text(&mut self) -> Result<Text, BuildError> {
        let start = self.at;
        let near = self.json.len().min(start + 24);
        let mut at = start;
        while at < near && self.json[at] != b'"' && self.json[at] != b'\\' {
            at += 1;
        }
        if at == near {
            at += memchr2(b'"', b'\\', &self.json[at..]).ok_or(BuildError::Syntax)?;
        }
        if self.json[at] == b'"' {
            self.at = at + 1;
            self.lone = false;
            return Ok(Text::Json(start, at));
        }
        self.at = at;
        self.escaped(start)
    }

    #[cold]
    fn escaped(&mut self, start: usize) -> Result<Text, BuildError> {
        self.lone = false;
        self.to.scratch.clear();
        self.to
            .scratch
            .extend_from_slice(&self.json[start..self.at]);
        loop {
            let rest = &self.json[self.at..];
            let plain = memchr2(b'"', b'\\', rest).ok_or(BuildError::Syntax)?;
            self.to.scratch.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Ok(Text::Scratch);
            }
            let escape = *self.json.get(self.at).ok_or(BuildError::Syntax)?;
            self.at += 1;
            let byte = match escape {
                b'"' | b'\\' => escape,
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'/' => {
                    self.verbatim = false;
                    b'/'
                }
                b'u' => {
                    self.verbatim = false;
                    self.unicode()?;
                    continue;
                }
                _ => return Err(BuildError::Syntax),
            };
            self.to.scratch.push(byte);
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
                self.to.scratch.extend_from_slice(utf8.as_bytes());
            }
            None => {
                self.lone = true;
                self.to.scratch.extend_from_slice(&[
                    0xe0 | (code >> 12) as u8,
                    0x80 | (code >> 6 & 0x3f) as u8,
                    0x80 | (code & 0x3f) as u8,
                ]);
            }
        }
        Ok(())
    }
}

/// Where the three bytes of a lone surrogate begin: no other character has an 0xED with an 0xA0 or more behind it.
#[inline]
pub(super) fn lone_surrogate(text: &[u8]) -> Option<usize> {
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
