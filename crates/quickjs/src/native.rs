//! Functions that JavaScript calls: `emit`, `Math.random`, and those of a host; and scripts,
//! evaluated and compiled.

use std::ffi::{CStr, c_int};

use rquickjs_sys as qjs;

use crate::control::control;
use crate::host::{Clock, Reply};
use crate::limits::Limit;
use crate::to_json::Interrupted;

type Native = unsafe extern "C" fn(
    *mut qjs::JSContext,
    qjs::JSValue,
    c_int,
    *mut qjs::JSValue,
) -> qjs::JSValue;

/// A script's byte code, from [`Scope::compile`](crate::Scope::compile).
#[derive(Debug)]
pub struct Script(Vec<u8>);

impl Script {
    /// # Safety
    /// `ctx` is a live context entered by this thread.
    pub(crate) unsafe fn compile(
        ctx: *mut qjs::JSContext,
        source: &str,
        name: &CStr,
    ) -> Result<Script, Interrupted> {
        // SAFETY: by the caller. The function and the byte code are freed once.
        unsafe {
            let flags = qjs::JS_EVAL_FLAG_COMPILE_ONLY as c_int;
            let function = evaluate(ctx, source, name, flags);
            if qjs::JS_IsException(function) {
                return Err(Interrupted);
            }
            let mut len: qjs::size_t = 0;
            let flags = qjs::JS_WRITE_OBJ_BYTECODE as c_int;
            let code = qjs::JS_WriteObject(ctx, &raw mut len, function, flags);
            qjs::JS_FreeValue(ctx, function);
            if code.is_null() {
                return Err(Interrupted);
            }
            let script = Script(std::slice::from_raw_parts(code, len as usize).to_vec());
            qjs::js_free(ctx, code.cast());
            // QuickJS does not notice that it had no memory for a part of the byte code.
            match control(ctx).over() {
                None => Ok(script),
                Some(_) => Err(Interrupted),
            }
        }
    }

    /// Returns its value, owned by the caller, or an exception.
    ///
    /// # Safety
    /// `ctx` is a live context entered by this thread.
    pub(crate) unsafe fn run(&self, ctx: *mut qjs::JSContext) -> qjs::JSValue {
        // SAFETY: by the caller. Byte code is only ever created by `compile`, by this very QuickJS:
        // there is no other source. `JS_EvalFunction` takes ownership of the function.
        unsafe {
            let flags = qjs::JS_READ_OBJ_BYTECODE as c_int;
            let function = qjs::JS_ReadObject(ctx, self.0.as_ptr(), self.0.len() as _, flags);
            if qjs::JS_IsException(function) {
                return function;
            }
            qjs::JS_EvalFunction(ctx, function)
        }
    }
}

/// Evaluates a script in the global scope, sloppily, or does with it what `flags` say. The answer
/// is owned by the caller.
///
/// # Safety
/// `ctx` is a live context entered by this thread.
pub(crate) unsafe fn evaluate(
    ctx: *mut qjs::JSContext,
    source: &str,
    name: &CStr,
    flags: c_int,
) -> qjs::JSValue {
    // QuickJS requires a NUL after the text.
    let mut text = Vec::with_capacity(source.len() + 1);
    text.extend_from_slice(source.as_bytes());
    text.push(0);
    let (text, len) = (text.as_ptr().cast(), source.len() as _);
    let flags = qjs::JS_EVAL_TYPE_GLOBAL as c_int | flags;
    // SAFETY: by the caller; text and name are live during the call.
    unsafe { qjs::JS_Eval(ctx, text, len, name.as_ptr(), flags) }
}

/// Defines a function as a member. It takes ownership of `function`, which may be an exception.
///
/// # Safety
/// `ctx` is a live context entered by this thread, the others are values of it.
unsafe fn define(
    ctx: *mut qjs::JSContext,
    object: qjs::JSValue,
    name: &CStr,
    function: qjs::JSValue,
) -> Result<(), Interrupted> {
    let flags = (qjs::JS_PROP_CONFIGURABLE | qjs::JS_PROP_WRITABLE) as c_int;
    // SAFETY: by the caller; `JS_DefinePropertyValueStr` takes ownership of the function, whatever
    // its result.
    unsafe {
        if qjs::JS_IsException(function)
            || qjs::JS_DefinePropertyValueStr(ctx, object, name.as_ptr(), function, flags) < 0
        {
            return Err(Interrupted);
        }
    }
    Ok(())
}

/// # Safety
/// `ctx` is a live context entered by this thread, `native` has the signature of a generic
/// function.
unsafe fn function(
    ctx: *mut qjs::JSContext,
    name: &CStr,
    native: Native,
    count: c_int,
) -> qjs::JSValue {
    let generic = qjs::JSCFunctionEnum_JS_CFUNC_generic;
    // SAFETY: by the caller.
    unsafe { qjs::JS_NewCFunction2(ctx, Some(native), name.as_ptr(), count, generic, 0) }
}

/// Returns an object of functions that call the host, by their index, and of `evaluate`. It is
/// owned by the caller, or an exception.
///
/// # Safety
/// `ctx` is a live context entered by this thread.
pub(crate) unsafe fn host_object(ctx: *mut qjs::JSContext, functions: &[&CStr]) -> qjs::JSValue {
    // SAFETY: by the caller; the object is freed when it is not answered.
    unsafe {
        let object = qjs::JS_NewObject(ctx);
        if qjs::JS_IsException(object) {
            return object;
        }
        let evaluates = function(ctx, c"evaluate", evaluate_source, 1);
        let mut done = define(ctx, object, c"evaluate", evaluates);
        for (at, name) in (0..).zip(functions) {
            let none = std::ptr::null_mut();
            done = done.and_then(|()| {
                let calls = qjs::JS_NewCFunctionData(ctx, Some(call_host), 1, at, 0, none);
                define(ctx, object, name, calls)
            });
        }
        if done.is_err() {
            qjs::JS_FreeValue(ctx, object);
            return qjs::JS_EXCEPTION;
        }
        object
    }
}

