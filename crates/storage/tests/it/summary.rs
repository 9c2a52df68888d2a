//! Compares the summary of a shard with naive models: counts by block over ids, listed seqs over a
//! set.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use storage::{Delta, IdBlocks, Summary};

/// An operation on one of a small set of ids.
#[derive(Clone, Debug)]
enum Step {
    Write {
        id: u16,
        live: bool,
    },
    Purge {
        id: u16,
    },
    /// Splits the block of the id into parts of this many rows.
    Split {
        id: u16,
        rows: usize,
    },
    Store,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u16..600, any::<bool>()).prop_map(|(id, live)| Step::Write { id, live }),
        2 => (0u16..600).prop_map(|id| Step::Purge { id }),
        2 => (0u16..600, 1usize..40).prop_map(|(id, rows)| Step::Split { id, rows }),
        1 => Just(Step::Store),
    ]
}

/// Ids of many lengths, with long common prefixes, some of them zero bytes.
fn id_of(n: u16) -> Vec<u8> {
    let mut id = match n % 4 {
        0 => b"shared-prefix-".to_vec(),
        1 => vec![0; usize::from(n % 11)],
        2 => b"shared-p".to_vec(),
        _ => vec![],
    };
    id.extend_from_slice(format!("{:x}", u32::from(n) * 7919 % 1009).as_bytes());
    id
}

/// The expected state: whether each id is live, and the seq that lists it.
#[derive(Default)]
struct Naive {
    docs: BTreeMap<Vec<u8>, (bool, u64)>,
}

impl Naive {
    fn live_below(&self, id: &[u8]) -> u64 {
        let below = self.docs.range(..id.to_vec());
        below.filter(|(_, (live, _))| *live).count() as u64
    }

    fn live(&self) -> Vec<&Vec<u8>> {
        let docs = self.docs.iter();
        docs.filter(|(_, (live, _))| *live)
            .map(|(id, _)| id)
            .collect()
    }

    fn seqs(&self) -> BTreeSet<u64> {
        self.docs.values().map(|(_, seq)| *seq).collect()
    }
}

struct Pair {
    summary: Summary,
    naive: Naive,
    seq: u64,
    stored_blocks: BTreeMap<Vec<u8>, (u32, u32)>,
    stored_chunks: BTreeMap<u64, Vec<u8>>,
}

impl Pair {
    fn new(first_seq: u64) -> Pair {
        Pair {
            summary: Summary::default(),
            naive: Naive::default(),
            seq: first_seq,
            stored_blocks: BTreeMap::new(),
            stored_chunks: BTreeMap::new(),
        }
    }

    fn apply(&mut self, id: Vec<u8>, now: Option<bool>) {
        let before = self.naive.docs.get(&id).copied();
        if before.is_none() && now.is_none() {
            return;
        }
        self.seq += 1 + self.seq % 3;
        let delta = Delta {
            live: i8::from(now == Some(true)) - i8::from(before.is_some_and(|b| b.0)),
            records: i8::from(now.is_some()) - i8::from(before.is_some()),
            supersedes: before.map_or(0, |b| b.1),
        };
        self.summary.apply(self.seq, &id, delta);
        match now {
            Some(live) => self.naive.docs.insert(id, (live, self.seq)),
            None => self.naive.docs.remove(&id),
        };
    }

    fn split(&mut self, id: &[u8], rows: usize) {
        let ids = std::sync::Arc::make_mut(&mut self.summary.ids);
        let at = ids.index_of(id);
        let old = ids.block(at);
        let end = ids.fences().get(at + 1).map(|f| f.to_vec());
        let inside: Vec<_> = self
            .naive
            .docs
            .range(old.fence.to_vec()..)
            .take_while(|(id, _)| end.as_ref().is_none_or(|e| *id < e))
            .collect();
        let parts: Vec<_> = inside
            .chunks(rows)
            .enumerate()
            .map(|(i, part)| {
                let mut block = old.clone();
                if i > 0 {
                    block.fence = part[0].0.as_slice().into();
                }
                block.rows = part.len() as u32;
                block.live = part.iter().filter(|(_, (live, _))| *live).count() as u32;
                block
            })
            .collect();
        ids.split(&old.fence, parts);
    }

