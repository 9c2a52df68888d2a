//! Which node of a cluster runs which job.

use std::time::Duration;

use tokio::sync::watch;

use crate::options::DocRef;

/// Within which time jobs start that another node ran: it does not add much to the time for which
/// they have been without a node.
pub const MOVED_JITTER_MAX: Duration = Duration::from_millis(500);

/// Which jobs a node of a cluster runs: those of documents, and those of kept requests. No job runs
/// on two nodes.
pub trait Placement: Send + Sync {
    /// Returns whether this node may run the job of a document now.
    fn runs(&self, doc: &DocRef) -> bool;

    /// Returns whether this node may run the job of the kept request with this id now.
    fn runs_request(&self, id: &str) -> bool;

    /// Returns the time that a job has to end which this node may not run any more.
    fn end_time(&self) -> Duration;

    /// Notifies of all changes of [`Placement::runs`] and [`Placement::runs_request`].
    fn changes(&self) -> watch::Receiver<u64>;
}
