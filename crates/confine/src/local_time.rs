//! Where local time is from.

use std::mem::MaybeUninit;

/// Has the C library read the time zone, which it does once, from a file.
#[expect(unsafe_code, reason = "no safe library has the call")]
pub fn read_time_zone() {
    let mut local = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: the time is read, and the result is written; no thread of this process changes the environment.
    unsafe { libc::localtime_r(&0, local.as_mut_ptr()) };
}
