//! The engine's environment: as the default one, but that logs have zeros ahead (`crates/storage/native/log_ahead.cc`).

use std::ffi::c_void;

use rocksdb::Env;

unsafe extern "C" {
    /// Makes a `rocksdb_env_t`, which is the caller's. It is in the library that `scripts/rocksdb.sh` makes, compiled behind the engine's own C
    /// interface.
    fn settee_env_create() -> *mut c_void;
}

/// An environment for one engine: how much its logs' syncs have to write is remembered in it.
pub fn log_env() -> Env {
    // SAFETY: the function has no preconditions. It answers a new `rocksdb_env_t`, as `rocksdb_create_mem_env` does, made of the engine's own
    // definition of that type, and keeps no pointer to it: `Env` owns it, and gives it back once by `rocksdb_env_destroy`. The engine keeps
    // the `Env` as long as it is open (`Options::set_env` and `DB` hold it).
    unsafe { Env::from_raw(settee_env_create().cast()) }
}
