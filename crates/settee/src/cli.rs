//! The command line.

mod backup;
mod data;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use backup::{
    BackupCommand, BackupOptions, ListOptions, PruneOptions, RestoreOptions, VerifyOptions,
};
pub use command_line::{CREDENTIALS, PEER_CREDENTIALS, with_credentials};
pub use data::{
    EmptyCell, ExportFormat, ExportOptions, LoadFormat, LoadOptions, QueryFormat, QueryOptions,
};

/// A document database with CouchDB's HTTP API.
#[derive(Parser)]
#[command(name = "settee", version, about, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  settee serve --data ./data --admin admin:secret       a server on http://127.0.0.1:5984
  settee serve --dev                                    for development: no login, this machine only
  settee load cities.csv http://admin:secret@127.0.0.1:5984/cities --id-field code
  settee load sample:shop http://admin:secret@127.0.0.1:5984/shop
  settee query http://admin:secret@127.0.0.1:5984/shop '{\"price\":{\"$gt\":4}}'
  settee export http://admin:secret@127.0.0.1:5984/shop -o shop.csv
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

Others on the machine can read a command line. For backup, load, export, query, bench, top, profile, doctor, check-functions, healthcheck, cluster token and cluster join, SETTEE_CREDENTIALS=NAME:PASSWORD in the \
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
    /// Load JSON documents, CSV, files or dumps into a database
    Load(Box<LoadOptions>),
    /// Write documents, a view or a query as JSON, JSON Lines or CSV
    Export(Box<ExportOptions>),
    /// Run a Mango query, and print the documents as a table or as JSON
    Query(QueryOptions),
    /// Back up a running server: to a directory on its machine, or to an object store
    Backup(BackupOptions),
    /// Make a data directory from a backup
    Restore(RestoreOptions),
    /// Check whether a store is intact, while no server has it open
    Check(StoreCheckOptions),
    /// Rescue the readable data of a damaged store into a new data directory
    Repair(RepairOptions),
    /// Migrate all data and settings of a CouchDB to a Settee
    Migrate(MigrateOptions),
    /// Manage databases with access by document
    #[command(subcommand)]
    Access(AccessCommand),
    /// Report functions of a CouchDB that depend on its JavaScript engine, before a move to Settee
    CheckFunctions(CheckFunctionsOptions),
    /// Run several servers as a cluster: start one, join one, show its state
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show live activity: requests, threads, databases, views, tasks, memory
    Top(TopOptions),
    /// Record a flame graph of the server's threads and users' functions
    Profile(ProfileOptions),
    /// Check a server's health, and suggest remedies
    Doctor(DoctorOptions),
    /// Print alert rules for Prometheus, or a dashboard for Grafana
    Monitoring {
        /// The text to print
        what: Monitoring,
    },
    /// Report by the exit status whether a server answers, for health checks of containers
    Healthcheck(HealthcheckOptions),
    /// Print the completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a directory, one for each command
    Man {
        /// The directory; created when absent
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
    /// Print warnings and errors only; nothing without any
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
}

const DOCTOR_HELP: &str = "Changes nothing. Exit status: 0 no warnings, 1 warnings, 2 errors (or a wrong command line), 3 the \
server could not be reached.";

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
    /// The server, http://HOST:PORT, with NAME:PASSWORD@ if it requires a login
    #[arg(default_value = "http://127.0.0.1:5984")]
    pub url: String,
    /// Seconds to wait for the response
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Accept any certificate: a server on this machine often has one for another name
    #[arg(long)]
    pub insecure: bool,
}

const HEALTHCHECK_HELP: &str = "Requests /_up. Exit status: 0 the server is available, 1 it does not answer, or is in maintenance mode.";

