//! The handler of SIGPROF, and the timers that send it.
//!
//! Each thread has a timer of its own, that counts the thread's processor time and sends the signal
//! to it. One timer for the whole process (`setitimer`) would do with fewer calls, but gives its
//! signals to whatever thread happens to run, and no more of them than the kernel has ticks however
//! many processors are busy.

use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::IntoRawFd as _;
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use crate::arena::{Arena, FRAMES_MAX, LABEL_MAX, NAMES_MAX, Sample};
use crate::label;

/// The buffer for the handler. It is never freed: a signal may be pending when a session ends.
static ARENA: OnceLock<Arena> = OnceLock::new();
/// Whether samples are being taken.
static IS_SAMPLING: AtomicBool = AtomicBool::new(false);
/// Whether the kernel copies memory of this process on request. Containers may forbid it.
static MAY_COPY: AtomicBool = AtomicBool::new(false);
/// The open file of this process's memory, where it may not; -1 for none.
static MEMORY: AtomicI32 = AtomicI32::new(-1);

const PAGE: usize = 4096;
/// Number of words copied at a time.
const CHUNK: usize = 64;
/// Maximum size of a frame, in bytes. A pointer that leads further is not a frame pointer.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Maximum number of jumps to another stack, where one was too short (`stacker`).
const JUMPS_MAX: usize = 8;
/// Reads memory that may not be there.
pub struct Probe {
    copy: [u64; CHUNK],
    /// The address of `copy[0]`, and the number of words in it.
    at: usize,
    len: usize,
    may_copy: bool,
}

impl Probe {
    #[inline]
    fn new() -> Probe {
        Probe {
            copy: [0; CHUNK],
            at: 0,
            len: 0,
            may_copy: MAY_COPY.load(Relaxed),
        }
    }

    /// Returns the word at an address; `None` where nothing can be read, and for addresses that no
    /// word has.
    pub fn word(&mut self, at: usize) -> Option<u64> {
        if !at.is_multiple_of(8) || at < PAGE {
            return None;
        }
        let known = at.wrapping_sub(self.at) / 8;
        if at >= self.at && known < self.len {
            return Some(self.copy[known]);
        }
        // The copy does not reach into a page that may not exist.
        let words = ((PAGE - at % PAGE) / 8).min(CHUNK);
        let is_there = match self.may_copy {
            true => self.copy_from(at, words),
            false => self.read_at(at, words),
        };
        self.at = at;
        self.len = if is_there { words } else { 0 };
        is_there.then(|| self.copy[0])
    }

    /// Returns the four bytes at an address.
    pub fn half(&mut self, at: usize) -> Option<u32> {
        let word = self.word(at & !7)?;
        at.is_multiple_of(4)
            .then(|| (word >> ((at & 4) * 8)) as u32)
    }

    /// Discards the copied parts.
    fn forget(&mut self) {
        self.len = 0;
    }

    fn copy_from(&mut self, at: usize, words: usize) -> bool {
        let bytes = words * 8;
        let to = libc::iovec {
            iov_base: self.copy.as_mut_ptr().cast(),
            iov_len: bytes,
        };
        let from = libc::iovec {
            iov_base: ptr::with_exposed_provenance_mut(at),
            iov_len: bytes,
        };
        // SAFETY: the kernel writes at most `bytes` to the copy, and answers an error where `from`
        // cannot be read.
        let copied = unsafe {
            libc::syscall(
                libc::SYS_process_vm_readv,
                libc::getpid(),
                &raw const to,
                1usize,
                &raw const from,
                1usize,
                0usize,
            )
        };
        usize::try_from(copied) == Ok(bytes)
    }

    /// Reads where the kernel may not copy: through the file of this process's memory, if there is
    /// one.
    fn read_at(&mut self, at: usize, words: usize) -> bool {
        let (file, bytes) = (MEMORY.load(Relaxed), words * 8);
        let Ok(offset) = libc::off_t::try_from(at) else {
            return false;
        };
        let to: *mut c_void = self.copy.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most `bytes` to the copy, and returns an error if the file
        // or the memory does not exist.
        let read = unsafe { libc::pread(file, to, bytes, offset) };
        usize::try_from(read) == Ok(bytes)
    }
}

