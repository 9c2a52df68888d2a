//! seccomp: the system calls that a worker may make.
//!
//! All others fail with `EPERM` and do not end the process: libraries try optional calls, such as
//! naming an allocator's memory, and work without them.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, apply_filter_all_threads,
};

/// Calls that are allowed with any arguments.
const ALLOWED: &[libc::c_long] = &[
    // The existing sockets, and the log. No call opens or creates another.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_ppoll,
    libc::SYS_close,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Existing threads wait for each other.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_restart_syscall,
    // Clocks, waiting, and random numbers.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    // Signals of its own, by which it is profiled.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
    // The end.
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// Calls that are allowed for the process itself only, and the index of the argument that names the
/// process.
const OF_ITSELF: &[(libc::c_long, u8)] = &[
    (libc::SYS_tgkill, 0),
    // The profiler reads stacks by it.
    (libc::SYS_process_vm_readv, 0),
];

/// Calls that must not request executable memory, and the index of the argument with the protection
/// flags.
const NOT_EXECUTABLE: &[(libc::c_long, u8)] = &[(libc::SYS_mmap, 2), (libc::SYS_mprotect, 2)];

/// The commands of `fcntl` that only read.
const FCNTL: &[libc::c_int] = &[libc::F_GETFD, libc::F_GETFL];

/// Permanently denies all threads of this process the calls that a worker does not need.
///
/// # Errors
/// Errors of the kernel, or of a processor without rules.
pub fn deny_calls() -> io::Result<()> {
    apply_filter_all_threads(&program()?).map_err(io::Error::other)
}

/// Denies the calling thread the calls that a worker does not need.
pub(crate) fn deny_in_this_thread() -> io::Result<()> {
    apply_filter(&program()?).map_err(io::Error::other)
}

fn program() -> io::Result<BpfProgram> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH);
    let architecture = architecture.map_err(io::Error::other)?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules()?, denied, SeccompAction::Allow, architecture);
    let program = filter.and_then(TryInto::try_into);
    program.map_err(io::Error::other)
}

/// Returns each allowed call with its rules. A call is allowed if one of its rules matches, or if
/// it has none.
fn rules() -> io::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for &call in ALLOWED {
        rules.insert(call, vec![]);
    }
    for &(call, argument) in OF_ITSELF {
        let own = u64::from(std::process::id());
        rules.insert(call, vec![int(argument, SeccompCmpOp::Eq, own)?]);
    }
    for &(call, argument) in NOT_EXECUTABLE {
        let executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        rules.insert(call, vec![int(argument, executable, 0)?]);
    }
    let forms = FCNTL.iter();
    let forms = forms.map(|&form| int(1, SeccompCmpOp::Eq, form as u64));
    rules.insert(libc::SYS_fcntl, forms.collect::<io::Result<_>>()?);
    // A limit is read, and no new one given.
    let reads = rule(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![reads]);
    Ok(rules)
}

/// Returns a rule that compares an argument of type `int`.
fn int(argument: u8, is: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    rule(argument, SeccompCmpArgLen::Dword, is, value)
}

fn rule(
    argument: u8,
    size: SeccompCmpArgLen,
    is: SeccompCmpOp,
    value: u64,
) -> io::Result<SeccompRule> {
    let condition = SeccompCondition::new(argument, size, is, value);
    let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
    rule.map_err(io::Error::other)
}
