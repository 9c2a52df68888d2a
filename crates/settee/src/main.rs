//! The `settee` program: command line, configuration, start and stop.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod data;
mod owner;
mod private;
mod record_version;
mod serve;

use std::process::ExitCode;

use clap::Parser;
use command_line::Failure;

/// Long-lived servers grow by fragmentation: jemalloc returns memory to the system, RocksDB's C++
/// memory too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The colour of an error's prefix, on a terminal.
const FAILED: anstyle::Style = anstyle::AnsiColor::Red.on_default().bold();

fn main() -> ExitCode {
    command_line::create_for_owner_only();
    respect_dumb_terminals();
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(options) => serve::run(options),
        cli::Command::Bench(_) => commands::bench::run(),
        cli::Command::Load(options) => commands::load::run(&options),
        cli::Command::Export(options) => commands::export::run(&options),
        cli::Command::Query(options) => commands::query::run(&options),
        cli::Command::Backup(options) => commands::backup::run(&options),
        cli::Command::Restore(options) => commands::backup::restore::run(&options),
        cli::Command::Migrate(options) => commands::migrate::run(options),
        cli::Command::Access(cli::AccessCommand::Merge(options)) => commands::access::run(&options),
        cli::Command::Cluster(command) => commands::cluster::run(&command),
        cli::Command::Check(options) => return commands::check::run(&options),
        cli::Command::Repair(options) => return commands::repair::run(&options),
        cli::Command::CheckFunctions(options) => return commands::check_functions::run(&options),
        cli::Command::Doctor(options) => return commands::doctor::run(&options),
        cli::Command::Top(options) => commands::top::run(&options),
        cli::Command::Profile(options) => commands::profile::run(&options),
        cli::Command::Monitoring { what } => {
            commands::monitoring::run(what);
            Ok(())
        }
        cli::Command::Healthcheck(options) => commands::healthcheck::run(&options),
        cli::Command::Completions { shell } => {
            commands::completions::run(shell);
            Ok(())
        }
        cli::Command::Man { directory } => commands::man::run(&directory),
        cli::Command::FunctionsWorker => {
            serve::allocator::of_worker();
            return functions::js::worker_main();
        }
        cli::Command::EmbeddedWriter { directory } => commands::embedded_writer::run(&directory),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            anstream::eprintln!("{FAILED}settee:{FAILED:#} {}", e.message);
            ExitCode::from(e.status)
        }
    }
}

/// Turns colours off for `TERM=dumb`, unless `CLICOLOR_FORCE` is set: anstream prints them on such a
/// terminal too if `CI` or `CLICOLOR` is set.
fn respect_dumb_terminals() {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty());
    if is_dumb && !is_forced {
        anstream::ColorChoice::Never.write_global();
    }
}
