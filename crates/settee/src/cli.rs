//! What can be said on the command line.

mod backup;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use backup::{
    BackupCommand, BackupOptions, ListOptions, PruneOptions, RestoreOptions, VerifyOptions,
};
pub use command_line::{CREDENTIALS, PEER_CREDENTIALS, with_credentials};

/// A document database with CouchDB's HTTP API.
#[derive(Parser)]
#[command(name = "settee", version, about, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  settee serve --data ./data --admin admin:secret       a server on http://127.0.0.1:5984
  settee load cities.json http://admin:secret@127.0.0.1:5984/cities
  settee bench --url http://admin:secret@127.0.0.1:5984
  settee bench record --to http://127.0.0.1:5984 -o monday.jsonl
  settee bench replay monday.jsonl --url http://admin:secret@127.0.0.1:5986 --speed 2
  settee bench --cluster http://a:5984,http://b:5984,http://c:5984 --url http://d:5984
  settee top http://admin:secret@127.0.0.1:5984
  settee profile http://admin:secret@127.0.0.1:5984 --seconds 10 -o out.svg
  settee doctor http://admin:secret@127.0.0.1:5984
  settee backup http://admin:secret@127.0.0.1:5984 /backups
  settee restore /backups ./data --at 2026-11-24T03:49:00Z
  settee check ./data
  settee repair ./data ./repaired
  settee migrate http://admin:secret@couch:5984 --to http://admin:secret@127.0.0.1:5984
  settee check-functions http://admin:secret@couch:5984

Others on the machine can read a command line. For backup, load, bench, top, profile, doctor, check-functions, healthcheck, cluster token and cluster join, SETTEE_CREDENTIALS=NAME:PASSWORD in the \
environment stands for a URL's name and password, for migrate SETTEE_MIGRATE_SOURCE and SETTEE_MIGRATE_TO for the URLs, \
for --admin NAME:PASSWORD SETTEE_ADMINS_NAME=PASSWORD (names in lower case).

Exit status: 0 done, 1 failed, 2 the command or the configuration is wrong, 3 done but documents were refused, or
source and target differ, or a repair lost something; of doctor, check and check-functions: see their help.";

#[derive(Subcommand)]
pub enum Command {
    /// Run the server in the foreground until SIGTERM or SIGINT
    Serve(ServeOptions),
    /// Measure a CouchDB-compatible server, or two against each other
    Bench(Box<command_line::BenchOptions>),
    /// Load JSON documents, files or dumps into a database
    Load(LoadOptions),
    /// Back up a running server: to a directory on its machine, or to an object store
    Backup(BackupOptions),
    /// Make a data directory from a backup
    Restore(RestoreOptions),
    /// Say whether a store is sound, while no server has it open
    Check(StoreCheckOptions),
    /// Save what can be read of a damaged store into a new data directory
    Repair(RepairOptions),
    /// Bring everything of a CouchDB to a Settee
    Migrate(MigrateOptions),
    /// Report functions of a CouchDB that depend on its JavaScript engine, before a move to Settee
    CheckFunctions(CheckFunctionsOptions),
    /// Make several servers one: begin a cluster, join one, see how it is
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show what a server does now: requests, threads, databases, views, tasks, memory
    Top(TopOptions),
    /// Show where a server's time goes: a flame graph of what its threads and users' functions do
    Profile(ProfileOptions),
    /// Say what is wrong with a server, by what that shows, and what to do about it
    Doctor(DoctorOptions),
    /// Print alert rules for Prometheus, or a dashboard for Grafana
    Monitoring {
        /// What to print
        what: Monitoring,
    },
    /// Say by the exit status whether a server answers, as containers are asked
    Healthcheck(HealthcheckOptions),
    /// Print what completes this program's command lines in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a directory, one for each command
    Man {
        /// The directory; made when absent
        directory: PathBuf,
    },
    /// Run functions of design documents for a server; started by it
    #[command(hide = true)]
    FunctionsWorker,
    /// Write bulks of documents from standard input to a database of this process; started by settee-bench
    #[command(hide = true)]
    EmbeddedWriter {
        /// The directory of the database
        directory: PathBuf,
    },
}

#[derive(Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct DoctorOptions {
    /// The server, http://NAME:PASSWORD@HOST:PORT, of an admin
    #[arg(default_value = "http://127.0.0.1:5984")]
    pub url: String,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
    /// Print warnings and errors only; nothing when there are none
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
}

const DOCTOR_HELP: &str = "Nothing is changed. Exit status: 0 no warnings, 1 warnings, 2 errors (or a wrong command line), 3 the \
server could not be asked.";

#[derive(Args)]
#[command(after_help = CHECK_FUNCTIONS_HELP)]
pub struct CheckFunctionsOptions {
    /// The server, http://NAME:PASSWORD@HOST:PORT, or one database, http://NAME:PASSWORD@HOST:PORT/DB
    #[arg(default_value = "http://127.0.0.1:5984")]
    pub url: String,
    /// Documents of each database that functions are run with; 0 only searches the sources
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub sample: usize,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
}

