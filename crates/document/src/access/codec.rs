//! The stored forms of revisions and principals.

use super::principal::Principal;
use crate::rev::{Rev, RevHash};
use crate::varint::{put, take, take_slice};

pub(super) fn put_slice(bytes: &[u8], out: &mut Vec<u8>) {
    put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(super) fn put_rev(rev: &Rev, out: &mut Vec<u8>) {
    put(rev.generation, out);
    put_slice(rev.hash.as_bytes(), out);
}

pub(super) fn take_rev(rest: &mut &[u8]) -> Option<Rev> {
    let (generation, hash) = (take(rest)?, take_slice(rest)?);
    let hash = match <[u8; 16]>::try_from(hash) {
        Ok(md5) => RevHash::Md5(md5),
        Err(_) => RevHash::Text(hash.into()),
    };
    Some(Rev { generation, hash })
}

pub(super) fn take_principal(rest: &mut &[u8]) -> Option<Principal> {
    Principal::parse(std::str::from_utf8(take_slice(rest)?).ok()?)
}
