//! The bytes of keys and stored values: a change of any of them is a change of format
//! (docs/src/developers/storage-format.md).

use document::attachment::append_attachments;
use document::{Attachment, Encoding, Rev, RevPath, Revision};

use crate::keys::{self, meta};
use crate::meta::ShardMeta;
use crate::purges;
use crate::record::Record;
use crate::row::{self, Delta};

fn hex(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref().iter();
    bytes.map(|b| format!("{b:02x}")).collect()
}

const MD5: &str = "000102030405060708090a0b0c0d0e0f";

fn path(start: u64, ids: &[&str]) -> RevPath {
    let ids = ids.iter().map(|id| document::RevHash::parse(id)).collect();
    RevPath { start, ids }
}

/// Returns a record with one revision, and one with two branches, one of them deleted, with a
/// history.
fn records() -> (Record, Record) {
    let mut lone = Record {
        seq: 300,
        ..Record::default()
    };
    let revision = |deleted, seq, size| Revision { deleted, seq, size };
    lone.tree.merge(&path(1, &[MD5]), revision(false, 300, 7));
    let mut branched = Record {
        seq: 5,
        ..Record::default()
    };
    branched
        .tree
        .merge(&path(3, &["c", "b", MD5]), revision(false, 5, 1000));
    branched
        .tree
        .merge(&path(2, &["x", MD5]), revision(true, 4, 2));
    (lone, branched)
}

#[test]
fn keys_have_these_bytes() {
    assert_eq!(hex(keys::id_key(258, b"doc")), "00000102646f63");
    assert_eq!(hex(keys::seq_key(1, 515)), "000000010000000000000203");
    assert_eq!(hex(keys::shard_end(255)), "00000100");
    assert_eq!(hex(meta::shard(2)), "7300000002");
    assert_eq!(hex(meta::database("a")), "6461");
    assert_eq!(
        hex(meta::index(2, &[9; 16])),
        format!("6900000002{}", "09".repeat(16))
    );
    assert_eq!(hex(meta::index_state(3)), "6d00000003");
    assert_eq!(hex(meta::dropped(3)), "7800000003");
    assert_eq!(hex(meta::time_seq(4)), "7400000004");
    assert_eq!(hex(meta::purged_to(4)), "6100000004");
    let (_, _, value) = crate::Store::put_purged_to(4, 515);
    assert_eq!(hex(value.unwrap()), "0000000000000203");
    let content = crate::contents::reference(7, &[1; 32], 8, 9);
    assert_eq!(
        hex(content),
        format!("0000000772{}000000080000000000000009", "01".repeat(32))
    );
    assert_eq!(
        hex(crate::contents::upload_key(7, 9)),
        "75000000070000000000000009"
    );
}

#[test]
fn records_have_these_bytes() {
    let (lone, branched) = records();
    let encoded = |record: &Record| {
        let mut out = vec![];
        record.encode(&mut out);
        hex(out)
    };
    assert_eq!(encoded(&lone), format!("00ac020110{MD5}07"));
    assert_eq!(
        encoded(&branched),
        format!(
            "0105030163{}{}{}{}",
            format_args!("08010000{MD5}"),
            "0101040162",
            "00020701780402",
            "010206016305e807"
        )
    );
}

