//! The `settee` program: command line, configuration, start and stop.

mod backup;
mod cli;
mod data;
mod languages;
mod measure;
mod migration;
mod private;
mod serve;

use std::process::ExitCode;

use clap::Parser;

/// Fragmentation is what grows a long-lived server: jemalloc gives memory back, to RocksDB's C++ too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A message for the person at the terminal, and the program's exit status.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
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

fn main() -> ExitCode {
    private::create_for_owner_only();
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(options) => serve::run(options),
        cli::Command::Bench(options) => measure::bench(options),
        cli::Command::Load(options) => measure::load(options),
        cli::Command::Backup(options) => backup::backup(&options),
        cli::Command::Restore(options) => backup::restore(&options),
        cli::Command::Migrate(options) => migration::run(options),
        cli::Command::FunctionsWorker => return functions::js::worker_main(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("settee: {}", e.message);
            ExitCode::from(e.status)
        }
    }
}
