//! Index tasks as `_active_tasks` shows them during a build: progress and rate of each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::Value;

use crate::client::Connection;
use crate::error::BenchError;
use crate::system::System;

const POLL: Duration = Duration::from_millis(200);

/// Observations of the index tasks of one design document.
#[derive(Default)]
pub(super) struct Tasks {
    seen: HashMap<String, Seen>,
}

struct Seen {
    first: (Instant, f64),
    last: (Instant, f64),
}

impl Tasks {
    /// Documents a second of each task that was seen more than once.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.seen
            .values()
            .filter_map(|seen| {
                let seconds = (seen.last.0 - seen.first.0).as_secs_f64();
                let done = seen.last.1 - seen.first.1;
                (seconds > 0.0 && done > 0.0).then_some(done / seconds)
            })
            .collect()
    }

    /// Polls for ever; progress is the sum over the tasks, one per shard.
    pub(super) async fn watch(
        &mut self,
        system: &System,
        database: &str,
        design: &str,
        bar: &ProgressBar,
    ) -> Result<(), BenchError> {
        let request = system.target.request("GET", "/_active_tasks", None);
        let mut connection = Connection::open(&system.target).await?;
        let mut tick = tokio::time::interval(POLL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if !connection.is_usable() {
                connection = Connection::open(&system.target).await?;
            }
            let mut body = Vec::new();
            // Progress is only for display: a failed poll is ignored.
            if connection.exchange(&request, &mut body).await.is_ok() {
                let tasks = serde_json::from_slice(&body).unwrap_or_default();
                bar.set_position(self.note(&tasks, database, design));
            }
        }
    }

    /// Takes one answer in; returns the changes done by all tasks.
    fn note(&mut self, tasks: &Value, database: &str, design: &str) -> u64 {
        let now = Instant::now();
        let mut done = 0.0;
        for task in tasks.as_array().into_iter().flatten() {
            // CouchDB names the shard's file: `shards/RANGE/NAME.NUMBER`.
            let of = task["database"].as_str().unwrap_or_default();
            let ours = task["type"] == "indexer"
                && task["design_document"] == design
                && of.contains(database);
            let Some(changes) = task["changes_done"].as_f64().filter(|_| ours) else {
                continue;
            };
            done += changes;
            let task = format!("{of} {}", task["pid"]);
            let point = (now, changes);
            self.seen
                .entry(task)
                .and_modify(|seen| {
                    // An index that is built again has a new task under the old name.
                    if changes < seen.last.1 {
                        seen.first = point;
                    }
                    seen.last = point;
                })
                .or_insert(Seen {
                    first: point,
                    last: point,
                });
        }
        done as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tasks_of_other_databases_and_kinds_are_not_counted() {
        let mut tasks = Tasks::default();
        let task = |kind: &str, database: &str, changes: u64| json!({"type": kind, "database": database, "design_document": "_design/a", "pid": "<0.1.0>", "changes_done": changes});
        let answer = json!([
            task("indexer", "shards/00000000-7fffffff/mine.17", 10),
            task("indexer", "shards/80000000-ffffffff/mine.17", 5),
            task("indexer", "shards/00000000-7fffffff/other.17", 100),
            task("view_compaction", "shards/00000000-7fffffff/mine.17", 100),
        ]);
        assert_eq!(tasks.note(&answer, "mine", "_design/a"), 15);
        assert!(tasks.rates().is_empty(), "one sample has no rate");
        let later = json!([task("indexer", "shards/00000000-7fffffff/mine.17", 30)]);
        assert_eq!(tasks.note(&later, "mine", "_design/a"), 30);
        assert_eq!(tasks.rates().len(), 1);
    }

    #[test]
    fn an_answer_that_is_no_list_is_nothing() {
        assert_eq!(
            Tasks::default().note(&json!({"error": "x"}), "mine", "_design/a"),
            0
        );
    }
}
