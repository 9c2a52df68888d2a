//! Measuring a CouchDB-compatible server.
//!
//! [`run`] is `settee bench`: workloads over HTTP against one server, or two of them interleaved, and the
//! embedded API without HTTP through [`Embedded`]. Knows nothing of how the server works.
#![forbid(unsafe_code)]

mod client;
mod declarations;
mod documents;
mod error;
mod processes;
mod procfs;
mod progress;
mod quoted;
mod report;
mod run;
mod side;
mod slice;
mod table;
mod target;
mod workload;

pub use error::{BenchError, ClientError};
pub use quoted::Quoted;
pub use report::{Failure, Figure, Line, Measured, Ratio, Report, Server, Spread};
pub use run::{BenchOptions, Embedded, run};
pub use workload::{Description, workloads};