#[derive(Args)]
pub struct TopOptions {
    /// The server, http://NAME:PASSWORD@HOST:PORT, of an admin or a user with the role _metrics
    #[arg(default_value = "http://127.0.0.1:5984")]
    pub url: String,
    /// Seconds between frames
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub interval: f64,
    /// Show all nodes of the server's cluster, together and each
    #[arg(long)]
    pub all: bool,
    /// Print one frame as text, and exit
    #[arg(long)]
    pub once: bool,
    /// Print frames as JSON, one per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ProfileOptions {
    /// The server, http://NAME:PASSWORD@HOST:PORT, of an admin. With --diff also a file with a
    /// folded profile
    #[arg(default_value = "http://127.0.0.1:5984")]
    pub server: String,
    /// Seconds to record
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Samples per second of a thread's processor time
    #[arg(long, default_value_t = 99)]
    pub hz: u32,
    /// The file to write; its extension is the format: .svg, .folded or .pb.gz
    #[arg(long, short, value_name = "FILE", default_value = "profile.svg")]
    pub output: PathBuf,
    /// The format, if the file has another extension
    #[arg(long)]
    pub format: Option<ProfileFormat>,
    /// A second file, for the wall-clock time of requests in the same seconds: waiting for commits,
    /// for a turn, for the client
    #[arg(long, value_name = "FILE")]
    pub off_cpu: Option<PathBuf>,
    /// An earlier folded profile: draw the changes since, and print what grew most
    #[arg(long, value_name = "BEFORE")]
    pub diff: Option<PathBuf>,
    /// Only requests of one route, named as in `settee top`: document_read, find, view
    #[arg(long, value_name = "ROUTE")]
    pub route: Option<String>,
    /// Send a GET of this path again and again meanwhile, with the name and password: one request as a profile
    #[arg(long, value_name = "PATH")]
    pub request: Option<String>,
    /// Show each frame of the asynchronous runtime and the standard library, instead of one for several
    #[arg(long)]
    pub all_frames: bool,
}

/// The format of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProfileFormat {
    /// A flame graph for a browser
    Svg,
    /// One line per stack, for other tools and for --diff
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

/// Files for monitoring systems.
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
        /// How long the token is valid
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
    /// Show the nodes and the state of the slots
    Status {
        /// A node, http://NAME:PASSWORD@HOST:PORT
        url: String,
        /// Print JSON for machines
        #[arg(long)]
        json: bool,
    },
    /// Measure round trips and throughput from a node to each other one
    BenchNetwork {
        /// A node, http://NAME:PASSWORD@HOST:PORT
        url: String,
        /// Time of each of the three measurements of a node, from 0.1 to 10; each transfers at most 64 MiB
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Print JSON for machines
        #[arg(long)]
        json: bool,
    },
    /// Show how slots would be spread over the nodes, or set how many nodes have each slot
    Place(ClusterPlace),
    /// Move the slots of a node to others: of the one at the URL, or another one
    Drain(ClusterDrain),
    /// End the draining of a node
    Undrain(ClusterDrain),
    /// Remove a node permanently: the one at the URL, or one that is lost
    Leave {
        /// A node, http://NAME:PASSWORD@HOST:PORT
        url: String,
        /// Name or number of another node
        #[arg(long)]
        node: Option<String>,
    },
    /// Resume after the log was lost or truncated, or move it to the place in [cluster] log: starts
    /// a new generation from the data of a majority
    Reseed(ClusterReseed),
    /// Create a new cluster from one node of a cluster that lost most of its nodes permanently
    Recover(ClusterRecover),
}

