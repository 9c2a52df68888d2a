//! A context that is entered: what can be done in it, and values going in and out.

use std::ffi::{CStr, c_int};
use std::ops::Range;

use rquickjs_sys as qjs;

use crate::from_json::{BuildError, Builder};
use crate::lazy::{self, Text};
use crate::limits::{Limit, Limits};
use crate::native;
use crate::native::Script;
use crate::realm::Realm;
use crate::runtime::Runtime;
use crate::to_json::{Interrupted, Writer};
use crate::value::{Brand, Value};

/// A context while it is entered. `'js` is the lifetime of its values.
///
/// When a function fails with [`Interrupted`], the thrown value is available from
/// [`Scope::take_exception`], unless [`Scope::over`] reports that a limit was hit.
pub struct Scope<'js> {
    pub(crate) realm: &'js Realm,
    pub(crate) runtime: &'js Runtime,
    pub(crate) brand: Brand<'js>,
}

/// A value that was kept for later scopes of its context, by [`Scope::keep`].
#[derive(Debug)]
pub struct RetainedValue(usize);

/// When a document's objects are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each when it is accessed.
    Lazy,
    /// The document has [`WHOLE`](crate::WHOLE) before values that are not built immediately: its
    /// members are built when they are accessed, with the records in them.
    LazyRecords,
    /// Such a document; all records immediately.
    Records,
}

impl<'js> Scope<'js> {
    #[inline]
    fn ctx(&self) -> *mut qjs::JSContext {
        self.realm.ctx()
    }

