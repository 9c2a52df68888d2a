//! Encodes a replica's durable state.

use std::sync::Arc;

use document::varint::{put, take};

use super::{Cursor, Fence, GenerationStart, GenerationStartRecord, LastRecord, Promises};
use crate::record::{
    put_generation, put_nodes, put_position, take_array, take_generation, take_nodes, take_position,
};

const VERSION: u8 = 1;
/// Typical size of a cursor without leader epochs, and of each epoch, in bytes.
const BYTES: usize = 192;
const BYTES_PER_EPOCH: usize = 4;
const HAS_LAST: u8 = 1;
const HAS_BEGUN: u8 = 2;

impl Cursor {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.last.is_some(), HAS_LAST) | flag(self.begun.is_some(), HAS_BEGUN);
        let mut out = Vec::with_capacity(BYTES + self.epochs.len() * BYTES_PER_EPOCH);
        out.extend([VERSION, flags]);
        put_position(&self.position, &mut out);
        put(self.log, &mut out);
        if let Some(last) = &self.last {
            out.extend_from_slice(&last.epoch.to_be_bytes());
            out.extend_from_slice(&last.hash);
        }
        put(self.epochs.len() as u64, &mut out);
        // Each as the difference to the one before, which is small.
        let mut before = (0, 0);
        for (epoch, offset) in self.epochs.iter() {
            put(u64::from(epoch.wrapping_sub(before.0) as u32), &mut out);
            put(offset.wrapping_sub(before.1), &mut out);
            before = (*epoch, *offset);
        }
        put_nodes(&self.members, &mut out);
        put(self.replicas_at, &mut out);
        if let Some(begun) = &self.begun {
            put_begun(begun, &mut out);
        }
        out
    }

    /// Decodes it; `None` for invalid bytes.
    pub fn decode(bytes: &[u8]) -> Option<Cursor> {
        let mut rest = bytes;
        let (version, flags) = (*rest.split_off_first()?, *rest.split_off_first()?);
        if version != VERSION || flags > HAS_LAST + HAS_BEGUN {
            return None;
        }
        let (position, log) = (take_position(&mut rest)?, take(&mut rest)?);
        let last = match flags & HAS_LAST {
            0 => None,
            _ => Some(LastRecord {
                epoch: take_epoch(&mut rest)?,
                hash: take_array(&mut rest)?,
            }),
        };
        let count = take(&mut rest)?;
        let mut before = (0i32, 0u64);
        let epochs = (0..count).map(|_| {
            let epoch = u32::try_from(take(&mut rest)?).ok()?;
            let epoch = before.0.wrapping_add(epoch as i32);
            before = (epoch, before.1.wrapping_add(take(&mut rest)?));
            Some(before)
        });
        let epochs: Vec<_> = epochs.collect::<Option<_>>()?;
        let (members, replicas_at) = (take_nodes(&mut rest)?, take(&mut rest)?);
        let begun = match flags & HAS_BEGUN {
            0 => None,
            _ => Some(Arc::new(take_begun(&mut rest)?)),
        };
        rest.is_empty().then_some(Cursor {
            position,
            log,
            last,
            epochs: Arc::new(epochs),
            members: Arc::new(members),
            replicas_at,
            begun,
        })
    }
}

impl Promises {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_generation(self.sealed, &mut out);
        put(self.fences.len() as u64, &mut out);
        for fence in &self.fences {
            put_fence(fence, &mut out);
        }
        out
    }

    /// Decodes it; `None` for invalid bytes.
    pub fn decode(bytes: &[u8]) -> Option<Promises> {
        let mut rest = bytes;
        if *rest.split_off_first()? != VERSION {
            return None;
        }
        let (sealed, count) = (take_generation(&mut rest)?, take(&mut rest)?);
        let fences = (0..count).map(|_| take_fence(&mut rest));
        let fences = fences.collect::<Option<_>>()?;
        rest.is_empty().then_some(Promises { sealed, fences })
    }
}

fn take_epoch(rest: &mut &[u8]) -> Option<i32> {
    take_array(rest).map(i32::from_be_bytes)
}

pub(crate) fn put_fence(fence: &Fence, out: &mut Vec<u8>) {
    put_generation(fence.generation, out);
    out.extend_from_slice(&fence.epoch.to_be_bytes());
    put(fence.offset, out);
    out.extend_from_slice(&fence.chain);
    out.extend_from_slice(&fence.last_epoch.to_be_bytes());
}

pub(crate) fn take_fence(rest: &mut &[u8]) -> Option<Fence> {
    Some(Fence {
        generation: take_generation(rest)?,
        epoch: take_epoch(rest)?,
        offset: take(rest)?,
        chain: take_array(rest)?,
        last_epoch: take_epoch(rest)?,
    })
}

pub(crate) fn put_begun(begun: &GenerationStartRecord, out: &mut Vec<u8>) {
    put_generation(begun.begin.generation, out);
    put_position(&begun.begin.base, out);
    put_nodes(&begun.begin.members, out);
    put(begun.log, out);
    put(begun.offset, out);
    out.extend_from_slice(&begun.epoch.to_be_bytes());
    out.extend_from_slice(&begun.hash);
}

pub(crate) fn take_begun(rest: &mut &[u8]) -> Option<GenerationStartRecord> {
    Some(GenerationStartRecord {
        begin: GenerationStart {
            generation: take_generation(rest)?,
            base: take_position(rest)?,
            members: take_nodes(rest)?,
        },
        log: take(rest)?,
        offset: take(rest)?,
        epoch: take_epoch(rest)?,
        hash: take_array(rest)?,
    })
}
