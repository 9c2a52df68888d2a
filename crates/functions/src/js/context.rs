//! One JavaScript context: its own globals, the prelude in it, and values going in and out.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use rquickjs_sys as qjs;

use super::build::{BuildError, Builder};
use super::host;
use super::lazy::{self, Text};
use super::names::Names;
use super::runtime::{Control, Limit, Runtime};
use super::shapes::Shapes;
use super::write::{Failed, Writer};
use crate::Error;

/// Functions of the prelude, owned by the context that they are of.
struct Api {
    compile: qjs::JSValue,
    reduce: qjs::JSValue,
    add_design: qjs::JSValue,
    prepare: qjs::JSValue,
    modules: qjs::JSValue,
    call: qjs::JSValue,
    list: qjs::JSValue,
}

/// A function of the prelude.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prelude {
    Compile,
    Reduce,
    AddDesign,
    Prepare,
    Modules,
    Call,
    List,
}

/// What building and writing values keep between values.
pub(super) struct State {
    pub names: Names,
    pub shapes: Shapes,
    /// Names of members of objects that are not complete. The table of names keeps them alive while building.
    pub members: Vec<qjs::JSAtom>,
    /// Elements of arrays that are not complete; owned values.
    pub elements: Vec<qjs::JSValue>,
    /// Text of a string with escapes.
    pub scratch: Vec<u8>,
}

/// A context of a [`Runtime`], which outlives it. A context that is dropped without [`Context::close`] is freed with its runtime.
pub(super) struct Context {
    raw: NonNull<qjs::JSContext>,
    control: NonNull<Control>,
    api: Api,
    /// Boxed, and reached through the context by what QuickJS calls: so no reference to it is held while QuickJS may call.
    state: NonNull<State>,
    to_json: qjs::JSAtom,
    class_object: qjs::JSClassID,
    class_array: qjs::JSClassID,
    /// `Object.prototype`, owned.
    object_prototype: qjs::JSValue,
}

// SAFETY: a context is only used together with its runtime, by the thread that has both; see `Runtime`.
unsafe impl Send for Context {}

/// A JavaScript value that is freed when it goes out of scope.
pub(super) struct Value {
    ctx: *mut qjs::JSContext,
    raw: qjs::JSValue,
}

impl Value {
    pub fn raw(&self) -> qjs::JSValue {
        self.raw
    }

    /// Gives the reference away.
    pub fn into_raw(self) -> qjs::JSValue {
        let raw = self.raw;
        std::mem::forget(self);
        raw
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: it owns one reference of a value of a live context.
        unsafe { qjs::JS_FreeValue(self.ctx, self.raw) }
    }
}

/// When a document's objects are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Each when it is looked at.
    Lazy,
    /// The document is [`projection::Projection::project_records`]'s: its members when they are looked at, with the records in them.
    LazyRecords,
    /// The same; all records at once.
    Records,
}

impl Context {
    /// A new context in a runtime that this thread has entered.
    pub fn new(runtime: &Runtime) -> Result<Context, Error> {
        let control = NonNull::from(runtime.control());
        let out_of_memory = || runtime.control().limit_error(Limit::Memory);
        // SAFETY: the runtime is live. Whatever is made here and not freed on a failure is freed with the runtime.
        unsafe {
            let raw = NonNull::new(qjs::JS_NewContext(runtime.raw())).ok_or_else(out_of_memory)?;
            let ctx = raw.as_ptr();
            let to_json = qjs::JS_NewAtomLen(ctx, c"toJSON".as_ptr(), 6);
            let object = qjs::JS_NewObject(ctx);
            let array = qjs::JS_NewArray(ctx);
            let (class_object, class_array) =
                (qjs::JS_GetClassID(object), qjs::JS_GetClassID(array));
            qjs::JS_FreeValue(ctx, object);
            qjs::JS_FreeValue(ctx, array);
            if to_json == 0 || qjs::JS_IsException(object) || qjs::JS_IsException(array) {
                return Err(out_of_memory());
            }
            // Documents' objects have the prototype of plain objects; `JS_SetClassProto` takes a reference over.
            let object_prototype = qjs::JS_GetClassProto(ctx, class_object);
            let class_lazy = runtime.control().lazy_class.get();
            let again = qjs::JS_DupValue(ctx, object_prototype);
            qjs::JS_SetClassProto(ctx, class_lazy, again);
            let state = NonNull::from(Box::leak(Box::new(State {
                names: Names::new(),
                shapes: Shapes::new(),
                members: Vec::new(),
                elements: Vec::new(),
                scratch: Vec::new(),
            })));
            qjs::JS_SetContextOpaque(ctx, state.as_ptr().cast());
            let undefined = qjs::JS_UNDEFINED;
            let mut context = Context {
                raw,
                control,
                api: Api {
                    compile: undefined,
                    reduce: undefined,
                    add_design: undefined,
                    prepare: undefined,
                    modules: undefined,
                    call: undefined,
                    list: undefined,
                },
                state,
                to_json,
                class_object,
                class_array,
                object_prototype,
            };
            context.load_prelude()?;
            Ok(context)
        }
    }

