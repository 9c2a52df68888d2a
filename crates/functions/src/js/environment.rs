//! A context with the prelude, in which users' functions run.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::time::Duration;

use query_server::language::{Error, MEMORY_LIMIT, TIME_LIMIT};
use query_server::prelude::PRELUDE_OF_QUICKJS;
use quickjs::{
    BuildError, Context, Enter, Heap, Host, Interrupted, Limit, Limits, RetainedValue, Scope,
    Script, SilentHost, Value,
};

use super::{host, thrown};
use crate::spidermonkey::{names_last_match, reads_dates};

/// The reason for refusing what QuickJS cannot be passed.
pub(super) const TOO_DEEP: &str =
    "the document nests too deeply: functions in JavaScript get at most 1,000 levels";

/// The prelude's byte code, by [`script`].
static SCRIPT: OnceLock<Script> = OnceLock::new();

/// Functions of the prelude.
struct Api {
    compile: RetainedValue,
    is_verbatim: RetainedValue,
    reduce: RetainedValue,
    add_design: RetainedValue,
    source: RetainedValue,
    load: RetainedValue,
    prepare: RetainedValue,
    call: RetainedValue,
    list: RetainedValue,
    keep_matches: RetainedValue,
    read_dates: RetainedValue,
}

/// A function of the prelude.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prelude {
    Compile,
    IsVerbatim,
    Reduce,
    AddDesign,
    Source,
    Load,
    Prepare,
    Call,
    List,
    KeepMatches,
    ReadDates,
}

/// A context of a heap that has the prelude.
pub(super) struct Environment {
    context: Context,
    api: Api,
}

/// An entered [`Environment`].
pub(super) struct Entered<'a, 'js> {
    pub scope: &'a Scope<'js>,
    api: &'a Api,
}

/// Creates a heap with these limits.
pub(super) fn new_heap(limits: &Limits) -> Result<Heap, Error> {
    Heap::new(limits).map_err(|limit| limit_error(limits, limit))
}

/// Returns the error of a limit that was hit.
pub(super) fn limit_error(limits: &Limits, limit: Limit) -> Error {
    let (key, value) = match limit {
        Limit::Time => (TIME_LIMIT, limits.time.as_millis().to_string()),
        Limit::Memory => (MEMORY_LIMIT, limits.memory_bytes.to_string()),
        Limit::Rows => ("emit_rows_limit", limits.emit_rows_max.to_string()),
        Limit::Bytes => ("emit_bytes_limit", limits.emit_bytes_max.to_string()),
    };
    Error::Limit { limit: key, value }
}

/// Returns the error of a scope: the limit that was hit, or the thrown value.
pub(super) fn failure(scope: &Scope<'_>) -> Error {
    let error = thrown::error(scope, &scope.take_exception());
    match scope.over() {
        Some(limit) => limit_error(scope.limits(), limit),
        None => error,
    }
}

/// Returns the prelude, which the first caller compiles: on no user's clock, and in no user's memory.
fn script() -> Result<&'static Script, Error> {
    if let Some(script) = SCRIPT.get() {
        return Ok(script);
    }
    let limits = Limits {
        time: Duration::MAX,
        ..Limits::default()
    };
    let mut heap = new_heap(&limits)?;
    let context = heap.new_context();
    let context = context.map_err(|limit| limit_error(&limits, limit))?;
    let script = heap.enter(&context, &SilentHost, |scope| {
        let script = scope.compile(PRELUDE_OF_QUICKJS, c"prelude.js");
        script.map_err(|Interrupted| failure(scope))
    })?;
    Ok(SCRIPT.get_or_init(|| script))
}

impl Environment {
    /// Creates a context in a heap.
    pub fn new(heap: &mut Heap, host: &dyn Host) -> Result<Environment, Error> {
        let script = script()?;
        let context = heap.new_context();
        let context = context.map_err(|limit| limit_error(heap.limits(), limit))?;
        let api = heap.enter(&context, host, |scope| {
            Api::load(scope, script).map_err(|Interrupted| failure(scope))
        });
        match api {
            Ok(api) => Ok(Environment { context, api }),
            Err(error) => {
                // A heap that hit a limit is not used again; its contexts end with it.
                if heap.over().is_none() {
                    heap.close_context(context);
                }
                Err(error)
            }
        }
    }

    /// Releases the context's values in the heap.
    #[cfg(test)]
    pub fn close(self, heap: &mut Heap) {
        heap.close_context(self.context);
    }

    /// Runs `work` in the context, with the clock started.
    pub fn enter<T>(
        &self,
        heap: &mut impl Enter,
        host: &dyn Host,
        work: impl for<'a, 'js> FnOnce(&Entered<'a, 'js>) -> T,
    ) -> T {
        heap.enter(&self.context, host, |scope| {
            let api = &self.api;
            work(&Entered { scope, api })
        })
    }
}

impl Api {
    fn load(scope: &Scope<'_>, script: &Script) -> Result<Api, Interrupted> {
        let start = scope.run(script)?;
        let host = scope.host_object(&host::FUNCTIONS)?;
        let api = scope.call(&start, [&host])?;
        let member = |name| scope.get(&api, name).map(|function| scope.keep(function));
        let api = Api {
            compile: member(c"compile")?,
            is_verbatim: member(c"isVerbatim")?,
            reduce: member(c"reduce")?,
            add_design: member(c"addDesign")?,
            source: member(c"sourceOf")?,
            load: member(c"load")?,
            prepare: member(c"prepare")?,
            call: member(c"call")?,
            list: member(c"list")?,
            keep_matches: member(c"keepMatches")?,
            read_dates: member(c"readDates")?,
        };
        scope.define_emit()?;
        Ok(api)
    }

