//! Inherited file descriptors.

use std::io;

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Prevents programs that this process starts from inheriting its descriptors, including those that
/// it inherited itself.
///
/// # Errors
/// Errors of the kernel: before Linux 5.11 there is no such call.
pub fn keep_descriptors() -> io::Result<()> {
    close_range(libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes all descriptors except the standard ones. Must be called before the process opens
/// anything.
///
/// # Errors
/// Errors of the kernel: before Linux 5.9 there is no such call.
pub fn close_descriptors() -> io::Result<()> {
    close_range(0)
}

#[expect(unsafe_code, reason = "no safe library has the call")]
fn close_range(flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: no memory is involved. A closed descriptor was given to the process when it started
    // and has no owner in it.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flags) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
