//! Which node of a cluster runs which job.

use std::time::Duration;

use tokio::sync::watch;

use crate::options::DocRef;

/// Which jobs of documents a node of a cluster runs. No job runs on two nodes.
pub trait Placement: Send + Sync {
    /// Returns whether this node may run the job of a document now.
    fn runs(&self, doc: &DocRef) -> bool;

    /// Returns the time that a job has to end which this node may not run any more.
    fn end_time(&self) -> Duration;

    /// Notifies of all changes of [`Placement::runs`].
    fn changes(&self) -> watch::Receiver<u64>;
}
