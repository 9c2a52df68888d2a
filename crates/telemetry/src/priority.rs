//! Threads that give way to those that serve requests.

/// Time that a low-priority thread may run before the kernel schedules again, in nanoseconds: the
/// maximum. A waking thread with a shorter slice, as all others have, preempts it immediately
/// (Linux since 6.12; older kernels ignore it). With equal slices a thread that serves requests
/// waits for the end of the other's, however low its priority.
const SLICE_NS: u64 = 100_000_000;

/// `nice` of threads that build and do slow work for a request: while requests occupy all
/// processors, each of these has a twentieth of one. One reader alongside an index build (Linux
/// 6.18, two cores): at 10, a hundredth of its requests waited for the tenth that builds had then,
/// and their p99 was twice that of an idle server.
pub const BACKGROUND_NICE: i32 = 13;

/// Gives the calling thread a lower priority than threads that serve requests: `nice` is 0 for
/// those and 19 for the lowest. A nicer thread stays so. Others also preempt it
/// ([`take_long_turns`]).
pub fn give_way(nice: i32) {
    let nice = nice.max(own_nice());
    if !set_long_slice(nice) {
        // SAFETY: no memory is involved. On Linux this is the thread's alone.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    }
}

/// Lowers the priority of the calling thread, and leaves it the usual short turns: for many threads that each work for a client. In long
/// turns ([`give_way`]) they would keep waking threads waiting while they hold a lock, or for each other's turns: during a flood of searches
/// (Linux 6.18, two cores) the p99 of another database's searches was 36 ms with nice 5 and long turns, 17 ms with nice 0 and short ones,
/// and 12 ms with nice 5 and short ones.
pub fn lower_priority(nice: i32) {
    let nice = nice.max(own_nice());
    // SAFETY: no memory is involved. On Linux this is the thread's alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// The calling thread keeps its share of the processor, and has it in few long turns, which others interrupt when they wake. For work that
/// requests wait for in the end, as they do for compactions.
pub fn take_long_turns() {
    set_long_slice(own_nice());
}

/// Returns whether the kernel accepted it.
fn set_long_slice(nice: i32) -> bool {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        // Keeps the scheduling policy, such as that of `chrt --idle`.
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of the attributes, which outlive the call; 0 is the
    // calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

fn own_nice() -> i32 {
    // SAFETY: no memory is involved. It does not fail for the caller itself.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_calls_gives_way() {
        let before = own_nice();
        // The maximum is 19.
        let lower = (before + 3).min(19);
        let other = std::thread::spawn(move || {
            give_way(before + 3);
            give_way(before + 1);
            lower_priority(before + 2);
            own_nice()
        });
        assert_eq!(other.join().unwrap(), lower);
        assert_eq!(own_nice(), before);
    }
}
