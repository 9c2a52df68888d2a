//! Lines for a log, collected for a moment and written by a separate thread.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Lines are written immediately after a pause of 5 ms, otherwise every 5 ms: under load one write
/// and one wake-up of the thread serve many.
const WRITE_EVERY: Duration = Duration::from_millis(5);
/// At most 16 MiB wait when the output does not keep up, such as a terminal whose output is
/// stopped. Further lines are lost.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// A buffer that grew beyond this is freed.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Longest wait at the end for the rest to be written: the output may be blocked for ever.
const END_TIME_MAX: Duration = Duration::from_secs(if cfg!(test) { 30 } else { 1 });

/// Takes lines; cheap to clone. Each `write` is a whole line, or several.
#[derive(Clone)]
pub struct Lines(Arc<Shared>);

/// The thread that writes them. When dropped, it writes the remaining lines and ends, or is
/// abandoned if it cannot.
pub struct LineThread(Lines);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There is a first line, or the end has come.
    arrived: Condvar,
    /// The thread has written everything and ends.
    ended: Condvar,
}

#[derive(Default)]
struct Waiting {
    text: Vec<u8>,
    lost: u64,
    is_over: bool,
    has_ended: bool,
}

impl Lines {
    /// Starts a thread that writes to `out`.
    ///
    /// # Errors
    /// There can be no further thread.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<(Lines, LineThread)> {
        let lines = Lines(Arc::default());
        let shared = lines.0.clone();
        let thread = std::thread::Builder::new().name("log".into());
        thread.spawn(move || {
            shared.write_all_to(out);
            shared.waiting.lock().has_ended = true;
            shared.ended.notify_all();
        })?;
        Ok((lines.clone(), LineThread(lines)))
    }
}

impl Shared {
    fn write_all_to(&self, mut out: impl Write) {
        let mut written = None::<Instant>;
        let mut text = Vec::new();
        loop {
            let mut waiting = self.waiting.lock();
            while waiting.text.is_empty() && !waiting.is_over {
                self.arrived.wait(&mut waiting);
            }
            let next = written.map(|at| at + WRITE_EVERY);
            if let Some(next) = next.filter(|next| *next > Instant::now()) {
                // Only the end is signalled while there are lines.
                while !waiting.is_over && !self.arrived.wait_until(&mut waiting, next).timed_out() {
                }
            }
            let is_over = waiting.is_over;
            std::mem::swap(&mut text, &mut waiting.text);
            let lost = std::mem::take(&mut waiting.lost);
            drop(waiting);
            if lost > 0 {
                text.extend_from_slice(format!("{lost} lines of this log were lost\n").as_bytes());
            }
            let unwritten = write_to(&mut out, &text);
            if unwritten > 0 {
                self.waiting.lock().lost += unwritten;
            }
            written = Some(Instant::now());
            text.clear();
            text.shrink_to(KEPT_BYTES_MAX);
            if is_over {
                return;
            }
        }
    }
}

/// Writes a text; returns the number of lines that could not be written. The server continues in
/// this case, and has no other place to report it.
fn write_to(out: &mut impl Write, text: &[u8]) -> u64 {
    let mut rest = text;
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => break,
            Ok(n) => rest = &rest[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Another process made the terminal or pipe non-blocking.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(WRITE_EVERY),
            Err(_) => break,
        }
    }
    let _ = out.flush();
    rest.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.waiting.lock();
        if waiting.text.len() + line.len() > WAITING_BYTES_MAX {
            waiting.lost += 1;
            return Ok(line.len());
        }
        let was_empty = waiting.text.is_empty();
        waiting.text.extend_from_slice(line);
        drop(waiting);
        if was_empty {
            self.0.arrived.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

impl Drop for LineThread {
    fn drop(&mut self) {
        let shared = &self.0.0;
        let mut waiting = shared.waiting.lock();
        waiting.is_over = true;
        shared.arrived.notify_one();
        let last = Instant::now() + END_TIME_MAX;
        while !waiting.has_ended && !shared.ended.wait_until(&mut waiting, last).timed_out() {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    struct Sent(Sender<Vec<u8>>);

    impl Write for Sent {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.send(text.to_vec()).map_err(io::Error::other)?;
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn all_of(receiver: &Receiver<Vec<u8>>) -> Vec<u8> {
        receiver.try_iter().flatten().collect()
    }

    #[test]
    fn all_lines_of_all_threads_come_whole_and_in_order() {
        const THREADS: usize = 4;
        const LINES: usize = 5_000;
        let (sender, receiver) = channel();
        let (lines, writing) = Lines::start(Sent(sender)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut lines = lines.clone();
                scope.spawn(move || {
                    for n in 0..LINES {
                        lines
                            .write_all(format!("{thread} {n}\n").as_bytes())
                            .unwrap();
                    }
                });
            }
        });
        drop(writing);
        let text = String::from_utf8(all_of(&receiver)).unwrap();
        for thread in 0..THREADS {
            let own = text
                .lines()
                .filter_map(|line| line.strip_prefix(&format!("{thread} ")));
            let numbers: Vec<usize> = own.map(|n| n.parse().unwrap()).collect();
            assert_eq!(numbers, (0..LINES).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_line_is_written_without_another() {
        let (sender, receiver) = channel();
        let (mut lines, _writing) = Lines::start(Sent(sender)).unwrap();
        for _ in 0..3 {
            lines.write_all(b"line\n").unwrap();
            let came = receiver.recv_timeout(Duration::from_secs(20));
            assert_eq!(came.as_deref(), Ok(b"line\n".as_slice()));
        }
    }

    #[test]
    fn what_is_too_much_is_lost_and_said_so() {
        struct Stuck(Receiver<()>, Sender<Vec<u8>>);
        impl Write for Stuck {
            fn write(&mut self, text: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                self.1.send(text.to_vec()).map_err(io::Error::other)?;
                Ok(text.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let ((go, wait), (sender, receiver)) = (channel(), channel());
        let (mut lines, writing) = Lines::start(Stuck(wait, sender)).unwrap();
        let long = vec![b'x'; WAITING_BYTES_MAX / 4];
        lines.write_all(b"first\n").unwrap();
        while !lines.0.waiting.lock().text.is_empty() {
            std::thread::yield_now();
        }
        for _ in 0..6 {
            lines.write_all(&long).unwrap();
        }
        drop(go);
        drop(writing);
        let text = all_of(&receiver);
        assert!(text.starts_with(b"first\n"));
        let end = b"2 lines of this log were lost\n";
        assert!(text.ends_with(end));
        assert_eq!(text.len(), 6 + 4 * long.len() + end.len());
    }
}
