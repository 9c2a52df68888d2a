//! Records survive a round trip; damaged ones, or those of another cluster, are rejected.

use std::sync::Arc;

use cluster::position::{Generation, Position};
use cluster::record::{
    AROUND_BYTES_MAX, Body, ChangeRecord, DatabaseWork, EditRecord, EncodedRequest, FileRecord,
    PurgeRecord, RecordError, RecordVersion, RecordVersions, Request, Stamp, Work,
};
use cluster::replica::{
    Cursor, Fence, GenerationStart, GenerationStartRecord, Kind, LastRecord, Promises,
};
use document::{Attachment, DocId, Encoding, Rev, RevHash, RevPath};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn stamp() -> Stamp {
    Stamp {
        cluster: [7; 16],
        key: [9; 32],
        slot: 300,
        versions: RecordVersions::new(RecordVersion::LATEST),
    }
}

fn hash() -> impl Strategy<Value = RevHash> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(RevHash::Md5),
        "[a-z]{0,20}".prop_map(|text| RevHash::Text(text.into_bytes().into())),
    ]
}

fn rev() -> impl Strategy<Value = Rev> {
    (any::<u64>(), hash()).prop_map(|(generation, hash)| Rev { generation, hash })
}

fn id() -> impl Strategy<Value = DocId> {
    "(_design/|_local/)?[a-zé]{1,12}".prop_map(|id| DocId::new(&id).expect("an id"))
}

fn change() -> impl Strategy<Value = ChangeRecord> {
    prop_oneof![
        (
            option::of(rev()),
            rev(),
            option::of(vec(any::<u8>(), 0..20))
        )
            .prop_map(|(parent, rev, body_term)| ChangeRecord::Interactive {
                parent,
                rev,
                body_term
            }),
        (any::<u64>(), vec(hash(), 1..5)).prop_map(|(start, ids)| ChangeRecord::Replicated {
            path: RevPath { start, ids }
        }),
        option::of(any::<u64>()).prop_map(|rev| ChangeRecord::Local { rev }),
    ]
}

fn file() -> impl Strategy<Value = FileRecord> {
    let numbers = (any::<u64>(), any::<u64>(), option::of(any::<u64>()));
    let flags = (any::<bool>(), any::<bool>());
    let content = option::of(vec(any::<u8>(), 0..30));
    (
        "[a-z]{0,8}",
        "[a-z/]{0,8}",
        any::<[u8; 16]>(),
        any::<[u8; 32]>(),
        numbers,
        flags,
        content,
    )
        .prop_map(
            |(
                name,
                content_type,
                md5,
                content_id,
                (length, stored_length, revpos),
                (gzip, unsure),
                content,
            )| FileRecord {
                attachment: Attachment {
                    name,
                    content_type,
                    md5,
                    content: content_id,
                    length,
                    stored_length,
                    encoding: if gzip {
                        Encoding::Gzip
                    } else {
                        Encoding::Identity
                    },
                    length_unsure: unsure,
                    revpos,
                },
                content,
            },
        )
}

