//! Rows of slots in the catalogue: their keys and values.

use document::{Rev, RevHash};

use super::{Generation, Position, Session, SlotNumber, WorkOutcome};
use crate::Error;
use crate::edit::Outcome;
use crate::keys::meta;
use crate::record::{StoredRev, put_rev};
use crate::varint::{Reader, put};

/// Sorts before all others, so that slots are found without reading their rows.
pub const HEAD: u8 = b'p';
pub const OUTCOME: u8 = b'q';
pub const STATE: u8 = b'r';
pub const SESSION: u8 = b's';

/// Length of a key up to and including its kind.
pub const PREFIX_LEN: usize = 4;

const VERSION: u8 = 1;

/// Returns a key of a slot.
pub fn key(slot: SlotNumber, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(PREFIX_LEN + rest.len());
    k.extend_from_slice(&meta::slot(slot));
    k.push(kind);
    k.extend_from_slice(rest);
    k
}

pub fn outcome_key(slot: SlotNumber, session: Session) -> Vec<u8> {
    let mut rest = [0; 16];
    rest[..8].copy_from_slice(&session.gateway.to_be_bytes());
    rest[8..].copy_from_slice(&session.counter.to_be_bytes());
    key(slot, OUTCOME, &rest)
}

pub fn session_key(slot: SlotNumber, gateway: u64) -> Vec<u8> {
    key(slot, SESSION, &gateway.to_be_bytes())
}

/// Returns the first key after all that start with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The position of a slot, and its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub position: Position,
    /// Requests so far, including repeats.
    pub requests: u64,
    /// Number of sessions kept.
    pub sessions: u64,
}

impl Head {
    pub fn encode(&self) -> Vec<u8> {
        let Position {
            generation,
            next_offset,
            leader_epoch,
            chain,
        } = self.position;
        let mut out = vec![VERSION];
        put(generation.number, &mut out);
        out.extend_from_slice(&generation.by.to_be_bytes());
        put(next_offset, &mut out);
        out.extend_from_slice(&leader_epoch.to_be_bytes());
        out.extend_from_slice(&chain);
        put(self.requests, &mut out);
        put(self.sessions, &mut out);
        out
    }

    pub fn decode(value: &[u8]) -> Result<Head, Error> {
        let mut r = Reader::new(value, "slot position");
        if r.byte()? != VERSION {
            return Err(r.corrupt());
        }
        Ok(Head {
            position: Position {
                generation: Generation {
                    number: r.varint()?,
                    by: u64::from_be_bytes(array(&mut r)?),
                },
                next_offset: r.varint()?,
                leader_epoch: i32::from_be_bytes(array(&mut r)?),
                chain: array(&mut r)?,
            },
            requests: r.varint()?,
            sessions: r.varint()?,
        })
    }
}

fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], Error> {
    r.bytes(N)?.try_into().map_err(|_| r.corrupt())
}

/// The state of a gateway's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHead {
    /// The highest counter so far.
    pub highest: u64,
    /// The number of its last request among the slot's.
    pub heard: u64,
}

impl SessionHead {
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8);
        put(self.highest, &mut out);
        put(self.heard, &mut out);
        out
    }

    pub fn decode(value: &[u8]) -> Result<SessionHead, Error> {
        let mut r = Reader::new(value, "slot session");
        Ok(SessionHead {
            highest: r.varint()?,
            heard: r.varint()?,
        })
    }
}

const EDITS: u8 = 0;
const PURGES: u8 = 1;
const REFUSED: u8 = 2;
const CONFLICT: u8 = 0;
const WRITTEN: u8 = 1;
const TOO_MANY_LEAVES: u8 = 2;
const NOT_PERMITTED: u8 = 3;

pub fn encode_outcome(work: &[WorkOutcome]) -> Vec<u8> {
    let mut out = vec![];
    put(work.len() as u64, &mut out);
    for part in work {
        match part {
            WorkOutcome::Edits(outcomes) => {
                out.push(EDITS);
                put(outcomes.len() as u64, &mut out);
                for outcome in outcomes {
                    match outcome {
                        Outcome::Conflict => out.push(CONFLICT),
                        Outcome::TooManyLeaves => out.push(TOO_MANY_LEAVES),
                        Outcome::NotPermitted => out.push(NOT_PERMITTED),
                        Outcome::Written(rev) => {
                            out.push(WRITTEN);
                            put_rev(rev.generation, rev.hash.as_bytes(), &mut out);
                        }
                    }
                }
            }
            WorkOutcome::Purges(purges) => {
                out.push(PURGES);
                put(purges.len() as u64, &mut out);
                for revs in purges {
                    put(revs.len() as u64, &mut out);
                    for rev in revs {
                        put_rev(rev.generation, rev.hash.as_bytes(), &mut out);
                    }
                }
            }
            WorkOutcome::Refused(code) => out.extend([REFUSED, *code]),
        }
    }
    out
}

pub fn decode_outcome(value: &[u8]) -> Result<Vec<WorkOutcome>, Error> {
    let mut r = Reader::new(value, "slot outcome");
    let n = r.varint()?;
    (0..n).map(|_| part(&mut r)).collect()
}

fn part(r: &mut Reader<'_>) -> Result<WorkOutcome, Error> {
    let kind = r.byte()?;
    if kind == REFUSED {
        return r.byte().map(WorkOutcome::Refused);
    }
    let n = r.varint()?;
    match kind {
        EDITS => {
            let outcome = |_| match r.byte()? {
                CONFLICT => Ok(Outcome::Conflict),
                TOO_MANY_LEAVES => Ok(Outcome::TooManyLeaves),
                NOT_PERMITTED => Ok(Outcome::NotPermitted),
                WRITTEN => Ok(Outcome::Written(rev(r)?)),
                _ => Err(r.corrupt()),
            };
            (0..n)
                .map(outcome)
                .collect::<Result<_, _>>()
                .map(WorkOutcome::Edits)
        }
        PURGES => {
            let revs = |_| {
                let n = r.varint()?;
                (0..n).map(|_| rev(r)).collect::<Result<_, _>>()
            };
            (0..n)
                .map(revs)
                .collect::<Result<_, _>>()
                .map(WorkOutcome::Purges)
        }
        _ => Err(r.corrupt()),
    }
}

fn rev(r: &mut Reader<'_>) -> Result<Rev, Error> {
    let stored = StoredRev::read(r)?;
    // The number of a local document's revision may have as many digits as a hash has bytes.
    if stored.generation == 0 {
        return Ok(Rev {
            generation: 0,
            hash: RevHash::Text(stored.hash.into()),
        });
    }
    Ok(stored.to_rev())
}

/// Runs the decoders, for fuzzing: whatever decodes encodes to an equivalent value.
pub fn decode_any(bytes: &[u8]) {
    if let Ok(head) = Head::decode(bytes) {
        assert_eq!(Head::decode(&head.encode()).ok(), Some(head));
    }
    if let Ok(session) = SessionHead::decode(bytes) {
        assert_eq!(SessionHead::decode(&session.encode()).ok(), Some(session));
    }
    if let Ok(outcome) = decode_outcome(bytes) {
        let again = decode_outcome(&encode_outcome(&outcome));
        assert_eq!(again.ok(), Some(outcome));
    }
}
