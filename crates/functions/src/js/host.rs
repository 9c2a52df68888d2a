//! The functions that JavaScript calls: `emit`, and those of the prelude's host.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::time::Instant;

use rquickjs_sys as qjs;

use super::context::control;
use super::runtime::Limit;
use super::write::Failed;
use crate::prelude::PRELUDE;
use crate::{Error, ListIo};

type Native = unsafe extern "C" fn(
    *mut qjs::JSContext,
    qjs::JSValue,
    c_int,
    *mut qjs::JSValue,
) -> qjs::JSValue;

/// The prelude's byte code, which the first context makes for all.
static PRELUDE_CODE: OnceLock<Vec<u8>> = OnceLock::new();

/// What the prelude comes to, owned by the caller, or an exception.
pub(super) fn prelude(ctx: *mut qjs::JSContext) -> qjs::JSValue {
    // SAFETY: the context is live and entered by this thread. QuickJS reads byte code only of its own making, in this process.
    // `JS_EvalFunction` takes the function over.
    unsafe {
        if let Some(code) = PRELUDE_CODE.get() {
            let flags = qjs::JS_READ_OBJ_BYTECODE as c_int;
            let function = qjs::JS_ReadObject(ctx, code.as_ptr(), code.len() as _, flags);
            if qjs::JS_IsException(function) {
                return function;
            }
            return qjs::JS_EvalFunction(ctx, function);
        }
        let compile = qjs::JS_EVAL_FLAG_COMPILE_ONLY as c_int;
        let function = evaluate(ctx, PRELUDE, c"prelude.js".as_ptr(), compile);
        if qjs::JS_IsException(function) {
            return function;
        }
        let mut len: qjs::size_t = 0;
        let flags = qjs::JS_WRITE_OBJ_BYTECODE as c_int;
        let code = qjs::JS_WriteObject(ctx, &raw mut len, function, flags);
        if code.is_null() {
            qjs::JS_FreeValue(ctx, function);
            return qjs::JS_EXCEPTION;
        }
        PRELUDE_CODE.get_or_init(|| std::slice::from_raw_parts(code, len as usize).to_vec());
        qjs::js_free(ctx, code.cast());
        qjs::JS_EvalFunction(ctx, function)
    }
}

/// Evaluates a script in the global scope, sloppily, or only compiles it. The answer is owned by the caller.
///
/// # Safety
/// `ctx` is a live context entered by this thread, `name` ends in NUL.
unsafe fn evaluate(
    ctx: *mut qjs::JSContext,
    source: &str,
    name: *const c_char,
    compile: c_int,
) -> qjs::JSValue {
    // QuickJS wants a NUL behind the text.
    let mut text = Vec::with_capacity(source.len() + 1);
    text.extend_from_slice(source.as_bytes());
    text.push(0);
    let flags = qjs::JS_EVAL_TYPE_GLOBAL as c_int | compile;
    // SAFETY: by the caller.
    unsafe { qjs::JS_Eval(ctx, text.as_ptr().cast(), source.len() as _, name, flags) }
}

unsafe fn function(
    ctx: *mut qjs::JSContext,
    name: &CStr,
    native: Native,
    count: c_int,
) -> qjs::JSValue {
    let generic = qjs::JSCFunctionEnum_JS_CFUNC_generic;
    // SAFETY: the context is live, and the function has the signature of a generic one.
    unsafe { qjs::JS_NewCFunction2(ctx, Some(native), name.as_ptr(), count, generic, 0) }
}

/// Defines a function as a member; takes nothing over.
unsafe fn define(
    ctx: *mut qjs::JSContext,
    object: qjs::JSValue,
    name: &CStr,
    native: Native,
    count: c_int,
) -> Result<(), Failed> {
    let flags = (qjs::JS_PROP_CONFIGURABLE | qjs::JS_PROP_WRITABLE) as c_int;
    // SAFETY: all are live; `JS_DefinePropertyValueStr` takes the function over, an exception too.
    unsafe {
        let function = function(ctx, name, native, count);
        if qjs::JS_IsException(function) {
            return Err(Failed);
        }
        if qjs::JS_DefinePropertyValueStr(ctx, object, name.as_ptr(), function, flags) < 0 {
            return Err(Failed);
        }
    }
    Ok(())
}

