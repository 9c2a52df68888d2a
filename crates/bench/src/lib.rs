//! Measuring a CouchDB-compatible server.
//!
//! [`run`] is `settee bench`: workloads over HTTP against one server, or two of them interleaved, and the
//! embedded API without HTTP through [`Embedded`]. [`record`] and [`replay`] are its subcommands for real
//! requests. Knows nothing of how the server works. The program is `src/bin/settee-bench`, which `settee bench` starts.
#![forbid(unsafe_code)]

mod ceilings;
mod client;
mod compare;
mod competitor;
mod couchdb;
mod data_folders;
mod declarations;
mod documents;
mod error;
mod faults;
mod files;
mod gather;
mod html;
mod lines;
mod machine;
mod measure;
mod numbers;
mod options;
mod pace;
mod processes;
mod procfs;
mod profile;
mod progress;
mod repeats;
mod report;
mod rounds;
mod run;
mod saved_run;
mod slice;
mod stand_in;
mod stats;
mod sweep;
mod sweep_plan;
mod swept_setting;
mod system;
mod table;
mod target;
mod timeline;
mod traffic;
mod variation;
mod warnings;
mod words;
mod workload;

pub use ceilings::Ceiling;
pub use compare::{Baseline, Comparison};
pub use couchdb::CouchDbFigure;
pub use error::{BenchError, ClientError};
pub use faults::Launch;
pub use lines::{Figure, Line, Measurement, Ratio, Spread};
pub use machine::{Busy, Machine};
pub use options::{BenchOptions, Embedded};
pub use pace::OpenLoop;
pub use profile::Flame;
pub use report::{Failure, Report, Server};
pub use run::run;
pub use stats::Interval;
pub use sweep::{Sweep, SweepLine};
pub use timeline::{Event, MachineSample, Sample, Timeline};
pub use traffic::{
    ClassReport, Difference, RecordOptions, Recorded, RecordingError, ReplayOptions, ReplayReport,
    record, replay,
};
pub use workload::{Description, Mix, OwnData, UrlList, workloads};