    fn load_prelude(&mut self) -> Result<(), Error> {
        let start = self.own(host::prelude(self.ctx()))?;
        let host = self.own(host::object(self.ctx()))?;
        let api = self.call_value(&start, &[host.raw()])?;
        self.api = Api {
            compile: self.member(&api, c"compile")?.into_raw(),
            reduce: self.member(&api, c"reduce")?.into_raw(),
            add_design: self.member(&api, c"addDesign")?.into_raw(),
            prepare: self.member(&api, c"prepare")?.into_raw(),
            modules: self.member(&api, c"modules")?.into_raw(),
            call: self.member(&api, c"call")?.into_raw(),
            list: self.member(&api, c"list")?.into_raw(),
        };
        host::install_emit(self.ctx()).map_err(|Failed| self.error())
    }

    /// Frees the context before its runtime is. Values made of it must be gone.
    pub fn close(mut self) {
        let ctx = self.ctx();
        // SAFETY: the context is live and owns each of these once; it is not used afterwards.
        unsafe {
            let api = &self.api;
            let functions = [
                api.compile,
                api.reduce,
                api.add_design,
                api.prepare,
                api.modules,
                api.call,
                api.list,
            ];
            for function in functions {
                qjs::JS_FreeValue(ctx, function);
            }
            self.forget_names();
            qjs::JS_FreeValue(ctx, self.object_prototype);
            qjs::JS_FreeAtom(ctx, self.to_json);
            qjs::JS_FreeContext(ctx);
        }
    }

    /// Lets go of what building and writing values keep of the heap.
    pub fn forget_names(&mut self) {
        let ctx = self.ctx();
        // SAFETY: the context is live and entered by this thread, and no value is being built.
        unsafe {
            self.state.as_mut().names.clear(ctx);
            self.state.as_mut().shapes.clear(ctx);
        }
    }

    /// The same without giving anything back, when the heap will not be what it is.
    pub fn abandon_names(&mut self) {
        // SAFETY: the state lives as long as the context, and nothing else uses it now.
        let state = unsafe { self.state.as_mut() };
        state.names.abandon();
        state.shapes.abandon();
        state.members.clear();
        state.elements.clear();
    }

    /// The modules that functions of the design document have loaded, as a JSON array.
    pub fn modules_of_design(&mut self) -> Result<Vec<u8>, Error> {
        let names = self.prelude(Prelude::Modules, &[])?;
        self.json(&names)
    }

    pub fn ctx(&self) -> *mut qjs::JSContext {
        self.raw.as_ptr()
    }

    pub fn control(&self) -> &Control {
        // SAFETY: the runtime, which owns it, outlives the context.
        unsafe { self.control.as_ref() }
    }

    /// Takes a value from QuickJS over.
    pub fn own(&self, raw: qjs::JSValue) -> Result<Value, Error> {
        // SAFETY: it reads the tag.
        if unsafe { qjs::JS_IsException(raw) } {
            return Err(self.error());
        }
        let ctx = self.ctx();
        Ok(Value { ctx, raw })
    }

    fn member(&self, object: &Value, name: &std::ffi::CStr) -> Result<Value, Error> {
        // SAFETY: the object is a live value of this context.
        self.own(unsafe { qjs::JS_GetPropertyStr(self.ctx(), object.raw, name.as_ptr()) })
    }

    fn call_value(&self, function: &Value, args: &[qjs::JSValue]) -> Result<Value, Error> {
        self.own(self.call_raw(function.raw, args))
    }

