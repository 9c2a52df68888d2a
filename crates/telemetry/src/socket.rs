//! Figures of the kernel about a TCP socket: dropped connections, and the age of the last bytes.

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Numbers that the kernel gives of a socket's memory, and which of them counts what it dropped
/// (`linux/sock_diag.h`).
const NUMBERS: usize = 9;
const DROPS: usize = 8;

/// The first numbers of a connection's state, and which of them is the time since it received data,
/// in milliseconds (`struct tcp_info` of `linux/tcp.h`; the first two hold eight members of a byte).
const STATE_NUMBERS: usize = 14;
const SINCE_DATA_MS: usize = 13;

/// Returns the number of connections that the kernel dropped since the socket started to listen,
/// because too many waited to be accepted. The kernel counts up to 2³². `None` when it is not
/// available.
pub fn dropped_connections(listener: BorrowedFd<'_>) -> Option<u32> {
    // Kernels before 4.12 do not know the option.
    numbers::<NUMBERS>(listener, libc::SOL_SOCKET, libc::SO_MEMINFO).map(|of| of[DROPS])
}

/// Returns the time since the kernel received the last data of a connection, or since it was
/// established if it has received none, in milliseconds. The kernel counts in its own ticks, of
/// 1 to 10 ms. `None` when it is not available, as for other sockets than TCP's.
pub fn ms_since_data(connection: BorrowedFd<'_>) -> Option<u32> {
    let state = numbers::<STATE_NUMBERS>(connection, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Some(state[SINCE_DATA_MS])
}

/// Returns the first numbers of a socket's option; `None` if the option is unknown or shorter.
fn numbers<const N: usize>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
) -> Option<[u32; N]> {
    let mut numbers = [0u32; N];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed. The kernel writes at most `length` bytes
    // to `numbers`, which has as many, and any bytes are valid numbers.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            numbers.as_mut_ptr().cast(),
            &mut length,
        )
    };
    (done == 0 && length as usize == size_of_val(&numbers)).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use super::*;

    /// How long bytes lie in a socket, and the least that the kernel's coarse clock makes of it.
    const LIES: Duration = Duration::from_millis(100);
    const TOLD_MS_MIN: u32 = 80;

    #[test]
    fn a_socket_that_nobody_connects_to_drops_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(dropped_connections(listener.as_fd()), Some(0));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(dropped_connections(file.as_fd()), None);
        assert_eq!(ms_since_data(file.as_fd()), None);
    }

    #[test]
    fn bytes_that_lie_in_a_socket_have_an_age_that_reading_does_not_change() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"x").unwrap();
        // It is established and has data, although nobody has accepted it.
        std::thread::sleep(LIES);
        let (mut accepted, _) = listener.accept().unwrap();
        assert!(ms_since_data(accepted.as_fd()).unwrap() >= TOLD_MS_MIN);
        accepted.read_exact(&mut [0]).unwrap();
        assert!(ms_since_data(accepted.as_fd()).unwrap() >= TOLD_MS_MIN);
    }
}
