//! What users' code threw, as an error. Looking at it may run users' code again, so each look may fail and is then passed over.

use std::ffi::CStr;

use rquickjs_sys as qjs;

use crate::Error;

/// What is said of a thrown value that cannot be shown.
const UNSHOWN: &str = "a value that cannot be shown";

/// The error for a thrown value: `{forbidden: …}`, `{unauthorized: …}`, an `Error`, CouchDB's `["error", name, reason]`, or
/// anything else.
///
/// # Safety
/// `ctx` is a live context entered by this thread, `value` a live value of it.
pub(super) unsafe fn error(ctx: *mut qjs::JSContext, value: qjs::JSValue) -> Error {
    // SAFETY: by the caller.
    unsafe {
        if !qjs::JS_IsObject(value) {
            let reason = text(ctx, value).unwrap_or_else(|| UNSHOWN.into());
            let name = "unnamed_error".into();
            return Error::Thrown { name, reason };
        }
        if let Some(reason) = member(ctx, value, c"forbidden") {
            return Error::Forbidden(reason);
        }
        if let Some(reason) = member(ctx, value, c"unauthorized") {
            return Error::Unauthorized(reason);
        }
        if qjs::JS_IsArray(value)
            && let Some("error" | "fatal") = member(ctx, value, c"0").as_deref()
            && let Some(name) = member(ctx, value, c"1")
        {
            let reason = member(ctx, value, c"2").unwrap_or_default();
            return named(name, reason);
        }
        let name = member(ctx, value, c"name");
        let message = member(ctx, value, c"message");
        match (name, message) {
            (Some(name), message) => named(name, message.unwrap_or_default()),
            (None, Some(reason)) => named("unnamed_error".into(), reason),
            (None, None) => {
                let reason = text(ctx, value).unwrap_or_else(|| UNSHOWN.into());
                named("unnamed_error".into(), reason)
            }
        }
    }
}

fn named(name: String, reason: String) -> Error {
    if name == "compilation_error" {
        return Error::Compile(reason);
    }
    Error::Thrown { name, reason }
}

/// Whether a map function threw what CouchDB takes as an order to give up: `"fatal_error"` or `["fatal", name, reason]`.
///
/// # Safety
/// As for [`error`].
pub(super) unsafe fn fatal(ctx: *mut qjs::JSContext, value: qjs::JSValue) -> Option<Error> {
    // SAFETY: by the caller.
    unsafe {
        if qjs::JS_IsString(value) {
            if text(ctx, value)? != "fatal_error" {
                return None;
            }
            return Some(Error::Thrown {
                name: "map_runtime_error".into(),
                reason: "function raised 'fatal_error'".into(),
            });
        }
        if qjs::JS_IsArray(value) && member(ctx, value, c"0")? == "fatal" {
            return Some(error(ctx, value));
        }
    }
    None
}

/// One line about a thrown value, for the log.
///
/// # Safety
/// As for [`error`].
pub(super) unsafe fn line(ctx: *mut qjs::JSContext, value: qjs::JSValue) -> String {
    // SAFETY: by the caller.
    unsafe {
        if !qjs::JS_IsObject(value) {
            return text(ctx, value).unwrap_or_else(|| UNSHOWN.into());
        }
        match error(ctx, value) {
            Error::Thrown { name, reason } => format!("{name}: {reason}"),
            other => other.to_string(),
        }
    }
}

/// A member's text, `None` when there is none.
unsafe fn member(ctx: *mut qjs::JSContext, object: qjs::JSValue, name: &CStr) -> Option<String> {
    // SAFETY: by the caller of `error`; the value is freed once.
    unsafe {
        let value = qjs::JS_GetPropertyStr(ctx, object, name.as_ptr());
        if qjs::JS_IsException(value) {
            forget_exception(ctx);
            return None;
        }
        let absent = qjs::JS_IsUndefined(value) || qjs::JS_IsNull(value);
        let text = if absent { None } else { text(ctx, value) };
        qjs::JS_FreeValue(ctx, value);
        text
    }
}

/// A string as it is, other values as JSON, or as JavaScript shows them.
unsafe fn text(ctx: *mut qjs::JSContext, value: qjs::JSValue) -> Option<String> {
    // SAFETY: by the caller of `error`; all values made here are freed once.
    unsafe {
        if !qjs::JS_IsObject(value) {
            return shown(ctx, value);
        }
        let undefined = qjs::JS_UNDEFINED;
        let json = qjs::JS_JSONStringify(ctx, value, undefined, undefined);
        if qjs::JS_IsException(json) {
            forget_exception(ctx);
            return None;
        }
        let is_text = qjs::JS_IsString(json);
        let text = shown(ctx, if is_text { json } else { value });
        qjs::JS_FreeValue(ctx, json);
        text
    }
}

unsafe fn shown(ctx: *mut qjs::JSContext, value: qjs::JSValue) -> Option<String> {
    // SAFETY: by the caller of `error`; the C string is freed after its last use.
    unsafe {
        let mut len: qjs::size_t = 0;
        let text = qjs::JS_ToCStringLen2(ctx, &raw mut len, value, false);
        if text.is_null() {
            forget_exception(ctx);
            return None;
        }
        let bytes = std::slice::from_raw_parts(text.cast::<u8>(), len as usize);
        let shown = String::from_utf8_lossy(bytes).into_owned();
        qjs::JS_FreeCString(ctx, text);
        Some(shown)
    }
}

unsafe fn forget_exception(ctx: *mut qjs::JSContext) {
    // SAFETY: by the caller of `error`; the exception is freed once.
    unsafe { qjs::JS_FreeValue(ctx, qjs::JS_GetException(ctx)) }
}
