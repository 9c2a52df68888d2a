//! Messages between replicas survive a round trip.

use cluster::position::{Generation, Position};
use cluster::replica::{Fence, GenerationStart, GenerationStartRecord, Message};
use proptest::collection::vec;
use proptest::prelude::*;

fn generation() -> impl Strategy<Value = Generation> {
    any::<(u64, u64)>().prop_map(|(number, by)| Generation { number, by })
}

fn position() -> impl Strategy<Value = Position> {
    (generation(), any::<(u64, i32)>(), any::<[u8; 16]>()).prop_map(
        |(generation, (next_offset, leader_epoch), chain)| Position {
            generation,
            next_offset,
            leader_epoch,
            chain,
        },
    )
}

fn fence() -> impl Strategy<Value = Fence> {
    let numbers = any::<(i32, u64, i32)>();
    (generation(), numbers, any::<[u8; 16]>()).prop_map(
        |(generation, (epoch, offset, last_epoch), chain)| Fence {
            generation,
            epoch,
            offset,
            chain,
            last_epoch,
        },
    )
}

fn begun() -> impl Strategy<Value = GenerationStartRecord> {
    let begin = (generation(), position(), vec(any::<u64>(), 0..6)).prop_map(
        |(generation, base, members)| GenerationStart {
            generation,
            base,
            members,
        },
    );
    (begin, any::<(u64, u64, i32)>(), any::<[u8; 16]>()).prop_map(
        |(begin, (log, offset, epoch), hash)| GenerationStartRecord {
            begin,
            log,
            offset,
            epoch,
            hash,
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (position(), any::<u64>())
            .prop_map(|(position, stable)| Message::Durable { position, stable }),
        fence().prop_map(Message::AskFence),
        (fence(), any::<bool>())
            .prop_map(|(fence, promised)| Message::FenceAnswer { fence, promised }),
        any::<u64>().prop_map(|round| Message::AskPosition { round }),
        (any::<(u64, u64)>(), generation()).prop_map(|((round, next_offset), generation)| {
            Message::PositionIs {
                round,
                generation,
                next_offset,
            }
        }),
        generation().prop_map(Message::Seal),
        (generation(), position(), vec(any::<u64>(), 0..6)).prop_map(
            |(ballot, position, members)| Message::Sealed {
                ballot,
                position,
                members,
            }
        ),
        generation().prop_map(|sealed| Message::SealRefused { sealed }),
        begun().prop_map(|begun| Message::Begun(Box::new(begun))),
        Just(Message::AskBegun),
        (position(), generation(), any::<u32>()).prop_map(|(position, sealed, waited)| {
            Message::AskCopy {
                position,
                sealed,
                waited,
            }
        }),
        (position(), generation())
            .prop_map(|(position, sealed)| Message::CopyGranted { position, sealed }),
    ]
}

proptest! {
    #[test]
    fn a_message_reads_back(message in message(), at: proptest::sample::Index) {
        let mut bytes = message.encode();
        prop_assert_eq!(Message::decode(&bytes[..at.index(bytes.len())]), None);
        prop_assert_eq!(Message::decode(&bytes), Some(message.clone()));
        bytes.push(0);
        prop_assert_eq!(Message::decode(&bytes), None);
    }

    /// Arbitrary bytes from the network cause no panic, and what decodes is encoded alike.
    #[test]
    fn decode_any(bytes: Vec<u8>, message in message(), at: proptest::sample::Index, new: u8) {
        let _ = Message::decode(&bytes);
        let mut damaged = message.encode();
        let at = at.index(damaged.len());
        damaged[at] = new;
        if let Some(other) = Message::decode(&damaged) {
            prop_assert_eq!(other.encode(), damaged);
        }
    }
}