    /// Writes the changes, and continues from the state written so far, as a reopened shard does.
    fn store_and_load(&mut self) {
        let template = IdBlocks::default().block(0);
        for block in std::sync::Arc::make_mut(&mut self.summary.ids).take_dirty() {
            self.stored_blocks
                .insert(block.fence.to_vec(), (block.live, block.rows));
        }
        for (n, bytes) in self.summary.seqs.take_dirty() {
            if bytes.is_empty() {
                self.stored_chunks.remove(&n);
            } else {
                self.stored_chunks.insert(n, bytes);
            }
        }
        let blocks = self.stored_blocks.iter().map(|(fence, (live, rows))| {
            let mut block = template.clone();
            (block.fence, block.live, block.rows) = (fence.as_slice().into(), *live, *rows);
            block
        });
        let mut loaded = Summary {
            ids: std::sync::Arc::new(IdBlocks::from_stored(blocks)),
            ..Summary::default()
        };
        for (n, bytes) in &self.stored_chunks {
            loaded.seqs.load_chunk(*n, bytes);
        }
        self.summary = loaded;
    }

    fn agrees(&self) -> Result<(), TestCaseError> {
        let ids = &self.summary.ids;
        let live = self.naive.live();
        prop_assert_eq!(ids.live_total(), live.len() as u64);
        let fences = ids.fences();
        prop_assert!(fences.is_sorted() && fences[0].is_empty());
        for (i, fence) in fences.iter().enumerate() {
            prop_assert_eq!(ids.index_of(fence), i);
            prop_assert_eq!(ids.live_before(i), self.naive.live_below(fence));
            let next = fences.get(i + 1);
            let rows = self.naive.docs.range(fence.to_vec()..);
            let rows = rows.take_while(|(id, _)| next.is_none_or(|n| id.as_slice() < &**n));
            prop_assert_eq!(rows.count() as u32, ids.block(i).rows);
        }
        for (rank, id) in live.iter().enumerate() {
            let block = ids.index_of(id);
            prop_assert!(ids.live_before(block) <= rank as u64);
            prop_assert!(ids.live_before(block + 1) > rank as u64);
        }
        let listed = self.naive.seqs();
        prop_assert_eq!(self.summary.seqs.total(), listed.len() as u64);
        let probes = listed.iter().flat_map(|s| [s.saturating_sub(1), *s]);
        for seq in probes.chain([0, 4095, 4096, self.seq, self.seq + 10_000]) {
            let after = listed.range(seq + 1..).count() as u64;
            prop_assert_eq!(self.summary.seqs.count_after(seq), after, "after {}", seq);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_summary_counts_as_a_plain_map_does(
        steps in prop::collection::vec(step(), 1..250),
        first_seq in prop_oneof![Just(0u64), 3900u64..4200, 1u64 << 40..1 << 41],
    ) {
        let mut pair = Pair::new(first_seq);
        for s in steps {
            match s {
                Step::Write { id, live } => pair.apply(id_of(id), Some(live)),
                Step::Purge { id } => pair.apply(id_of(id), None),
                Step::Split { id, rows } => pair.split(&id_of(id), rows),
                Step::Store => pair.store_and_load(),
            }
        }
        pair.agrees()?;
        pair.store_and_load();
        pair.agrees()?;
    }
}

#[test]
fn a_block_that_grows_too_large_is_named_for_splitting() {
    let mut pair = Pair::new(0);
    for n in 0..2000u32 {
        pair.apply(format!("{n:05}").into_bytes(), Some(n % 3 != 0));
        let oversized = pair.summary.ids.oversized.clone();
        if !oversized.is_empty() {
            std::sync::Arc::make_mut(&mut pair.summary.ids)
                .oversized
                .clear();
            for fence in oversized {
                pair.split(&fence, 256);
            }
        }
    }
    let ids = &pair.summary.ids;
    let blocks: Vec<_> = (0..ids.fences().len()).map(|i| ids.block(i)).collect();
    assert!(blocks.iter().all(|b| b.rows <= 513));
    assert!(blocks.len() >= 4);
    pair.agrees().unwrap();
}
