//! Messages in a stream of bytes: four bytes of length, least significant first, and the message.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use thiserror::Error;

/// The longest message.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

pub(crate) const LENGTH_BYTES: usize = 4;

/// A stream that is not one of messages.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// A length beyond [`MESSAGE_BYTES_MAX`].
    #[error("a message of {0} bytes, where at most {MESSAGE_BYTES_MAX} are allowed")]
    TooLong(usize),
}

/// Appends a message of at most [`MESSAGE_BYTES_MAX`] bytes.
pub fn encode(message: &[u8], into: &mut BytesMut) {
    debug_assert!(message.len() <= MESSAGE_BYTES_MAX);
    into.put_u32_le(message.len() as u32);
    into.put_slice(message);
}

/// Finds messages in bytes that come in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Takes a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Takes the next message, if it is there as a whole.
    ///
    /// # Errors
    /// [`FrameError`]; the stream is of no use then.
    pub fn take(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(FrameError::TooLong(length));
        }
        if self.buffer.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_they_are_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            cuts in prop::collection::vec(1_usize..200, 1..40),
        ) {
            let mut stream = BytesMut::new();
            for message in &messages {
                encode(message, &mut stream);
            }
            let (mut decoder, mut found) = (Decoder::default(), vec![]);
            let mut cuts = cuts.iter().cycle();
            while !stream.is_empty() {
                let cut = (*cuts.next().unwrap()).min(stream.len());
                decoder.push(&stream.split_to(cut));
                while let Some(message) = decoder.take().unwrap() {
                    found.push(message.to_vec());
                }
            }
            prop_assert_eq!(found, messages);
        }

        #[test]
        fn any_bytes_are_messages_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            let mut total = 0;
            while let Ok(Some(message)) = decoder.take() {
                total += LENGTH_BYTES + message.len();
            }
            prop_assert!(total <= bytes.len());
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_the_message_is_there() {
        let mut decoder = Decoder::default();
        decoder.push(&(MESSAGE_BYTES_MAX as u32 + 1).to_le_bytes());
        let too_long = FrameError::TooLong(MESSAGE_BYTES_MAX + 1);
        assert_eq!(decoder.take(), Err(too_long));
    }
}
