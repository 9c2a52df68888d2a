//! Measuring a CouchDB-compatible server.
//!
//! [`run`] is `settee bench`: workloads over HTTP against one server, or two of them interleaved, and the
//! embedded API without HTTP through [`Embedded`]. [`record`] and [`replay`] are its subcommands for real
//! requests. Knows nothing of how the server works.
#![forbid(unsafe_code)]

mod ceilings;
mod client;
mod compare;
mod declarations;
mod documents;
mod error;
mod faults;
mod files;
mod gather;
mod html;
mod machine;
mod measure;
mod numbers;
mod pace;
mod peer;
mod processes;
mod procfs;
mod profile;
mod progress;
mod quoted;
mod repeats;
mod report;
mod run;
mod saved;
mod side;
mod slice;
mod stats;
mod sweep;
mod table;
mod target;
mod timeline;
mod traffic;
mod words;
mod workload;

pub use ceilings::Ceiling;
pub use compare::{Against, Comparison};
pub use error::{BenchError, ClientError};
pub use faults::Launch;
pub use machine::{Busy, Machine};
pub use pace::OpenLoop;
pub use peer::PEER_CREDENTIALS;
pub use profile::Flame;
pub use quoted::Quoted;
pub use report::{Failure, Figure, Line, Measured, Ratio, Report, Server, Spread};
pub use run::{BenchOptions, Embedded, run};
pub use stats::Interval;
pub use sweep::{Sweep, SweepLine};
pub use timeline::{Event, MachineSample, Sample, Timeline};
pub use traffic::{
    ClassReport, Difference, RecordOptions, Recorded, RecordingError, ReplayOptions, ReplayReport,
    Speed, record, replay,
};
pub use workload::{Description, Mix, workloads};
