//! Custom reduce functions, in this thread.
//!
//! Each function of each database has a heap of its own, which is rewound after each call, or after
//! some calls if the function is known to leave nothing behind.

use std::sync::Arc;

use projection::{Arguments, LastingEffect, lasting_effect, required};
use query_server::language::{Error, ReduceRow, Reducer};
use quickjs::{Limits, RetainedValue, Value};
use telemetry::State;

use super::environment::{Entered, Prelude};
use super::host::Console;
use super::idle::Idle;
use super::sandbox::Sandbox;
use super::{IDLE_TIME_MAX, Options};

/// Maximum number of idle heaps.
const IDLE_MAX: usize = 32;
/// Number of calls of a function that leaves nothing behind after which its heap is rewound anyway.
const CALLS_BETWEEN: u32 = 64;

/// A reduce function of a database.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub database: Arc<str>,
    pub source: String,
    /// `views.lib` as JSON text.
    pub lib: Option<String>,
}

/// The heap of one reduce function.
struct Prepared {
    source: Arc<Source>,
    sandbox: Sandbox,
    function: RetainedValue,
    leaves_nothing: bool,
    /// Number of calls since the heap was rewound.
    calls: u32,
}

impl Prepared {
    fn new(limits: &Limits, source: &Arc<Source>) -> Result<Prepared, Error> {
        let console = Console::new(source.database.to_string());
        let (sandbox, (function, is_untouched)) = Sandbox::new(limits, console, |entered| {
            let modules = entered.modules(source.lib.as_deref())?;
            let function = entered.compile(&source.source, modules.as_ref())?;
            // The check for state that a function leaves behind examines its text, and assumes an
            // unmodified environment.
            let texts = [Some(&source.source), source.lib.as_ref()];
            let texts = texts.into_iter().flatten().map(String::as_str);
            let mut is_untouched = !entered.adapt(texts)?;
            is_untouched &= entered.is_verbatim(&function)?;
            if let Some(modules) = &modules {
                let names = required(&source.source);
                is_untouched &= names.is_empty();
                entered.load(modules, &names)?;
            }
            Ok((entered.scope.keep(function), is_untouched))
        })?;
        let left = || lasting_effect(&source.source, Arguments::Own);
        Ok(Prepared {
            sandbox,
            function,
            leaves_nothing: is_untouched && left() == LastingEffect::Nothing,
            source: source.clone(),
            calls: 0,
        })
    }

    /// Rewinds it if needed; returns whether it can be called again.
    fn is_restored(&mut self) -> bool {
        if self.leaves_nothing && self.calls < CALLS_BETWEEN && self.sandbox.over().is_none() {
            return true;
        }
        self.calls = 0;
        self.sandbox.rewind()
    }
}

/// Heaps of reduce functions.
pub(super) struct Reducers {
    limits: Limits,
    idle: Idle<Prepared>,
    /// Heaps without a function, to check sources.
    checkers: Idle<Sandbox>,
}

impl Reducers {
    pub fn new(options: &Options) -> Reducers {
        Reducers {
            limits: options.limits(),
            idle: Idle::new(IDLE_MAX, options.idle_bytes_max()),
            checkers: Idle::new(1, options.idle_bytes_max()),
        }
    }

    /// Drops heaps that were not used recently.
    pub fn rest(&self) {
        self.idle.rest(IDLE_TIME_MAX);
        self.checkers.rest(IDLE_TIME_MAX);
    }

    /// Runs `work` with a compiled function in its heap. After a limit was hit the heap is dropped.
    fn call<T>(
        &self,
        source: &Arc<Source>,
        work: impl for<'a, 'js> FnOnce(&Entered<'a, 'js>, &Value<'js>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _runs = telemetry::enter(State::Functions);
        let found = self.idle.take(|prepared| prepared.source == *source);
        let mut prepared = match found {
            Some(prepared) => prepared,
            None => Prepared::new(&self.limits, source)?,
        };
        prepared.calls += 1;
        let function = &prepared.function;
        let result = prepared.sandbox.enter(|entered| {
            let result = work(entered, &entered.scope.kept(function));
            entered.scope.raise_gc_threshold();
            result
        });
        if prepared.is_restored() {
            let bytes = prepared.sandbox.footprint();
            self.idle.put(prepared, bytes);
        }
        result
    }

    /// Checks that a source is a function.
    pub fn check(&self, source: &str, lib: Option<&str>) -> Result<(), Error> {
        let _runs = telemetry::enter(State::Functions);
        let mut sandbox = match self.checkers.take(|_| true) {
            Some(sandbox) => sandbox,
            None => Sandbox::new(&self.limits, Console::default(), |_| Ok(()))?.0,
        };
        let result = sandbox.enter(|entered| {
            let modules = entered.modules(lib)?;
            entered.compile(source, modules.as_ref()).map(drop)
        });
        if sandbox.rewind() {
            let bytes = sandbox.footprint();
            self.checkers.put(sandbox, bytes);
        }
        result
    }
}

/// A [`Reducer`] that runs in the calling thread.
pub(super) struct ThreadReducer {
    reducers: Arc<Reducers>,
    source: Arc<Source>,
}

/// Arguments of a reduce function.
struct Call<'js> {
    keys: Value<'js>,
    values: Value<'js>,
    rereduce: bool,
}

impl ThreadReducer {
    pub fn new(reducers: Arc<Reducers>, source: Source) -> ThreadReducer {
        ThreadReducer {
            reducers,
            source: Arc::new(source),
        }
    }

    fn call(
        &self,
        arguments: impl for<'a, 'js> FnOnce(&Entered<'a, 'js>) -> Result<Call<'js>, Error>,
    ) -> Result<Vec<u8>, Error> {
        self.reducers.call(&self.source, |entered, function| {
            let Call {
                keys,
                values,
                rereduce,
            } = arguments(entered)?;
            let rereduce = entered.scope.boolean(rereduce);
            let answer = entered.prelude(Prelude::Reduce, [function, &keys, &values, &rereduce])?;
            entered.json(&answer)
        })
    }
}

impl Reducer for ThreadReducer {
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error> {
        self.call(|entered| {
            let mut keys = Vec::with_capacity(rows.len());
            let mut values = Vec::with_capacity(rows.len());
            for row in rows {
                let key = vec![entered.value(row.key)?, entered.value(row.id)?];
                keys.push(entered.array(key)?);
                values.push(entered.value(row.value)?);
            }
            Ok(Call {
                keys: entered.array(keys)?,
                values: entered.array(values)?,
                rereduce: false,
            })
        })
    }

    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error> {
        self.call(|entered| {
            let values = values.iter().map(|value| entered.value(value));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            Ok(Call {
                keys: entered.scope.null(),
                values: entered.array(values)?,
                rereduce: true,
            })
        })
    }
}
