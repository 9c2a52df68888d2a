//! Ranks over all shards of a database: the offset of an id, and the id at an offset, without scanning.

use std::sync::Arc;

use storage::{IdBlocks, IdIter, LiveCount, RecordHead, Shard, View};

use crate::Error;
use crate::turn::Turn;

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
}

/// A search for the number of live documents before an id, in all shards. It is made in pieces: rows
/// are read, and each may be as long as the record of a wide document is.
pub(crate) struct RankSearch {
    id: Vec<u8>,
    /// The shard whose documents are counted now, and their count so far once it has started.
    shard: usize,
    count: Option<LiveCount>,
    /// The rank, without this shard and those after it.
    rank: u64,
}

impl RankSearch {
    pub fn new(id: impl Into<Vec<u8>>) -> RankSearch {
        RankSearch {
            id: id.into(),
            shard: 0,
            count: None,
            rank: 0,
        }
    }

    /// A search that has ended.
    pub fn found(rank: u64) -> RankSearch {
        RankSearch {
            id: vec![],
            shard: 0,
            count: None,
            rank,
        }
    }

    /// Continues until the piece is over. Returns the rank once it is found, also when it is called
    /// again.
    pub fn go_on(
        &mut self,
        views: &Views,
        blocks: &[Arc<IdBlocks>],
        turn: &mut Turn,
    ) -> Result<Option<u64>, Error> {
        // No id is before the empty one.
        while !self.id.is_empty()
            && let (Some(shard), Some(view)) =
                (views.shards.get(self.shard), views.views.get(self.shard))
        {
            let blocks = &blocks[self.shard];
            let count = (self.count).get_or_insert_with(|| LiveCount::new(blocks, &self.id));
            let is_over = |bytes| {
                turn.note(bytes);
                turn.is_over(false)
            };
            let Some(of_shard) = view.count_live(shard, &self.id, count, is_over)? else {
                return Ok(None);
            };
            self.rank += of_shard;
            self.count = None;
            self.shard += 1;
        }
        Ok(Some(self.rank))
    }
}

/// A search for the live document of a rank, in pieces.
pub(crate) struct IdSearch {
    /// The rank, from 0.
    rank: u64,
    /// Where the rows to walk over begin, and its rank.
    from: Vec<u8>,
    before: RankSearch,
    /// Live documents from `from` on that are still before the wanted one, once `before` has ended.
    left: Option<u64>,
}

/// The progress of an [`IdSearch`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IdFound {
    /// The piece is over, and more is left.
    NotYet,
    Id(Vec<u8>),
    /// No document has the rank.
    Nothing,
}

impl IdSearch {
    pub fn new(blocks: &[Arc<IdBlocks>], rank: u64) -> IdSearch {
        let from = furthest_fence(blocks, rank);
        IdSearch {
            rank,
            before: RankSearch::new(from.as_slice()),
            from,
            left: None,
        }
    }

    /// Continues until the piece is over.
    pub fn go_on(
        &mut self,
        views: &Views,
        blocks: &[Arc<IdBlocks>],
        turn: &mut Turn,
    ) -> Result<IdFound, Error> {
        if self.rank >= views.live_total() {
            return Ok(IdFound::Nothing);
        }
        let mut left = match self.left {
            Some(left) => left,
            None => match self.before.go_on(views, blocks, turn)? {
                Some(before) => self.rank - before,
                None => return Ok(IdFound::NotYet),
            },
        };
        let mut merge = IdMerge::new(views);
        merge.seek(&self.from);
        while let Some((_, id, value)) = merge.entry() {
            if !RecordHead::decode(value)?.deleted {
                if left == 0 {
                    return Ok(IdFound::Id(id.to_vec()));
                }
                left -= 1;
            }
            turn.note(value.len());
            if turn.is_over(false) {
                // The first id behind this one.
                self.from = [id, &[0]].concat();
                self.left = Some(left);
                return Ok(IdFound::NotYet);
            }
            merge.next();
        }
        merge.status()?;
        Ok(IdFound::Nothing)
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

#[cfg(test)]
mod tests {
    use document::parse_document;
    use serde_json::json;

    use super::*;
    use crate::EditMode;
    use crate::fixture::Fixture;

    const DOCUMENTS: u32 = 400;

    fn id_of(n: u32) -> String {
        format!("d{n:04}")
    }

    fn is_deleted(n: u32) -> bool {
        n.is_multiple_of(3)
    }

    /// Calls `go_on` until it returns something, and returns that with the number of calls. The
    /// time of each piece is over.
    fn in_pieces<T>(mut go_on: impl FnMut(&mut Turn) -> Option<T>) -> (T, usize) {
        let mut pieces = 1;
        loop {
            if let Some(found) = go_on(&mut Turn::over()) {
                return (found, pieces);
            }
            pieces += 1;
        }
    }

    #[test]
    fn ranks_and_ids_are_found_in_pieces() {
        let fixture = Fixture::new(Some(2));
        let doc = |n: u32| {
            let mut doc = json!({"_id": id_of(n), "_rev": format!("1-{n:032x}")});
            if is_deleted(n) {
                doc["_deleted"] = true.into();
            }
            parse_document(doc.to_string().as_bytes()).unwrap()
        };
        let docs = (0..DOCUMENTS).map(doc).collect();
        fixture.write(docs, EditMode::Replicated);
        let live: Vec<String> = (0..DOCUMENTS)
            .filter(|n| !is_deleted(*n))
            .map(id_of)
            .collect();
        let (views, blocks) = Views::open(fixture.db.all_shards()).unwrap();

        let mut pieces_most = 0;
        let others = ["", "d", "d0200x", "e"].map(String::from);
        for id in (0..DOCUMENTS).map(id_of).chain(others) {
            let mut search = RankSearch::new(id.as_bytes());
            let mut go_on = |turn: &mut Turn| search.go_on(&views, &blocks, turn).unwrap();
            let (rank, pieces) = in_pieces(&mut go_on);
            let before = live.iter().filter(|other| **other < id).count();
            assert_eq!(rank, before as u64, "{id}");
            assert_eq!(views.rank(&blocks, id.as_bytes()).unwrap(), rank);
            assert_eq!(go_on(&mut Turn::over()), Some(rank), "it is still known");
            pieces_most = pieces_most.max(pieces);
        }
        // The clock is read after 64 rows of a shard.
        assert!(pieces_most > 3, "{pieces_most}");

        let mut pieces_most = 0;
        for rank in 0..=live.len() {
            let mut search = IdSearch::new(&blocks, rank as u64);
            let (found, pieces) = in_pieces(|turn| {
                let found = search.go_on(&views, &blocks, turn).unwrap();
                (found != IdFound::NotYet).then_some(found)
            });
            let wanted = live.get(rank).map(|id| id.clone().into_bytes());
            assert_eq!(found, wanted.map_or(IdFound::Nothing, IdFound::Id));
            pieces_most = pieces_most.max(pieces);
        }
        assert!(pieces_most > 3, "{pieces_most}");
    }
}