#[derive(Args)]
pub struct ClusterPlace {
    /// A node, http://NAME:PASSWORD@HOST:PORT
    pub url: String,
    /// Number of nodes that have each slot; without it and --everywhere, show what would be changed
    /// now
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub copies: Option<u32>,
    /// All nodes have all slots
    #[arg(long, conflicts_with = "copies")]
    pub everywhere: bool,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ClusterDrain {
    /// A node, http://NAME:PASSWORD@HOST:PORT
    pub url: String,
    /// Name or number of another node
    #[arg(long)]
    pub node: Option<String>,
}

#[derive(Args)]
pub struct ClusterReseed {
    /// A node, http://NAME:PASSWORD@HOST:PORT
    pub url: String,
    /// Only this slot: a number, or `control`
    #[arg(long)]
    pub slot: Option<String>,
    /// Show what would be done and lost, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(group(clap::ArgGroup::new("consent").required(true)))]
pub struct ClusterRecover {
    /// Data directory of a node that is stopped
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// The name of the new cluster, which must differ from that of the lost one
    #[arg(long)]
    pub cluster: String,
    /// The address at which other nodes reach this one; by default as before
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// Number of parts that the documents of all databases are divided into; by default as before
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub slots: Option<u16>,
    /// Do it, and lose the writes that only the lost nodes have
    #[arg(long, group = "consent")]
    pub accept_loss: bool,
    /// Show what would be lost, and change nothing
    #[arg(long, group = "consent")]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct ClusterInit {
    /// Data directory; created when absent
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// The cluster's name; on Kafka it is in the names of its topics
    #[arg(long, default_value = "main")]
    pub cluster: String,
    /// The node's name
    #[arg(long)]
    pub name: Option<String>,
    /// The address at which other nodes reach this one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5986")]
    pub address: String,
    /// Number of parts that the documents of all databases are divided into; cannot be changed
    /// later
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub slots: u16,
    /// Refuse if a node listens at this address: the cluster exists already, and the data of this node
    /// was lost. For containers; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub unless: Vec<String>,
    /// Take over the databases of a single server, which is stopped: the directory is its own
    #[arg(long)]
    pub adopt: bool,
    /// Show what would be taken over, and change nothing
    #[arg(long, requires = "adopt")]
    pub dry_run: bool,
    /// Do nothing if the directory belongs to a node already, as after the restart of a container
    #[arg(long)]
    pub if_absent: bool,
}

#[derive(Args)]
pub struct ClusterJoin {
    /// Data directory; created when absent
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// The token that `settee cluster token` printed
    #[arg(long, required_unless_present = "through", conflicts_with = "through")]
    pub token: Option<String>,
    /// A node to request a token from, http://NAME:PASSWORD@HOST:PORT with a server admin
    #[arg(long, value_name = "URL")]
    pub through: Option<String>,
    /// Do nothing if the directory belongs to a node already, as after the restart of a container
    #[arg(long)]
    pub if_absent: bool,
    /// The node's name
    #[arg(long)]
    pub name: Option<String>,
    /// The address at which other nodes reach this one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5986")]
    pub address: String,
    /// The address of this machine that it leads to, if that is another one
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
}

#[derive(Args, Default)]
pub struct ServeOptions {
    /// Data directory; created when absent
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<String>,
    /// Port to listen on; 0 takes a free one
    #[arg(long)]
    pub port: Option<u16>,
    /// A server admin; the password is stored as a hash. All users of this machine can read it in
    /// the list of processes: see --admin-file. May be given more than once
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub admin: Vec<String>,
    /// A file of server admins, one NAME:PASSWORD per line; - is the standard input
    #[arg(long, value_name = "FILE")]
    pub admin_file: Vec<PathBuf>,
    /// A configuration file read after the defaults; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// A setting that wins over all files, as section/key=value; may be given more than once
    #[arg(long, value_name = "SECTION/KEY=VALUE")]
    pub set: Vec<String>,
    /// Without an admin: create one with a random password, and print it
    #[arg(long)]
    pub generate_admin: bool,
    /// Take an admin, the secret of cookies and the zone of a cluster's node from COUCHDB_USER,
    /// COUCHDB_PASSWORD, COUCHDB_SECRET and COUCHDB_ZONE, or from the files that COUCHDB_USER_FILE
    /// and so on name, as CouchDB's container image does
    #[arg(long)]
    pub couchdb_variables: bool,
    /// Start even if there is no admin: databases cannot be created then
    #[arg(long)]
    pub no_admin: bool,
    /// Serve a developer's machine without logins: every request is a server admin's. Listens on loopback addresses only, and
    /// refuses requests of web pages
    #[arg(long, conflicts_with_all = ["generate_admin", "no_admin"])]
    pub dev: bool,
    /// With --dev: pages of this origin of this machine may use the server, such as http://localhost:5173; the port may be *.
    /// May be given more than once
    #[arg(long, value_name = "ORIGIN", requires = "dev")]
    pub dev_origin: Vec<String>,
    /// Open a store whose log is damaged in the middle, losing what follows the damage
    #[arg(long)]
    pub accept_damaged_log: bool,
}

#[derive(Args)]
#[command(after_help = CHECK_HELP)]
pub struct StoreCheckOptions {
    /// A data directory, or a copy made by `settee backup --copy`
    pub data: PathBuf,
    /// Run map functions again, and compare the result with the rows of the indexes
    #[arg(long)]
    pub indexes: bool,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
    /// Print damage only; nothing without any
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
    /// Directory for temporary files of sorting: about 40 bytes per document
    #[arg(long, value_name = "DIRECTORY")]
    pub temporary: Option<PathBuf>,
}

const CHECK_HELP: &str = "Changes nothing. Exit status: 0 intact, 1 damaged, 2 it could not be checked (or a wrong command line).";

#[derive(Args)]
#[command(after_help = REPAIR_HELP)]
pub struct RepairOptions {
    /// The data directory of the damaged store, or a copy of it; it is not changed
    pub data: PathBuf,
    /// A directory that does not exist yet
    pub new: PathBuf,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
}

const REPAIR_HELP: &str = "Exit status: 0 nothing was lost, 1 failed, 3 finished with losses, which are listed by database and document.";

#[derive(Args)]
#[command(after_help = MIGRATE_HELP, group = clap::ArgGroup::new("target").required(true))]
pub struct MigrateOptions {
    /// The CouchDB, with name and password of an admin
    #[arg(
        value_name = "SOURCE",
        env = command_line::MIGRATION_SOURCE,
        hide_env_values = true
    )]
    pub source: String,
    /// A running Settee, with name and password of an admin; it has to reach the source
    #[arg(
        long,
        value_name = "URL",
        env = command_line::MIGRATION_TARGET,
        hide_env_values = true,
        group = "target"
    )]
    pub to: Option<String>,
    /// A data directory that no server uses; created when absent
    #[arg(long, value_name = "DIR", group = "target")]
    pub data: Option<PathBuf>,
    /// Only databases whose names match, where * stands for any text, and no settings; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// No databases whose names match; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub except: Vec<String>,
    /// Resume: databases that exist already are completed
    #[arg(long = "continue")]
    pub resume: bool,
    /// Databases copied at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub jobs: usize,
    /// Copy replications in a paused state: they start when their documents are edited
    #[arg(long)]
    pub pause_replications: bool,
    /// Keep the target's settings and admins
    #[arg(long)]
    pub no_settings: bool,
    /// Change nothing, only compare
    #[arg(long)]
    pub verify_only: bool,
    /// Documents per database whose contents are compared; revisions are compared for all documents
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub sample: usize,
}