/// The buffer for the names of an interpreter's functions.
pub struct Names<'a> {
    bytes: &'a mut [u8; NAMES_MAX],
    len: usize,
}

impl Names<'_> {
    /// Adds a name, if there is room; returns whether there was.
    pub fn push(&mut self, name: &[u8]) -> bool {
        let end = self.len + name.len();
        let Some(to) = self.bytes.get_mut(self.len..=end) else {
            return false;
        };
        // Without formatting, and without anything that could panic.
        for (to, from) in to.iter_mut().zip(name.iter().chain(b"\n")) {
            *to = *from;
        }
        self.len = end + 1;
        true
    }
}

/// Returns the functions of the interpreter that runs on this thread, inner ones first.
pub fn running() -> Vec<String> {
    let Some(interpreter) = label::interpreter() else {
        return vec![];
    };
    find_memory();
    let mut bytes = [0; NAMES_MAX];
    let mut names = Names {
        bytes: &mut bytes,
        len: 0,
    };
    (interpreter.functions)(interpreter.state, &mut Probe::new(), &mut names);
    let len = names.len;
    let lines = bytes[..len]
        .split(|b| *b == b'\n')
        .filter(|n| !n.is_empty());
    lines
        .map(|n| String::from_utf8_lossy(n).into_owned())
        .collect()
}

/// Registers of a thread that was interrupted.
struct Registers {
    instruction: usize,
    stack: usize,
    frame: usize,
    /// The return address of a leaf function, on processors that have a register for it.
    link: Option<usize>,
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let of = |n: libc::c_int| context.uc_mcontext.gregs[n as usize] as usize;
    Registers {
        instruction: of(libc::REG_RIP),
        stack: of(libc::REG_RSP),
        frame: of(libc::REG_RBP),
        link: None,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        instruction: machine.pc as usize,
        stack: machine.sp as usize,
        frame: machine.regs[29] as usize,
        link: Some(machine.regs[30] as usize),
    }
}

/// Returns an address of code without its signature. ARM processors sign return addresses, in the
/// bits that no address of a process has (pointer authentication). Many distributions compile
/// their C libraries for that.
const fn without_signature(address: u64) -> u64 {
    const ADDRESS_BITS: u32 = 48;
    match cfg!(target_arch = "aarch64") {
        true => address & ((1 << ADDRESS_BITS) - 1),
        false => address,
    }
}

/// The fields of a timer's signal, by the kernel's layout: `si_overrun` and `si_value`.
#[repr(C)]
struct TimerInfo {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    padding: libc::c_int,
    timer: libc::c_int,
    overrun: libc::c_int,
    value: usize,
}

/// Takes a sample of this thread.
///
/// It runs wherever the thread happens to be: in an allocator, with any lock held. So it allocates
/// nothing, locks nothing, formats nothing, cannot panic (no index is out of bounds, no sum
/// overflows), and leaves `errno` as it was.
extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if !IS_SAMPLING.load(SeqCst) || info.is_null() || context.is_null() {
        return;
    }
    let Some(arena) = ARENA.get() else { return };
    // SAFETY: the kernel gives the handler both, and a timer's signal has this layout. `errno` is
    // this thread's.
    unsafe {
        let info = &*info.cast::<TimerInfo>();
        if info.code != libc::SI_TIMER {
            return;
        }
        let errno = *libc::__errno_location();
        let weight = u32::try_from(info.overrun).unwrap_or(0).saturating_add(1);
        let registers = registers(&*context.cast::<libc::ucontext_t>());
        arena.fill(weight, |sample| {
            sample.thread = info.value as u32;
            sample.weight = weight;
            take(sample, &registers);
        });
        *libc::__errno_location() = errno;
    }
}