const CHECK_FUNCTIONS_HELP: &str = "It reads design documents and a sample of documents, and runs the functions on this machine. \
Nothing is changed on the server. Exit status: 0 nothing found, 1 functions that have to be changed, 2 it could not run.";

#[derive(Args)]
#[command(after_help = HEALTHCHECK_HELP)]
pub struct HealthcheckOptions {
    /// The server, http://HOST:PORT, with NAME:PASSWORD@ where it answers nobody else
    #[arg(default_value = "http://127.0.0.1:5984")]
    pub url: String,
    /// Seconds to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Take any certificate: that of a server on this machine has another name
    #[arg(long)]
    pub insecure: bool,
}

const HEALTHCHECK_HELP: &str = "It asks for /_up. Exit status: 0 it serves, 1 it does not: nobody answers, or it is in maintenance mode.";

#[derive(Args)]
pub struct TopOptions {
    /// The server, http://NAME:PASSWORD@HOST:PORT, of an admin or a user with the role _metrics
    #[arg(default_value = "http://127.0.0.1:5984")]
    pub url: String,
    /// Seconds between frames
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub interval: f64,
    /// Print one frame as text, and end
    #[arg(long)]
    pub once: bool,
    /// Print frames as JSON, one a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ProfileOptions {
    /// The server, http://NAME:PASSWORD@HOST:PORT, of an admin. With --diff, a folded profile in a file does too
    #[arg(default_value = "http://127.0.0.1:5984")]
    pub server: String,
    /// How long the server is watched
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Samples for each second of a thread's processor time
    #[arg(long, default_value_t = 99)]
    pub hz: u32,
    /// The file to write; its ending says the format: .svg, .folded or .pb.gz
    #[arg(long, short, value_name = "FILE", default_value = "profile.svg")]
    pub output: PathBuf,
    /// The format, whatever the file's name
    #[arg(long)]
    pub format: Option<ProfileFormat>,
    /// Of the same seconds, where requests spent their time by the clock: waiting for the commit, their turn, the client
    #[arg(long, value_name = "FILE")]
    pub off_cpu: Option<PathBuf>,
    /// An earlier profile, folded: draw what changed since, and name what grew most
    #[arg(long, value_name = "BEFORE")]
    pub diff: Option<PathBuf>,
}

/// What a profile is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProfileFormat {
    /// A flame graph for a browser
    Svg,
    /// One line a stack, for other tools and for --diff
    Folded,
    /// For `go tool pprof`
    Pprof,
}

impl ProfileFormat {
    /// As the server takes it.
    pub fn name(self) -> &'static str {
        match self {
            ProfileFormat::Svg => "svg",
            ProfileFormat::Folded => "folded",
            ProfileFormat::Pprof => "pprof",
        }
    }
}

/// What is there for other programs that watch servers.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Monitoring {
    /// Rules for Prometheus, as YAML
    Alerts,
    /// A dashboard for Grafana, as JSON
    Dashboard,
}

#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Make a data directory the first node of a new cluster
    Init(ClusterInit),
    /// Make a data directory a node of a cluster, with a token from one of its nodes
    Join(ClusterJoin),
    /// Print a token that lets one node join
    Token {
        /// A node, http://NAME:PASSWORD@HOST:PORT
        url: String,
        /// How long it works
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
    /// Show the nodes and how the slots are
    Status {
        /// A node, http://NAME:PASSWORD@HOST:PORT
        url: String,
        /// Print JSON for machines
        #[arg(long)]
        json: bool,
    },
    /// Have a node leave for good: the one at the URL, or one that is gone
    Leave {
        /// A node, http://NAME:PASSWORD@HOST:PORT
        url: String,
        /// Name or number of another node
        #[arg(long)]
        node: Option<String>,
    },
    /// Go on after the log was lost or cut: a new generation begins from what a majority has
    Reseed {
        /// A node, http://NAME:PASSWORD@HOST:PORT
        url: String,
    },
}

#[derive(Args)]
pub struct ClusterInit {
    /// Directory of the data; made when absent
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// The cluster's name, which is in the names of its topics
    #[arg(long, default_value = "main")]
    pub cluster: String,
    /// The node's name
    #[arg(long)]
    pub name: Option<String>,
    /// Where other nodes reach this one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5986")]
    pub address: String,
    /// Parts that the documents of all databases are divided into; never changed later
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub slots: u16,
    /// Do nothing when the directory is a node's already, as that of a container which is started again
    #[arg(long)]
    pub if_absent: bool,
}

#[derive(Args)]
pub struct ClusterJoin {
    /// Directory of the data; made when absent
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// What `settee cluster token` printed
    #[arg(long, required_unless_present = "through", conflicts_with = "through")]
    pub token: Option<String>,
    /// A node that is asked for a token, http://NAME:PASSWORD@HOST:PORT with a server admin
    #[arg(long, value_name = "URL")]
    pub through: Option<String>,
    /// Do nothing when the directory is a node's already, as that of a container which is started again
    #[arg(long)]
    pub if_absent: bool,
    /// The node's name
    #[arg(long)]
    pub name: Option<String>,
    /// Where other nodes reach this one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5986")]
    pub address: String,
}

