//! The engine's extensions in C++ (`crates/storage/native`): its environment, whose logs have zeros
//! ahead and are sealed after errors, the report of its errors, and resuming after one.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use rocksdb::{AsRawPtr as _, DB, Env, Options};

// They are in the library that `scripts/rocksdb.sh` builds, compiled behind the engine's own C
// interface, which defines the pointers' types.
unsafe extern "C" {
    /// Returns a new `rocksdb_env_t`, owned by the caller.
    fn settee_env_create() -> *mut c_void;
    /// Makes an engine that is opened with `options` and `env` report errors to `report`, from any
    /// of its threads, and call `release` once after the last one. Both get `state`.
    fn settee_report_errors(
        options: *mut c_void,
        env: *mut c_void,
        report: unsafe extern "C" fn(*mut c_void, c_int, *const c_char),
        release: unsafe extern "C" fn(*mut c_void),
        state: *mut c_void,
    );
    /// Associates the files of `env` with their engine.
    fn settee_attach(env: *mut c_void, db: *mut c_void);
    /// Resumes writes. Returns null, or a message that the caller frees by `rocksdb_free`.
    fn settee_resume(db: *mut c_void) -> *mut c_char;
    fn rocksdb_free(pointer: *mut c_void);
    /// Sets how often the engine resumes on its own.
    fn rocksdb_options_set_max_bgerror_resume_count(options: *mut c_void, count: c_int);
}

/// Returns an environment for one engine: it tracks how much its logs' syncs have to write.
pub fn log_env() -> Env {
    // SAFETY: the function has no preconditions. It returns a new `rocksdb_env_t`, as
    // `rocksdb_create_mem_env` does, made of the engine's own definition of that type, and keeps no
    // pointer to it: `Env` owns it, and releases it once by `rocksdb_env_destroy`. The engine keeps
    // the `Env` as long as it is open (`Options::set_env` and `DB` hold it).
    unsafe { Env::from_raw(settee_env_create().cast()) }
}

/// The effect of an error of the engine on writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Refused until the engine is resumed.
    Stopped,
    /// Refused until the store is reopened.
    Broken,
    /// None: a compaction failed, which the engine retries.
    Compaction,
}

impl Severity {
    /// Converts the numbers of `native/errors.cc`.
    fn of(kind: c_int) -> Severity {
        match kind {
            0 => Severity::Stopped,
            2 => Severity::Compaction,
            _ => Severity::Broken,
        }
    }
}

/// A receiver of the engine's errors. It is called by threads of the engine and by writers, and
/// must be fast.
pub trait ErrorSink: Send + Sync {
    /// Receives an error, with the engine's message.
    fn report(&self, severity: Severity, text: &str);
}

/// Makes the engine that is opened with these options, in this environment of [`log_env`], report
/// its errors to `sink`. It does not resume on its own after errors that stop writes.
pub fn report_errors<S: ErrorSink + 'static>(options: &mut Options, env: &Env, sink: Arc<S>) {
    unsafe extern "C" fn report<S: ErrorSink>(
        state: *mut c_void,
        kind: c_int,
        text: *const c_char,
    ) {
        // SAFETY: `state` is the pointer of `Arc::into_raw` below, which is valid until `release`,
        // after which nothing is reported. `text` is a string of the engine that ends with a zero
        // and outlives the call.
        let (sink, text) = unsafe { (&*state.cast::<S>(), CStr::from_ptr(text)) };
        sink.report(Severity::of(kind), &text.to_string_lossy());
    }
    unsafe extern "C" fn release<S>(state: *mut c_void) {
        // SAFETY: it is the pointer of `Arc::into_raw` below, and this is called once.
        drop(unsafe { Arc::from_raw(state.cast::<S>().cast_const()) });
    }
    let state = Arc::into_raw(sink).cast_mut().cast();
    // SAFETY: the pointers are to live objects, the environment is one of `settee_env_create`, and
    // the functions match the type of `state`. `S` may be used by any thread.
    unsafe {
        let (options, env) = (options.as_raw_ptr().cast(), env.as_raw_ptr().cast());
        rocksdb_options_set_max_bgerror_resume_count(options, 0);
        settee_report_errors(options, env, report::<S>, release::<S>, state);
    }
}

/// Associates the files of an environment of [`log_env`] with `db`, which was opened in it and owns
/// them.
pub fn attach(env: &Env, db: &DB) {
    // SAFETY: the pointers are to live objects. The engine closes the files before it is dropped.
    unsafe { settee_attach(env.as_raw_ptr().cast(), db.as_raw_ptr().cast()) }
}

/// Makes the engine accept writes again after an error. Everything in memory is in files then.
/// Blocks.
///
/// # Errors
/// The engine's message about what still fails.
pub fn resume(db: &DB) -> Result<(), String> {
    // SAFETY: the pointer is to a live object. The result is null or a zero-terminated string that
    // we own, which is freed once.
    unsafe {
        let failed = settee_resume(db.as_raw_ptr().cast());
        if failed.is_null() {
            return Ok(());
        }
        let text = CStr::from_ptr(failed).to_string_lossy().into_owned();
        rocksdb_free(failed.cast());
        Err(text)
    }
}
