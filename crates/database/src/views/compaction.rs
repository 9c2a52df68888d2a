//! Compactions of indexes that clients request, in the background.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use telemetry::{BACKGROUND_NICE, give_way};

use super::ViewIndex;
use crate::database::Database;
use crate::low_priority::{Threads, WorkOwner};

/// Indexes that are compacted at a time. The others wait, fairly by database.
const RUNNING_MAX: usize = 2;

/// How long a compaction waits for a build of its index, before others have its thread.
const BUILD_WAIT: Duration = Duration::from_millis(200);

/// The compaction of an index, which waits or runs until this is dropped: there is one at a time.
struct Compaction {
    index: Arc<ViewIndex>,
    owner: WorkOwner,
    /// The parts of the index that are compacted.
    done: usize,
}

impl Compaction {
    fn begin(index: &Arc<ViewIndex>, owner: WorkOwner) -> Option<Compaction> {
        match index.compacting.swap(true, Relaxed) {
            true => None,
            false => Some(Compaction {
                index: index.clone(),
                owner,
                done: 0,
            }),
        }
    }

    fn enqueue(self) {
        static THREADS: LazyLock<Threads> =
            LazyLock::new(|| Threads::new("compact", || give_way(BACKGROUND_NICE), RUNNING_MAX));
        THREADS.enqueue(self.owner, Box::new(move || self.run()));
    }

    fn run(mut self) {
        let index = self.index.clone();
        while let Some(part) = index.shards.get(self.done) {
            match part.compact(BUILD_WAIT) {
                Ok(true) => {}
                // A build may take hours: others have their turns meanwhile.
                Ok(false) => return self.enqueue(),
                Err(e) => {
                    tracing::warn!(db = %index.database, design = %index.design, error = %e, "compacting an index failed");
                }
            }
            self.done += 1;
        }
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.index.compacting.store(false, Relaxed);
    }
}

impl Database {
    /// Rebuilds the summary trees of an index and has its files rewritten, in the background.
    pub fn compact_view(&self, index: &Arc<ViewIndex>) {
        if let Some(compaction) = Compaction::begin(index, self.work_owner()) {
            compaction.enqueue();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{CreateOptions, Databases, Durability, EditMode, Options};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn compactions_share_few_threads_and_end_whatever_happens() {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::open(folder.path(), Options::default()).unwrap();
        let db = databases.create("db", CreateOptions::default()).await;
        let db = db.unwrap();
        let design = |n: usize| {
            let field = format!("f{n}");
            let field = field.as_str();
            let index = serde_json::json!({"map": {"fields": {field: "asc"}}, "options": {"def": {"fields": [field]}}});
            let views = serde_json::json!({"v": index});
            let design = serde_json::json!({"_id": format!("_design/{n}"), "language": "query", "autoupdate": false, "views": views});
            document::parse_document(design.to_string().as_bytes()).unwrap()
        };
        let designs = (0..20).map(design).collect();
        db.update(designs, EditMode::Interactive, Durability::Delayed)
            .await
            .unwrap();
        let mut indexes = vec![];
        for n in 0..20 {
            let design = db.design(&format!("_design/{n}")).unwrap();
            indexes.push(db.view_index(&design).unwrap());
        }
        let owner = db.work_owner();
        let one = Compaction::begin(&indexes[0], owner).unwrap();
        assert!(Compaction::begin(&indexes[0], owner).is_none());
        let panics = thread::spawn(move || -> usize {
            let _one = one;
            panic!("as it should");
        });
        assert!(panics.join().is_err());
        for index in &indexes {
            db.compact_view(index);
        }
        while indexes.iter().any(|i| i.compacting.load(Relaxed)) {
            thread::yield_now();
        }
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| {
            let comm = task.ok()?.path().join("comm");
            std::fs::read_to_string(comm).ok()
        });
        let threads = names.filter(|name| name.trim() == "compact").count();
        assert!((1..=RUNNING_MAX).contains(&threads), "{threads} threads");
        databases.close();
    }
}