#[derive(Args, Default)]
pub struct ServeOptions {
    /// Directory of the data; made when absent
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<String>,
    /// Port to listen on; 0 takes a free one
    #[arg(long)]
    pub port: Option<u16>,
    /// A server admin; the password is kept hashed. Everyone on this machine can read it in the list of processes: see
    /// --admin-file. May be given more than once
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub admin: Vec<String>,
    /// Server admins, a line NAME:PASSWORD each, in a file; - is the standard input
    #[arg(long, value_name = "FILE")]
    pub admin_file: Vec<PathBuf>,
    /// A configuration file read after the defaults; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// A setting that wins over all files, as section/key=value; may be given more than once
    #[arg(long, value_name = "SECTION/KEY=VALUE")]
    pub set: Vec<String>,
    /// Without an admin: make one with a random password, and print it
    #[arg(long)]
    pub generate_admin: bool,
    /// Take an admin and the secret of cookies from COUCHDB_USER, COUCHDB_PASSWORD and COUCHDB_SECRET, or from the files
    /// that COUCHDB_USER_FILE and so on name, as CouchDB's container image does
    #[arg(long)]
    pub couchdb_variables: bool,
    /// Start although there is no admin: nobody can create databases
    #[arg(long)]
    pub no_admin: bool,
    /// Open a store whose log is damaged in the middle, losing what follows the damage
    #[arg(long)]
    pub accept_damaged_log: bool,
}

#[derive(Args)]
pub struct LoadOptions {
    /// A file, a directory, a URL (also of a CouchDB database), or - for standard input
    pub source: String,
    /// The database, http://NAME:PASSWORD@HOST:PORT/DB
    pub database: String,
    /// Member whose value becomes the id of documents without `_id`
    #[arg(long, value_name = "MEMBER")]
    pub id_field: Option<String>,
    /// The source is one object whose members are documents with their names as ids
    #[arg(long)]
    pub id_from_key: bool,
    /// Documents of one request
    #[arg(long, default_value_t = 1000)]
    pub batch: usize,
    /// Requests at once
    #[arg(long, default_value_t = 4)]
    pub parallel: usize,
    /// Do not make the database when it is absent
    #[arg(long)]
    pub no_create: bool,
}

#[derive(Args)]
#[command(after_help = CHECK_HELP)]
pub struct StoreCheckOptions {
    /// A data directory, or a backup
    pub data: PathBuf,
    /// Run map functions again, and compare what they emit with what indexes hold
    #[arg(long)]
    pub indexes: bool,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
    /// Print damage only; nothing when there is none
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
    /// Where files go that sorting needs: about 40 bytes a document
    #[arg(long, value_name = "DIRECTORY")]
    pub temporary: Option<PathBuf>,
}

const CHECK_HELP: &str = "Nothing is changed. Exit status: 0 sound, 1 damaged, 2 it could not be looked at (or a wrong command line).";

#[derive(Args)]
#[command(after_help = REPAIR_HELP)]
pub struct RepairOptions {
    /// The data directory of the damaged store, or a backup; it stays as it is
    pub data: PathBuf,
    /// A directory that does not exist yet
    pub new: PathBuf,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
}

const REPAIR_HELP: &str = "Exit status: 0 nothing was lost, 1 failed, 3 done but something was lost, which is told by database and document.";

#[derive(Args)]
#[command(after_help = MIGRATE_HELP, group = clap::ArgGroup::new("target").required(true))]
pub struct MigrateOptions {
    /// The CouchDB, with name and password of an admin
    #[arg(
        value_name = "SOURCE",
        env = "SETTEE_MIGRATE_SOURCE",
        hide_env_values = true
    )]
    pub source: String,
    /// A running Settee, with name and password of an admin; it has to reach the source
    #[arg(
        long,
        value_name = "URL",
        env = "SETTEE_MIGRATE_TO",
        hide_env_values = true,
        group = "target"
    )]
    pub to: Option<String>,
    /// A data directory that no server uses; made when absent
    #[arg(long, value_name = "DIR", group = "target")]
    pub data: Option<PathBuf>,
    /// Only databases whose names match, where * stands for any text, and no settings; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// No databases whose names match; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub except: Vec<String>,
    /// Go on: databases may be there already, and get what they miss
    #[arg(long = "continue")]
    pub resume: bool,
    /// Databases copied at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub jobs: usize,
    /// Copy replications so that they wait until somebody edits them
    #[arg(long)]
    pub pause_replications: bool,
    /// Leave the target's settings and admins as they are
    #[arg(long)]
    pub no_settings: bool,
    /// Change nothing: only compare
    #[arg(long)]
    pub verify_only: bool,
    /// Documents of each database whose content is compared; their revisions are compared of all
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub sample: usize,
}

const MIGRATE_HELP: &str = "Copied are databases with all revisions that are not superseded, deleted ones and \
attachments included, design and local documents, security objects, limits of revisions, shards and partitions, \
users, replications, and the settings that have a meaning here, admins with their password hashes among them. \
Interrupted, it goes on with --continue, which also brings over what has changed since. At the end the revisions of \
all documents are compared; differences are listed, and the exit status is 3.";
