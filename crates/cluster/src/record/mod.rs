//! Records of the log as bytes.
//!
//! ```text
//! version, cluster id (16 bytes), slot, generation, keyed hash (16 bytes), kind, body
//! ```
//!
//! Numbers are LEB128; variable-length fields are preceded by their length. The hash is BLAKE3
//! keyed with the cluster's secret, over everything else: damaged or forged records are rejected.

mod edits;
mod version;

pub use version::{Agreement, Announced, Announcement, RecordVersion, RecordVersions};

pub use edits::{
    ChangeRecord, DatabaseWork, EditRecord, EncodedRequest, FileRecord, PurgeRecord, Request, Work,
};

use document::varint::{put, take};

use crate::position::{Chain, Generation, NodeId, Position, digest};
use crate::replica::{GenerationStart, Header, Kind};

/// Maximum length of a record, in bytes. With its envelope it fits Kafka's default message limit of
/// 1 MB.
pub const BYTES_MAX: usize = 768 << 10;

/// Approximate maximum number of bytes that the requests of one record rewrite in the store: each
/// replica applies a record in one batch. A single request may rewrite more.
pub const STORED_BYTES_MAX: usize = 4 << 20;

/// Maximum size of the envelope of requests in a record, or of a [`Body::Part`]'s bytes, in bytes.
pub const AROUND_BYTES_MAX: usize = 128;

const HASH_BYTES: usize = 16;

/// The identity of a record: a record is accepted only if all of it matches.
#[derive(Clone)]
pub struct Stamp {
    /// The cluster.
    pub cluster: [u8; 16],
    /// The cluster's secret for records.
    pub key: [u8; 32],
    /// The slot.
    pub slot: u16,
    /// The versions that are read, and the one that is written.
    pub versions: RecordVersions,
}

/// The kind and contents of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Writes of clients.
    Requests(Vec<Request>),
    /// A piece of a request that is too long for one record. The pieces together are
    /// [`Request::to_bytes`], which is applied with the last one.
    Part {
        /// The request's gateway: [`Request::gateway`].
        gateway: u64,
        /// The request's number at the gateway.
        counter: u64,
        /// The index of this piece, from 0.
        index: u32,
        /// The number of pieces.
        count: u32,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// A change of the slot's replicas.
    Replicas {
        /// All of them.
        members: Vec<NodeId>,
        /// The offset after the previous change.
        after: u64,
        /// The epoch of the leader that must write it.
        epoch: i32,
    },
    /// The start of a generation.
    Begin(GenerationStart),
    /// Replicas wait for this version of the catalogue before they apply what follows: a database
    /// that is absent there is absent here.
    Await {
        /// The version.
        version: u64,
    },
    /// Edits after this one were validated by these design documents.
    Barrier {
        /// The database.
        database: [u8; 16],
        /// Hash over its design documents.
        designs: u64,
        /// Its own random number.
        number: u64,
        /// The number of the barrier that it replaces, 0 for none: it has no effect if another is
        /// in force, since its author did not know that one.
        follows: u64,
    },
}

/// A verified record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The generation that it was written in.
    pub generation: Generation,
    /// Hash over all its bytes.
    pub hash: Chain,
    /// Its contents.
    pub body: Body,
}

/// The reason why bytes of the log are not a valid record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The hash does not match.
    #[error("the record is damaged, or was not written by a member of this cluster")]
    Damaged,
    /// It belongs to another cluster.
    #[error(
        "the record is of the cluster {found}: the topic belongs to another cluster. Two clusters at the same brokers need different names (`settee cluster init --cluster`); `settee cluster reseed` continues after records that came in by mistake"
    )]
    OtherCluster {
        /// Its id, in hexadecimal digits.
        found: String,
    },
    /// It belongs to another slot.
    #[error("the record is of slot {found}: the topic's partitions were mixed up")]
    OtherSlot {
        /// The slot.
        found: u64,
    },
    /// A newer version wrote it.
    #[error(
        "the record has version {found}, this program reads version {known}: a newer Settee wrote it, update this node"
    )]
    Version {
        /// The version.
        found: u8,
        /// The latest version that this program reads.
        known: RecordVersion,
    },
    /// The hash matches, but the contents are invalid.
    #[error("the record does not decode: {0}")]
    Malformed(&'static str),
}

impl Stamp {
    /// Encodes a record, in the version that is in force as far as this node knows; in a later one
    /// if the contents need that: another node, which proposed them, knows that it is in force.
    pub fn write(&self, generation: Generation, body: &Body) -> Vec<u8> {
        self.write_needing(body.needs(), generation, body)
    }

