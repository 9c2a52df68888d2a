//! The state of an index: how far it has come, its summary trees, and their stored form.

use std::sync::OnceLock;

use storage::varint::{Reader, put};
use storage::{Keyspace, ShardNumber, Snapshot, Writes, index_state_key};

use crate::Error;
use crate::blocks::{self, Block, Blocks, Reductions};
use crate::keys::{VIEW_LEN, row_key};
use crate::omissions::Omissions;
use crate::reducer::is_overflow;
use crate::spec::{ReduceSpec, Spec};

const VERSION: u8 = 1;

/// An index at one moment. Agrees with the rows of a snapshot that has the same `version`.
#[derive(Clone, Debug)]
pub struct State {
    /// Counts the writes to the index.
    pub version: u64,
    /// Seq of the shard up to which documents are indexed.
    pub indexed_seq: u64,
    /// Purges up to this one are taken out.
    pub purge_seq: u64,
    /// Length of all keys and values as JSON text.
    pub bytes: u64,
    /// Files are being added: after a crash in this state the content is not to be trusted.
    pub ingesting: bool,
    /// The documents that it lacks.
    pub omissions: Omissions,
    pub views: Vec<Blocks>,
}

impl State {
    pub fn empty(spec: &Spec) -> State {
        State {
            version: 0,
            indexed_seq: 0,
            purge_seq: 0,
            bytes: 0,
            ingesting: false,
            omissions: Omissions::default(),
            views: spec
                .views
                .iter()
                .map(|v| Blocks::empty(v.reduces.len()))
                .collect(),
        }
    }

    pub fn load(
        snapshot: &Snapshot,
        number: ShardNumber,
        spec: &Spec,
    ) -> Result<Option<State>, Error> {
        let Some(mut state) = read_head(snapshot, number)? else {
            return Ok(None);
        };
        state.views = load_blocks(snapshot, number, spec)?;
        Ok(Some(state))
    }

    /// Version of the state that the snapshot's rows agree with.
    pub fn stored_version(snapshot: &Snapshot, number: ShardNumber) -> Result<u64, Error> {
        match snapshot.get(Keyspace::Meta, &index_state_key(number))? {
            None => Ok(0),
            Some(stored) => {
                let mut r = Reader::new(&stored, "index state");
                r.byte()?;
                Ok(r.varint()?)
            }
        }
    }

    /// Adds to `batch` what changed since the last save, as the next version.
    pub fn save(&mut self, number: ShardNumber, batch: &mut Writes<'_>) {
        self.version += 1;
        let mut value = vec![];
        for (view, blocks) in self.views.iter_mut().enumerate() {
            blocks.take_dirty(|block| {
                let key = row_key(number, view as u16, &block.fence);
                if block.rows == 0 && !block.fence.is_empty() {
                    return batch.delete(Keyspace::IndexBlocks, key);
                }
                value.clear();
                encode_block(block, &mut value);
                batch.put(Keyspace::IndexBlocks, key, &value);
            });
        }
        let mut value = vec![VERSION];
        for n in [
            self.version,
            self.indexed_seq,
            self.purge_seq,
            self.bytes,
            u64::from(self.ingesting),
        ] {
            put(n, &mut value);
        }
        self.omissions.encode(&mut value);
        batch.put(Keyspace::Meta, index_state_key(number), value);
    }
}

/// Returns the state of an index without its blocks.
pub(crate) fn read_head(snapshot: &Snapshot, number: ShardNumber) -> Result<Option<State>, Error> {
    let Some(stored) = snapshot.get(Keyspace::Meta, &index_state_key(number))? else {
        return Ok(None);
    };
    let mut r = Reader::new(&stored, "index state");
    if r.byte()? != VERSION {
        return Err(r.corrupt().into());
    }
    Ok(Some(State {
        version: r.varint()?,
        indexed_seq: r.varint()?,
        purge_seq: r.varint()?,
        bytes: r.varint()?,
        ingesting: r.byte()? != 0,
        omissions: Omissions::decode(&mut r)?,
        views: vec![],
    }))
}

/// Rows, then for each reduce function its state, preceded by its length and one, or 0 for none.
pub(crate) fn encode_block(block: &Block, out: &mut Vec<u8>) {
    put(u64::from(block.rows), out);
    for r in &block.reductions {
        match r.get() {
            None => put(0, out),
            Some(state) => {
                put(state.len() as u64 + 1, out);
                out.extend_from_slice(state);
            }
        }
    }
}

/// Overflows are computed again, as the limit may have changed.
pub(crate) fn decode_block(
    fence: &[u8],
    stored: &[u8],
    reduces: &[ReduceSpec],
) -> Result<Block, Error> {
    let mut r = Reader::new(stored, "index block");
    let rows = r.varint()? as u32;
    let mut reductions: Vec<OnceLock<blocks::State>> = Vec::with_capacity(reduces.len());
    for reduce in reduces {
        let state = match r.varint()?.checked_sub(1) {
            None => None,
            Some(n) => Some(r.bytes(n as usize)?),
        };
        let is_custom = matches!(reduce, ReduceSpec::Custom(_));
        let state = state.filter(|state| !(is_custom && is_overflow(state)));
        reductions
            .push(state.map_or_else(OnceLock::new, |s| OnceLock::from(blocks::State::from(s))));
    }
    Ok(Block::stored(fence, rows, Reductions::from(reductions)))
}

fn load_blocks(
    snapshot: &Snapshot,
    number: ShardNumber,
    spec: &Spec,
) -> Result<Vec<Blocks>, Error> {
    let mut views: Vec<Vec<Block>> = spec.views.iter().map(|_| vec![]).collect();
    let mut it = snapshot.iter(Keyspace::IndexBlocks, number);
    it.seek_to_first();
    while let (Some(k), Some(v)) = (it.key(), it.value()) {
        let view = usize::from(u16::from_be_bytes([k[4], k[5]]));
        if let (Some(blocks), Some(view)) = (views.get_mut(view), spec.views.get(view)) {
            blocks.push(decode_block(&k[VIEW_LEN..], v, &view.reduces)?);
        }
        it.next();
    }
    it.status()?;
    Ok(views
        .into_iter()
        .zip(&spec.views)
        .map(|(blocks, view)| Blocks::from_blocks(blocks, view.reduces.len()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::Builtin;

    #[test]
    fn blocks_have_these_bytes() {
        let reductions = vec![
            OnceLock::from(blocks::State::from(&b"42"[..])),
            OnceLock::new(),
        ];
        let block = Block::stored(b"a", 300, Reductions::from(reductions));
        let mut stored = vec![];
        encode_block(&block, &mut stored);
        assert_eq!(stored, b"\xac\x02\x0342\0");
    }

    #[test]
    fn an_overflow_is_forgotten_when_a_block_is_read() {
        let (custom, builtin) = (
            ReduceSpec::Custom(String::new()),
            ReduceSpec::Builtin(Builtin::Count),
        );
        let overflow: &[u8] = b"\0too large";
        for (reduce, state, kept) in [
            (&custom, overflow, false),
            (&custom, b"7".as_slice(), true),
            (&builtin, overflow, true),
        ] {
            let reductions = vec![OnceLock::from(blocks::State::from(state))];
            let mut stored = vec![];
            encode_block(
                &Block::stored(b"a", 3, Reductions::from(reductions)),
                &mut stored,
            );
            let block = decode_block(b"a", &stored, std::slice::from_ref(reduce)).unwrap();
            assert_eq!(block.rows, 3);
            assert_eq!(block.reductions[0].get().is_some(), kept, "{reduce:?}");
        }
    }
}
