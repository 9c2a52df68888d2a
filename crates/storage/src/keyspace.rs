//! Keyspaces, and the engine's options for each.

use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, Options};

/// Shorter values of `attachments` stay in its tables.
const ATTACHMENT_BLOB_BYTES_MIN: u64 = 4 << 10;
const ATTACHMENT_BLOB_FILE_BYTES: u64 = 256 << 20;
/// The share of the files, oldest first, from which a compaction moves what is still needed.
pub(crate) const BLOB_GC_AGE_CUTOFF: f64 = 0.25;

/// The catalogue's memtable size, in bytes.
pub(crate) const META_BUFFER_BYTES: usize = 8 << 20;

/// A column family. One per kind of data, never one per database: their cost is quadratic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keyspace {
    /// The node's catalogue and the shards' counters.
    Meta,
    /// Records of documents, by id.
    ById,
    /// Changes, by seq, with bodies that are short.
    BySeq,
    /// Bodies too long for by-seq, under the seq of their row.
    Bodies,
    /// Seqs of by-seq rows that no longer list their document.
    Superseded,
    /// Local documents, by id.
    Local,
    /// Purges, by purge seq.
    Purges,
    /// The shards' summary trees.
    Summary,
    /// Rows of indexes, by an index's number.
    IndexRows,
    /// The rows of an index by document.
    IndexBack,
    /// The summary trees of indexes.
    IndexBlocks,
    /// Contents of attachments, and their references.
    Attachments,
}

impl Keyspace {
    /// All of them, in the order of the variants.
    pub const ALL: [Keyspace; 12] = [
        Keyspace::Meta,
        Keyspace::ById,
        Keyspace::BySeq,
        Keyspace::Bodies,
        Keyspace::Superseded,
        Keyspace::Local,
        Keyspace::Purges,
        Keyspace::Summary,
        Keyspace::IndexRows,
        Keyspace::IndexBack,
        Keyspace::IndexBlocks,
        Keyspace::Attachments,
    ];

    /// Their number.
    pub(crate) const COUNT: usize = Keyspace::ALL.len();

    /// The keyspaces whose keys start with the number of a shard or index.
    pub const SHARDED: [Keyspace; 11] = [
        Keyspace::ById,
        Keyspace::BySeq,
        Keyspace::Bodies,
        Keyspace::Superseded,
        Keyspace::Local,
        Keyspace::Purges,
        Keyspace::Summary,
        Keyspace::IndexRows,
        Keyspace::IndexBack,
        Keyspace::IndexBlocks,
        Keyspace::Attachments,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Keyspace::Meta => "default",
            Keyspace::ById => "by_id",
            Keyspace::BySeq => "by_seq",
            Keyspace::Bodies => "bodies",
            Keyspace::Superseded => "superseded",
            Keyspace::Local => "local",
            Keyspace::Purges => "purges",
            Keyspace::Summary => "summary",
            Keyspace::IndexRows => "index_rows",
            Keyspace::IndexBack => "index_back",
            Keyspace::IndexBlocks => "index_blocks",
            Keyspace::Attachments => "attachments",
        }
    }
}

fn table_options(cache: &Cache, block_bytes: usize, bloom: bool) -> BlockBasedOptions {
    let mut t = BlockBasedOptions::default();
    t.set_block_cache(cache);
    t.set_block_size(block_bytes);
    t.set_format_version(6);
    t.set_cache_index_and_filter_blocks(true);
    t.set_pin_l0_filter_and_index_blocks_in_cache(true);
    if bloom {
        t.set_bloom_filter(10.0, false);
        t.set_whole_key_filtering(true);
    }
    t
}

/// The total size of memtables for which [`options`] sets the size of each, in bytes.
const BUFFERS_BYTES: usize = 96 << 20;

/// Returns the memtable size of a keyspace of documents, in bytes, when memtables are flushed at this
/// total; `None` for others. Documents in no order are merged with the whole level below for each
/// few memtables: with larger ones a long load rewrites less.
pub(crate) fn document_buffer_bytes(k: Keyspace, total_bytes: usize) -> Option<usize> {
    let is_of_documents = matches!(k, Keyspace::ById | Keyspace::BySeq | Keyspace::Bodies);
    let factor = total_bytes as f64 / BUFFERS_BYTES as f64;
    (is_of_documents && factor > 1.0).then(|| (of_kind(k).2 as f64 * factor) as usize)
}

/// Returns the block size of a keyspace, whether it has filters, and its memtable size, in bytes.
fn of_kind(k: Keyspace) -> (usize, bool, usize) {
    match k {
        Keyspace::ById => (8 << 10, true, 32 << 20),
        Keyspace::BySeq => (16 << 10, false, 64 << 20),
        Keyspace::Bodies => (32 << 10, false, 32 << 20),
        Keyspace::Local => (8 << 10, true, 8 << 20),
        Keyspace::Meta => (8 << 10, true, META_BUFFER_BYTES),
        Keyspace::IndexRows => (8 << 10, false, 32 << 20),
        Keyspace::IndexBack => (8 << 10, true, 16 << 20),
        Keyspace::Attachments => (16 << 10, true, 8 << 20),
        Keyspace::Superseded | Keyspace::Purges | Keyspace::Summary | Keyspace::IndexBlocks => {
            (16 << 10, false, 8 << 20)
        }
    }
}

/// Returns the engine's options for a keyspace.
pub(crate) fn options(k: Keyspace, cache: &Cache) -> Options {
    let (block_bytes, bloom, buffer_bytes) = of_kind(k);
    let mut o = Options::default();
    o.set_block_based_table_factory(&table_options(cache, block_bytes, bloom));
    o.set_write_buffer_size(buffer_bytes);
    o.set_max_write_buffer_number(3);
    o.set_level_compaction_dynamic_level_bytes(true);
    o.set_compression_type(DBCompressionType::Lz4);
    o.set_bottommost_compression_type(DBCompressionType::Zstd);
    if k == Keyspace::Attachments {
        // Chunks go to files of their own, so that compactions only move references to them; they
        // are compressed already or not worth it.
        o.set_compression_type(DBCompressionType::None);
        o.set_bottommost_compression_type(DBCompressionType::None);
        o.set_enable_blob_files(true);
        o.set_min_blob_size(ATTACHMENT_BLOB_BYTES_MIN);
        o.set_blob_file_size(ATTACHMENT_BLOB_FILE_BYTES);
        o.set_enable_blob_gc(true);
        o.set_blob_gc_age_cutoff(BLOB_GC_AGE_CUTOFF);
    }
    if bloom {
        o.set_memtable_prefix_bloom_ratio(0.02);
        o.set_memtable_whole_key_filtering(true);
    }
    o
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtables_of_documents_grow_with_the_total() {
        let of = |k, mib: usize| document_buffer_bytes(k, mib << 20);
        assert_eq!([of(Keyspace::ById, 8), of(Keyspace::ById, 96)], [None; 2]);
        assert_eq!(of(Keyspace::IndexRows, 256), None);
        let grown = [Keyspace::ById, Keyspace::BySeq].map(|k| of(k, 192).unwrap());
        assert_eq!(grown, [64 << 20, 128 << 20]);
    }
}