/// The prelude's host, owned by the caller, or an exception.
pub(super) fn object(ctx: *mut qjs::JSContext) -> qjs::JSValue {
    let functions: [(&CStr, Native); 5] = [
        (c"evaluate", evaluate_source),
        (c"log", log),
        (c"listStart", list_start),
        (c"listChunk", list_chunk),
        (c"listRow", list_row),
    ];
    // SAFETY: the context is live; the object is freed when it is not answered.
    unsafe {
        let object = qjs::JS_NewObject(ctx);
        if qjs::JS_IsException(object) {
            return object;
        }
        for (name, native) in functions {
            if define(ctx, object, name, native, 1).is_err() {
                qjs::JS_FreeValue(ctx, object);
                return qjs::JS_EXCEPTION;
            }
        }
        object
    }
}

/// Makes `emit` a global function.
pub(super) fn install_emit(ctx: *mut qjs::JSContext) -> Result<(), Failed> {
    // SAFETY: the context is live; the global object is freed once.
    unsafe {
        let global = qjs::JS_GetGlobalObject(ctx);
        let done = define(ctx, global, c"emit", emit, 2);
        qjs::JS_FreeValue(ctx, global);
        done
    }
}

/// Replaces `Math.random`, whose state in the heap would be the same at each call of a heap that is taken back to what it was.
pub(super) fn install_random(ctx: *mut qjs::JSContext) -> Result<(), Failed> {
    // SAFETY: the context is live; both objects are freed once.
    unsafe {
        let global = qjs::JS_GetGlobalObject(ctx);
        let math = qjs::JS_GetPropertyStr(ctx, global, c"Math".as_ptr());
        let done = define(ctx, math, c"random", random, 0);
        qjs::JS_FreeValue(ctx, math);
        qjs::JS_FreeValue(ctx, global);
        done
    }
}

/// By xorshift64*, which is as good as what it replaces.
unsafe extern "C" fn random(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    _argc: c_int,
    _argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: as in `emit`.
    unsafe {
        let state = &control(ctx).random;
        let mut x = state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        let bits = x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        qjs::JS_NewFloat64(bits as f64 / (1u64 << 53) as f64)
    }
}

/// Ends the script: no `catch` or `finally` of it sees this exception. Answers the mark of an exception.
///
/// # Safety
/// `ctx` is a live context entered by this thread.
pub(super) unsafe fn stop(ctx: *mut qjs::JSContext) -> qjs::JSValue {
    // SAFETY: the context is live; `JS_Throw` takes the error over.
    unsafe {
        let error = qjs::JS_NewError(ctx);
        if !qjs::JS_IsException(error) {
            qjs::JS_SetUncatchableError(ctx, error);
            qjs::JS_Throw(ctx, error);
        }
        qjs::JS_EXCEPTION
    }
}

/// The argument at an index, not owned.
unsafe fn argument(argc: c_int, argv: *mut qjs::JSValue, at: usize) -> qjs::JSValue {
    if at < usize::try_from(argc).unwrap_or(0) {
        // SAFETY: QuickJS gives `argc` values.
        return unsafe { *argv.add(at) };
    }
    qjs::JS_UNDEFINED
}

/// Takes a row; it is written when the function has returned, as CouchDB does, so that what the function does to a value
/// after it emitted it shows.
unsafe extern "C" fn emit(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    argc: c_int,
    argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: QuickJS calls it with a live context of a `Runtime` and `argc` arguments. The list owns a reference to each
    // value in it.
    unsafe {
        let control = control(ctx);
        if !control.emitting.get() {
            return qjs::JS_UNDEFINED;
        }
        let mut emitted = control.emitted.borrow_mut();
        if emitted.len() >= control.options.emit_rows_max {
            control.set_over(Limit::Rows);
            drop(emitted);
            return stop(ctx);
        }
        let key = qjs::JS_DupValue(ctx, argument(argc, argv, 0));
        let value = qjs::JS_DupValue(ctx, argument(argc, argv, 1));
        emitted.push((key, value));
    }
    qjs::JS_UNDEFINED
}