fn work() -> impl Strategy<Value = Work> {
    let edit = (
        id(),
        any::<bool>(),
        vec(any::<u8>(), 0..60),
        vec(file(), 0..3),
        change(),
    )
        .prop_map(|(id, deleted, body, files, change)| EditRecord {
            id,
            deleted,
            body,
            files,
            change,
        });
    let purge = (id(), vec(rev(), 0..4), any::<[u8; 16]>())
        .prop_map(|(id, revs, uuid)| PurgeRecord { id, revs, uuid });
    prop_oneof![
        vec(edit, 0..5).prop_map(Work::Edits),
        vec(purge, 0..4).prop_map(Work::Purges)
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let database = (
        any::<[u8; 16]>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        work(),
    )
        .prop_map(
            |(database, revs_limit, purged_infos_limit, designs, work)| DatabaseWork {
                database,
                since: designs / 2,
                revs_limit,
                purged_infos_limit,
                leaves_max: matches!(work, Work::Edits(_)).then_some(revs_limit),
                designs,
                work,
            },
        );
    (any::<u64>(), any::<u64>(), vec(database, 0..3)).prop_map(|(gateway, counter, databases)| {
        Request {
            gateway,
            counter,
            databases,
        }
    })
}

fn generation() -> impl Strategy<Value = Generation> {
    (any::<u64>(), any::<u64>()).prop_map(|(number, by)| Generation { number, by })
}

fn position() -> impl Strategy<Value = Position> {
    (generation(), any::<u64>(), any::<i32>(), any::<[u8; 16]>()).prop_map(
        |(generation, next_offset, leader_epoch, chain)| Position {
            generation,
            next_offset,
            leader_epoch,
            chain,
        },
    )
}

fn nodes() -> impl Strategy<Value = Vec<u64>> {
    vec(any::<u64>(), 0..6)
}

fn begin() -> impl Strategy<Value = GenerationStart> {
    (generation(), position(), nodes()).prop_map(|(generation, base, members)| GenerationStart {
        generation,
        base,
        members,
    })
}

fn cursor() -> impl Strategy<Value = Cursor> {
    let last =
        (any::<i32>(), any::<[u8; 16]>()).prop_map(|(epoch, hash)| LastRecord { epoch, hash });
    let begun = (begin(), any::<(u64, u64, i32)>(), any::<[u8; 16]>()).prop_map(
        |(begin, (log, offset, epoch), hash)| {
            Arc::new(GenerationStartRecord {
                begin,
                log,
                offset,
                epoch,
                hash,
            })
        },
    );
    let epochs = vec(any::<(i32, u64)>(), 0..4);
    (
        position(),
        any::<(u64, u64)>(),
        option::of(last),
        epochs,
        nodes(),
        option::of(begun),
    )
        .prop_map(
            |(position, (log, replicas_at), last, epochs, members, begun)| Cursor {
                position,
                log,
                last,
                epochs: Arc::new(epochs),
                members: Arc::new(members),
                replicas_at,
                begun,
            },
        )
}

fn promises() -> impl Strategy<Value = Promises> {
    let fence = (generation(), any::<(i32, u64, i32)>(), any::<[u8; 16]>()).prop_map(
        |(generation, (epoch, offset, last_epoch), chain)| Fence {
            generation,
            epoch,
            offset,
            chain,
            last_epoch,
        },
    );
    (generation(), vec(fence, 0..4)).prop_map(|(sealed, fences)| Promises { sealed, fences })
}

fn body() -> impl Strategy<Value = Body> {
    let database = any::<[u8; 16]>;
    prop_oneof![
        4 => vec(request(), 0..4).prop_map(Body::Requests),
        2 => (any::<(u64, u64, u32, u32)>(), vec(any::<u8>(), 0..200)).prop_map(
            |((gateway, counter, index, count), bytes)| Body::Part { gateway, counter, index, count, bytes }
        ),
        1 => (nodes(), any::<u64>(), any::<i32>())
            .prop_map(|(members, after, epoch)| Body::Replicas { members, after, epoch }),
        1 => begin().prop_map(Body::Begin),
        1 => any::<u64>().prop_map(|version| Body::Await { version }),
        1 => (database(), any::<[u64; 3]>()).prop_map(|(database, [designs, number, follows])| {
            Body::Barrier { database, designs, number, follows }
        }),
    ]
}

proptest! {
    #[test]
    fn a_record_reads_back(generation in generation(), body in body()) {
        let bytes = stamp().write(generation, &body);
        let record = stamp().read(&bytes).expect("it passes");
        prop_assert_eq!(record.generation, generation);
        let is_data = matches!(body, Body::Replicas { .. } | Body::Begin(_));
        prop_assert_eq!(record.header().kind != Kind::Data, is_data);
        prop_assert_eq!(record.body, body);
    }

    #[test]
    fn requests_that_are_encoded_already_make_the_same_record(
        generation in generation(),
        requests in vec(request(), 0..4),
    ) {
        let encoded: Vec<EncodedRequest> = requests.iter().map(Request::encoded).collect();
        for (EncodedRequest { bytes, .. }, request) in encoded.iter().zip(&requests) {
            let read = Request::from_bytes(bytes);
            prop_assert_eq!(read.as_ref(), Some(request));
            prop_assert_eq!(Request::from_bytes(&bytes[..bytes.len() - 1]), None);
        }
        let all: Vec<&EncodedRequest> = encoded.iter().collect();
        let whole = stamp().write(generation, &Body::Requests(requests));
        prop_assert_eq!(&stamp().write_requests(generation, &all), &whole);
        let around = whole.len() - encoded.iter().map(|e| e.bytes.len()).sum::<usize>();
        prop_assert!(around <= AROUND_BYTES_MAX);
    }

    #[test]
    fn a_flipped_bit_or_a_missing_end_is_noticed(
        generation in generation(),
        body in body(),
        at: proptest::sample::Index,
        bit in 0u8..8,
    ) {
        let mut bytes = stamp().write(generation, &body);
        let at = at.index(bytes.len());
        prop_assert!(stamp().read(&bytes[..at]).is_err());
        bytes[at] ^= 1 << bit;
        prop_assert!(stamp().read(&bytes).is_err());
    }

    #[test]
    fn bytes_that_are_no_record_are_refused(bytes: Vec<u8>) {
        prop_assert!(stamp().read(&bytes).is_err());
        // Arbitrary contents cause no panic.
        let _ = (Cursor::decode(&bytes), Promises::decode(&bytes));
    }

    #[test]
    fn what_a_replica_keeps_reads_back(
        cursor in cursor(),
        promises in promises(),
        at: proptest::sample::Index,
    ) {
        let bytes = cursor.encode();
        prop_assert_eq!(Cursor::decode(&bytes[..at.index(bytes.len())]), None);
        prop_assert_eq!(Cursor::decode(&bytes), Some(cursor));
        let bytes = promises.encode();
        prop_assert_eq!(Promises::decode(&bytes[..at.index(bytes.len())]), None);
        prop_assert_eq!(Promises::decode(&bytes), Some(promises));
    }
}

#[test]
fn a_record_of_somebody_else_is_named() {
    let (generation, body) = (Generation::default(), Body::Await { version: 1 });
    let written = |stamp: Stamp| stamp.write(generation, &body);
    let other = Stamp {
        cluster: [8; 16],
        key: [1; 32],
        ..stamp()
    };
    let found = "08".repeat(16);
    assert_eq!(
        stamp().read(&written(other)),
        Err(RecordError::OtherCluster { found })
    );
    let other = Stamp { slot: 4, ..stamp() };
    assert_eq!(
        stamp().read(&written(other)),
        Err(RecordError::OtherSlot { found: 4 })
    );
    let forged = Stamp {
        key: [1; 32],
        ..stamp()
    };
    assert_eq!(stamp().read(&written(forged)), Err(RecordError::Damaged));
    let known = RecordVersion::LATEST;
    let mut newer = written(stamp());
    newer[0] = known.number() + 1;
    let found = newer[0];
    let refused = Err(RecordError::Version { found, known });
    assert_eq!(stamp().read(&newer), refused);
}
