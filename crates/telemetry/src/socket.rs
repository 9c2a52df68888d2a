//! Kernel counters of a listening socket.

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Numbers that the kernel gives of a socket's memory, and which of them counts what it dropped
/// (`linux/sock_diag.h`).
const NUMBERS: usize = 9;
const DROPS: usize = 8;

/// Returns the number of connections that the kernel dropped since the socket started to listen,
/// because too many waited to be accepted. The kernel counts up to 2³². `None` when it is not
/// available.
pub fn dropped_connections(listener: BorrowedFd<'_>) -> Option<u32> {
    let mut numbers = [0u32; NUMBERS];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed. The kernel writes at most `length` bytes
    // to `numbers`, which has as many, and any bytes are valid numbers.
    let done = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &mut length,
        )
    };
    // Kernels before 4.12 do not know the option.
    (done == 0 && length as usize == size_of_val(&numbers)).then_some(numbers[DROPS])
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_socket_that_nobody_connects_to_drops_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(dropped_connections(listener.as_fd()), Some(0));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(dropped_connections(file.as_fd()), None);
    }
}