/// Reads an argument as text; `None` with an exception pending.
unsafe fn text(ctx: *mut qjs::JSContext, argc: c_int, argv: *mut qjs::JSValue) -> Option<String> {
    // SAFETY: as in `emit`; the C string is freed after its last use.
    unsafe {
        let mut len: qjs::size_t = 0;
        let value = argument(argc, argv, 0);
        let text = qjs::JS_ToCStringLen2(ctx, &raw mut len, value, false);
        if text.is_null() {
            return None;
        }
        let bytes = std::slice::from_raw_parts(text.cast::<u8>(), len as usize);
        let owned = String::from_utf8_lossy(bytes).into_owned();
        qjs::JS_FreeCString(ctx, text);
        Some(owned)
    }
}

unsafe extern "C" fn evaluate_source(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    argc: c_int,
    argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: as in `emit`.
    unsafe {
        match text(ctx, argc, argv) {
            Some(source) => evaluate(ctx, &source, c"function".as_ptr(), 0),
            None => qjs::JS_EXCEPTION,
        }
    }
}

unsafe extern "C" fn log(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    argc: c_int,
    argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: as in `emit`.
    unsafe {
        let Some(text) = text(ctx, argc, argv) else {
            return qjs::JS_EXCEPTION;
        };
        control(ctx).log.borrow_mut().said(&text);
    }
    qjs::JS_UNDEFINED
}

/// Calls the other end of the list function that runs. What it takes is not on JavaScript's clock.
unsafe fn with_list<T>(
    ctx: *mut qjs::JSContext,
    work: impl FnOnce(&mut dyn ListIo) -> Result<T, Error>,
) -> Result<T, qjs::JSValue> {
    // SAFETY: as in `emit`. The pointer is set for the time of `Designs::list` only, which has the one reference to it and
    // does not use it meanwhile; it is taken out while it is in use here.
    unsafe {
        let control = control(ctx);
        let Some(mut list) = control.list.take() else {
            qjs::JS_ThrowTypeError(ctx, c"not in a list function".as_ptr());
            return Err(qjs::JS_EXCEPTION);
        };
        let before = Instant::now();
        let done = work(list.as_mut());
        control.excuse(before.elapsed());
        control.list.set(Some(list));
        done.map_err(|error| {
            *control.list_error.borrow_mut() = Some(error);
            stop(ctx)
        })
    }
}

unsafe extern "C" fn list_start(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    argc: c_int,
    argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: as in `emit`.
    unsafe {
        let Some(json) = text(ctx, argc, argv) else {
            return qjs::JS_EXCEPTION;
        };
        match with_list(ctx, |list| list.start(json.as_bytes())) {
            Ok(()) => qjs::JS_UNDEFINED,
            Err(exception) => exception,
        }
    }
}

unsafe extern "C" fn list_chunk(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    argc: c_int,
    argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: as in `emit`.
    unsafe {
        let Some(chunk) = text(ctx, argc, argv) else {
            return qjs::JS_EXCEPTION;
        };
        match with_list(ctx, |list| list.chunk(&chunk)) {
            Ok(()) => qjs::JS_UNDEFINED,
            Err(exception) => exception,
        }
    }
}

unsafe extern "C" fn list_row(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    _argc: c_int,
    _argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: as in `emit`; the text is live during the call.
    unsafe {
        match with_list(ctx, |list| list.row()) {
            Ok(Some(row)) => {
                // Each row is a call of its own, as for CouchDB's time-out.
                control(ctx).start_clock();
                qjs::JS_NewStringLen(ctx, row.as_ptr().cast(), row.len() as _)
            }
            Ok(None) => qjs::JS_NULL,
            Err(exception) => exception,
        }
    }
}