    /// Takes a value from QuickJS over.
    ///
    /// # Safety
    /// The caller owns a reference of `raw`, a value of this context.
    #[inline]
    unsafe fn own(&self, raw: qjs::JSValue) -> Result<Value<'js>, Interrupted> {
        // SAFETY: it reads the tag.
        if unsafe { qjs::JS_IsException(raw) } {
            return Err(Interrupted);
        }
        // SAFETY: by the caller; the context is entered for as long as there is a scope.
        Ok(unsafe { Value::new(self.ctx(), raw) })
    }

    /// Returns the limit that was hit. JavaScript then stops at its next step.
    #[inline]
    pub fn over(&self) -> Option<Limit> {
        self.realm.control().over()
    }

    /// Returns the limits of the heap.
    pub fn limits(&self) -> &Limits {
        &self.realm.control().limits
    }

    /// Restarts JavaScript's clock.
    #[inline]
    pub fn start_clock(&self) {
        self.realm.control().start_clock();
    }

    /// Returns whether a part of a document that nests too deeply was accessed since the last call of
    /// this: an access throws.
    pub fn was_too_deep(&self) -> bool {
        self.realm.control().too_deep.take()
    }

    /// See [`Heap::raise_gc_threshold`](crate::Heap::raise_gc_threshold).
    pub fn raise_gc_threshold(&self) {
        self.runtime.raise_gc_threshold();
    }

    /// `null`
    pub fn null(&self) -> Value<'js> {
        // SAFETY: it has no references.
        unsafe { Value::new(self.ctx(), qjs::JS_NULL) }
    }

    /// `true` or `false`
    pub fn boolean(&self, is: bool) -> Value<'js> {
        let raw = if is { qjs::JS_TRUE } else { qjs::JS_FALSE };
        // SAFETY: it has no references.
        unsafe { Value::new(self.ctx(), raw) }
    }

    /// Creates a string.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn string(&self, text: &str) -> Result<Value<'js>, Interrupted> {
        let (start, len) = (text.as_ptr().cast(), text.len() as _);
        // SAFETY: the text is live during the call.
        unsafe { self.own(qjs::JS_NewStringLen(self.ctx(), start, len)) }
    }

    /// Creates an array of strings.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn strings(&self, texts: &[&str]) -> Result<Value<'js>, Interrupted> {
        let texts = texts.iter().map(|text| self.string(text));
        self.array(texts.collect::<Result<_, _>>()?)
    }

    /// Creates an array of values, taking ownership.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn array(&self, values: Vec<Value<'js>>) -> Result<Value<'js>, Interrupted> {
        let count = c_int::try_from(values.len()).map_err(|_| Interrupted)?;
        let values: Vec<_> = values.into_iter().map(Value::into_raw).collect();
        // SAFETY: `JS_NewArrayFrom` takes the values over, also when it fails.
        unsafe { self.own(qjs::JS_NewArrayFrom(self.ctx(), count, values.as_ptr())) }
    }

    /// Returns the value of a JSON text, which JavaScript may change. For documents of map
    /// functions see [`Scope::document`].
    ///
    /// # Errors
    /// The text is not JSON or nests too deeply, or there is no memory for it.
    pub fn value(&self, json: &[u8]) -> Result<Value<'js>, BuildError> {
        // SAFETY: the context is live, entered by this thread, and has this state. Building calls
        // no JavaScript, and so nothing that looks for the state.
        unsafe {
            let mut builder = Builder {
                ctx: self.ctx(),
                state: &mut *self.realm.state.as_ptr(),
                document: None,
                records: false,
            };
            let raw = builder.build(json, 0)?;
            Ok(Value::new(self.ctx(), raw))
        }
    }

    /// Creates a document for map functions: a frozen plain object, whose arrays are not frozen but
    /// cannot grow.
    ///
    /// # Errors
    /// Errors of [`Scope::value`], for the part that is built immediately. For the rest, accessing
    /// it throws.
    pub fn document(&self, json: &[u8], form: Form) -> Result<Value<'js>, BuildError> {
        if u32::try_from(json.len()).is_err() {
            return Err(BuildError::Depth);
        }
        let ctx = self.ctx();
        // SAFETY: the context is live and entered by this thread, the state is its own. The object
        // keeps the text alive, of which our reference is released.
        unsafe {
            let text = Text::new(ctx, json, form != Form::Lazy).ok_or(BuildError::Exception)?;
            let raw = if form == Form::Records {
                let mut builder = Builder {
                    ctx,
                    state: &mut *self.realm.state.as_ptr(),
                    document: Some(text),
                    records: true,
                };
                builder.build(json, 0)
            } else {
                Ok(lazy::object(ctx, text, 0, json.len()))
            };
            Text::release(qjs::JS_GetRuntime(ctx), text);
            self.own(raw?).map_err(|Interrupted| BuildError::Exception)
        }
    }

    /// Returns whether JavaScript may have changed an array of a document.
    pub fn may_have_changed(&self, document: &Value<'js>) -> bool {
        // SAFETY: the document is live, and keeps its node and text alive.
        unsafe {
            let node = lazy::node(document.raw(), self.realm.control().lazy_class.get());
            node.is_none_or(|node| node.as_ref().text.as_ref().exposed.get())
        }
    }

    /// Keeps a value for later scopes of this context.
    pub fn keep(&self, value: Value<'js>) -> RetainedValue {
        let mut kept = self.realm.kept.borrow_mut();
        kept.push(value.into_raw());
        RetainedValue(kept.len() - 1)
    }

    /// Returns a retained value.
    ///
    /// # Panics
    /// It was retained in another context, or after the state that the heap was restored to. It may
    /// be another value then.
    pub fn kept(&self, kept: &RetainedValue) -> Value<'js> {
        let raw = self.realm.kept.borrow()[kept.0];
        // SAFETY: the list has a reference of a value of this context; the answer gets one of its
        // own.
        unsafe { Value::new(self.ctx(), qjs::JS_DupValue(self.ctx(), raw)) }
    }

    /// Returns a member of an object.
    ///
    /// # Errors
    /// The exception of a getter, or that it has no members.
    pub fn get(&self, object: &Value<'js>, name: &CStr) -> Result<Value<'js>, Interrupted> {
        // SAFETY: the object is a live value of this context.
        unsafe {
            self.own(qjs::JS_GetPropertyStr(
                self.ctx(),
                object.raw(),
                name.as_ptr(),
            ))
        }
    }

    /// Calls a function.
    ///
    /// # Errors
    /// The exception.
    pub fn call<const N: usize>(
        &self,
        function: &Value<'js>,
        arguments: [&Value<'js>; N],
    ) -> Result<Value<'js>, Interrupted> {
        let mut arguments = arguments.map(Value::raw);
        let this = qjs::JS_UNDEFINED;
        // SAFETY: all are live values of this context, and `JS_Call` does not change the arguments.
        unsafe {
            let arguments = arguments.as_mut_ptr();
            let (ctx, function) = (self.ctx(), function.raw());
            self.own(qjs::JS_Call(ctx, function, this, N as c_int, arguments))
        }
    }

    /// Calls a function that calls `emit`, runs its promises' pending jobs, and then appends its
    /// rows to `out`: the JSON text of each key and of its value, whose positions are passed to
    /// `row`. (They are written when the function has returned, as in CouchDB: changes of a value
    /// after it was emitted are visible.) `out` must not become longer than `end`.
    ///
    /// # Errors
    /// The function threw, or hit a limit; `out` then has a part of the rows.
    pub fn call_emitting(
        &self,
        function: &Value<'js>,
        argument: &Value<'js>,
        out: &mut Vec<u8>,
        end: usize,
        mut row: impl FnMut(Range<usize>, Range<usize>),
    ) -> Result<(), Interrupted> {
        let control = self.realm.control();
        control.emitting.set(true);
        let threw = self.call(function, [argument]).is_err();
        if !threw {
            self.run_jobs();
        }
        control.emitting.set(false);
        let mut emitted = control.emitted.take();
        let mut written = match threw || control.over().is_some() {
            true => Err(Interrupted),
            false => Ok(()),
        };
        for (key, value) in emitted.drain(..) {
            // SAFETY: `emit` put an owned reference of each in the list.
            let (key, value) =
                unsafe { (Value::new(self.ctx(), key), Value::new(self.ctx(), value)) };
            if written.is_ok() {
                written = self
                    .written(&key, out, end)
                    .and_then(|key| Ok((key, self.written(&value, out, end)?)))
                    .map(|(key, value)| row(key, value));
            }
        }
        // The list keeps its memory for the next call.
        control.emitted.replace(emitted);
        written
    }

    /// Returns the position of a value's written JSON text.
    fn written(
        &self,
        value: &Value<'js>,
        out: &mut Vec<u8>,
        end: usize,
    ) -> Result<Range<usize>, Interrupted> {
        let start = out.len();
        self.write(value, out, end)?;
        if out.len() > end {
            self.realm.control().set_over(Limit::Bytes);
            return Err(Interrupted);
        }
        Ok(start..out.len())
    }

    /// Runs what promises left to be done, so that it does not pile up.
    pub fn run_jobs(&self) {
        // SAFETY: the context is live and entered by this thread.
        unsafe {
            let runtime = qjs::JS_GetRuntime(self.ctx());
            while qjs::JS_IsJobPending(runtime) && !self.realm.control().must_stop() {
                let mut ctx = std::ptr::null_mut();
                if qjs::JS_ExecutePendingJob(runtime, &raw mut ctx) < 0 && !ctx.is_null() {
                    qjs::JS_FreeValue(ctx, qjs::JS_GetException(ctx));
                }
            }
        }
    }

    /// Appends a value's JSON text to `out`, which is not to become much longer than `end`: what
    /// `JSON.stringify` gives, `null` where that gives nothing, and U+FFFD for lone surrogates.
    ///
    /// # Errors
    /// The exception of a `toJSON`, that the value nests too deeply, or that it hit a limit; `out`
    /// then has a part of the text.
    pub fn write(
        &self,
        value: &Value<'js>,
        out: &mut Vec<u8>,
        end: usize,
    ) -> Result<(), Interrupted> {
        let mut writer = Writer {
            ctx: self.ctx(),
            control: self.realm.control(),
            state: self.realm.state,
            out,
            end,
            to_json: self.realm.to_json,
            class_object: self.realm.class_object,
            class_array: self.realm.class_array,
            object_prototype: self.realm.object_prototype,
        };
        // SAFETY: the context is live and entered by this thread, the value is one of its, and the
        // state is its own.
        unsafe { writer.write(value.raw()) }
    }

    /// Returns a value's JSON text, of at most
    /// [`Limits::emit_bytes_max`](crate::Limits::emit_bytes_max) or little more.
    ///
    /// # Errors
    /// Errors of [`Scope::write`].
    pub fn json(&self, value: &Value<'js>) -> Result<Vec<u8>, Interrupted> {
        let mut out = Vec::new();
        let end = self.realm.control().limits.emit_bytes_max;
        self.write(value, &mut out, end).map(|()| out)
    }

    /// Returns the result of `JSON.stringify`: a string, or `undefined`.
    ///
    /// # Errors
    /// The value that it threw.
    pub fn stringify(&self, value: &Value<'js>) -> Result<Value<'js>, Interrupted> {
        let undefined = qjs::JS_UNDEFINED;
        // SAFETY: the value is a live one of this context.
        unsafe {
            self.own(qjs::JS_JSONStringify(
                self.ctx(),
                value.raw(),
                undefined,
                undefined,
            ))
        }
    }

    /// Returns the result of `String(value)`.
    ///
    /// # Errors
    /// The value that a `toString` threw, or that symbols have no text.
    pub fn text(&self, value: &Value<'js>) -> Result<String, Interrupted> {
        // SAFETY: the context is live and entered, the value is one of its.
        unsafe { native::text(self.ctx(), value.raw()) }.ok_or(Interrupted)
    }

    /// Returns the last thrown value, and clears it.
    pub fn take_exception(&self) -> Value<'js> {
        // SAFETY: the context is live; the exception is owned by the caller.
        unsafe { Value::new(self.ctx(), qjs::JS_GetException(self.ctx())) }
    }

    /// Evaluates a script in the global scope, sloppily. `name` is what stack traces call it.
    ///
    /// # Errors
    /// It does not compile, or it threw.
    pub fn evaluate(&self, source: &str, name: &CStr) -> Result<Value<'js>, Interrupted> {
        // SAFETY: the context is live and entered; the answer is owned here.
        unsafe { self.own(native::evaluate(self.ctx(), source, name, 0)) }
    }

    /// Compiles a script for [`Scope::run`].
    ///
    /// # Errors
    /// It does not compile.
    pub fn compile(&self, source: &str, name: &CStr) -> Result<Script, Interrupted> {
        // SAFETY: the context is live and entered.
        unsafe { Script::compile(self.ctx(), source, name) }
    }

    /// Runs a script, which any heap may have compiled: what it evaluates to.
    ///
    /// # Errors
    /// The exception.
    pub fn run(&self, script: &Script) -> Result<Value<'js>, Interrupted> {
        // SAFETY: the context is live and entered; the answer is owned here.
        unsafe { self.own(script.run(self.ctx())) }
    }

    /// Creates an object of functions that call the [`Host`](crate::Host), and of
    /// `evaluate(source)`, which evaluates a script in the global scope. JavaScript cannot reach it
    /// unless it is passed to it.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn host_object(&self, functions: &[&CStr]) -> Result<Value<'js>, Interrupted> {
        // SAFETY: the context is live and entered; the answer is owned here.
        unsafe { self.own(native::host_object(self.ctx(), functions)) }
    }

    /// Defines the global function `emit(key, value)`: see [`Scope::call_emitting`]. At other times
    /// it does nothing.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn define_emit(&self) -> Result<(), Interrupted> {
        // SAFETY: the context is live and entered.
        unsafe { native::define_emit(self.ctx()) }
    }

    /// Replaces `Math.random`, whose state in the heap would be the same at each call in a heap
    /// that is rewound.
    ///
    /// # Errors
    /// There is no memory for it, or `Math` no longer exists.
    pub fn define_random(&self) -> Result<(), Interrupted> {
        // SAFETY: the context is live and entered.
        unsafe { native::define_random(self.ctx()) }
    }
}