/// Fills a slot.
fn take(sample: &mut Sample, registers: &Registers) {
    let mut probe = Probe::new();
    // SAFETY: it is used within this function only; the thread stands still.
    let label = unsafe { label::here() };
    words(sample, registers, &mut probe);
    walk(
        sample,
        registers,
        label.map_or(0, |(_, since)| since),
        &mut probe,
    );
    sample.label_len = 0;
    if let Some((label, _)) = label {
        let name = label.name().as_bytes();
        for (to, from) in sample.label.iter_mut().zip(name) {
            *to = *from;
        }
        sample.label_len = name.len().min(LABEL_MAX);
    }
    sample.names_len = 0;
    if let Some(interpreter) = label::interpreter() {
        probe.forget();
        let mut names = Names {
            bytes: &mut sample.names,
            len: 0,
        };
        (interpreter.functions)(interpreter.state, &mut probe, &mut names);
        sample.names_len = names.len;
    }
}

/// Keeps the end of the stack.
fn words(sample: &mut Sample, registers: &Registers, probe: &mut Probe) {
    sample.words_len = 0;
    let mut at = registers.stack & !7;
    if let (Some(link), Some(first)) = (registers.link, sample.words.first_mut()) {
        *first = without_signature(link as u64);
        sample.words_len = 1;
        return;
    }
    for word in &mut sample.words {
        let Some(read) = probe.word(at) else { return };
        *word = read;
        sample.words_len += 1;
        at = at.wrapping_add(8);
    }
}

/// Follows the frame pointers.
fn walk(sample: &mut Sample, registers: &Registers, label_since: usize, probe: &mut Probe) {
    sample.frames[0] = registers.instruction as u64;
    sample.depth = 1;
    sample.label_at = 0;
    let (mut frame, mut last) = (registers.frame, registers.stack);
    let (mut jumps, mut is_inside) = (0, label_since != 0);
    while sample.depth < FRAMES_MAX {
        // The function of the last address has its frame here.
        is_inside &= frame < label_since;
        if is_inside {
            sample.label_at = sample.depth;
        }
        let is_above = frame.wrapping_sub(last) < FRAME_BYTES_MAX;
        if !is_above {
            jumps += 1;
            if jumps > JUMPS_MAX {
                return;
            }
        }
        let next = probe.word(frame);
        let address = probe.word(frame.wrapping_add(8));
        let (Some(next), Some(address)) = (next, address) else {
            return;
        };
        if address == 0 {
            return;
        }
        sample.frames[sample.depth] = without_signature(address);
        sample.depth += 1;
        (last, frame) = (frame, next as usize);
    }
}

/// Makes the handler and the arena ready, once. The handler stays: a signal that comes late would
/// end the process otherwise.
pub fn prepare() -> io::Result<&'static Arena> {
    static IS_READY: OnceLock<Result<(), i32>> = OnceLock::new();
    let arena = ARENA.get_or_init(Arena::new);
    let code = |e: &io::Error| e.raw_os_error().unwrap_or(libc::EINVAL);
    let ready = IS_READY.get_or_init(|| {
        find_memory();
        install().map_err(|e| code(&e))
    });
    ready.map_err(io::Error::from_raw_os_error)?;
    Ok(arena)
}

/// Finds out how a [`Probe`] may read, once.
pub(crate) fn find_memory() {
    static IS_FOUND: Once = Once::new();
    IS_FOUND.call_once(|| {
        let word = 1u64;
        let mut probe = Probe::new();
        let may_copy = probe.copy_from((&raw const word).addr(), 1) && probe.copy[0] == word;
        MAY_COPY.store(may_copy, SeqCst);
        if !may_copy {
            open_memory();
        }
    });
}

/// Without it, stacks have one frame.
fn open_memory() {
    if let Ok(memory) = File::open("/proc/self/mem") {
        // It stays open: a signal may come late.
        MEMORY.store(memory.into_raw_fd(), SeqCst);
    }
}

fn install() -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all fields may be zero, and the required ones are set. Calls that the signal
    // interrupts are restarted. Threads that have a stack for signals use it: their own may be
    // nearly exhausted.
    let installed = unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGPROF, action, ptr::null_mut())
    };
    match installed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets whether samples are taken from now on.
