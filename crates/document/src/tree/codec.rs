//! The stored form of a revision tree.
//!
//! ```text
//! tree     = varint(node count × 2 + is chain) chain | varint(node count × 2) general ; an empty tree is one zero byte
//! chain    = varint(generation of the root) node*         ; root first, each the parent of the next
//! general  = (varint(generation − that of the node before) varint(parent) node)*
//!                                                         ; ascending; parent: 0 = root, else own index − parent's
//! node     = flags hash body?
//! flags    = one byte: 1 deleted, 2 has a body, 4 hash is text
//! hash     = 16 bytes | varint(length) bytes              ; the latter with flag 4
//! body     = varint(seq) varint(size)                     ; with flag 2
//! varint   = 7 bits a byte, lowest first, high bit set on all bytes but the last
//! ```

use super::{RevNode, RevTree, Revision};
use crate::rev::{GENERATION_MAX, RevHash};
use crate::varint;

const MD5_LENGTH: usize = 16;

const DELETED: u8 = 1;
const HAS_BODY: u8 = 2;
const TEXT_HASH: u8 = 4;
const HAS_BODY_DELETED: u8 = HAS_BODY | DELETED;

/// The bytes are not an encoded revision tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt revision tree")]
pub struct CorruptTree;

impl RevTree {
    /// Appends the stored form of the tree.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let is_chain = self.is_chain();
        varint::put((self.nodes.len() as u64) << 1 | u64::from(is_chain), out);
        if is_chain {
            varint::put(self.nodes[0].generation, out);
            for node in &self.nodes {
                encode_node(node, out);
            }
            return;
        }
        let mut generation = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            varint::put(node.generation - generation, out);
            generation = node.generation;
            varint::put(
                node.parent
                    .map_or(0, |parent| index as u64 - u64::from(parent)),
                out,
            );
            encode_node(node, out);
        }
    }

    /// Decodes the output of [`RevTree::encode`].
    ///
    /// # Errors
    /// [`CorruptTree`] for any bytes that `encode` does not write, including those of trees that break
    /// an invariant.
    pub fn decode(bytes: &[u8]) -> Result<Self, CorruptTree> {
        let (tree, rest) = Self::decode_prefix(bytes)?;
        if rest.is_empty() {
            Ok(tree)
        } else {
            Err(CorruptTree)
        }
    }

    /// Decodes a tree followed by other bytes, which are returned too.
    ///
    /// # Errors
    /// See [`RevTree::decode`].
    pub fn decode_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), CorruptTree> {
        let mut input = Reader(bytes);
        let (count, is_chain) = input.head()?;
        let nodes = if is_chain {
            input.chain(count)?
        } else {
            input.general(count)?
        };
        if nodes
            .iter()
            .any(|node| node.is_leaf && node.revision.is_none())
        {
            return Err(CorruptTree);
        }
        Ok((Self { nodes }, input.0))
    }

    /// Returns what [`RevTree::leaf_bytes`] of a stored tree returns, without building the tree.
    ///
    /// # Errors
    /// [`CorruptTree`] where the bytes cannot be read. Trees that break an invariant may pass.
    pub fn stored_leaf_bytes(bytes: &[u8]) -> Result<u64, CorruptTree> {
        let mut input = Reader(bytes);
        let sum = match input.head()? {
            (count, true) => input.chain_leaf_bytes(count)?,
            (count, false) => input.general_leaf_bytes(count)?,
        };
        match input.0.is_empty() {
            true => Ok(sum),
            false => Err(CorruptTree),
        }
    }

    fn is_chain(&self) -> bool {
        !self.nodes.is_empty()
            && self
                .nodes
                .iter()
                .enumerate()
                .all(|(index, node)| node.parent.map(|at| at as usize) == index.checked_sub(1))
    }
}