    /// Calls a function of this context; the answer is owned by the caller.
    pub fn call_raw(&self, function: qjs::JSValue, args: &[qjs::JSValue]) -> qjs::JSValue {
        let count = args.len() as c_int;
        // SAFETY: all are live values of this context, and `JS_Call` does not change the arguments.
        unsafe {
            let this = qjs::JS_UNDEFINED;
            qjs::JS_Call(self.ctx(), function, this, count, args.as_ptr().cast_mut())
        }
    }

    /// Calls a function of the prelude.
    pub fn prelude(&self, function: Prelude, args: &[qjs::JSValue]) -> Result<Value, Error> {
        let function = match function {
            Prelude::Compile => self.api.compile,
            Prelude::Reduce => self.api.reduce,
            Prelude::AddDesign => self.api.add_design,
            Prelude::Prepare => self.api.prepare,
            Prelude::Modules => self.api.modules,
            Prelude::Call => self.api.call,
            Prelude::List => self.api.list,
        };
        let value = self.own(self.call_raw(function, args));
        self.run_jobs();
        if let Some(limit) = self.control().over() {
            return Err(self.control().limit_error(limit));
        }
        value
    }

    /// Runs what promises left to be done, so that it does not pile up.
    pub fn run_jobs(&self) {
        // SAFETY: the context is live and entered by this thread.
        unsafe {
            let runtime = qjs::JS_GetRuntime(self.ctx());
            while qjs::JS_IsJobPending(runtime) && !self.control().must_stop() {
                let mut ctx = std::ptr::null_mut();
                if qjs::JS_ExecutePendingJob(runtime, &raw mut ctx) < 0 && !ctx.is_null() {
                    qjs::JS_FreeValue(ctx, qjs::JS_GetException(ctx));
                }
            }
        }
    }

    pub fn string(&self, text: &str) -> Result<Value, Error> {
        // SAFETY: the text is live during the call.
        self.own(unsafe { qjs::JS_NewStringLen(self.ctx(), text.as_ptr().cast(), text.len() as _) })
    }

    pub fn strings(&self, texts: &[&str]) -> Result<Value, Error> {
        let texts = texts.iter().map(|text| self.string(text));
        self.array(texts.collect::<Result<_, _>>()?)
    }

    /// An array of values that it takes over.
    pub fn array(&self, values: Vec<Value>) -> Result<Value, Error> {
        let values: Vec<_> = values.into_iter().map(Value::into_raw).collect();
        let count = values.len() as c_int;
        // SAFETY: `JS_NewArrayFrom` takes the values over, also when it fails.
        self.own(unsafe { qjs::JS_NewArrayFrom(self.ctx(), count, values.as_ptr()) })
    }

    /// A document as map functions see it.
    pub fn document(&mut self, json: &[u8], form: Form) -> Result<Value, BuildError> {
        if u32::try_from(json.len()).is_err() {
            return Err(BuildError::Depth);
        }
        let ctx = self.ctx();
        // SAFETY: the context is live and entered by this thread. The object keeps the text alive, of which our reference is
        // given back.
        unsafe {
            let text = Text::new(ctx, json, form != Form::Lazy).ok_or(BuildError::Exception)?;
            let raw = if form == Form::Records {
                let mut builder = Builder {
                    ctx,
                    state: self.state.as_mut(),
                    document: Some(text),
                    records: true,
                };
                builder.build(json, 0)
            } else {
                Ok(lazy::object(ctx, text, 0, json.len()))
            };
            Text::release(qjs::JS_GetRuntime(ctx), text);
            let raw = raw?;
            if qjs::JS_IsException(raw) {
                return Err(BuildError::Exception);
            }
            Ok(Value { ctx, raw })
        }
    }

    /// Whether a function may have changed an array of a document.
    pub fn may_have_changed(&self, document: &Value) -> bool {
        // SAFETY: the document is live, and keeps its node and text alive.
        unsafe {
            let node = lazy::node(document.raw, self.control().lazy_class.get());
            node.is_none_or(|node| node.as_ref().text.as_ref().exposed.get())
        }
    }

    /// The value of a JSON text.
    pub fn value(&mut self, json: &[u8]) -> Result<Value, Error> {
        let ctx = self.ctx();
        // SAFETY: the context is live, entered by this thread, and has this state. Building calls no JavaScript, and so nothing
        // that looks for the state.
        let built = unsafe {
            let mut builder = Builder {
                ctx,
                state: self.state.as_mut(),
                document: None,
                records: false,
            };
            builder.build(json, 0)
        };
        self.own(built.map_err(|error| self.build_error(error))?)
    }