/// Makes `emit` a global function.
///
/// # Safety
/// `ctx` is a live context entered by this thread.
pub(crate) unsafe fn define_emit(ctx: *mut qjs::JSContext) -> Result<(), Interrupted> {
    // SAFETY: by the caller; the global object is freed once.
    unsafe {
        let global = qjs::JS_GetGlobalObject(ctx);
        let done = define(ctx, global, c"emit", function(ctx, c"emit", emit, 2));
        qjs::JS_FreeValue(ctx, global);
        done
    }
}

/// Replaces `Math.random`.
///
/// # Safety
/// `ctx` is a live context entered by this thread.
pub(crate) unsafe fn define_random(ctx: *mut qjs::JSContext) -> Result<(), Interrupted> {
    // SAFETY: by the caller; both objects are freed once.
    unsafe {
        let global = qjs::JS_GetGlobalObject(ctx);
        let math = qjs::JS_GetPropertyStr(ctx, global, c"Math".as_ptr());
        let done = match qjs::JS_IsObject(math) {
            true => define(ctx, math, c"random", function(ctx, c"random", random, 0)),
            false => Err(Interrupted),
        };
        qjs::JS_FreeValue(ctx, math);
        qjs::JS_FreeValue(ctx, global);
        done
    }
}

/// Xorshift64*, which is as good as QuickJS's own generator.
unsafe extern "C" fn random(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    _argc: c_int,
    _argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: as in `emit`.
    let state = unsafe { &control(ctx).random };
    let mut x = state.get();
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state.set(x);
    let bits = x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
    qjs::JS_NewFloat64(bits as f64 / (1u64 << 53) as f64)
}

/// Ends the script: no `catch` or `finally` of it sees this exception. Returns the mark of an
/// exception.
///
/// # Safety
/// `ctx` is a live context entered by this thread.
pub(crate) unsafe fn stop(ctx: *mut qjs::JSContext) -> qjs::JSValue {
    // SAFETY: by the caller; `JS_Throw` takes the error over.
    unsafe {
        let error = qjs::JS_NewError(ctx);
        if !qjs::JS_IsException(error) {
            qjs::JS_SetUncatchableError(ctx, error);
            qjs::JS_Throw(ctx, error);
        }
        qjs::JS_EXCEPTION
    }
}

/// Returns the argument at an index, not owned.
///
/// # Safety
/// `argv` has `argc` values.
unsafe fn argument(argc: c_int, argv: *mut qjs::JSValue, at: usize) -> qjs::JSValue {
    if at < usize::try_from(argc).unwrap_or(0) {
        // SAFETY: by the caller.
        return unsafe { *argv.add(at) };
    }
    qjs::JS_UNDEFINED
}

/// Takes a row; it is written when the function has returned, as CouchDB does, so that what the
/// function does to a value after it emitted it shows.
unsafe extern "C" fn emit(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    argc: c_int,
    argv: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: QuickJS calls it with a live context of a heap that is entered, and `argc` arguments.
    // The list owns a reference to each value in it.
    unsafe {
        let control = control(ctx);
        if !control.emitting.get() {
            return qjs::JS_UNDEFINED;
        }
        let mut emitted = control.emitted.borrow_mut();
        if emitted.len() >= control.limits.emit_rows_max {
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

/// Returns a value as text; `None` with an exception pending.
///
/// # Safety
/// `ctx` is a live context entered by this thread, `value` a live value of it.
pub(crate) unsafe fn text(ctx: *mut qjs::JSContext, value: qjs::JSValue) -> Option<String> {
    // SAFETY: by the caller; the C string is `len` bytes long, and freed after its last use.
    unsafe {
        let mut len: qjs::size_t = 0;
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
        match text(ctx, argument(argc, argv, 0)) {
            Some(source) => evaluate(ctx, &source, c"function", 0),
            None => qjs::JS_EXCEPTION,
        }
    }
}

/// Calls the host's function with the number `function`.
unsafe extern "C" fn call_host(
    ctx: *mut qjs::JSContext,
    _this: qjs::JSValue,
    argc: c_int,
    argv: *mut qjs::JSValue,
    function: c_int,
    _data: *mut qjs::JSValue,
) -> qjs::JSValue {
    // SAFETY: as in `emit`; texts are live during the calls, and the format has one argument, which
    // is a string.
    unsafe {
        let control = control(ctx);
        let Some(text) = text(ctx, argument(argc, argv, 0)) else {
            return qjs::JS_EXCEPTION;
        };
        let reply = match (control.host(), usize::try_from(function)) {
            (Some(host), Ok(function)) => host.call(function, &text, Clock(control)),
            _ => Reply::Stop,
        };
        match reply {
            Reply::Undefined => qjs::JS_UNDEFINED,
            Reply::Null => qjs::JS_NULL,
            Reply::Integer(number) => qjs::JS_NewFloat64(number as f64),
            Reply::Text(text) => qjs::JS_NewStringLen(ctx, text.as_ptr().cast(), text.len() as _),
            Reply::TypeError(message) => {
                qjs::JS_ThrowTypeError(ctx, c"%s".as_ptr(), message.as_ptr())
            }
            Reply::Stop => stop(ctx),
        }
    }
}
