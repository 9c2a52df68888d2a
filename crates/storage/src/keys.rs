//! Keys: every key starts with its shard's number, so one range of each keyspace is one shard.

/// A shard's number in this store; never reused after its database is dropped.
pub type ShardNumber = u32;

pub const SHARD_LEN: usize = 4;

pub fn id_key_into(shard: ShardNumber, id: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&shard.to_be_bytes());
    out.extend_from_slice(id);
}

pub fn id_key(shard: ShardNumber, id: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(SHARD_LEN + id.len());
    id_key_into(shard, id, &mut k);
    k
}

/// Returns the key of a seq in by-seq, bodies, superseded or purges.
pub fn seq_key(shard: ShardNumber, seq: u64) -> [u8; 12] {
    let mut k = [0; 12];
    k[..4].copy_from_slice(&shard.to_be_bytes());
    k[4..].copy_from_slice(&seq.to_be_bytes());
    k
}

/// Returns the seq in a key of by-seq, bodies, superseded or purges.
pub fn seq_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[SHARD_LEN..SHARD_LEN + 8].try_into().unwrap_or([0; 8]))
}

/// Returns the first key after every key of the shard.
pub fn shard_end(shard: ShardNumber) -> Vec<u8> {
    match shard.checked_add(1) {
        Some(n) => n.to_be_bytes().to_vec(),
        None => vec![0xff; SHARD_LEN + 1],
    }
}

/// Keys of the `meta` keyspace: one letter for the kind, then the name.
pub mod meta {
    use super::ShardNumber;

    pub fn shard(n: ShardNumber) -> [u8; 5] {
        let mut k = [b's'; 5];
        k[1..].copy_from_slice(&n.to_be_bytes());
        k
    }

    pub const DATABASE: u8 = b'd';
    pub const NEXT_SHARD: &[u8] = b"n";
    pub const FORMAT: &[u8] = b"f";
    pub const DROPPED: u8 = b'x';
    /// Contents that were started and have no reference yet.
    pub const UPLOAD: u8 = b'u';
    /// Contents that are kept without a reference.
    pub const PINNED: u8 = b'p';
    pub const NEXT_CONTENT: &[u8] = b"v";
    /// Marks that the total size of contents is maintained, unlike in stores of early versions.
    pub const CONTENTS_COUNTED: &[u8] = b"b";

    pub fn database(name: &str) -> Vec<u8> {
        let mut k = vec![DATABASE];
        k.extend_from_slice(name.as_bytes());
        k
    }

    /// Indexes of a shard, by signature; the value is the index's number.
    pub const INDEX: u8 = b'i';
    pub const SIGNATURE_LEN: usize = 16;

    pub fn indexes(owner: ShardNumber) -> [u8; 5] {
        let mut k = shard(owner);
        k[0] = INDEX;
        k
    }

    pub fn index(owner: ShardNumber, signature: &[u8; SIGNATURE_LEN]) -> Vec<u8> {
        let mut k = indexes(owner).to_vec();
        k.extend_from_slice(signature);
        k
    }

    /// Returns the key of an index's state.
    pub fn index_state(n: ShardNumber) -> [u8; 5] {
        let mut k = shard(n);
        k[0] = b'm';
        k
    }

    /// Rows of slots: the slot's number, a letter for the kind, then an identifier.
    pub const SLOT: u8 = b'l';

    pub fn slot(n: u16) -> [u8; 3] {
        let mut k = [SLOT; 3];
        k[1..].copy_from_slice(&n.to_be_bytes());
        k
    }

    /// Time bins of a shard.
    pub const TIME_SEQ: u8 = b't';

    pub fn time_seq(n: ShardNumber) -> [u8; 5] {
        let mut k = shard(n);
        k[0] = TIME_SEQ;
        k
    }

    /// The seq up to which the deleted documents of a shard were purged automatically.
    pub const PURGED_TO: u8 = b'a';

    pub fn purged_to(n: ShardNumber) -> [u8; 5] {
        let mut k = shard(n);
        k[0] = PURGED_TO;
        k
    }

    pub fn dropped(n: ShardNumber) -> [u8; 5] {
        let mut k = shard(n);
        k[0] = DROPPED;
        k
    }
}