pub fn sample(are_taken: bool) {
    IS_SAMPLING.store(are_taken, SeqCst);
}

/// A timer of one thread's processor time. It ends when it is dropped.
#[derive(Debug)]
pub struct Timer(libc::c_int);

impl Timer {
    /// Sends SIGPROF to a thread whenever it has used this processor time, the first time after
    /// `first`. [`prepare`] must be called before.
    pub fn start(thread: u32, first: Duration, every: Duration) -> io::Result<Timer> {
        // The kernel's number of the clock of a thread's processor time.
        const OF_THREAD: libc::clockid_t = 4;
        const SCHEDULED: libc::clockid_t = 2;
        let clock = !(thread as libc::clockid_t) << 3 | OF_THREAD | SCHEDULED;
        let mut event = MaybeUninit::<libc::sigevent>::zeroed();
        let mut timer: libc::c_int = 0;
        // SAFETY: all fields may be zero; the kernel reads the event and writes the timer's number.
        let answer = unsafe {
            let event = event.assume_init_mut();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_notify_thread_id = thread as libc::pid_t;
            event.sigev_value.sival_ptr = ptr::without_provenance_mut(thread as usize);
            libc::syscall(
                libc::SYS_timer_create,
                clock,
                ptr::from_mut(event),
                &raw mut timer,
            )
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Timer(timer);
        let when = libc::itimerspec {
            it_interval: spec(every),
            it_value: spec(first),
        };
        let none: *mut libc::itimerspec = ptr::null_mut();
        // SAFETY: the timer is this one, and the kernel reads the times.
        let answer =
            unsafe { libc::syscall(libc::SYS_timer_settime, timer.0, 0, &raw const when, none) };
        match answer {
            0 => Ok(timer),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn spec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: it is this timer, which has no other owner. It cannot fail for an existing one.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.0) };
    }
}

/// Returns functions of the C library that are selected at load time, by the processor's features.
pub fn chosen_functions() -> Vec<(&'static str, usize)> {
    const NAMES: [&CStr; 9] = [
        c"memcpy", c"memmove", c"memset", c"memcmp", c"memchr", c"memrchr", c"strlen", c"strcmp",
        c"strchr",
    ];
    let found = NAMES.iter().map(|name| {
        // SAFETY: it looks for a name, and changes nothing.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (name.to_str().unwrap_or_default(), address.addr())
    });
    found.filter(|(_, address)| *address != 0).collect()
}

const _: () = assert!(size_of::<TimerInfo>() <= size_of::<libc::siginfo_t>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_not_read() {
        open_memory();
        for may_copy in [true, false] {
            let words = vec![7u64; 3000];
            let mut probe = Probe {
                may_copy,
                ..Probe::new()
            };
            let at = words.as_ptr().expose_provenance();
            assert_eq!(probe.word(at), Some(7));
            assert_eq!(probe.word(at + 8 * 2999), Some(7));
            assert_eq!(probe.half(at + 4), Some(0));
            for nowhere in [0, 8, at + 1, 1 << 60, usize::MAX & !7] {
                assert_eq!(probe.word(nowhere), None, "{nowhere:x}");
            }
        }
    }

    #[test]
    fn a_signature_is_no_part_of_an_address() {
        let address = 0x0000_aaaa_bbbb_cccc;
        assert_eq!(without_signature(address), address);
        let is_removed = without_signature(address | 0x0055 << 48) == address;
        assert_eq!(is_removed, cfg!(target_arch = "aarch64"));
    }

    #[test]
    fn names_that_have_no_room_are_left_out() {
        let mut bytes = [0; NAMES_MAX];
        let mut names = Names {
            bytes: &mut bytes,
            len: 0,
        };
        assert!(names.push(b"outer"));
        assert!(!names.push(&[b'x'; NAMES_MAX - 6]));
        assert!(names.push(&[b'y'; NAMES_MAX - 7]));
        assert!(!names.push(b""));
        assert_eq!(names.len, NAMES_MAX);
        assert!(bytes.starts_with(b"outer\nyy"));
    }
}
