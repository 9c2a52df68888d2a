//! Versions of records: bytes that older programs wrote, and how a later version comes into force.

use cluster::Generation;
use cluster::record::{
    Agreement, Announced, Announcement, Body, ChangeRecord, DatabaseWork, EditRecord, FileRecord,
    RecordError, RecordVersion, RecordVersions, Request, Stamp, Work,
};
use document::{Attachment, DocId, Encoding, Rev, RevHash};

const V1: RecordVersion = RecordVersion::V1;
const V2: RecordVersion = RecordVersion::V2;

const GENERATION: Generation = Generation { number: 3, by: 7 };
const AWAIT_1: &str =
    "0107070707070707070707070707070707ac02030770bc3afdc7aa14f77d00a6105f018ac86105";
const ENTRY_1: &str = "0107070707070707070707070707070707ac02030723c66d783e24c2ebb3ebd90bcccb187965010b0c0100000000000000000000000000000000000000006e277b22646f223a2272756e73222c226e6f646573223a5b312c325d2c226368616e676573223a347d";
const AWAIT_2: &str =
    "0207070707070707070707070707070707ac02030752f04141ac792abf34ded4acddaa3fda6105";
const ENTRY_2: &str = "0207070707070707070707070707070707ac02030794c2134d27a7f9deea0d767769a9f22965010b0c0100000000000000000000000000000000000000006e277b22646f223a2272756e73222c226e6f646573223a5b312c325d2c226368616e676573223a347d";

fn stamp(known: RecordVersion, written: RecordVersion) -> Stamp {
    let versions = RecordVersions::new(known);
    versions.raise(written);
    Stamp {
        cluster: [7; 16],
        key: [9; 32],
        slot: 300,
        versions,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16);
    digits.map(|digits| byte(digits).unwrap()).collect()
}

fn request(work: Work) -> Request {
    Request {
        gateway: 11,
        counter: 12,
        databases: vec![DatabaseWork {
            database: [0; 16],
            since: 0,
            revs_limit: 0,
            purged_infos_limit: 0,
            leaves_max: None,
            designs: 0,
            work,
        }],
    }
}

fn bodies() -> [Body; 2] {
    let entry = br#"{"do":"runs","nodes":[1,2],"changes":4}"#;
    let request = request(Work::Entry(entry.to_vec()));
    [Body::Await { version: 5 }, Body::Requests(vec![request])]
}

/// An edit with an attachment, whose bytes may be elsewhere.
fn edit(content: Option<Vec<u8>>) -> EditRecord {
    let attachment = Attachment {
        name: "a".into(),
        content_type: "text/plain".into(),
        md5: [1; 16],
        content: [2; 32],
        length: 3,
        stored_length: 3,
        encoding: Encoding::Identity,
        length_unsure: false,
        revpos: None,
    };
    EditRecord {
        id: DocId::new("doc").unwrap(),
        deleted: false,
        body: b"{}".to_vec(),
        files: vec![FileRecord {
            attachment,
            content,
        }],
        change: ChangeRecord::Interactive {
            parent: None,
            rev: Rev {
                generation: 1,
                hash: RevHash::Md5([1; 16]),
            },
            body_term: None,
        },
    }
}

#[test]
fn records_of_each_version_are_these_bytes() {
    for (written, expected) in [(V1, [AWAIT_1, ENTRY_1]), (V2, [AWAIT_2, ENTRY_2])] {
        let stamp = stamp(V2, written);
        for (body, expected) in bodies().into_iter().zip(expected) {
            assert_eq!(hex(&stamp.write(GENERATION, &body)), expected);
            let record = stamp.read(&bytes(expected)).unwrap();
            assert_eq!((record.generation, record.body), (GENERATION, body));
        }
    }
}