    pub fn build_error(&self, error: BuildError) -> Error {
        let reason = match error {
            BuildError::Exception => return self.error(),
            BuildError::Syntax => "a value is not JSON",
            BuildError::Depth => "a value nests too deeply",
        };
        Error::Thrown {
            name: "badarg".into(),
            reason: reason.into(),
        }
    }

    /// Writes a value to `out`, which is not to become longer than `end`.
    pub fn write(
        &mut self,
        value: qjs::JSValue,
        out: &mut Vec<u8>,
        end: usize,
    ) -> Result<(), Failed> {
        let mut writer = Writer {
            ctx: self.raw.as_ptr(),
            // SAFETY: as in `control`.
            control: unsafe { self.control.as_ref() },
            state: self.state,
            out,
            end,
            to_json: self.to_json,
            class_object: self.class_object,
            class_array: self.class_array,
            object_prototype: self.object_prototype,
        };
        // SAFETY: the context is live and entered by this thread, and the value is one of its.
        unsafe { writer.write(value) }
    }

    /// A value's JSON text.
    pub fn json(&mut self, value: &Value) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        let end = self.control().options.emit_bytes_max;
        match self.write(value.raw, &mut out, end) {
            Ok(()) => Ok(out),
            Err(Failed) => Err(self.error()),
        }
    }

    /// The pending exception, or the limit that was hit, as an error.
    pub fn error(&self) -> Error {
        // SAFETY: the context is live and entered by this thread; the exception is freed once.
        let error = unsafe {
            let exception = qjs::JS_GetException(self.ctx());
            let error = super::thrown::error(self.ctx(), exception);
            qjs::JS_FreeValue(self.ctx(), exception);
            error
        };
        match self.control().over() {
            Some(limit) => self.control().limit_error(limit),
            None => error,
        }
    }

    /// Compiles a function's source by the prelude; `modules` is where its `require` looks.
    pub fn compile(&self, source: &str, modules: Option<&Value>) -> Result<Value, Error> {
        let source = self.string(source)?;
        let modules = modules.map_or(qjs::JS_NULL, Value::raw);
        let function = self.prelude(Prelude::Compile, &[source.raw, modules])?;
        // SAFETY: it is a live value of this context.
        if unsafe { qjs::JS_IsFunction(self.ctx(), function.raw) } {
            return Ok(function);
        }
        Err(Error::Compile(
            "Expression does not eval to a function.".into(),
        ))
    }

    /// What `require` of map and reduce functions sees, from `views.lib`.
    pub fn modules(&mut self, lib: Option<&str>) -> Result<Option<Value>, Error> {
        let Some(lib) = lib else { return Ok(None) };
        let json = format!("{{\"views\":{{\"lib\":{lib}}}}}");
        self.value(json.as_bytes()).map(Some)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was leaked from a box by `new`. Nothing runs in the context any more.
        drop(unsafe { Box::from_raw(self.state.as_ptr()) });
    }
}

/// The state of a context that is not closed.
///
/// # Safety
/// `ctx` is a live context of a [`Context`]. The caller must not use a reference to it while QuickJS may call.
pub(super) unsafe fn state(ctx: *mut qjs::JSContext) -> *mut State {
    // SAFETY: by the caller.
    unsafe { qjs::JS_GetContextOpaque(ctx).cast() }
}

/// The `Control` of a context's runtime.
///
/// # Safety
/// `ctx` is a live context of a [`Runtime`]; the answer lives as long as that.
pub(super) unsafe fn control<'a>(ctx: *mut qjs::JSContext) -> &'a Control {
    // SAFETY: by the caller.
    unsafe { control_of(qjs::JS_GetRuntime(ctx)) }
}

/// The `Control` of a runtime.
///
/// # Safety
/// `runtime` is that of a live [`Runtime`]; the answer lives as long as that.
pub(super) unsafe fn control_of<'a>(runtime: *mut qjs::JSRuntime) -> &'a Control {
    // SAFETY: by the caller: each runtime is made with its `Control` as its opaque pointer.
    unsafe {
        let control: *mut c_void = qjs::JS_GetRuntimeOpaque(runtime);
        &*control.cast::<Control>()
    }
}