    /// Encodes a record whose contents need this version, as a part of a request may.
    pub fn write_needing(
        &self,
        needs: RecordVersion,
        generation: Generation,
        body: &Body,
    ) -> Vec<u8> {
        let version = self.versions.written().max(needs);
        self.sealed((version, generation), 0, |out| body.encode(out))
    }

    /// Encodes a record of requests that are encoded already.
    pub fn write_requests(&self, generation: Generation, requests: &[&EncodedRequest]) -> Vec<u8> {
        let room = requests.iter().map(|request| request.bytes.len()).sum();
        let needs = requests.iter().map(|request| request.needs).max();
        let version = self
            .versions
            .written()
            .max(needs.unwrap_or(RecordVersion::V1));
        self.sealed((version, generation), room, |out| {
            out.push(REQUESTS);
            put(requests.len() as u64, out);
            let all = requests.iter();
            all.for_each(|request| out.extend_from_slice(&request.bytes));
        })
    }

    fn sealed(
        &self,
        (version, generation): (RecordVersion, Generation),
        room: usize,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<u8> {
        let mut out = self.head(version, generation);
        out.reserve(room + AROUND_BYTES_MAX);
        let at = out.len();
        out.resize(at + HASH_BYTES, 0);
        body(&mut out);
        let hash = self.hash(&out[..at], &out[at + HASH_BYTES..]);
        out[at..at + HASH_BYTES].copy_from_slice(&hash);
        out
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn read(&self, bytes: &[u8]) -> Result<Record, RecordError> {
        let mut rest = bytes;
        let known = self.versions.known();
        let version = rest.split_off_first().ok_or(RecordError::Damaged)?;
        let cluster = rest.split_off(..16).ok_or(RecordError::Damaged)?;
        let slot = take(&mut rest).ok_or(RecordError::Damaged)?;
        let number = take(&mut rest).ok_or(RecordError::Damaged)?;
        let by = take(&mut rest).ok_or(RecordError::Damaged)?;
        let head = bytes.len() - rest.len();
        let hash = rest.split_off(..HASH_BYTES).ok_or(RecordError::Damaged)?;
        if self.hash(&bytes[..head], rest) != *hash {
            // The fields may explain it, unless they were damaged.
            return Err(match (cluster == self.cluster, *version) {
                (false, found) if self.versions.reads(found) => RecordError::OtherCluster {
                    found: hex(cluster),
                },
                (true, found) if found > known.number() => RecordError::Version { found, known },
                _ => RecordError::Damaged,
            });
        }
        if !self.versions.reads(*version) {
            let found = *version;
            return Err(RecordError::Version { found, known });
        }
        if slot != u64::from(self.slot) {
            return Err(RecordError::OtherSlot { found: slot });
        }
        Ok(Record {
            generation: Generation { number, by },
            hash: digest(bytes),
            body: Body::decode(rest)?,
        })
    }

    fn head(&self, version: RecordVersion, generation: Generation) -> Vec<u8> {
        let mut out = vec![version.number()];
        out.extend_from_slice(&self.cluster);
        put(u64::from(self.slot), &mut out);
        put(generation.number, &mut out);
        put(generation.by, &mut out);
        out
    }

    fn hash(&self, head: &[u8], rest: &[u8]) -> [u8; HASH_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(head).update(rest);
        let mut out = [0; HASH_BYTES];
        out.copy_from_slice(&hasher.finalize().as_bytes()[..HASH_BYTES]);
        out
    }
}

impl std::fmt::Debug for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the key.
        write!(f, "slot {} of {}", self.slot, hex(&self.cluster))
    }
}

impl Record {
    /// Returns the part of it that a replica needs.
    pub fn header(&self) -> Header {
        let kind = match &self.body {
            Body::Replicas {
                members,
                after,
                epoch,
            } => Kind::Replicas {
                members: members.clone(),
                after: *after,
                epoch: *epoch,
            },
            Body::Begin(begin) => Kind::Begin(Box::new(begin.clone())),
            _ => Kind::Data,
        };
        Header {
            generation: self.generation,
            kind,
        }
    }
}

const REQUESTS: u8 = b'e';
const PART: u8 = b'p';
const REPLICAS: u8 = b'r';
const BEGIN: u8 = b'b';
const AWAIT: u8 = b'a';
const BARRIER: u8 = b'v';

