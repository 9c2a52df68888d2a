//! Ranks over all shards of a database: the offset of an id, and the id at an offset, without scanning.

use std::sync::Arc;

use storage::{IdBlocks, IdIter, RecordHead, Shard, View};

use crate::Error;

/// The shards of one listing, each at one moment.
pub(crate) struct Views {
    pub shards: Vec<Arc<Shard>>,
    pub views: Vec<View>,
}

impl Views {
    /// Views of the shards, and the id blocks that agree with them.
    pub fn open(shards: &[Arc<Shard>]) -> Result<(Views, Vec<Arc<IdBlocks>>), Error> {
        let mut views = Vec::with_capacity(shards.len());
        let mut blocks = Vec::with_capacity(shards.len());
        for shard in shards {
            let (view, ids) = shard.view_with(|summary| summary.ids.clone())?;
            views.push(view);
            blocks.push(ids);
        }
        let views = Views {
            shards: shards.to_vec(),
            views,
        };
        Ok((views, blocks))
    }

    pub fn live_total(&self) -> u64 {
        self.views.iter().map(|v| v.meta.doc_count).sum()
    }

    /// Live documents with ids before `id`.
    pub fn rank(&self, blocks: &[Arc<IdBlocks>], id: &[u8]) -> Result<u64, Error> {
        let mut rank = 0;
        for ((shard, view), blocks) in self.shards.iter().zip(&self.views).zip(blocks) {
            rank += view.rank(shard, blocks, id)?;
        }
        Ok(rank)
    }

    /// The id of the live document of rank `rank` (from 0); `None` past the end.
    pub fn id_at(&self, blocks: &[Arc<IdBlocks>], rank: u64) -> Result<Option<Vec<u8>>, Error> {
        if rank >= self.live_total() {
            return Ok(None);
        }
        let start = furthest_fence(blocks, rank);
        let mut left = rank - self.rank(blocks, &start)?;
        let mut merge = IdMerge::new(self);
        merge.seek(&start);
        while let Some((_, id, value)) = merge.entry() {
            if !RecordHead::decode(value)?.deleted {
                if left == 0 {
                    return Ok(Some(id.to_vec()));
                }
                left -= 1;
            }
            merge.next();
        }
        merge.status()?;
        Ok(None)
    }
}

/// The greatest fence of any shard whose rank is surely not above `rank`, so that few rows are left to walk.
fn furthest_fence(blocks: &[Arc<IdBlocks>], rank: u64) -> Vec<u8> {
    let upper_rank = |fence: &[u8]| -> u64 {
        blocks
            .iter()
            .map(|b| {
                let i = b.index_of(fence);
                let exact = *b.fences()[i] == *fence;
                b.live_before(if exact { i } else { i + 1 })
            })
            .sum()
    };
    let mut best: &[u8] = &[];
    for b in blocks {
        let n = b.fences().partition_point(|f| upper_rank(f) <= rank);
        if let Some(fence) = n.checked_sub(1).map(|i| &b.fences()[i])
            && **fence > *best
        {
            best = fence;
        }
    }
    best.to_vec()
}

/// A shard's rows, and the id where they are, copied: each step asks the engine about one shard only.
struct Here<'a> {
    it: IdIter<'a>,
    id: Vec<u8>,
    /// It is at no row.
    is_over: bool,
}

impl Here<'_> {
    fn look(&mut self) {
        self.id.clear();
        let entry = self.it.entry();
        self.is_over = entry.is_none();
        self.id.extend_from_slice(entry.map_or(&[], |(id, _)| id));
    }
}

/// The by-id rows of all shards as one ordered sequence.
pub(crate) struct IdMerge<'a> {
    its: Vec<Here<'a>>,
    descending: bool,
    at: Option<usize>,
}

impl<'a> IdMerge<'a> {
    pub fn new(views: &'a Views) -> Self {
        Self::over(views, false, false)
    }

    pub fn over(views: &'a Views, local: bool, descending: bool) -> Self {
        let its = views
            .shards
            .iter()
            .zip(&views.views)
            .map(|(shard, view)| {
                let it = match local {
                    true => IdIter::local(&view.snapshot, shard.number),
                    false => IdIter::new(&view.snapshot, shard.number),
                };
                Here {
                    it,
                    id: vec![],
                    is_over: true,
                }
            })
            .collect();
        IdMerge {
            its,
            descending,
            at: None,
        }
    }

    /// To the first id at or after `id`; descending: at or before.
    pub fn seek(&mut self, id: &[u8]) {
        for here in &mut self.its {
            if self.descending {
                here.it.seek_for_prev(id);
            } else {
                here.it.seek(id);
            }
            here.look();
        }
        self.choose();
    }

    pub fn seek_to_end(&mut self) {
        for here in &mut self.its {
            if self.descending {
                here.it.seek_to_last();
            } else {
                here.it.seek(&[]);
            }
            here.look();
        }
        self.choose();
    }

    fn choose(&mut self) {
        let its = self.its.iter().enumerate();
        let ids = its.filter_map(|(i, here)| (!here.is_over).then_some((&here.id, i)));
        let best = if self.descending {
            ids.max()
        } else {
            ids.min()
        };
        self.at = best.map(|(_, i)| i);
    }

    /// The shard's index, the id and the stored value here.
    pub fn entry(&self) -> Option<(usize, &[u8], &[u8])> {
        let i = self.at?;
        let (id, value) = self.its[i].it.entry()?;
        Some((i, id, value))
    }

    pub fn next(&mut self) {
        if let Some(i) = self.at {
            let here = &mut self.its[i];
            if self.descending {
                here.it.prev();
            } else {
                here.it.next();
            }
            if self.its.len() > 1 {
                self.its[i].look();
                self.choose();
            }
        }
    }

    pub fn status(&self) -> Result<(), Error> {
        for here in &self.its {
            here.it.status()?;
        }
        Ok(())
    }
}