fn encode_node(node: &RevNode, out: &mut Vec<u8>) {
    // Equal hashes are written alike, whichever variant holds them.
    let text = if node.hash.as_bytes().len() == MD5_LENGTH {
        0
    } else {
        TEXT_HASH
    };
    let body = node.revision.map_or(0, |revision| {
        HAS_BODY | if revision.deleted { DELETED } else { 0 }
    });
    out.push(text | body);
    if text != 0 {
        varint::put(node.hash.as_bytes().len() as u64, out);
    }
    out.extend_from_slice(node.hash.as_bytes());
    if let Some(revision) = node.revision {
        varint::put(revision.seq, out);
        varint::put(revision.size, out);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, CorruptTree> {
        let (&byte, rest) = self.0.split_first().ok_or(CorruptTree)?;
        self.0 = rest;
        Ok(byte)
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], CorruptTree> {
        let length = usize::try_from(length).map_err(|_| CorruptTree)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(CorruptTree)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn varint(&mut self) -> Result<u64, CorruptTree> {
        varint::take(&mut self.0).ok_or(CorruptTree)
    }

    /// Reads the number of nodes, and whether they are a chain.
    fn head(&mut self) -> Result<(usize, bool), CorruptTree> {
        let head = self.varint()?;
        let count = u32::try_from(head >> 1).map_err(|_| CorruptTree)? as usize;
        // A node takes at least two bytes, so a false count cannot make the caller reserve much.
        if count > self.0.len() / 2 {
            return Err(CorruptTree);
        }
        Ok((count, head & 1 == 1))
    }

    fn chain(&mut self, count: usize) -> Result<Vec<RevNode>, CorruptTree> {
        if count == 0 {
            return Err(CorruptTree);
        }
        let root = self.varint()?;
        // Most trees are read in order to add a revision.
        let mut nodes = Vec::with_capacity(count + 1);
        for index in 0..count {
            let parent = index.checked_sub(1).map(|parent| parent as u32);
            nodes.push(self.node(
                root.saturating_add(index as u64),
                parent,
                index + 1 == count,
            )?);
        }
        Ok(nodes)
    }

    fn general(&mut self, count: usize) -> Result<Vec<RevNode>, CorruptTree> {
        let mut nodes: Vec<RevNode> = Vec::with_capacity(count + 1);
        let mut generation = 0_u64;
        for index in 0..count {
            generation = generation.checked_add(self.varint()?).ok_or(CorruptTree)?;
            let parent = match self.varint()? {
                0 => None,
                back => Some(
                    index
                        .checked_sub(usize::try_from(back).map_err(|_| CorruptTree)?)
                        .ok_or(CorruptTree)?,
                ),
            };
            if let Some(parent) = parent {
                let parent = &mut nodes[parent];
                if parent.generation.checked_add(1) != Some(generation) {
                    return Err(CorruptTree);
                }
                parent.is_leaf = false;
            }
            let node = self.node(generation, parent.map(|parent| parent as u32), true)?;
            if nodes.last().is_some_and(|last| last.rev() >= node.rev()) {
                return Err(CorruptTree);
            }
            nodes.push(node);
        }
        let tree = RevTree { nodes };
        // A chain has its own form.
        if tree.is_chain() {
            Err(CorruptTree)
        } else {
            Ok(tree.nodes)
        }
    }

    /// Passes a chain, and returns the length of its leaf's body.
    fn chain_leaf_bytes(&mut self, count: usize) -> Result<u64, CorruptTree> {
        let _root = self.varint()?;
        let mut last = None;
        for _ in 0..count {
            last = self.node_bytes()?;
        }
        last.ok_or(CorruptTree)
    }

    /// Passes nodes in any order, and returns the length of the bodies of their leaves.
    fn general_leaf_bytes(&mut self, count: usize) -> Result<u64, CorruptTree> {
        let mut leaves: Vec<Option<u64>> = Vec::with_capacity(count);
        for index in 0..count {
            let _generation = self.varint()?;
            let back = usize::try_from(self.varint()?).map_err(|_| CorruptTree)?;
            if back > 0 {
                let parent = index.checked_sub(back).ok_or(CorruptTree)?;
                leaves[parent] = None;
            }
            leaves.push(self.node_bytes()?);
        }
        Ok(leaves.into_iter().flatten().fold(0, u64::saturating_add))
    }

    /// Passes a node, and returns the length of its body, if it has one.
    fn node_bytes(&mut self) -> Result<Option<u64>, CorruptTree> {
        let flags = self.byte()?;
        let length = match flags & TEXT_HASH {
            0 => MD5_LENGTH as u64,
            _ => self.varint()?,
        };
        self.bytes(length)?;
        Ok(self.revision(flags)?.map(|revision| revision.size))
    }

    fn node(
        &mut self,
        generation: u64,
        parent: Option<u32>,
        is_leaf: bool,
    ) -> Result<RevNode, CorruptTree> {
        if generation > GENERATION_MAX {
            return Err(CorruptTree);
        }
        let flags = self.byte()?;
        let hash = self.hash(flags)?;
        let revision = self.revision(flags)?;
        Ok(RevNode {
            generation,
            hash,
            revision,
            parent,
            is_leaf,
        })
    }

    fn hash(&mut self, flags: u8) -> Result<RevHash, CorruptTree> {
        if flags & TEXT_HASH == 0 {
            let (hash, rest) = self.0.split_first_chunk().ok_or(CorruptTree)?;
            self.0 = rest;
            return Ok(RevHash::Md5(*hash));
        }
        let length = self.varint()?;
        if length == MD5_LENGTH as u64 {
            return Err(CorruptTree);
        }
        Ok(RevHash::Text(self.bytes(length)?.into()))
    }

    fn revision(&mut self, flags: u8) -> Result<Option<Revision>, CorruptTree> {
        match flags & !TEXT_HASH {
            0 => Ok(None),
            HAS_BODY | HAS_BODY_DELETED => {
                let seq = self.varint()?;
                let size = self.varint()?;
                Ok(Some(Revision {
                    deleted: flags & DELETED != 0,
                    seq,
                    size,
                }))
            }
            _ => Err(CorruptTree),
        }
    }
}
