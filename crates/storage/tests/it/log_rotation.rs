//! A log that another one follows has no zeros ahead, at any moment at which the process may be
//! killed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use document::{DocId, body_term, revision_id};
use storage::{Change, Edit, Limits, Shard, ShardEdit, Store, StoreOptions};

/// A record never ends in this many zeros.
const ZEROS: usize = 8 << 10;
/// Size of a document that does not compress, in bytes.
const BODY_BYTES: usize = 2_000;

fn edit(shard: &Arc<Shard>, number: u64) -> ShardEdit {
    let body = format!("{{\"x\":\"{number:0>BODY_BYTES$}\"}}");
    let term = body_term(body.as_bytes()).unwrap();
    ShardEdit {
        shard: shard.clone(),
        edit: Edit {
            id: DocId::new(&format!("d{number}")).unwrap(),
            files: vec![],
            home: 0,
            access: None,
            deleted: false,
            change: Change::Interactive {
                rev: revision_id(false, None, &term, &[]),
                parent: None,
                body_term: None,
            },
            body: body.into_bytes(),
        },
    }
}

fn logs(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|x| x == "log"));
    logs.sort();
    logs
}

fn ends_in_zeros(log: &Path) -> bool {
    let bytes = std::fs::read(log).unwrap_or_default();
    bytes.len() > ZEROS && bytes[bytes.len() - ZEROS..].iter().all(|&byte| byte == 0)
}

#[test]
fn only_the_last_log_has_zeros_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        write_buffers_bytes: 256 << 10,
        // Flushes are slow, so that logs wait for them.
        background_bytes_per_s: 1 << 20,
        ..StoreOptions::default()
    };
    let store = Store::open(dir.path(), &options, Box::new(|_| {})).unwrap();
    let shard = Arc::new(store.shard(1).unwrap());
    let (mut followed, mut with_zeros) = (0, 0);
    for number in 0..2_000 {
        let edits = vec![edit(&shard, number)];
        let done = store.committer.edit(edits, Limits::default(), true);
        done.blocking_recv().unwrap().unwrap();
        let logs = logs(dir.path());
        let (last, earlier) = logs.split_last().unwrap();
        with_zeros += usize::from(ends_in_zeros(last));
        for log in earlier {
            followed += 1;
            assert!(!ends_in_zeros(log), "{log:?} of {logs:?}, write {number}");
        }
    }
    // Both cases occurred.
    assert!(followed > 0 && with_zeros > 0, "{followed}, {with_zeros}");
    store.close();
}
