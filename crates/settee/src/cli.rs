//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The environment variable with NAME:PASSWORD for URLs that name nobody: a command line can be read by everybody on the
/// machine.
pub const CREDENTIALS: &str = "SETTEE_CREDENTIALS";

/// The URLs of a server or of a cluster's nodes. A comma that does not end a URL belongs to it.
pub fn nodes_of(text: &str) -> Vec<String> {
    let mut nodes: Vec<String> = vec![];
    for part in text.split(',') {
        match nodes.last_mut().filter(|_| !part.contains("://")) {
            Some(last) => last.extend([",", part]),
            None => nodes.push(part.to_owned()),
        }
    }
    nodes
}

/// The URL with name and password of the environment, unless it has its own.
pub fn with_credentials(url: &str) -> String {
    match std::env::var(CREDENTIALS) {
        Ok(credentials) => add_credentials(url, &credentials),
        Err(_) => url.to_owned(),
    }
}

fn add_credentials(url: &str, credentials: &str) -> String {
    let parsed = reqwest::Url::parse(url);
    let (Ok(mut parsed), Some((name, password))) = (parsed, credentials.split_once(':')) else {
        return url.to_owned();
    };
    if parsed.username().is_empty() && parsed.password().is_none() {
        // Both fail only for URLs that can hold no credentials.
        let _ = parsed.set_username(name);
        let _ = parsed.set_password(Some(password));
    }
    parsed.into()
}

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
  settee bench --cluster http://a:5984,http://b:5984,http://c:5984 --url http://d:5984
  settee top http://admin:secret@127.0.0.1:5984
  settee backup http://admin:secret@127.0.0.1:5984 /backups/monday
  settee restore /backups/monday ./data
  settee migrate http://admin:secret@couch:5984 --to http://admin:secret@127.0.0.1:5984

Others on the machine can read a command line. For backup, load, bench and top, SETTEE_CREDENTIALS=NAME:PASSWORD in the \
environment stands for a URL's name and password, for migrate SETTEE_MIGRATE_SOURCE and SETTEE_MIGRATE_TO for the URLs, \
for --admin NAME:PASSWORD SETTEE_ADMINS_NAME=PASSWORD (names in lower case).

Exit status: 0 done, 1 failed, 2 the command or the configuration is wrong, 3 done but documents were refused, or
source and target differ.";

#[derive(Subcommand)]
pub enum Command {
    /// Run the server in the foreground until SIGTERM or SIGINT
    Serve(ServeOptions),
    /// Measure a CouchDB-compatible server, or two against each other
    Bench(BenchOptions),
    /// Load JSON documents, files or dumps into a database
    Load(LoadOptions),
    /// Copy a running server's store to a new directory on its machine
    Backup(BackupOptions),
    /// Make a data directory from a backup
    Restore(RestoreOptions),
    /// Bring everything of a CouchDB to a Settee
    Migrate(MigrateOptions),
    /// Make several servers one: begin a cluster, join one, see how it is
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show what a server does now: requests, threads, databases, views, tasks, memory
    Top(TopOptions),
    /// Print alert rules for Prometheus, or a dashboard for Grafana
    Monitoring {
        /// What to print
        what: Monitoring,
    },
    /// Run functions of design documents for a server; started by it
    #[command(hide = true)]
    FunctionsWorker,
}

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
}

#[derive(Args)]
pub struct ClusterJoin {
    /// Directory of the data; made when absent
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// What `settee cluster token` printed
    #[arg(long)]
    pub token: String,
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
    /// A server admin; the password is kept hashed. May be given more than once
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub admin: Vec<String>,
    /// A configuration file read after the defaults; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// A setting that wins over all files, as section/key=value; may be given more than once
    #[arg(long, value_name = "SECTION/KEY=VALUE")]
    pub set: Vec<String>,
    /// Without an admin: make one with a random password, and print it
    #[arg(long)]
    pub generate_admin: bool,
    /// Start although there is no admin: nobody can create databases
    #[arg(long)]
    pub no_admin: bool,
    /// Open a store whose log is damaged in the middle, losing what follows the damage
    #[arg(long)]
    pub accept_damaged_log: bool,
}

#[derive(Args)]
pub struct BenchOptions {
    /// A server, with NAME:PASSWORD@, or the nodes of a cluster as URLs with commas between them. May be given twice: the
    /// two are measured in turns and compared. Without it, a server of its own is started
    #[arg(long, visible_alias = "cluster", value_name = "URL[,URL]")]
    pub url: Vec<String>,
    /// Workloads to run; `--list` names them, and `views` and `cluster` are groups. Without any, all but those of the group
    /// `cluster`; where a cluster is measured, only those, as only they ask all its nodes
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// List the workloads
    #[arg(long)]
    pub list: bool,
    /// Share of the full sizes
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Seconds of each timed workload
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Connections of the read workloads
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Views: declarations of 16 KB (the published benchmark has 290000)
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000)]
    pub docs: u64,
    /// Views: documents of 300 bytes
    #[arg(long, value_name = "NUMBER", default_value_t = 200_000)]
    pub small_docs: u64,
    /// Views: rows of the large index
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    pub rows: u64,
    /// Views: a query server for the server that is started without --url, like python=/usr/bin/couchpy; Node and
    /// Erlang are there. May be given more than once
    #[arg(long, value_name = "LANGUAGE=COMMAND")]
    pub query_server: Vec<String>,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
    /// Keep the databases made
    #[arg(long)]
    pub keep: bool,
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
pub struct BackupOptions {
    /// The server, http://NAME:PASSWORD@HOST:PORT
    pub url: String,
    /// A directory that does not exist yet, on the server's machine
    pub directory: PathBuf,
}

#[derive(Args)]
pub struct RestoreOptions {
    /// A directory made by `settee backup`
    pub backup: PathBuf,
    /// The data directory to make
    pub data: PathBuf,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_divide_nodes_and_stay_in_passwords() {
        let nodes = nodes_of("http://a:x,y@h:1,http://b:2,http://c:3");
        assert_eq!(nodes, ["http://a:x,y@h:1", "http://b:2", "http://c:3"]);
        assert_eq!(nodes_of("http://a:1"), ["http://a:1"]);
    }

    #[test]
    fn credentials_are_for_urls_without() {
        for (url, wanted) in [
            ("http://127.0.0.1:5984", "http://a:b%3Ac%40@127.0.0.1:5984/"),
            ("http://x:y@127.0.0.1:5984/", "http://x:y@127.0.0.1:5984/"),
            ("no url", "no url"),
        ] {
            assert_eq!(add_credentials(url, "a:b:c@"), wanted);
        }
    }
}
