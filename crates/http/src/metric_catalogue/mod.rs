//! The list of all metrics with their values: CouchDB's, as far as they apply here, and additional
//! ones. The crate [`metrics`] writes them.
//!
//! Which of CouchDB's are left out, and why, is in the manual (operations/metrics.md).

mod cluster;
mod documents;
pub mod machine;
mod replicator;
mod requests;
mod settee;
mod versions;

use database::Databases;
use metrics::prometheus::Text;
use metrics::{Counts, List, Stat, labelled};

use crate::app::App;

/// All numbers of the tree, as of now.
pub fn stats(app: &App, counts: &Counts) -> Vec<Stat> {
    let mut list = List::default();
    requests::list(&mut list, app, counts);
    documents::list(&mut list, app, counts);
    replicator::list(&mut list, app);
    settee::list(&mut list, app, counts);
    if let Some(member) = app.node.member() {
        cluster::list(&mut list, &member.figures());
    }
    list.into_stats()
}

/// All numbers as Prometheus reads them.
pub fn prometheus(app: &App) -> String {
    let counts = app.stats.counts();
    let mut text = Text::default();
    let uptime = app.node.started.elapsed().as_secs_f64();
    // CouchDB calls it a counter, which by Prometheus' rules would be `_total`.
    text.number("couchdb_uptime_seconds", "gauge", "couchdb uptime", uptime);
    text.stats(&stats(app, &counts));
    labelled::write_classes(&counts, &mut text);
    commit_holds(&mut text);
    labelled::write_threads(&mut text);
    machine::write(app, &mut text);
    versions::write(app, &mut text);
    if let Some(member) = app.node.member() {
        cluster::write(&member.figures(), &mut text);
    }
    text.finish()
}

/// How long batches of writes held the thread that writes for all databases.
fn commit_holds(text: &mut Text) {
    let name = "settee_commit_hold_seconds";
    let help = "time that each batch of writes held the commit thread, which all databases share, without the disk's";
    text.head(name, "histogram", help);
    text.buckets(name, &[], &Databases::commit_holds());
}
