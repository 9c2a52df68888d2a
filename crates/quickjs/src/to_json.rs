//! JavaScript values written as compact JSON text: what `JSON.stringify` gives, but for lone
//! surrogates, which become U+FFFD since they are not text, and without calling into JavaScript
//! where no code of the user's can be involved.

use std::ptr::{self, NonNull};

use rquickjs_sys as qjs;

use crate::control::Control;
use crate::copy::{self, NotCopied};
use crate::from_json::{MAX_DEPTH, lone_surrogate};
use crate::lazy::{self, LazyNode, Text};
use crate::limits::Limit;
use crate::realm::State;

/// An exception is pending in the context
/// ([`Scope::take_exception`](crate::Scope::take_exception)), or a limit was hit
/// ([`Scope::over`](crate::Scope::over)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("JavaScript threw, or hit a limit")]
pub struct Interrupted;

/// Writes values of one context.
pub(crate) struct Writer<'a> {
    pub ctx: *mut qjs::JSContext,
    pub control: &'a Control,
    pub state: NonNull<State>,
    pub out: &'a mut Vec<u8>,
    /// Length of `out` at which to stop.
    pub end: usize,
    pub to_json: qjs::JSAtom,
    pub class_object: qjs::JSClassID,
    pub class_array: qjs::JSClassID,
    pub object_prototype: qjs::JSValue,
}

/// The place of a value, which is passed to `toJSON`.
#[derive(Clone, Copy)]
enum Place {
    Top,
    Index(u32),
    Member(qjs::JSAtom),
}