/// Also where a node that does not know that version 3 is in force appends it for another one.
#[test]
fn a_record_that_names_a_content_has_version_3() {
    let stamp = stamp(RecordVersion::LATEST, V1);
    for (content, version) in [(Some(vec![7; 3]), 1), (None, 3)] {
        let request = request(Work::Edits(vec![edit(content)]));
        let encoded = request.encoded();
        let record = stamp.write_requests(GENERATION, &[&encoded]);
        assert_eq!(record[0], version);
        let part = Body::Part {
            gateway: 11,
            counter: 12,
            index: 0,
            count: 2,
            bytes: encoded.bytes[..5].to_vec(),
        };
        let part = stamp.write_needing(encoded.needs, GENERATION, &part);
        assert_eq!(part[0], version);
        let body = Body::Requests(vec![request]);
        assert_eq!(stamp.write(GENERATION, &body), record);
        assert_eq!(stamp.read(&record).unwrap().body, body);
    }
}

#[test]
fn a_program_reads_its_version_and_older_ones() {
    let old = stamp(V1, V1);
    for record in [AWAIT_1, ENTRY_1] {
        assert!(old.read(&bytes(record)).is_ok());
    }
    for record in [AWAIT_2, ENTRY_2] {
        let refused = old.read(&bytes(record)).unwrap_err();
        assert_eq!(
            refused,
            RecordError::Version {
                found: 2,
                known: V1
            }
        );
        assert!(refused.to_string().contains("update this node"));
    }
    // Version 0 is none.
    let mut none = bytes(AWAIT_1);
    none[0] = 0;
    assert_eq!(old.read(&none), Err(RecordError::Damaged));
    assert!(RecordVersion::try_from(0).is_err());
}

#[test]
fn the_version_that_is_written_is_never_lowered() {
    let versions = RecordVersions::new(V2);
    assert_eq!(versions.written(), V1);
    let shared = versions.clone();
    versions.raise(V2);
    versions.raise(V1);
    assert_eq!(shared.written(), V2);
}

#[test]
#[should_panic(expected = "cannot read")]
fn a_program_does_not_write_what_it_cannot_read() {
    RecordVersions::new(V1).raise(V2);
}

fn announce(agreement: &mut Agreement, node: u64, version: RecordVersion) -> Announced {
    let next = agreement.next_announcement(node, version);
    agreement.announce(node, next)
}

#[test]
fn a_version_is_raised_once_all_members_have_announced_it() {
    let mut agreement = Agreement::default();
    assert_eq!(agreement.in_force(), V1);
    assert_eq!(agreement.next([]), None);
    for node in [1, 2] {
        assert_eq!(announce(&mut agreement, node, V2), Announced::Recorded);
    }
    assert_eq!(agreement.next([1, 2]), Some(V2));
    // The third one may be down.
    assert_eq!(agreement.next([1, 2, 3]), None);
    assert!(!agreement.raise(V2, [1, 2, 3]));
    assert!(!agreement.raise(V2, []));
    announce(&mut agreement, 3, V2);
    assert!(agreement.raise(V2, [1, 2, 3]));
    assert!(!agreement.raise(V2, [1, 2, 3]));
    assert!(!agreement.raise(V1, [1, 2, 3]));
    assert_eq!(agreement.in_force(), V2);
    assert_eq!(announce(&mut agreement, 2, V1), Announced::TooOld);
    assert_eq!(agreement.known(2), V2);
}

#[test]
fn a_late_announcement_has_no_effect() {
    let mut agreement = Agreement::default();
    let first = agreement.next_announcement(1, V2);
    assert_eq!(first.number, 1);
    assert_eq!(agreement.announce(1, first), Announced::Recorded);
    assert_eq!(announce(&mut agreement, 1, V1), Announced::Recorded);
    assert_eq!(agreement.announce(1, first), Announced::Late);
    assert_eq!(agreement.known(1), V1);
    assert!(!agreement.raise(V2, [1]));
    assert!(agreement.forget(1));
    assert!(!agreement.forget(1));
    let none: Option<Announcement> = None;
    assert_eq!(agreement.announcement(1), none);
}
