//! A process that has confined itself does its work, and nothing else.
//!
//! It is this very program, started again: what it tries it prints, one line each.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Requests that the program confines itself, with these steps.
const CONFINED: &str = "CONFINE_TEST_STEPS";
const PORT: &str = "CONFINE_TEST_PORT";
/// The prefix of a printed outcome: other lines are the test framework's.
const MARK: &str = "outcome ";

/// Returns the outcomes of the confined process: `name allowed` or `name refused`.
fn outcomes(steps: &str) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let output = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", "--ignored", "--nocapture", "confined"])
        .env(CONFINED, steps)
        .env(PORT, port.to_string())
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter_map(|line| line.split_once(MARK));
    let lines: Vec<String> = lines.map(|(_, outcome)| outcome.to_owned()).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{steps}: {lines:?} {errors}");
    lines
}

fn of(outcomes: &[String], outcome: &str) -> Vec<String> {
    let of = outcomes.iter().filter_map(|line| {
        let (name, found) = line.split_once(' ')?;
        (found == outcome).then(|| name.to_owned())
    });
    of.collect()
}

const WORK: [&str; 6] = ["sockets", "memory", "threads", "clocks", "random", "panic"];
const FILES: [&str; 4] = ["open", "list", "proc", "create"];
const OTHERS: [&str; 5] = ["connect", "bind", "start", "spawn", "datagram"];

#[test]
fn a_confined_process_works_and_reaches_nothing() {
    let kernel = confine::of_this_kernel();
    let found = outcomes("files calls");
    let mut refused = vec![];
    if kernel.files {
        refused.extend(FILES);
    }
    if kernel.calls {
        refused.extend(FILES);
        refused.extend(OTHERS);
    }
    for name in WORK {
        assert!(
            of(&found, "allowed").contains(&name.to_owned()),
            "{name}: {found:?}"
        );
    }
    for name in refused {
        assert!(
            of(&found, "refused").contains(&name.to_owned()),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn either_step_alone_denies_files() {
    let kernel = confine::of_this_kernel();
    for (step, has) in [("files", kernel.files), ("calls", kernel.calls)] {
        let found = outcomes(step);
        let refused = of(&found, "refused");
        for name in FILES {
            assert_eq!(refused.contains(&name.to_owned()), has, "{step}: {found:?}");
        }
    }
    assert_eq!(of(&outcomes(""), "refused"), Vec::<String>::new());
}

/// The kernel is tested in a thread that ends: this process stays unconfined.
#[test]
fn trying_the_kernel_confines_nobody() {
    confine::of_this_kernel();
    assert!(File::open("/dev/null").is_ok());
    assert!(
        thread::spawn(|| File::open("/dev/null").is_ok())
            .join()
            .expect("no panic")
    );
}

#[test]
fn descriptors_are_kept_from_programs_that_are_started() {
    let found = outcomes("descriptors");
    assert_eq!(of(&found, "refused"), ["inherited"]);
    assert_eq!(of(&outcomes("inherits"), "allowed"), ["inherited"]);
}

fn told<T, E>(name: &str, result: Result<T, E>) {
    let outcome = if result.is_ok() { "allowed" } else { "refused" };
    // It is written immediately: the next attempt may be the last.
    let line = format!("{MARK}{name} {outcome}\n");
    let _ = io::stdout().write_all(line.as_bytes());
    let _ = io::stdout().flush();
}

/// The confined process.
#[test]
#[ignore = "it is run by the others, as a process of its own"]
fn confined() {
    let Ok(steps) = std::env::var(CONFINED) else {
        return;
    };
    if steps.contains("descriptors") || steps.contains("inherits") {
        return start_with_descriptor(&steps);
    }
    let port: u16 = std::env::var(PORT)
        .expect("a port")
        .parse()
        .expect("a number");
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    // An existing thread continues to work.
    let turns = Arc::new((Mutex::new(0u32), Condvar::new()));
    let other = turns.clone();
    thread::spawn(move || {
        loop {
            let (number, changed) = &*other;
            let mut number = number.lock().expect("no panic");
            while number.is_multiple_of(2) {
                number = changed.wait(number).expect("no panic");
            }
            *number += 1;
            changed.notify_all();
        }
    });
    if steps.contains("files") {
        confine::deny_files().expect("it is asked for");
    }
    if steps.contains("calls") && confine::of_this_kernel().calls {
        confine::deny_calls().expect("it is asked for");
    }
    work(ours, theirs, &turns);
    reach(port);
}

fn work(mut ours: UnixStream, mut theirs: UnixStream, turns: &(Mutex<u32>, Condvar)) {
    let mut echoed = [0; 4];
    let sent = ours
        .write_all(b"ping")
        .and_then(|()| theirs.read_exact(&mut echoed));
    told("sockets", sent);
    let mut memory: Vec<Vec<u8>> = (1..60).map(|n| vec![7; n << 16]).collect();
    memory
        .iter_mut()
        .for_each(|block| block.resize(block.len() * 3, 1));
    drop(memory);
    told("memory", Ok::<_, ()>(()));
    let (number, changed) = turns;
    for _ in 0..100 {
        let mut number = number.lock().expect("no panic");
        *number += 1;
        changed.notify_all();
        drop(changed.wait_while(number, |number| !number.is_multiple_of(2)));
    }
    told("threads", Ok::<_, ()>(()));
    let began = Instant::now();
    thread::sleep(Duration::from_millis(1));
    told(
        "clocks",
        if began.elapsed().is_zero() {
            Err(())
        } else {
            Ok(())
        },
    );
    let state = std::hash::RandomState::new();
    told("random", Ok::<_, ()>(state));
    let caught = std::panic::catch_unwind(|| panic!("as it should"));
    told("panic", if caught.is_err() { Ok(()) } else { Err(()) });
}

fn reach(port: u16) {
    told("open", File::open("/etc/passwd"));
    told("list", fs::read_dir("/"));
    told("proc", fs::read("/proc/self/environ"));
    let made = std::env::temp_dir().join(format!("confine-{}", std::process::id()));
    told("create", File::create(&made));
    // Only where it was allowed is there one.
    let _ = fs::remove_file(&made);
    told("connect", TcpStream::connect(("127.0.0.1", port)));
    told("bind", TcpListener::bind("127.0.0.1:0"));
    told("datagram", UdpSocket::bind("127.0.0.1:0"));
    told("start", Command::new("/bin/true").status());
    told("spawn", thread::Builder::new().spawn(|| ()));
}

/// Starts a program with a descriptor that it would inherit.
fn start_with_descriptor(steps: &str) {
    let file = File::open("/dev/null").expect("it is there");
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("a flag");
    if steps.contains("descriptors") && confine::keep_descriptors().is_err() {
        // This kernel is too old.
        return told("inherited", Err::<(), _>(()));
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let seen = Command::new("/bin/ls")
        .arg(path)
        .output()
        .expect("it starts");
    told(
        "inherited",
        if seen.status.success() {
            Ok(())
        } else {
            Err(())
        },
    );
}