#[derive(Subcommand)]
pub enum AccessCommand {
    /// Merge databases of one user each into one database with access by document
    Merge(AccessMergeOptions),
}

#[derive(Args)]
#[command(after_help = ACCESS_MERGE_HELP)]
pub struct AccessMergeOptions {
    /// The server with the databases, with name and password of an admin
    #[arg(
        value_name = "SOURCE",
        env = command_line::MIGRATION_SOURCE,
        hide_env_values = true
    )]
    pub source: String,
    /// The databases whose names match, where * stands for any text
    #[arg(value_name = "PATTERN")]
    pub pattern: String,
    /// The database with access; created when absent
    #[arg(long, value_name = "NAME")]
    pub into: String,
    /// Another Settee that has this database, with name and password of an admin
    #[arg(
        long,
        value_name = "URL",
        env = command_line::MIGRATION_TARGET,
        hide_env_values = true
    )]
    pub to: Option<String>,
    /// Whose the documents are
    #[arg(long, value_enum, default_value = "security")]
    pub by: OwnerRule,
    /// Begin ids with the database's name and a colon, because databases have equal ids
    #[arg(long)]
    pub prefix_ids: bool,
    /// Change nothing, only compare
    #[arg(long)]
    pub verify_only: bool,
}

/// Where the users of a merged database's documents come from.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum OwnerRule {
    /// The members and admins of its security object
    Security,
    /// The hexadecimal digits at the end of its name, as couch_peruser writes them
    Name,
}

const ACCESS_MERGE_HELP: &str = "Each revision that is not superseded gets a successor that has _access, so devices that have the documents \
receive it as an edit. Design and local documents are not merged. After an interruption, or to bring later edits, run the command again. \
At the end all documents are compared; differences are listed, and the exit status is 3.";

const MIGRATE_HELP: &str = "Copies databases with all revisions that are not superseded, deleted ones and \
attachments included, design and local documents, security objects, limits of revisions, shards and partitions, \
users, replications, and the settings that have a meaning here, admins with their password hashes among them. \
After an interruption, resume with --continue, which also copies later changes. At the end the revisions of \
all documents are compared; differences are listed, and the exit status is 3.";
