//! Messages between replicas as bytes.
//!
//! ```text
//! version, kind, body
//! ```
//!
//! Numbers are LEB128, epochs 4 bytes. The connection authenticates the sender, and protects the
//! bytes.

use document::varint::{put, take};

use crate::record::{
    put_generation, put_nodes, put_position, take_generation, take_nodes, take_position,
};
use crate::replica::{Message, put_begun, put_fence, take_begun, take_fence};

const VERSION: u8 = 1;

const DURABLE: u8 = b'd';
const ASK_FENCE: u8 = b'f';
const FENCE_ANSWER: u8 = b'F';
const ASK_POSITION: u8 = b'p';
const POSITION_IS: u8 = b'P';
const SEAL: u8 = b's';
const SEALED: u8 = b'S';
const SEAL_REFUSED: u8 = b'R';
const BEGUN: u8 = b'B';
const ASK_BEGUN: u8 = b'b';
const ASK_COPY: u8 = b'c';
const COPY_GRANTED: u8 = b'C';

impl Message {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.kind()];
        match self {
            Message::Durable { position, stable } => {
                put_position(position, &mut out);
                put(*stable, &mut out);
            }
            Message::AskFence(fence) => put_fence(fence, &mut out),
            Message::FenceAnswer { fence, promised } => {
                put_fence(fence, &mut out);
                out.push(u8::from(*promised));
            }
            Message::AskPosition { round } => put(*round, &mut out),
            Message::PositionIs {
                round,
                generation,
                next_offset,
            } => {
                put(*round, &mut out);
                put_generation(*generation, &mut out);
                put(*next_offset, &mut out);
            }
            Message::Seal(generation) | Message::SealRefused { sealed: generation } => {
                put_generation(*generation, &mut out);
            }
            Message::Sealed {
                ballot,
                position,
                members,
            } => {
                put_generation(*ballot, &mut out);
                put_position(position, &mut out);
                put_nodes(members, &mut out);
            }
            Message::Begun(begun) => put_begun(begun, &mut out),
            Message::AskBegun => {}
            Message::AskCopy {
                position,
                sealed,
                waited,
            } => {
                put_position(position, &mut out);
                put_generation(*sealed, &mut out);
                put(u64::from(*waited), &mut out);
            }
            Message::CopyGranted { position, sealed } => {
                put_position(position, &mut out);
                put_generation(*sealed, &mut out);
            }
        }
        out
    }

    /// Decodes it; `None` for invalid bytes, or those of a newer version.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let mut rest = bytes;
        if *rest.split_off_first()? != VERSION {
            return None;
        }
        let kind = *rest.split_off_first()?;
        let message = decode_kind(kind, &mut rest)?;
        rest.is_empty().then_some(message)
    }

    fn kind(&self) -> u8 {
        match self {
            Message::Durable { .. } => DURABLE,
            Message::AskFence(_) => ASK_FENCE,
            Message::FenceAnswer { .. } => FENCE_ANSWER,
            Message::AskPosition { .. } => ASK_POSITION,
            Message::PositionIs { .. } => POSITION_IS,
            Message::Seal(_) => SEAL,
            Message::Sealed { .. } => SEALED,
            Message::SealRefused { .. } => SEAL_REFUSED,
            Message::Begun(_) => BEGUN,
            Message::AskBegun => ASK_BEGUN,
            Message::AskCopy { .. } => ASK_COPY,
            Message::CopyGranted { .. } => COPY_GRANTED,
        }
    }
}

fn decode_kind(kind: u8, rest: &mut &[u8]) -> Option<Message> {
    Some(match kind {
        DURABLE => Message::Durable {
            position: take_position(rest)?,
            stable: take(rest)?,
        },
        ASK_FENCE => Message::AskFence(take_fence(rest)?),
        FENCE_ANSWER => Message::FenceAnswer {
            fence: take_fence(rest)?,
            promised: match rest.split_off_first()? {
                0 => false,
                1 => true,
                _ => return None,
            },
        },
        ASK_POSITION => Message::AskPosition { round: take(rest)? },
        POSITION_IS => Message::PositionIs {
            round: take(rest)?,
            generation: take_generation(rest)?,
            next_offset: take(rest)?,
        },
        SEAL => Message::Seal(take_generation(rest)?),
        SEALED => Message::Sealed {
            ballot: take_generation(rest)?,
            position: take_position(rest)?,
            members: take_nodes(rest)?,
        },
        SEAL_REFUSED => Message::SealRefused {
            sealed: take_generation(rest)?,
        },
        BEGUN => Message::Begun(Box::new(take_begun(rest)?)),
        ASK_BEGUN => Message::AskBegun,
        ASK_COPY => Message::AskCopy {
            position: take_position(rest)?,
            sealed: take_generation(rest)?,
            waited: u32::try_from(take(rest)?).ok()?,
        },
        COPY_GRANTED => Message::CopyGranted {
            position: take_position(rest)?,
            sealed: take_generation(rest)?,
        },
        _ => return None,
    })
}
