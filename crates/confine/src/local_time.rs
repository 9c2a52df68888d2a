//! The time zone.

use std::mem::MaybeUninit;

/// Makes the C library read the time zone from its file now. It reads it once.
#[expect(unsafe_code, reason = "no safe library has the call")]
pub fn read_time_zone() {
    let mut local = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: the time is read, and the result is written; no thread of this process changes the
    // environment.
    unsafe { libc::localtime_r(&0, local.as_mut_ptr()) };
}