impl Body {
    /// Returns the least version of the records that may have it. A new kind needs a new version:
    /// a program that does not know it would halt.
    pub fn needs(&self) -> RecordVersion {
        match self {
            Body::Requests(requests) => {
                let needs = requests.iter().map(Request::needs);
                needs.max().unwrap_or(RecordVersion::V1)
            }
            Body::Part { .. }
            | Body::Replicas { .. }
            | Body::Begin(_)
            | Body::Await { .. }
            | Body::Barrier { .. } => RecordVersion::V1,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Body::Requests(requests) => {
                out.push(REQUESTS);
                put(requests.len() as u64, out);
                requests.iter().for_each(|request| request.encode(out));
            }
            Body::Part {
                gateway,
                counter,
                index,
                count,
                bytes,
            } => {
                out.push(PART);
                [*gateway, *counter, u64::from(*index), u64::from(*count)]
                    .iter()
                    .for_each(|number| put(*number, out));
                out.extend_from_slice(bytes);
            }
            Body::Replicas {
                members,
                after,
                epoch,
            } => {
                out.push(REPLICAS);
                put(*after, out);
                out.extend_from_slice(&epoch.to_be_bytes());
                put_nodes(members, out);
            }
            Body::Begin(begin) => {
                out.push(BEGIN);
                put_generation(begin.generation, out);
                put_position(&begin.base, out);
                put_nodes(&begin.members, out);
            }
            Body::Await { version } => {
                out.push(AWAIT);
                put(*version, out);
            }
            Body::Barrier {
                database,
                designs,
                number,
                follows,
            } => {
                out.push(BARRIER);
                out.extend_from_slice(database);
                put(*designs, out);
                put(*number, out);
                put(*follows, out);
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<Body, RecordError> {
        let mut rest = bytes;
        let kind = *rest
            .split_off_first()
            .ok_or(RecordError::Malformed("kind"))?;
        let body = Body::decode_kind(kind, &mut rest).ok_or(RecordError::Malformed("body"))?;
        match rest.is_empty() {
            true => Ok(body),
            false => Err(RecordError::Malformed("something follows its body")),
        }
    }

    fn decode_kind(kind: u8, rest: &mut &[u8]) -> Option<Body> {
        Some(match kind {
            REQUESTS => {
                let count = take(rest)?;
                let requests = (0..count).map(|_| Request::decode(rest));
                Body::Requests(requests.collect::<Option<_>>()?)
            }
            PART => Body::Part {
                gateway: take(rest)?,
                counter: take(rest)?,
                index: take(rest)?.try_into().ok()?,
                count: take(rest)?.try_into().ok()?,
                bytes: std::mem::take(rest).to_vec(),
            },
            REPLICAS => Body::Replicas {
                after: take(rest)?,
                epoch: i32::from_be_bytes(take_array(rest)?),
                members: take_nodes(rest)?,
            },
            BEGIN => Body::Begin(GenerationStart {
                generation: take_generation(rest)?,
                base: take_position(rest)?,
                members: take_nodes(rest)?,
            }),
            AWAIT => Body::Await {
                version: take(rest)?,
            },
            BARRIER => Body::Barrier {
                database: take_array(rest)?,
                designs: take(rest)?,
                number: take(rest)?,
                follows: take(rest)?,
            },
            _ => return None,
        })
    }
}

pub(crate) fn put_generation(generation: Generation, out: &mut Vec<u8>) {
    put(generation.number, out);
    put(generation.by, out);
}

pub(crate) fn take_generation(rest: &mut &[u8]) -> Option<Generation> {
    Some(Generation {
        number: take(rest)?,
        by: take(rest)?,
    })
}

pub(crate) fn put_position(position: &Position, out: &mut Vec<u8>) {
    put_generation(position.generation, out);
    put(position.next_offset, out);
    out.extend_from_slice(&position.leader_epoch.to_be_bytes());
    out.extend_from_slice(&position.chain);
}

pub(crate) fn take_position(rest: &mut &[u8]) -> Option<Position> {
    Some(Position {
        generation: take_generation(rest)?,
        next_offset: take(rest)?,
        leader_epoch: i32::from_be_bytes(take_array(rest)?),
        chain: take_array(rest)?,
    })
}

pub(crate) fn put_nodes(nodes: &[NodeId], out: &mut Vec<u8>) {
    put(nodes.len() as u64, out);
    nodes.iter().for_each(|node| put(*node, out));
}

pub(crate) fn take_nodes(rest: &mut &[u8]) -> Option<Vec<NodeId>> {
    let count = take(rest)?;
    (0..count).map(|_| take(rest)).collect()
}

pub(crate) fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    rest.split_off(..N)?.try_into().ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
