//! Where the contents of a database's attachments are.
//!
//! **The content of an attachment is in the home of its document**: every upload, read and
//! reference names its document. A content that documents of several homes name is stored in each
//! of them.

use std::sync::Arc;

use document::ContentId;
use storage::{Content, Contents, Shard, Store};

use crate::Error;
use crate::catalogue::ContentsUnder;

/// Memory of the contents of one home, in bytes.
const CONTENTS_BYTES: usize = size_of::<Contents>() + 128;

/// The contents of a database: of each shard, or of all shards together.
pub(crate) struct Homes(Vec<Arc<Contents>>);

impl Homes {
    pub fn open(
        store: &Store,
        shards: &[Arc<Shard>],
        under: ContentsUnder,
    ) -> Result<Homes, Error> {
        let homes = match under {
            ContentsUnder::FirstShard => shards.get(..1),
            ContentsUnder::EachShard => (!shards.is_empty()).then_some(shards),
        };
        let homes = homes.ok_or(storage::Error::Corrupt("database record"))?;
        let contents = |home: &Arc<Shard>| store.contents(home.clone());
        Ok(Homes(homes.iter().map(contents).collect()))
    }

    /// These homes, sharing those that `others` have too, since they count references.
    pub fn with_those_of(self, others: &Homes) -> Homes {
        let known = |home: Arc<Contents>| {
            let same = others.0.iter().find(|other| other.home() == home.home());
            same.cloned().unwrap_or(home)
        };
        Homes(self.0.into_iter().map(known).collect())
    }

    /// Where the contents of a shard's documents are.
    pub fn of_shard(&self, index: usize) -> &Arc<Contents> {
        match &self.0[..] {
            [all] => all,
            each => &each[index],
        }
    }

    /// Bytes of all contents, each counted once for each home that has it.
    pub fn stored_bytes(&self) -> Result<u64, Error> {
        self.sum(Contents::stored_bytes)
    }

    /// Bytes of removed contents whose space was not reclaimed yet.
    pub fn reclaimable_bytes(&self) -> Result<u64, Error> {
        self.sum(Contents::reclaimable_bytes)
    }

    fn sum(&self, bytes: impl Fn(&Contents) -> Result<u64, storage::Error>) -> Result<u64, Error> {
        self.0
            .iter()
            .try_fold(0_u64, |sum, home| Ok(sum.saturating_add(bytes(home)?)))
    }

    /// Ends a compaction: removes unreferenced contents, and reclaims the space of removed ones.
    /// Blocks.
    pub fn sweep_and_reclaim(&self) -> Result<(), Error> {
        for home in &self.0 {
            home.sweep_all()?;
        }
        Ok(storage::reclaim_contents(&self.0)?)
    }

    /// Copies a content from another home to this one. `None` if no home has it. Blocks during the
    /// copy.
    pub fn copy_to(&self, home: &Arc<Contents>, id: &ContentId) -> Result<Option<Content>, Error> {
        for other in self.0.iter().filter(|other| !Arc::ptr_eq(other, home)) {
            if let Some(content) = other.hold(id)? {
                return copy(&content, home).map(Some);
            }
        }
        Ok(None)
    }

    /// Whether none of them are in use.
    pub fn are_idle(&self) -> bool {
        self.0.iter().all(|home| Arc::strong_count(home) == 1)
    }

    /// Whether contents are under this shard, which they hold then.
    pub fn has(&self, index: usize) -> bool {
        index < self.0.len()
    }

    /// About how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.len() * CONTENTS_BYTES
    }
}

fn copy(content: &Content, to: &Arc<Contents>) -> Result<Content, Error> {
    let mut upload = to.upload();
    loop {
        let piece = content.read(upload.length())?;
        if piece.is_empty() {
            break;
        }
        upload.write(&piece)?;
    }
    let copy = upload.finish()?;
    if copy.id != content.id {
        return Err(storage::Error::Corrupt("attachment").into());
    }
    Ok(copy)
}
