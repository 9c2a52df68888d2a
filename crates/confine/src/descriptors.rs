//! Descriptors that a process got from the one that started it.

use std::io;

/// The first that is not standard input, output or error.
const FIRST: libc::c_uint = 3;

/// Keeps descriptors of this process, those too that it was started with, from programs that it starts.
///
/// # Errors
/// The kernel's: before Linux 5.11 there is no such call.
pub fn keep_descriptors() -> io::Result<()> {
    close_range(libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes all descriptors but the standard ones. To be called before the process opens anything.
///
/// # Errors
/// The kernel's: before Linux 5.9 there is no such call.
pub fn close_descriptors() -> io::Result<()> {
    close_range(0)
}

#[expect(unsafe_code, reason = "no safe library has the call")]
fn close_range(flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: no memory is involved. A descriptor that is closed was given to the process when it started and is nobody's in it.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flags) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