    fn function(&self, function: Prelude) -> &RetainedValue {
        match function {
            Prelude::Compile => &self.compile,
            Prelude::IsVerbatim => &self.is_verbatim,
            Prelude::Reduce => &self.reduce,
            Prelude::AddDesign => &self.add_design,
            Prelude::Source => &self.source,
            Prelude::Load => &self.load,
            Prelude::Prepare => &self.prepare,
            Prelude::Call => &self.call,
            Prelude::List => &self.list,
            Prelude::KeepMatches => &self.keep_matches,
            Prelude::ReadDates => &self.read_dates,
        }
    }
}

impl<'js> Entered<'_, 'js> {
    /// Converts the result of an operation of the scope.
    pub fn done<T>(&self, result: Result<T, Interrupted>) -> Result<T, Error> {
        result.map_err(|Interrupted| failure(self.scope))
    }

    /// Calls a function of the prelude.
    pub fn prelude<const N: usize>(
        &self,
        function: Prelude,
        arguments: [&Value<'js>; N],
    ) -> Result<Value<'js>, Error> {
        let function = self.scope.kept(self.api.function(function));
        let value = self.done(self.scope.call(&function, arguments));
        self.scope.run_jobs();
        if let Some(limit) = self.scope.over() {
            return Err(limit_error(self.scope.limits(), limit));
        }
        value
    }

    /// Runs a script.
    pub fn run(&self, source: &str, name: &CStr) -> Result<(), Error> {
        let script = self.done(self.scope.compile(source, name))?;
        self.done(self.scope.run(&script)).map(drop)
    }

    pub fn string(&self, text: &str) -> Result<Value<'js>, Error> {
        self.done(self.scope.string(text))
    }

    pub fn strings(&self, texts: &[&str]) -> Result<Value<'js>, Error> {
        self.done(self.scope.strings(texts))
    }

    /// Creates an array of values, taking ownership.
    pub fn array(&self, values: Vec<Value<'js>>) -> Result<Value<'js>, Error> {
        self.done(self.scope.array(values))
    }

    /// Parses a JSON text.
    pub fn value(&self, json: &[u8]) -> Result<Value<'js>, Error> {
        self.scope.value(json).map_err(|error| match error {
            BuildError::Exception => failure(self.scope),
            BuildError::Syntax => Error::Process("a value is not JSON".into()),
            BuildError::Depth => Error::BadArgument(TOO_DEEP.into()),
        })
    }

    /// Returns a value's JSON text.
    pub fn json(&self, value: &Value<'js>) -> Result<Vec<u8>, Error> {
        self.done(self.scope.json(value))
    }

    /// Compiles a function's source by the prelude; `modules` is searched by its `require`.
    pub fn compile(&self, source: &str, modules: Option<&Value<'js>>) -> Result<Value<'js>, Error> {
        let source = self.string(source)?;
        let none = self.scope.null();
        let modules = modules.unwrap_or(&none);
        let function = self.prelude(Prelude::Compile, [&source, modules])?;
        if function.is_function() {
            return Ok(function);
        }
        Err(Error::Compile(
            "Expression does not eval to a function.".into(),
        ))
    }

    /// Returns whether a function's source was compiled unchanged, as one expression.
    pub fn is_verbatim(&self, function: &Value<'js>) -> Result<bool, Error> {
        self.is_true(&self.prelude(Prelude::IsVerbatim, [function])?)
    }

    /// Adapts the environment to functions with these texts: regular expressions remember their last
    /// match if one of them names it, and `Date` reads texts if one of them may have it do so. Returns
    /// whether calls may leave something behind by that: the last match.
    pub fn adapt<'t>(&self, texts: impl IntoIterator<Item = &'t str>) -> Result<bool, Error> {
        let (mut keeps_matches, mut reads) = (false, false);
        for text in texts {
            keeps_matches |= names_last_match(text);
            reads |= reads_dates(text);
        }
        if reads {
            self.prelude(Prelude::ReadDates, [])?;
        }
        if keeps_matches {
            self.prelude(Prelude::KeepMatches, [])?;
        }
        Ok(keeps_matches)
    }

    /// Returns whether a value is `true`.
    pub fn is_true(&self, value: &Value<'js>) -> Result<bool, Error> {
        Ok(self.json(value)? == b"true")
    }

    /// Returns the modules for `require` of map and reduce functions, from `views.lib`.
    pub fn modules(&self, lib: Option<&str>) -> Result<Option<Value<'js>>, Error> {
        let Some(lib) = lib else { return Ok(None) };
        let json = format!("{{\"views\":{{\"lib\":{lib}}}}}");
        self.value(json.as_bytes()).map(Some)
    }

    /// Loads the modules that sources require by literal names, so that calls find them loaded.
    pub fn load(&self, modules: &Value<'js>, names: &[String]) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let names = self.strings(&names)?;
        self.scope.start_clock();
        self.prelude(Prelude::Load, [modules, &names]).map(drop)
    }
}
