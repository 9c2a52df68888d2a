//! Numbers and bytes in messages and on disk. Numbers are little-endian.

use bytes::{Buf, BufMut, Bytes, TryGetError};

/// Bytes that are not a bundle of this form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end too early.
    #[error("the bytes end too early: {0}")]
    Short(#[from] TryGetError),
    /// A number has an unknown meaning.
    #[error("the bytes have another form")]
    Form,
}

pub(crate) type Result<T> = std::result::Result<T, DecodeError>;

/// Appends a count.
pub(crate) fn put_count(count: usize, out: &mut Vec<u8>) {
    // A message has at most 4 MiB.
    out.put_u32_le(count as u32);
}

/// Appends bytes with their length.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_count(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Takes bytes without a copy.
pub(crate) fn get_bytes(bytes: &mut Bytes) -> Result<Bytes> {
    let length = bytes.try_get_u32_le()? as usize;
    if length > bytes.len() {
        return Err(DecodeError::Form);
    }
    Ok(bytes.split_to(length))
}

/// Appends a list of numbers.
pub(crate) fn put_ids(ids: &[u64], out: &mut Vec<u8>) {
    put_count(ids.len(), out);
    for id in ids {
        out.put_u64_le(*id);
    }
}

/// Reads a list of numbers.
pub(crate) fn get_ids(bytes: &mut impl Buf) -> Result<Vec<u64>> {
    let mut ids = vec![];
    for _ in 0..bytes.try_get_u32_le()? {
        ids.push(bytes.try_get_u64_le()?);
    }
    Ok(ids)
}
