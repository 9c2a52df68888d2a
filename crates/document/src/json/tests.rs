use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;
use crate::revision_id;

fn normal(text: &str) -> String {
    String::from_utf8(normalise(text.as_bytes()).unwrap()).unwrap()
}

fn term_of(text: &str) -> Vec<u8> {
    parse_document(format!(r#"{{"a":{text}}}"#).as_bytes())
        .unwrap()
        .body_term[15..]
        .to_vec()
}

#[test]
fn numbers_follow_couchdb() {
    for (text, expected) in [
        ("-0", "0"),
        ("0", "0"),
        ("-12", "-12"),
        (
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        ),
        ("1e3", "1.0e3"),
        ("1E+3", "1.0e3"),
        ("1.50", "1.5"),
        ("10.0", "10.0"),
        ("10.00", "10.0"),
        ("-0.0", "0.0"),
        ("0.000001", "1.0e-6"),
        ("0.0000001", "1.0e-7"),
        ("1e-400", "0.0"),
        ("5e-324", "5.0e-324"),
        ("2e-324", "0.0"),
        ("2.5e-310", "2.5e-310"),
        ("-2.5e-310", "-2.5e-310"),
        ("25e-310", "2.5e-309"),
        ("1.7976931348623157e308", "1.7976931348623157e308"),
        ("3.141592653589793238", "3.141592653589793"),
        ("0.1e-5", "1.0e-6"),
        ("123456789012345.6", "123456789012345.6"),
        ("9007199254740993.0", "9.007199254740992e15"),
    ] {
        assert_eq!(normal(text), expected, "{text}");
    }
    for text in [
        "01", "-", "1.", ".5", "+1", "1e", "1e+", "1e400", "1.0e400", "-1e999", "0x1", "1.e3",
        "NaN", "- 1", "00",
    ] {
        assert_eq!(
            normalise(text.as_bytes()),
            Err(DocError::InvalidJson),
            "{text}"
        );
    }
}

#[test]
fn negative_zero_keeps_its_sign_in_the_term_only() {
    assert_eq!(normal("-0.0"), "0.0");
    assert_ne!(term_of("-0.0"), term_of("0.0"));
    assert_eq!(term_of("-0"), term_of("0"));
}

#[test]
fn an_integer_of_more_than_255_bytes_is_refused_unless_the_text_is_no_json_at_all() {
    let digits = "1".repeat(700);
    assert_eq!(normalise(digits.as_bytes()), Err(DocError::IntegerTooLarge));
    assert_eq!(
        normalise(format!("[{digits},").as_bytes()),
        Err(DocError::InvalidJson)
    );
    assert_eq!(
        parse_document(format!(r#"{{"a":{digits}}}"#).as_bytes()),
        Err(DocError::IntegerTooLarge)
    );
    // 2^2040 − 1 is the greatest that takes 255 bytes: it has 615 digits and starts with 1.27.
    assert!(normalise(format!("12{}", "0".repeat(613)).as_bytes()).is_ok());
    assert_eq!(
        normalise(format!("13{}", "0".repeat(613)).as_bytes()),
        Err(DocError::IntegerTooLarge)
    );
}

#[test]
fn strings_are_written_with_the_fewest_escapes() {
    for (text, expected) in [
        (r#""\u00e9\u20ac\ud83d\ude00""#, r#""é€😀""#),
        (r#""\"\\\/\b\f\n\r\t""#, r#""\"\\/\b\f\n\r\t""#),
        (r#""\u0000\u001f\u007f""#, "\"\\u0000\\u001F\u{7f}\""),
        (r#""\uFFFF\u2028""#, "\"\u{ffff}\u{2028}\""),
        (r#""""#, r#""""#),
        (
            r#""12345678\n1234567890123456""#,
            r#""12345678\n1234567890123456""#,
        ),
    ] {
        assert_eq!(normal(text), expected, "{text}");
    }
    for text in [
        r#"""#,
        r#""\"#,
        r#""a"#,
        "\"a\tb\"",
        "\"12345678\u{1}\"",
        r#""\x41""#,
        r#""\u12""#,
        r#""\u12g4""#,
        r#""\ud800""#,
        r#""\ud800\n""#,
        r#""\ud800\ud800""#,
        r#""\udc00""#,
    ] {
        assert_eq!(
            normalise(text.as_bytes()),
            Err(DocError::InvalidJson),
            "{text}"
        );
    }
    assert_eq!(normalise(b"\"\xff\""), Err(DocError::InvalidJson));
    assert_eq!(normalise(b"\"\xed\xa0\x80\""), Err(DocError::InvalidJson));
}

#[test]
fn the_structure_is_checked() {
    for (text, expected) in [
        (" [ ] ", "[]"),
        ("{ }", "{}"),
        ("[1 , 2]", "[1,2]"),
        ("{\"a\" : [ { } ]}\n", r#"{"a":[{}]}"#),
        ("null", "null"),
    ] {
        assert_eq!(normal(text), expected);
    }
    for text in [
        "",
        " ",
        "[",
        "]",
        "{",
        "}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{,}",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{"a":1"#,
        "{1:2}",
        "[}",
        r#"{"a":1]"#,
        "1 2",
        "[]]",
        "tru",
        "nulll",
        "True",
        "\u{feff}1",
        "1/*x*/",
        "'a'",
        "{\"a\":1 \"b\":2}",
    ] {
        assert_eq!(
            normalise(text.as_bytes()),
            Err(DocError::InvalidJson),
            "{text}"
        );
        let bulk = format!(r#"{{"docs":{text}"#);
        assert_eq!(
            parse_bulk_docs(bulk.as_bytes()),
            Err(DocError::InvalidJson),
            "{bulk}"
        );
    }
}

#[test]
fn deep_nesting_is_fine_up_to_the_limit() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    assert_eq!(normal(&nested(1000)), nested(1000));
    assert_eq!(normal(&nested(DEPTH_MAX)), nested(DEPTH_MAX));
    assert_eq!(
        normalise(nested(DEPTH_MAX + 1).as_bytes()),
        Err(DocError::TooDeep)
    );
    assert_eq!(
        normalise("[".repeat(1_000_000).as_bytes()),
        Err(DocError::TooDeep)
    );
    let objects = [r#"{"a":"#.repeat(1000), "1".to_owned(), "}".repeat(1000)].concat();
    assert_eq!(normal(&objects), objects);
}

#[test]
fn of_duplicate_members_the_last_wins_and_takes_the_later_place() {
    for (text, expected) in [
        (r#"{"a":1,"a":1}"#, r#"{"a":1}"#),
        (r#"{"a":1,"b":2,"a":3}"#, r#"{"b":2,"a":3}"#),
        (
            r#"{"a":1,"\u0061":2,"b":{"c":[],"c":{}},"d":0}"#,
            r#"{"a":2,"b":{"c":{}},"d":0}"#,
        ),
        (r#"{"a":1,"b":2,"a":3,"b":4,"a":5}"#, r#"{"b":4,"a":5}"#),
        (r#"[{"":1,"":2}]"#, r#"[{"":2}]"#),
    ] {
        assert_eq!(normal(text), expected, "{text}");
        let (with, without) = (term_of(text), term_of(expected));
        assert_eq!(with, without, "{text}");
    }
}

#[test]
fn duplicates_are_found_in_large_objects() {
    let member = |index: usize| format!(r#""name-of-member-{index:05}-of-many":{index}"#);
    let unique: Vec<String> = (0..3000).map(member).collect();
    let text = format!("{{{}}}", unique.join(","));
    assert_eq!(normal(&text), text);
    let twice = format!("{{{},{}}}", unique.join(","), unique.join(","));
    assert_eq!(normal(&twice), text);
}

#[test]
fn duplicates_in_duplicates_are_dropped_at_every_depth() {
    let depth = 2000;
    let text = [
        r#"{"a":[{"x":1,"x":2}],"b":0,"a":"#.repeat(depth),
        "7".to_owned(),
        r#","b":1}"#.repeat(depth),
    ]
    .concat();
    let expected = [
        r#"{"a":"#.repeat(depth),
        "7".to_owned(),
        r#","b":1}"#.repeat(depth),
    ]
    .concat();
    assert_eq!(normal(&text), expected);
    assert_eq!(term_of(&text), term_of(&expected));
}

#[test]
fn duplicates_are_dropped_from_special_members_too() {
    let text = r#"{"n":{"y":1,"y":2},"_attachments":{"f":{"a":1,"a":2},"g":{},"f":{"b":1,"b":{"c":0,"c":1}}},"n":{"x":1,"x":2}}"#;
    let edit = parse_document(text.as_bytes()).unwrap();
    assert_eq!(
        edit.attachments.as_deref(),
        Some(br#"{"g":{},"f":{"b":{"c":1}}}"#.as_slice())
    );
    assert_eq!(edit.body, br#"{"n":{"x":2}}"#);
    let bulk = format!(r#"{{"x":{{"a":1,"a":2}},"docs":[{text},{text}],"docs":[{text},{text}]}}"#);
    assert_eq!(
        parse_bulk_docs(bulk.as_bytes()).unwrap().docs,
        [edit.clone(), edit]
    );
}

/// Returns a JSON object written member by member, so that names can occur repeatedly, and the
/// result.
fn with_duplicates() -> impl Strategy<Value = (String, Value)> {
    let leaf = (0..300_i32).prop_map(|number| (number.to_string(), Value::from(number)));
    leaf.prop_recursive(4, 80, 20, |inner| {
        prop::collection::vec(("[a-z]", inner), 0..20).prop_map(|members| {
            let text: Vec<String> = members
                .iter()
                .map(|(name, (text, _))| format!("\"{name}\":{text}"))
                .collect();
            let mut object = Map::new();
            for (name, (_, value)) in members {
                object.shift_remove(&name);
                object.insert(name, value);
            }
            (format!("{{{}}}", text.join(",")), Value::from(object))
        })
    })
}

#[test]
fn documents_give_away_their_special_members() {
    let doc = parse_document(
        br#"{"_id":"a","x":1,"_rev":"2-b","_deleted":true,"_attachments":{"f":{"stub":true}},"_conflicts":[1],"_local_seq":{},
            "_revisions":{"start":2,"ids":["b","0123456789abcdef0123456789ABCDEF"]},"_revs_info":0,"_deleted_conflicts":"",
            "_replication_id":"r","y":null}"#,
    )
    .unwrap();
    assert_eq!(doc.id.as_ref().unwrap().as_str(), "a");
    assert_eq!(doc.rev.as_ref().unwrap().to_string(), "2-b");
    assert!(doc.deleted);
    assert_eq!(
        doc.attachments.as_deref(),
        Some(br#"{"f":{"stub":true}}"#.as_slice())
    );
    assert_eq!(
        doc.revisions.as_ref().unwrap().ids[1].to_string(),
        "0123456789abcdef0123456789abcdef"
    );
    assert_eq!(doc.rev_path(), doc.revisions);
    assert_eq!(doc.body, br#"{"x":1,"_replication_id":"r","y":null}"#);
    assert_eq!(doc.body_term, parse_document(&doc.body).unwrap().body_term);
    assert_eq!(doc.body_term, body_term(&doc.body).unwrap());
}

#[test]
fn a_document_of_special_members_has_an_empty_body() {
    let doc = parse_document(br#"{"_id":"a","_attachments":{}}"#).unwrap();
    assert_eq!(
        (doc.body.as_slice(), doc.attachments),
        (b"{}".as_slice(), None)
    );
    assert_eq!(
        revision_id(false, None, &doc.body_term, &[]).to_string(),
        "1-967a00dff5e02add41819138abb3284d"
    );
}

#[test]
fn only_the_last_of_duplicate_special_members_counts() {
    let doc = parse_document(br#"{"_id":3,"a":1,"_rev":"x","_id":"a","_rev":"1-x"}"#).unwrap();
    assert_eq!(doc.id.unwrap().as_str(), "a");
    assert_eq!(doc.rev.unwrap().to_string(), "1-x");
    assert_eq!(doc.body, br#"{"a":1}"#);
    assert_eq!(
        parse_document(br#"{"_deleted":true,"_deleted":false}"#).map(|doc| doc.deleted),
        Ok(false)
    );
}

#[test]
fn the_first_bad_member_is_named() {
    let reason = |text: &str| parse_document(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(reason(r#"{"_rev":1,"_foo":2}"#), "Invalid rev format");
    assert_eq!(
        reason(r#"{"_foo":2,"_rev":1}"#),
        "Bad special document member: _foo"
    );
    assert_eq!(reason(r#"{"_rev":1,"_foo":2"#), "invalid UTF-8 JSON");
    assert_eq!(
        reason(r#"{"\u005ffoo":2}"#),
        "Bad special document member: _foo"
    );
    assert_eq!(reason(r#"{"_":2}"#), "Bad special document member: _");
    assert_eq!(
        reason(r#"{"_attachments":[]}"#),
        "Bad special document member: _attachments"
    );
    assert_eq!(
        reason(r#"{"_deleted":null}"#),
        "Bad special document member: _deleted"
    );
    assert_eq!(
        reason(r#"{"_revisions":1}"#),
        "Bad special document member: _revisions"
    );
    assert_eq!(
        reason(r#"{"_revisions":{"ids":[]}}"#),
        "_revisions.start isn't an integer."
    );
    assert_eq!(
        reason(r#"{"_revisions":{"start":-1,"ids":[]}}"#),
        "_revisions.start isn't an integer."
    );
    assert_eq!(
        reason(r#"{"_revisions":{"start":1.0,"ids":[]}}"#),
        "_revisions.start isn't an integer."
    );
    assert_eq!(
        reason(r#"{"_revisions":{"start":1,"ids":{}}}"#),
        "_revisions.ids isn't a array."
    );
    for ids in [
        "[1]",
        "[\"a\",1]",
        "[1000]",
        "[[]]",
        "[null,\"a\"]",
        "[{\"a\":[1,{}]},\"x\"]",
    ] {
        assert_eq!(
            reason(&format!(r#"{{"_revisions":{{"start":1,"ids":{ids}}}}}"#)),
            "RevId isn't a string",
            "{ids}"
        );
    }
    let ids = format!("[\"a\",\"{}\"]", "g".repeat(32));
    assert_eq!(
        reason(&format!(r#"{{"_revisions":{{"start":2,"ids":{ids}}}}}"#)),
        "RevId isn't a valid hexadecimal"
    );
    assert_eq!(reason("[]"), "Document must be a JSON object");
}

#[test]
fn revisions_without_ids_say_nothing() {
    let doc = parse_document(
        br#"{"_rev":"3-c","_revisions":{"start":0,"ids":[],"more":{"x":[1,2.5,"y"]}}}"#,
    )
    .unwrap();
    assert_eq!(doc.rev_path().unwrap().newest().unwrap().to_string(), "3-c");
    let start = parse_document(br#"{"_revisions":{"ids":["a"],"start":70000}}"#).unwrap();
    assert_eq!(
        start.rev_path().unwrap().newest().unwrap().to_string(),
        "70000-a"
    );
}

#[test]
fn bulk_requests_hold_documents_and_options() {
    let request = parse_bulk_docs(
        br#" {"x":{"docs":[1]}, "new_edits" : false , "docs":[{"_id":"a","n":[1,2]}, {"_id":"b"}], "w":2, "all_or_nothing":true} "#,
    )
    .unwrap();
    assert_eq!(request.docs.len(), 2);
    assert_eq!(request.docs[0].body, br#"{"n":[1,2]}"#);
    assert_eq!(request.docs[1].body_term, [104, 1, 106]);
    assert_eq!(
        (request.new_edits, request.all_or_nothing, request.w),
        (Some(false), true, Some(2))
    );
    let request = parse_bulk_docs(br#"{"docs":[{"_id":3}],"docs":[]}"#).unwrap();
    assert_eq!(
        (
            request.docs.len(),
            request.new_edits,
            request.all_or_nothing,
            request.w
        ),
        (0, None, false, None)
    );
}

#[test]
fn bad_bulk_requests_are_refused() {
    for (text, error) in [
        ("[]", DocError::RequestNotAnObject),
        ("{}", DocError::DocsMissing),
        (r#"{"docs":{}}"#, DocError::DocsNotAnArray),
        (r#"{"docs":[1],"new_edits":null}"#, DocError::NewEdits),
        (r#"{"docs":[1]}"#, DocError::NotAnObject),
        (r#"{"docs":[{"_rev":1},1]}"#, DocError::Rev(crate::RevError)),
        (r#"{"docs":[{"_rev":1}]"#, DocError::InvalidJson),
        (r#"{"docs":[{}],"x":tru}"#, DocError::InvalidJson),
        (r#"{"docs":[{}]} x"#, DocError::InvalidJson),
        ("[", DocError::InvalidJson),
    ] {
        assert_eq!(parse_bulk_docs(text.as_bytes()), Err(error), "{text}");
    }
}

#[test]
fn lists_of_bytes_take_erlangs_short_form() {
    assert_eq!(term_of("[1,2]"), [107, 0, 2, 1, 2, 106]);
    assert_eq!(term_of("[]"), [106, 106]);
    assert_eq!(term_of("[[],[]]"), [108, 0, 0, 0, 2, 106, 106, 106, 106]);
    assert_eq!(
        term_of("[256]"),
        [108, 0, 0, 0, 1, 98, 0, 0, 1, 0, 106, 106]
    );
    assert_eq!(term_of(&format!("[{}]", ["7"; 65535].join(",")))[0], 107);
    assert_eq!(term_of(&format!("[{}]", ["7"; 65536].join(",")))[0], 108);
}

fn json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..300_u64).prop_map(Value::from),
        (any::<i32>(), 0..12_i32).prop_map(|(n, e)| Value::from(f64::from(n) / 10_f64.powi(e))),
        prop::num::f64::NORMAL.prop_map(Value::from),
    ];
    let string = prop_oneof![any::<String>(), "[a-c]{0,2}", "[\\x00-\\x7f]{0,40}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        string.prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        let name = prop_oneof!["[a-d]{0,2}", any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..24)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn duplicates_are_dropped_as_by_a_naive_model((text, value) in with_duplicates()) {
        prop_assert_eq!(normal(&text), value.to_string());
        prop_assert_eq!(term_of(&text), term_of(&value.to_string()));
    }

    #[test]
    fn normal_text_says_what_the_text_said(value in json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let normal = normalise(text.as_bytes()).unwrap();
        prop_assert_eq!(&serde_json::from_slice::<Value>(&normal).unwrap(), &value);
        prop_assert_eq!(&normalise(&normal).unwrap(), &normal);
    }

    #[test]
    fn what_serde_refuses_is_refused_and_the_other_way_round(text in r#"[\[\]{}:,"\\a0-9.eE+u \n-]{0,12}"#) {
        let serde = serde_json::from_str::<Value>(&text);
        prop_assert_eq!(normalise(text.as_bytes()).is_ok(), serde.is_ok(), "{}", text);
    }

    #[test]
    fn the_term_of_stored_text_is_the_term_of_the_edit(value in json()) {
        let edit = parse_document(serde_json::json!({ "x": value }).to_string().as_bytes()).unwrap();
        prop_assume!(!edit.body_term.windows(9).any(|term| term == [70, 0x80, 0, 0, 0, 0, 0, 0, 0]));
        prop_assert_eq!(body_term(&edit.body).unwrap(), edit.body_term);
    }

    #[test]
    fn a_bulk_request_holds_what_its_documents_hold(values in prop::collection::vec(json(), 0..5)) {
        let docs: Vec<Value> = values.iter().map(|value| serde_json::json!({ "_id": "a", "x": value })).collect();
        let request = parse_bulk_docs(serde_json::json!({ "docs": docs }).to_string().as_bytes()).unwrap();
        let expected: Vec<EditDoc> = docs.iter().map(|doc| parse_document(doc.to_string().as_bytes()).unwrap()).collect();
        prop_assert_eq!(request.docs, expected);
    }

    #[test]
    fn mutilated_documents_never_panic(
        value in json(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6)
    ) {
        let doc = serde_json::json!({
            "_id": "a", "_rev": "1-b", "_revisions": {"start": 1, "ids": ["b"]}, "_attachments": {"a": {}}, "x": value
        });
        let mut text = serde_json::json!({ "docs": [doc], "new_edits": true }).to_string().into_bytes();
        for (at, byte, kind) in edits {
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => { text.remove(at); }
            }
        }
        let _ = parse_bulk_docs(&text);
        let _ = parse_some_bulk_docs(&text, 1);
        let _ = parse_document(&text);
        let _ = body_term(&text);
        if let Ok(normal) = normalise(&text) {
            prop_assert!(serde_json::from_slice::<Value>(&normal).is_ok());
        }
    }

    #[test]
    fn strings_survive_being_written(text in any::<String>()) {
        let mut out = Vec::new();
        write_json_string(&text, &mut out);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        prop_assert_eq!(normalise(&out).unwrap(), out);
    }
}
