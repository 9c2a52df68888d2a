//! JavaScript with QuickJS-NG, in this process or in worker processes of the same binary.

mod build;
mod context;
mod designs;
mod host;
mod log;
mod mapper;
mod names;
mod pool;
mod reducer;
mod runtime;
mod shapes;
mod thrown;
mod write;

use std::sync::Arc;
use std::time::Duration;

use crate::{Designs, Error, MapGroup, Mapper, Reducer};
use designs::ThreadDesigns;
use mapper::ThreadMapper;
use pool::Pool;
use reducer::ThreadReducer;

/// Where JavaScript runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// In the calling thread. A single call of a built-in function that takes long (`"x".repeat(1e8).split("")`) cannot be
    /// stopped by the time limit; the memory limit bounds it.
    #[default]
    Thread,
    /// In worker processes, which are killed when they overrun a limit.
    Process,
}

/// Settings of the section `[functions]`.
#[derive(Clone, Debug)]
pub struct Options {
    /// `time_limit_ms`: JavaScript's time for one document, or one call of another function.
    pub time: Duration,
    /// `memory_limit_bytes`: memory of one JavaScript heap; at most 1 GiB counts.
    pub memory_bytes: usize,
    /// `stack_limit_bytes`: stack of JavaScript's calls.
    pub stack_bytes: usize,
    /// `emit_rows_limit`: rows that one function may emit for one document.
    pub emit_rows_max: usize,
    /// `emit_bytes_limit`: bytes of JSON that all functions of a design document may emit for one document, and that any other
    /// function may answer.
    pub emit_bytes_max: usize,
    /// `isolation`: `thread` or `process`.
    pub isolation: Isolation,
    /// `workers_limit`: idle JavaScript heaps that are kept for design and reduce functions.
    pub workers_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            time: Duration::from_secs(5),
            memory_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            emit_rows_max: 100_000,
            emit_bytes_max: 64 << 20,
            isolation: Isolation::Thread,
            workers_max: 8,
        }
    }
}

/// Longest string of QuickJS in bytes; with more memory its own sizes could overflow.
const MEMORY_MAX: usize = 1 << 30;
/// Less, and not even the prelude runs.
const MEMORY_MIN: usize = 2 << 20;
const STACK_MIN: usize = 64 << 10;

/// Runs JavaScript.
#[derive(Clone)]
pub struct Engine {
    options: Options,
    pool: Arc<Pool>,
}

impl Engine {
    /// An engine with these settings; memory and stack are brought within what can work.
    pub fn new(mut options: Options) -> Engine {
        options.memory_bytes = options.memory_bytes.clamp(MEMORY_MIN, MEMORY_MAX);
        options.stack_bytes = options.stack_bytes.max(STACK_MIN);
        let pool = Arc::new(Pool::new(&options));
        Engine { options, pool }
    }

    /// A mapper with a heap of its own, for one thread. Sources that do not compile are [`Error::Compile`].
    pub fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        Ok(Box::new(ThreadMapper::new(&self.options, group)?))
    }

    /// A custom reduce function; `lib` is `views.lib` as JSON text. It is compiled when it is first called.
    pub fn reducer(&self, source: &str, lib: Option<&str>) -> Box<dyn Reducer> {
        Box::new(ThreadReducer::new(self.pool.clone(), source, lib))
    }

    /// Calls of other functions of design documents.
    pub fn designs(&self) -> Box<dyn Designs> {
        let pool = self.pool.clone();
        Box::new(ThreadDesigns { pool })
    }

    /// Whether a source is a function: [`Error::Compile`] says why not.
    pub fn check(&self, source: &str, lib: Option<&str>) -> Result<(), Error> {
        self.pool.with(None, |host| {
            let mut context = context::Context::new(&host.runtime)?;
            let result = context.modules(lib).and_then(|modules| {
                let function = context.compile(source, modules.as_ref())?;
                drop(function);
                Ok(())
            });
            context.close();
            result
        })
    }
}
