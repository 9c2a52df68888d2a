//! What the engine does by code of ours in C++ (`crates/storage/native`): its environment, whose logs have zeros ahead and are sealed after errors,
//! the report of its errors, and that it goes on after one.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use rocksdb::{AsRawPtr as _, DB, Env, Options};

// They are in the library that `scripts/rocksdb.sh` makes, compiled behind the engine's own C interface, of whose types the pointers are.
unsafe extern "C" {
    /// Makes a `rocksdb_env_t`, which is the caller's.
    fn settee_env_create() -> *mut c_void;
    /// Has an engine that is opened with `options` and `env` report errors to `report`, from any of its threads, and call `release` once after the
    /// last one. Both get `state`.
    fn settee_report_errors(
        options: *mut c_void,
        env: *mut c_void,
        report: unsafe extern "C" fn(*mut c_void, c_int, *const c_char),
        release: unsafe extern "C" fn(*mut c_void),
        state: *mut c_void,
    );
    /// Tells the files of `env` which engine they are of.
    fn settee_attach(env: *mut c_void, db: *mut c_void);
    /// Resumes writes. Null, or a message that the caller frees by `rocksdb_free`.
    fn settee_resume(db: *mut c_void) -> *mut c_char;
    fn rocksdb_free(pointer: *mut c_void);
    /// How often the engine resumes by itself.
    fn rocksdb_options_set_max_bgerror_resume_count(options: *mut c_void, count: c_int);
}

/// An environment for one engine: how much its logs' syncs have to write is remembered in it.
pub fn log_env() -> Env {
    // SAFETY: the function has no preconditions. It answers a new `rocksdb_env_t`, as `rocksdb_create_mem_env` does, made of the engine's own
    // definition of that type, and keeps no pointer to it: `Env` owns it, and gives it back once by `rocksdb_env_destroy`. The engine keeps
    // the `Env` as long as it is open (`Options::set_env` and `DB` hold it).
    unsafe { Env::from_raw(settee_env_create().cast()) }
}

/// What an error of the engine means for writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// They are refused until the engine is resumed.
    Stopped,
    /// They are refused until the store is opened again.
    Broken,
    /// None: a compaction failed, which the engine tries again.
    Compaction,
}

impl Severity {
    /// By the numbers of `native/errors.cc`.
    fn of(kind: c_int) -> Severity {
        match kind {
            0 => Severity::Stopped,
            2 => Severity::Compaction,
            _ => Severity::Broken,
        }
    }
}

/// A receiver of the engine's errors. It is called by threads of the engine and by those that write, and must be quick.
pub trait ErrorSink: Send + Sync {
    /// Takes an error, with the engine's words for it.
    fn report(&self, severity: Severity, text: &str);
}

/// Has the engine that is opened with these options, in this environment of [`log_env`], report its errors to `sink`. It does not resume by itself
/// after those that stop writes.
pub fn report_errors<S: ErrorSink + 'static>(options: &mut Options, env: &Env, sink: Arc<S>) {
    unsafe extern "C" fn report<S: ErrorSink>(
        state: *mut c_void,
        kind: c_int,
        text: *const c_char,
    ) {
        // SAFETY: `state` is the pointer of `Arc::into_raw` below, which is valid until `release`, after which nothing is reported. `text` is a
        // string of the engine that ends with a zero and outlives the call.
        let (sink, text) = unsafe { (&*state.cast::<S>(), CStr::from_ptr(text)) };
        sink.report(Severity::of(kind), &text.to_string_lossy());
    }
    unsafe extern "C" fn release<S>(state: *mut c_void) {
        // SAFETY: it is the pointer of `Arc::into_raw` below, and this is called once.
        drop(unsafe { Arc::from_raw(state.cast::<S>().cast_const()) });
    }
    let state = Arc::into_raw(sink).cast_mut().cast();
    // SAFETY: the pointers are of live objects, the environment is one of `settee_env_create`, and the functions are of the type that `state` is of. `S` may
    // be used by any thread.
    unsafe {
        let (options, env) = (options.as_raw_ptr().cast(), env.as_raw_ptr().cast());
        rocksdb_options_set_max_bgerror_resume_count(options, 0);
        settee_report_errors(options, env, report::<S>, release::<S>, state);
    }
}

/// Tells the files of an environment of [`log_env`] that they are of `db`, which was opened in it and owns them.
pub fn attach(env: &Env, db: &DB) {
    // SAFETY: the pointers are of live objects. The files are closed by the engine, before it goes.
    unsafe { settee_attach(env.as_raw_ptr().cast(), db.as_raw_ptr().cast()) }
}

/// Has the engine take writes again after an error. All that it has in memory is in files then. Blocks.
///
/// # Errors
/// Its words for what still fails.
pub fn resume(db: &DB) -> Result<(), String> {
    // SAFETY: the pointer is of a live object. What is answered is null or a string that ends with a zero and is ours, which is freed once.
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
