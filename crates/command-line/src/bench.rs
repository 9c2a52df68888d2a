//! The command line of `settee bench`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

/// The options of `settee bench`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchOptions {
    /// Record or replay real requests
    #[command(subcommand)]
    pub traffic: Option<Traffic>,
    /// A server, with NAME:PASSWORD@, or the nodes of a cluster as URLs with commas between them. May be given twice: the
    /// two are measured interleaved and compared. Without it, a server is started for the run
    #[arg(long, visible_alias = "cluster", value_name = "URL[,URL]")]
    pub url: Vec<String>,
    /// Workloads to run; `--list` names them, and `views`, `cluster`, `ycsb`, `faults` and `peers` are groups. Without any,
    /// all but those of the groups `cluster`, `ycsb`, `faults` and `peers` and `flooded`, `mix`, `own` and `urls`; where a
    /// cluster is measured, only those of `cluster`, as only they ask all its nodes
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
    /// Repeat each workload as a whole this number of times. From 5 on with 95 % confidence intervals, and with two servers
    /// with a list of the figures that differ; 10 is a good number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub repeats: u32,
    /// Wait this number of seconds before each repeat but the first
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub pause: f64,
    /// Measure each repeat on a new server with new data; not with --url
    #[arg(long)]
    pub restart: bool,
    /// Send this number of requests a second, whatever the server does (an open loop): latency counts from when a request was due
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// End a timed part when each connection has sent this number of requests, instead of by --seconds
    #[arg(long, value_name = "NUMBER")]
    pub requests: Option<u64>,
    /// Open a new connection for each request of a timed part, as clients without keep-alive do; latency includes connecting
    #[arg(long)]
    pub new_connections: bool,
    /// Measure at several values: connections=1,16,64, q=2,8 (shards), document_bytes=300,16000, bulk_docs=100,1000, or a
    /// setting of the server, SECTION/KEY=a,b, which is reset afterwards. SECTION/KEY=["a,b","c"] has values with commas. Each
    /// value has new databases (except connections). For a setting that needs a restart, omit --url: a server is started for
    /// each value. The first value is measured again at the end
    #[arg(long, value_name = "WHAT=VALUES")]
    pub sweep: Option<String>,
    /// Save the measurements in a file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Compare with a run that was saved
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Write a report with charts, one HTML file that needs no network
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// A flame graph for the report, of A; given twice, of A and of B
    #[arg(long, value_name = "FILE.svg")]
    pub flame: Vec<PathBuf>,
    /// Record flame graphs of the servers for the report, in a round that is not counted
    #[arg(long)]
    pub profile: bool,
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
    /// Erlang are built in. May be given more than once
    #[arg(long, value_name = "LANGUAGE=COMMAND")]
    pub query_server: Vec<String>,
    /// Shards of the databases of the run; the server's default without it
    #[arg(long, value_name = "NUMBER")]
    pub q: Option<u64>,
    /// A setting, SECTION/KEY=VALUE, of the server that is started without --url. May be given more than once
    #[arg(long, value_name = "SECTION/KEY=VALUE")]
    pub set: Vec<String>,
    /// Views: only these languages, like javascript,python
    #[arg(long, value_name = "LANGUAGE,…", value_delimiter = ',')]
    pub languages: Vec<String>,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
    /// Keep the databases of the run
    #[arg(long)]
    pub keep: bool,
    /// Options of single workloads
    #[command(flatten)]
    pub named: NamedWorkloads,
}

/// Options of workloads that run only when they are named.
#[derive(Args)]
pub struct NamedWorkloads {
    /// The workload `mix`: read-heavy, write-heavy, mixed, or operations with weights like read=70,update=20,bulk=5,view=5,
    /// or a file of these
    #[arg(long, value_name = "MIX")]
    pub mix: Option<String>,
    /// The workload `urls`: a file with lines like `3 /db/doc`, a weight and a path, and `300x /db/doc`, a number of clients
    /// that request this path alone
    #[arg(long, value_name = "FILE")]
    pub urls: Option<PathBuf>,
    /// The workload `own`: your documents, a JSON object a line
    #[arg(long, value_name = "FILE")]
    pub documents: Option<PathBuf>,
    /// With --documents: a design document whose views are built and read
    #[arg(long, value_name = "FILE", requires = "documents")]
    pub design: Option<PathBuf>,
    /// A PostgreSQL, Redis or SQLite to compare the server with, in the workloads of the group `peers`:
    /// postgres://NAME:PASSWORD@HOST:PORT/DATABASE, redis://HOST:PORT or fts5://HOST:PORT. SETTEE_PEER_CREDENTIALS=NAME:PASSWORD in the
    /// environment stands for its name and password
    #[arg(long, value_name = "URL")]
    pub peer: Option<String>,
    /// The settee that the workloads of the group `faults` start and kill; without it, this installation's
    #[arg(long, value_name = "FILE")]
    pub faults_binary: Option<PathBuf>,
}

/// Real requests.
#[derive(Subcommand)]
pub enum Traffic {
    /// Record the requests of clients, as a proxy between them and a server, without credentials; ends with Ctrl-C
    Record(RecordOptions),
    /// Send recorded requests to a server, and compare the responses
    Replay(ReplayOptions),
}

/// The options of `settee bench record`.
#[derive(Args)]
pub struct RecordOptions {
    /// Where clients connect
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5985")]
    pub listen: std::net::SocketAddr,
    /// The server, http://HOST:PORT; clients bring their own credentials
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// The recording, a new file
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// The options of `settee bench replay`.
#[derive(Args)]
pub struct ReplayOptions {
    /// A recording
    pub file: PathBuf,
    /// The server, http://NAME:PASSWORD@HOST:PORT; all requests are this user's
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// A multiple of the recorded speed, or max: each request is sent when those before it have ended
    #[arg(long, value_name = "FACTOR", default_value = "1")]
    pub speed: Speed,
    /// Print JSON for machines
    #[arg(long)]
    pub json: bool,
}

/// How fast recorded requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// A multiple of the recorded speed.
    Times(f64),
    /// Each request when all have ended that had ended before it was recorded.
    Full,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            _ if text == "max" => Ok(Self::Full),
            Ok(times) if (0.001..=100_000.0).contains(&times) => Ok(Self::Times(times)),
            _ => Err("a factor from 0.001 to 100000, or max".to_owned()),
        }
    }
}
