//! `settee backup` and `settee restore`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = HELP)]
pub struct BackupOptions {
    #[command(subcommand)]
    pub command: Option<BackupCommand>,
    /// The server, http://NAME:PASSWORD@HOST:PORT
    #[arg(required = true)]
    pub url: Option<String>,
    /// A directory on the server's machine, or s3://BUCKET/PREFIX
    #[arg(required = true)]
    pub target: Option<String>,
}

const HELP: &str = "As with cp: a directory that is there, empty or with backups in it, gets one more backup, which has only \
what changed since the last; a directory that is not there yet becomes a copy of the store, by itself. s3://BUCKET/PREFIX and \
file:///DIRECTORY always get one more backup.

The server copies, and goes on when this command is ended. Keys for a bucket are in the server's environment \
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL) or in [backup] of its settings; list, prune, verify and \
restore have them in their own environment.";

#[derive(Subcommand)]
pub enum BackupCommand {
    /// Show the backups of a target
    List(ListOptions),
    /// Remove backups, but for those that are to be kept, and files that none needs
    Prune(PruneOptions),
    /// Read all files of a target's backups, and compare their hashes
    Verify(VerifyOptions),
}

impl BackupCommand {
    /// Where the backups are.
    pub fn target(&self) -> &str {
        match self {
            BackupCommand::List(options) => &options.target,
            BackupCommand::Prune(options) => &options.target,
            BackupCommand::Verify(options) => &options.target,
        }
    }
}

#[derive(Args)]
pub struct ListOptions {
    /// A directory with backups, or s3://BUCKET/PREFIX
    pub target: String,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("keep").required(true).multiple(true))]
pub struct PruneOptions {
    /// A directory with backups, or s3://BUCKET/PREFIX
    pub target: String,
    /// Keep the last so many
    #[arg(long, value_name = "NUMBER", group = "keep", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_last: Option<u64>,
    /// Keep the last one of each of the last so many hours that have one
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_hourly: Option<u64>,
    /// The same of days, which begin at midnight UTC
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_daily: Option<u64>,
    /// The same of weeks, which begin on Mondays
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_weekly: Option<u64>,
    /// The same of months
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_monthly: Option<u64>,
    /// The same of years
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_yearly: Option<u64>,
    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct VerifyOptions {
    /// A directory with backups, or s3://BUCKET/PREFIX
    pub target: String,
    /// One backup; without it, all
    pub name: Option<String>,
}

#[derive(Args)]
pub struct RestoreOptions {
    /// Where `settee backup` put it: a directory, or s3://BUCKET/PREFIX
    pub backup: String,
    /// The data directory to make
    pub data: PathBuf,
    /// The last backup of this moment or before, like 2026-11-24T03:49:00Z; without it, the last
    #[arg(long, value_name = "TIME", conflicts_with = "name")]
    pub at: Option<String>,
    /// The backup of this name, as `settee backup list` shows it
    #[arg(long)]
    pub name: Option<String>,
}
