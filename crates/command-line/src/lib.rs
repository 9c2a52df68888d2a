//! The code that the programs `settee` and `settee-bench` share: the options of `settee bench`, credentials of URLs, error
//! texts for unusable servers and files, tables for terminals, and exit codes. `settee`
//! declares the options for its help, manual pages and completions; `settee-bench` executes them.
#![forbid(unsafe_code)]

mod bench;
mod credentials;
mod grid;
mod output;
mod server;

use std::fmt::Arguments;
use std::io::Write as _;

pub use bench::{BenchOptions, NamedWorkloads, RecordOptions, ReplayOptions, Speed, Traffic};
pub use credentials::{
    CREDENTIALS, MIGRATION_SOURCE, MIGRATION_TARGET, PEER_CREDENTIALS, decode, nodes_of,
    take_credentials, with_credentials,
};
pub use grid::{Grid, terminal_width};
pub use output::check_output;
pub use server::{
    LoginPlace, RefusedRequest, connection_failure, connection_loss, not_couchdb, not_settee,
    server_url,
};

/// The environment variable by which `settee bench` passes its own executable's path to `settee-bench`.
pub const PROGRAM: &str = "SETTEE_PROGRAM";

/// A message for the person at the terminal, and the program's exit status.
#[derive(Debug)]
pub struct Failure {
    /// The failure, and how to fix it.
    pub message: String,
    /// The exit status; the command line's help lists the meanings.
    pub status: u8,
}

impl Failure {
    /// Something went wrong while running.
    pub fn new(message: impl ToString) -> Failure {
        Failure {
            message: message.to_string(),
            status: 1,
        }
    }

    /// The command or the configuration is wrong.
    pub fn usage(message: impl ToString) -> Failure {
        Failure {
            message: message.to_string(),
            status: 2,
        }
    }
}

/// Lets only the owner access every file that this process creates from now on, whatever the shell's mask is: documents,
/// configuration files, backups and logs hold passwords, or what they can be guessed from. The storage engine creates its files
/// itself, so nothing less than the process's mask would do.
pub fn create_for_owner_only() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// A number of things, as `1 file` or `2 files`. `things` are regular: one of them lacks the final `s`.
///
/// ```
/// assert_eq!(command_line::counted(1u64, "files"), "1 file");
/// assert_eq!(command_line::counted(0usize, "differing files"), "0 differing files");
/// ```
pub fn counted<N: std::fmt::Display>(number: N, things: &str) -> String {
    let number = number.to_string();
    let things = match number.as_str() {
        "1" => things.strip_suffix('s').unwrap_or(things),
        _ => things,
    };
    format!("{number} {things}")
}

/// Prints a line. Ends the program when its output is closed, as by `settee … | head -1`.
pub fn print(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush()) {
        let is_enough = error.kind() == std::io::ErrorKind::BrokenPipe;
        if !is_enough {
            eprintln!("settee: {error}");
        }
        std::process::exit(i32::from(!is_enough));
    }
}