#[test]
fn change_rows_have_these_bytes() {
    let (lone, branched) = records();
    let encoded = |seq, record: &Record, delta, body: Option<&[u8]>| {
        let mut out = vec![];
        row::encode(seq, "doc", &record.tree.leaves(), delta, body, &mut out);
        hex(out)
    };
    let first = Delta {
        live: 1,
        records: 1,
        supersedes: 0,
    };
    assert_eq!(
        encoded(300, &lone, first, Some(br#"{"a":1}"#)),
        format!("510003646f630110{MD5}007b2261223a317d")
    );
    let next = Delta {
        live: 0,
        records: 0,
        supersedes: 4,
    };
    let long = [b' '; row::INLINE_BODY_MAX_BYTES + 1];
    assert_eq!(
        encoded(5, &branched, next, Some(&long)),
        "0a0103646f63030163000104010201788120"
    );
    let purged = Delta {
        live: -1,
        records: -1,
        supersedes: 4,
    };
    assert_eq!(
        encoded(5, &Record::default(), purged, None),
        "a40103646f63000000"
    );
}

#[test]
fn counters_and_purges_have_these_bytes() {
    let meta = ShardMeta {
        update_seq: 1,
        doc_count: 2,
        doc_del_count: 3,
        external_bytes: 1 << 20,
        id_bytes: 5,
        purge_seq: 6,
        purge_floor: 7,
        superseded_rows: 8,
        digest: None,
    };
    assert_eq!(hex(meta.encode()), "010102038080400506".to_owned() + "0708");
    let of_slot = ShardMeta {
        digest: Some(9),
        ..meta
    };
    assert_eq!(
        hex(of_slot.encode()),
        format!("0201020380804005060708{:032x}", 9)
    );
    let mut out = vec![];
    let revs = [
        Rev::parse("2-x").unwrap(),
        Rev::parse(&format!("1-{MD5}")).unwrap(),
    ];
    purges::encode(&[0xee; 16], "doc", &revs, &mut out);
    assert_eq!(
        hex(&out),
        format!("{}03646f6302020178{}{MD5}", "ee".repeat(16), "0110")
    );
    assert_eq!(purges::decode(1, &out).unwrap().revs, revs);
}

#[test]
fn bodies_with_attachments_have_these_bytes() {
    let attachment = Attachment {
        name: "a".into(),
        content_type: "t/p".into(),
        md5: [1; 16],
        content: [2; 32],
        length: 300,
        stored_length: 30,
        encoding: Encoding::Gzip,
        length_unsure: false,
        revpos: None,
    };
    let mut out = b"{}".to_vec();
    append_attachments(&[attachment], 4, &mut out);
    assert_eq!(
        hex(out),
        format!(
            "7b7d010161{}{}{}ac021e04{}",
            "03742f70",
            "01".repeat(16),
            "02".repeat(32),
            "3b00000001"
        )
    );
}

#[test]
fn rows_of_slots_have_these_bytes() {
    use crate::edit::Outcome;
    use crate::slot::rows::{self, Head, SessionHead};
    use crate::slot::{Generation, Position, Session, WorkOutcome};

    let session = Session {
        gateway: 7,
        counter: 258,
    };
    assert_eq!(hex(rows::key(258, rows::HEAD, &[])), "6c010270");
    assert_eq!(
        hex(rows::outcome_key(1, session)),
        "6c00017100000000000000070000000000000102"
    );
    assert_eq!(hex(rows::session_key(1, 7)), "6c0001730000000000000007");
    assert_eq!(hex(rows::key(1, rows::STATE, b"a")), "6c00017261");
    let head = Head {
        position: Position {
            generation: Generation { number: 2, by: 3 },
            next_offset: 300,
            leader_epoch: -2,
            chain: [9; 16],
        },
        requests: 5,
        sessions: 1,
    };
    let bytes = head.encode();
    assert_eq!(
        hex(&bytes),
        format!("01020000000000000003ac02fffffffe{}0501", "09".repeat(16))
    );
    assert_eq!(Head::decode(&bytes).unwrap(), head);
    let heard = SessionHead {
        highest: 258,
        heard: 5,
    };
    assert_eq!(hex(heard.encode()), "820205");
    // A number of as many digits as a hash has bytes is not a hash.
    let local = crate::local_rev(1_234_567_890_123_456);
    let written = Rev::parse("2-x").unwrap();
    let outcome = [
        WorkOutcome::Edits(vec![
            Outcome::Conflict,
            Outcome::Written(written.clone()),
            Outcome::Written(local.clone()),
        ]),
        WorkOutcome::Purges(vec![vec![], vec![written]]),
        WorkOutcome::Refused(200),
    ];
    let bytes = rows::encode_outcome(&outcome);
    assert_eq!(
        hex(&bytes),
        "030003000102017801001031323334353637383930313233343536010200010201".to_owned() + "7802c8"
    );
    let again = rows::decode_outcome(&bytes).unwrap();
    assert_eq!(again, outcome);
    let WorkOutcome::Edits(edits) = &again[0] else {
        panic!("{again:?}")
    };
    let Outcome::Written(again) = &edits[2] else {
        panic!("{edits:?}")
    };
    assert_eq!(again.to_string(), local.to_string());
}

#[test]
fn the_outcome_of_a_leaf_too_many_has_these_bytes() {
    use crate::edit::Outcome;
    use crate::slot::{WorkOutcome, rows};

    let outcome = [WorkOutcome::Edits(vec![Outcome::TooManyLeaves])];
    let bytes = rows::encode_outcome(&outcome);
    assert_eq!(hex(&bytes), "01000102");
    assert_eq!(rows::decode_outcome(&bytes).unwrap(), outcome);
}
