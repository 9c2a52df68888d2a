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
    /// A directory on the server's machine, created when absent, or s3://BUCKET/PREFIX
    #[arg(required = true)]
    pub target: Option<String>,
    /// Make a plain copy of the store, in a directory that does not exist yet, instead of one of several backups
    #[arg(long)]
    pub copy: bool,
}

const HELP: &str = "The target gets one more backup, of which only what changed is copied: `settee backup list TARGET` shows all. A \
directory must be empty, absent, or hold backups of this server. With --copy it becomes a copy of the store itself, which \
`settee check` and `settee restore` read, and which holds no further backups.

The server makes the backup, and continues when this command ends. Keys for a bucket are in the server's environment \
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL) or in [backup] of its settings; list, prune, verify and \
restore read them from their own environment.";

#[derive(Subcommand)]
pub enum BackupCommand {
    /// Show the backups of a target
    List(ListOptions),
    /// Remove backups that are not to be kept, and files that no backup needs
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
    /// Keep the last N backups
    #[arg(long, value_name = "NUMBER", group = "keep", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_last: Option<u64>,
    /// Keep the last backup of each hour, for the last N hours that have one
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_hourly: Option<u64>,
    /// Keep the last backup of each day (from midnight UTC), for the last N days that have one
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_daily: Option<u64>,
    /// Keep the last backup of each week (from Monday), for the last N weeks that have one
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_weekly: Option<u64>,
    /// Keep the last backup of each month, for the last N months that have one
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_monthly: Option<u64>,
    /// Keep the last backup of each year, for the last N years that have one
    #[arg(long, value_name = "NUMBER", group = "keep")]
    pub keep_yearly: Option<u64>,
    /// Only list the backups that would be removed
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct VerifyOptions {
    /// A directory with backups, or s3://BUCKET/PREFIX
    pub target: String,
    /// The backup to check; all of them by default
    pub name: Option<String>,
}

#[derive(Args)]
pub struct RestoreOptions {
    /// The place of a backup: a directory, or s3://BUCKET/PREFIX
    pub backup: String,
    /// The data directory to create
    pub data: PathBuf,
    /// The last backup at or before this time, like 2026-11-24T03:49:00Z; by default the last
    #[arg(long, value_name = "TIME", conflicts_with = "name")]
    pub at: Option<String>,
    /// The backup of this name, as `settee backup list` shows it
    #[arg(long)]
    pub name: Option<String>,
}
