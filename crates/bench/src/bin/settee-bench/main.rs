//! The program `settee-bench`, which `settee bench` starts: it measures servers, and starts some of
//! them.

#![forbid(unsafe_code)]

mod embedded;
mod measure;
mod runtime;
mod server;
mod settee;
mod traffic;

use std::process::ExitCode;

use clap::Parser;
use command_line::Traffic;

/// The allocator of `settee`: measurements must not differ from those of earlier versions, whose
/// client was part of that program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measure a CouchDB-compatible server, or two against each other.
#[derive(Parser)]
#[command(
    name = "settee-bench",
    bin_name = "settee bench",
    version,
    about,
    max_term_width = 100
)]
struct Program {
    #[command(flatten)]
    options: command_line::BenchOptions,
}

fn main() -> ExitCode {
    command_line::create_for_owner_only();
    let mut options = Program::parse().options;
    let result = match options.traffic.take() {
        Some(Traffic::Record(options)) => traffic::record(options),
        Some(Traffic::Replay(options)) => traffic::replay(options),
        None => measure::run(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("settee: {}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}