impl Writer<'_> {
    /// Writes a value, `null` for one that JSON does not have.
    ///
    /// # Safety
    /// `ctx` is a live context entered by this thread, `value` a live value of it, `state` its own.
    pub unsafe fn write(&mut self, value: qjs::JSValue) -> Result<(), Interrupted> {
        // SAFETY: by the caller, as for all `unsafe` here.
        if !unsafe { self.value(value, Place::Top, 0) }? {
            self.out.extend_from_slice(b"null");
        }
        Ok(())
    }

    fn check_size(&mut self) -> Result<(), Interrupted> {
        if self.out.len() > self.end {
            self.control.set_over(Limit::Bytes);
            return Err(Interrupted);
        }
        Ok(())
    }

    /// Writes a value; `false` when JSON has none for it.
    unsafe fn value(
        &mut self,
        value: qjs::JSValue,
        place: Place,
        depth: usize,
    ) -> Result<bool, Interrupted> {
        // SAFETY: see `write`. The parts of a value that are read fit its tag.
        unsafe {
            match qjs::JS_VALUE_GET_NORM_TAG(value) {
                qjs::JS_TAG_INT => self.integer(qjs::JS_VALUE_GET_INT(value)),
                qjs::JS_TAG_FLOAT64 => self.float(qjs::JS_VALUE_GET_FLOAT64(value)),
                qjs::JS_TAG_STRING | qjs::JS_TAG_STRING_ROPE => self.string(value)?,
                qjs::JS_TAG_BOOL if qjs::JS_VALUE_GET_BOOL(value) => {
                    self.out.extend_from_slice(b"true");
                }
                qjs::JS_TAG_BOOL => self.out.extend_from_slice(b"false"),
                qjs::JS_TAG_NULL => self.out.extend_from_slice(b"null"),
                qjs::JS_TAG_OBJECT => return self.object(value, place, depth),
                qjs::JS_TAG_BIG_INT | qjs::JS_TAG_SHORT_BIG_INT => return self.stringify(value),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    fn integer(&mut self, number: i32) {
        let mut digits = [0; 11];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        self.out.extend_from_slice(&digits[at..]);
    }

    fn float(&mut self, number: f64) {
        if number.is_finite() {
            let mut buffer = ryu_js::Buffer::new();
            let digits = buffer.format_finite(number);
            self.out.extend_from_slice(digits.as_bytes());
        } else {
            self.out.extend_from_slice(b"null");
        }
    }

    unsafe fn string(&mut self, value: qjs::JSValue) -> Result<(), Interrupted> {
        // SAFETY: see `write`; the C string is freed after its last use, and is `len` bytes long.
        unsafe {
            let mut len: qjs::size_t = 0;
            let text = qjs::JS_ToCStringLen2(self.ctx, &raw mut len, value, false);
            if text.is_null() {
                return Err(Interrupted);
            }
            quote(
                std::slice::from_raw_parts(text.cast(), len as usize),
                self.out,
            );
            qjs::JS_FreeCString(self.ctx, text);
        }
        self.check_size()
    }

    unsafe fn object(
        &mut self,
        object: qjs::JSValue,
        place: Place,
        depth: usize,
    ) -> Result<bool, Interrupted> {
        // SAFETY: see `write`; the values that come from QuickJS are owned here, and freed once
        // each.
        unsafe {
            let class = qjs::JS_GetClassID(object);
            if class == self.control.lazy_class.get() && !self.has_to_json(self.object_prototype)? {
                return self.document(object, depth);
            }
            if !self.is_plain(class) {
                if qjs::JS_IsFunction(self.ctx, object) && !self.has_to_json(object)? {
                    return Ok(false);
                }
                return self.stringify(object);
            }
            let to_json = qjs::JS_GetProperty(self.ctx, object, self.to_json);
            if qjs::JS_IsObject(to_json) && qjs::JS_IsFunction(self.ctx, to_json) {
                return self.custom(object, to_json, place, depth);
            }
            qjs::JS_FreeValue(self.ctx, to_json);
            if qjs::JS_IsException(to_json) {
                return Err(Interrupted);
            }
            self.plain(object, class, depth)
        }
    }

    /// Returns whether objects of a class are written by their members or elements.
    fn is_plain(&self, class: qjs::JSClassID) -> bool {
        [
            self.class_object,
            self.class_array,
            self.control.lazy_class.get(),
        ]
        .contains(&class)
    }

    /// Returns whether an object's `toJSON` has to be called.
    unsafe fn has_to_json(&mut self, object: qjs::JSValue) -> Result<bool, Interrupted> {
        // SAFETY: as in `object`.
        unsafe {
            let to_json = qjs::JS_GetProperty(self.ctx, object, self.to_json);
            if qjs::JS_IsException(to_json) {
                return Err(Interrupted);
            }
            let is = qjs::JS_IsObject(to_json) && qjs::JS_IsFunction(self.ctx, to_json);
            qjs::JS_FreeValue(self.ctx, to_json);
            Ok(is)
        }
    }

    /// Writes the result of the object's own `toJSON`, whose own `toJSON` is not called again.
    /// Takes ownership of `to_json`.
    #[cold]
    unsafe fn custom(
        &mut self,
        object: qjs::JSValue,
        to_json: qjs::JSValue,
        place: Place,
        depth: usize,
    ) -> Result<bool, Interrupted> {
        // SAFETY: as in `object`.
        unsafe {
            let mut key = match place {
                Place::Top => qjs::JS_NewStringLen(self.ctx, c"".as_ptr(), 0),
                Place::Index(index) => {
                    let index = index.to_string();
                    qjs::JS_NewStringLen(self.ctx, index.as_ptr().cast(), index.len() as _)
                }
                Place::Member(atom) => qjs::JS_AtomToString(self.ctx, atom),
            };
            if qjs::JS_IsException(key) {
                qjs::JS_FreeValue(self.ctx, to_json);
                return Err(Interrupted);
            }
            let answer = qjs::JS_Call(self.ctx, to_json, object, 1, &raw mut key);
            qjs::JS_FreeValue(self.ctx, key);
            qjs::JS_FreeValue(self.ctx, to_json);
            if qjs::JS_IsException(answer) {
                return Err(Interrupted);
            }
            let written = if qjs::JS_IsObject(answer) {
                let class = qjs::JS_GetClassID(answer);
                if self.is_plain(class) {
                    self.plain(answer, class, depth)
                } else if qjs::JS_IsFunction(self.ctx, answer) {
                    Ok(false)
                } else {
                    self.stringify(answer)
                }
            } else {
                self.value(answer, place, depth)
            };
            qjs::JS_FreeValue(self.ctx, answer);
            written
        }
    }

    unsafe fn plain(
        &mut self,
        object: qjs::JSValue,
        class: qjs::JSClassID,
        depth: usize,
    ) -> Result<bool, Interrupted> {
        if depth == MAX_DEPTH {
            return Err(self.too_deep());
        }
        // SAFETY: as in `object`.
        unsafe {
            if class == self.class_array {
                self.array(object, depth + 1)?;
            } else {
                self.members(object, depth + 1)?;
            }
        }
        self.check_size()?;
        Ok(true)
    }

    #[cold]
    fn too_deep(&self) -> Interrupted {
        let message = c"a value is circular or nests too deeply";
        // SAFETY: the context is live, the format has no arguments.
        unsafe { qjs::JS_ThrowTypeError(self.ctx, message.as_ptr()) };
        Interrupted
    }

    /// Writes an object of a document, from its text as far as that is known to be right.
    unsafe fn document(&mut self, object: qjs::JSValue, depth: usize) -> Result<bool, Interrupted> {
        if depth == MAX_DEPTH {
            return Err(self.too_deep());
        }
        // SAFETY: as in `object`. The node lives as long as the object, and gets no new members
        // once it is complete.
        unsafe {
            let class = self.control.lazy_class.get();
            let Some(mut node) = lazy::node(object, class) else {
                return Err(Interrupted);
            };
            let LazyNode {
                text, start, end, ..
            } = *node.as_ref();
            let json = Text::bytes(text);
            if !text.as_ref().exposed.get() && self.copied(&json[start as usize..end as usize])? {
                return Ok(true);
            }
            node.as_mut().complete(self.ctx).map_err(|_| Interrupted)?;
            if node.as_ref().has_numbers() {
                return self.plain(object, class, depth);
            }
            self.out.push(b'{');
            for at in 0..node.as_ref().members().len() {
                if at > 0 {
                    self.out.push(b',');
                }
                let member = &node.as_ref().members()[at];
                let (atom, start, end) = (member.atom, member.start, member.end);
                let untouched = qjs::JS_IsUninitialized(member.value);
                self.name(atom)?;
                if untouched && self.copied(&json[start as usize..end as usize])? {
                    continue;
                }
                let value = LazyNode::value(node, self.ctx, at).map_err(|_| Interrupted)?;
                self.value(value, Place::Member(atom), depth + 1)?;
            }
            self.out.push(b'}');
        }
        self.check_size()?;
        Ok(true)
    }

    /// Copies JSON text, if it can be.
    fn copied(&mut self, json: &[u8]) -> Result<bool, Interrupted> {
        match copy::copy(json, self.out) {
            Ok(()) => self.check_size().map(|()| true),
            Err(NotCopied::Unusual) => Ok(false),
            Err(NotCopied::Depth) => Err(self.too_deep()),
        }
    }

    /// Writes a member's name and its colon.
    unsafe fn name(&mut self, atom: qjs::JSAtom) -> Result<(), Interrupted> {
        let ctx = self.ctx;
        // SAFETY: as in `object`; no JavaScript is called while the state is borrowed.
        unsafe {
            let names = &mut self.state.as_mut().names;
            let name = names.json(ctx, atom, |json| member_name(ctx, atom, json));
            self.out.extend_from_slice(name.ok_or(Interrupted)?);
        }
        Ok(())
    }

    unsafe fn array(&mut self, array: qjs::JSValue, depth: usize) -> Result<(), Interrupted> {
        // SAFETY: as in `object`.
        unsafe {
            let mut len = 0;
            if qjs::JS_GetLength(self.ctx, array, &raw mut len) < 0 {
                return Err(Interrupted);
            }
            self.out.push(b'[');
            for index in 0..u32::try_from(len).unwrap_or(u32::MAX) {
                if index > 0 {
                    self.out.push(b',');
                }
                let value = qjs::JS_GetPropertyUint32(self.ctx, array, index);
                if qjs::JS_IsException(value) {
                    return Err(Interrupted);
                }
                let written = self.value(value, Place::Index(index), depth);
                qjs::JS_FreeValue(self.ctx, value);
                if !written? {
                    self.out.extend_from_slice(b"null");
                    self.check_size()?;
                }
                if index % 1024 == 1023 {
                    self.check_size()?;
                    self.check_time()?;
                }
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn check_time(&self) -> Result<(), Interrupted> {
        if self.control.must_stop() {
            return Err(Interrupted);
        }
        Ok(())
    }

    unsafe fn members(&mut self, object: qjs::JSValue, depth: usize) -> Result<(), Interrupted> {
        let flags = qjs::JS_GPN_STRING_MASK | qjs::JS_GPN_ENUM_ONLY;
        let mut names = ptr::null_mut();
        let mut count = 0;
        // SAFETY: as in `object`; QuickJS gives `count` names, each with a reference, which
        // `JS_FreePropertyEnum` frees together with the list.
        unsafe {
            let (names_at, count_at) = (&raw mut names, &raw mut count);
            let done =
                qjs::JS_GetOwnPropertyNames(self.ctx, names_at, count_at, object, flags as i32);
            if done < 0 {
                return Err(Interrupted);
            }
            self.out.push(b'{');
            let start = self.out.len();
            let mut result = Ok(());
            for at in 0..count as usize {
                let atom = (*names.add(at)).atom;
                result = self.member(object, atom, start, depth);
                if result.is_ok() && at % 1024 == 1023 {
                    result = self.check_time();
                }
                if result.is_err() {
                    break;
                }
            }
            qjs::JS_FreePropertyEnum(self.ctx, names, count);
            result?;
        }
        self.out.push(b'}');
        Ok(())
    }

    unsafe fn member(
        &mut self,
        object: qjs::JSValue,
        atom: qjs::JSAtom,
        start: usize,
        depth: usize,
    ) -> Result<(), Interrupted> {
        let before = self.out.len();
        // SAFETY: as in `object`.
        unsafe {
            let value = qjs::JS_GetProperty(self.ctx, object, atom);
            if qjs::JS_IsException(value) {
                return Err(Interrupted);
            }
            if before > start {
                self.out.push(b',');
            }
            let written = match self.name(atom) {
                Ok(()) => self.value(value, Place::Member(atom), depth),
                Err(failed) => Err(failed),
            };
            qjs::JS_FreeValue(self.ctx, value);
            if !written? {
                self.out.truncate(before);
            }
        }
        Ok(())
    }

    /// Leaves the value to QuickJS's own `JSON.stringify`: dates, boxed values, proxies, big
    /// integers and the like.
    #[cold]
    unsafe fn stringify(&mut self, value: qjs::JSValue) -> Result<bool, Interrupted> {
        // SAFETY: as in `object`.
        unsafe {
            let undefined = qjs::JS_UNDEFINED;
            let text = qjs::JS_JSONStringify(self.ctx, value, undefined, undefined);
            if qjs::JS_IsException(text) {
                return Err(Interrupted);
            }
            if qjs::JS_IsUndefined(text) {
                return Ok(false);
            }
            let mut len: qjs::size_t = 0;
            let json = qjs::JS_ToCStringLen2(self.ctx, &raw mut len, text, false);
            qjs::JS_FreeValue(self.ctx, text);
            if json.is_null() {
                return Err(Interrupted);
            }
            without_lone_escapes(
                std::slice::from_raw_parts(json.cast(), len as usize),
                self.out,
            );
            qjs::JS_FreeCString(self.ctx, json);
        }
        self.check_size()?;
        Ok(true)
    }
}

unsafe fn member_name(ctx: *mut qjs::JSContext, atom: qjs::JSAtom, json: &mut Vec<u8>) -> bool {
    // SAFETY: the context and the atom are live; the C string is freed after its last use.
    unsafe {
        let mut len: qjs::size_t = 0;
        let text = qjs::JS_AtomToCStringLen(ctx, &raw mut len, atom);
        if text.is_null() {
            return false;
        }
        quote(std::slice::from_raw_parts(text.cast(), len as usize), json);
        qjs::JS_FreeCString(ctx, text);
    }
    json.push(b':');
    true
}

/// Appends a string in quotes, lone surrogates as U+FFFD.
pub(crate) fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut start = 0;
    for (at, &byte) in text.iter().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' && byte != 0xed {
            continue;
        }
        if byte == 0xed {
            if lone_surrogate(&text[at..text.len().min(at + 2)]).is_some() {
                out.extend_from_slice(&text[start..at]);
                out.extend_from_slice("\u{fffd}".as_bytes());
                start = text.len().min(at + 3);
            }
            continue;
        }
        out.extend_from_slice(&text[start..at]);
        start = at + 1;
        let short = match byte {
            b'"' | b'\\' => byte,
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => {
                let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.extend_from_slice(&text[start..]);
    out.push(b'"');
}

/// Copies JSON text; `\ud800` and the like, which `JSON.stringify` writes for lone surrogates only,
/// become U+FFFD.
fn without_lone_escapes(json: &[u8], out: &mut Vec<u8>) {
    let mut rest = json;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let lone = rest.len() >= 6 && rest[1] == b'u' && matches!(rest[2], b'd' | b'D');
        let taken = if lone {
            out.extend_from_slice("\u{fffd}".as_bytes());
            6
        } else {
            let taken = rest.len().min(2);
            out.extend_from_slice(&rest[..taken]);
            taken
        };
        rest = &rest[taken..];
    }
    out.extend_from_slice(rest);
}
