//! Worker processes that die.

use crate::support;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use functions::js::{Engine, Isolation, Options, WorkerCommand};
use functions::{Doc, Emits, Error};
use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use support::{assert_works, group, options, rounds};

/// Processes that this one has started and that run the worker's program.
fn workers() -> Vec<Pid> {
    let tasks = Process::myself().and_then(|process| process.tasks());
    // A thread may end meanwhile, and so may a worker.
    let children = tasks
        .expect("processes")
        .filter_map(|task| task.ok()?.children().ok());
    let is_worker = |pid: &i32| {
        let stat = Process::new(*pid).and_then(|process| process.stat());
        stat.is_ok_and(|stat| stat.comm == "settee-worker")
    };
    let children = children.flatten().map(u32::cast_signed);
    children
        .filter(is_worker)
        .filter_map(Pid::from_raw)
        .collect()
}

/// Locked by each test: one of them counts this process's workers.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn workers_that_die_are_replaced() -> io::Result<()> {
    let _alone = alone();
    let engine = Engine::new(options(Isolation::Process));
    let maps = group(&["function(doc){ emit(doc.v) }"]);
    let mut mapper = engine.mapper(&maps).expect("compiles");
    let doc = Doc {
        members: br#""_id":"a","_rev":"1-x""#,
        body: br#"{"v":1}"#,
    };
    let mut map = || {
        let mut out = Emits::default();
        mapper.map(&[doc], &mut out).map(|()| out.rows.len())
    };
    assert_eq!(map(), Ok(1));
    assert_eq!(workers().len(), 1);

    // A worker killed while idle causes no error, even while it is still dying.
    for _ in 0..20 {
        for pid in workers() {
            kill_process(pid, Signal::KILL)?;
        }
        assert_eq!(map(), Ok(1));
    }
    assert_works(&engine);

    // One that is killed at work.
    let mut endless = engine
        .mapper(&group(&["function(doc){ for(;;); }"]))
        .expect("compiles");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| endless.map(&[doc], &mut Emits::default()));
        while !call.is_finished() {
            for pid in workers() {
                // It may be gone.
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::yield_now();
        }
        let result = call.join().expect("no panic");
        assert!(matches!(
            result,
            Err(Error::Process(_) | Error::Limit { .. })
        ));
    });
    assert_eq!(map(), Ok(1));
    assert_works(&engine);

    drop(mapper);
    drop(endless);
    drop(engine);
    assert_eq!(workers(), []);
    Ok(())
}

#[test]
fn a_worker_ends_with_its_server() -> io::Result<()> {
    let _alone = alone();
    let (ours, theirs) = UnixStream::pair()?;
    let mut worker = Command::new(env!("CARGO_BIN_EXE_functions-worker"))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    drop(ours);
    assert!(worker.wait()?.success());
    Ok(())
}

#[test]
fn a_program_that_is_no_worker_is_an_error() {
    // The last one reads and never answers, for which the server waits half a minute.
    let programs = ["/nonexistent", "/bin/true", "/bin/cat"];
    for program in programs.into_iter().take(rounds(2, 3)) {
        let engine = Engine::new(Options {
            worker: WorkerCommand {
                program: Some(program.into()),
                args: Vec::new(),
            },
            ..options(Isolation::Process)
        });
        let result = engine.check("function(doc){}", None);
        assert!(
            matches!(result, Err(Error::Process(_) | Error::Limit { .. })),
            "{program}: {result:?}"
        );
    }
}
