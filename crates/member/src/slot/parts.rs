//! Requests that are too long for one record, as they come in parts.

use cluster::record::Request;
use cluster::slot::StoreError;
use storage::{SlotNumber, Store};

use super::queue::failed;

const PART: u8 = b'p';
/// Parts whose last one does not come within so many records of the log go.
const RECORDS_MAX: u64 = 100_000;

/// A part of a request.
pub(super) struct Part {
    pub gateway: u64,
    pub counter: u64,
    pub index: u32,
    pub count: u32,
    pub bytes: Vec<u8>,
}

/// Rows of the slot's own to write, and the request that is whole now.
#[derive(Default)]
pub(super) struct Parted {
    pub rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub request: Option<Request>,
}

impl Part {
    fn key(&self, index: u32) -> Vec<u8> {
        let numbers = [self.gateway, self.counter, u64::from(index)];
        let numbers = numbers.into_iter().flat_map(u64::to_be_bytes);
        [PART].into_iter().chain(numbers).collect()
    }
}

/// Takes in a part at an offset of the log. `pending` are rows that were queued and may not be in the store yet.
pub(super) fn take(
    part: Part,
    offset: u64,
    store: &Store,
    slot: SlotNumber,
    pending: &mut Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<Parted, StoreError> {
    let stored = store.slot_state(slot, &[PART]).map_err(failed)?;
    pending.retain(|(key, _)| !stored.iter().any(|(other, _)| other == key));
    let mut done = Parted::default();
    let old = |value: &[u8]| {
        let at = value.first_chunk::<8>().map(|at| u64::from_be_bytes(*at));
        at.is_none_or(|at| at.saturating_add(RECORDS_MAX) < offset)
    };
    let olds = stored.iter().filter(|(_, value)| old(value));
    done.rows.extend(olds.map(|(key, _)| (key.clone(), None)));
    if part.index + 1 < part.count {
        let value = [&offset.to_be_bytes()[..], &part.bytes].concat();
        let key = part.key(part.index);
        pending.push((key.clone(), value.clone()));
        done.rows.push((key, Some(value)));
        return Ok(done);
    }
    let mut bytes = vec![];
    for index in 0..part.index {
        let key = part.key(index);
        let all = stored.iter().chain(&*pending);
        let found = all.rev().find(|(other, _)| *other == key);
        // Without all of them it is not whole: whoever proposed it does so again.
        let Some(piece) = found.and_then(|(_, value)| value.get(8..)) else {
            return Ok(done);
        };
        bytes.extend_from_slice(piece);
        done.rows.push((key, None));
    }
    bytes.extend_from_slice(&part.bytes);
    pending.retain(|(key, _)| !done.rows.iter().any(|(gone, _)| gone == key));
    done.request = Request::from_bytes(&bytes);
    Ok(done)
}
