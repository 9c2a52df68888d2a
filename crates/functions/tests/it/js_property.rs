//! Documents of any content pass a map function unchanged.

use crate::support;

use functions::js::{Engine, Isolation};
use functions::{Doc, Emits, Mapper};
use proptest::prelude::*;
use serde_json::{Map, Number, Value};
use support::{group, options, rounds};

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "[a-c\"\\\\/\n\u{0}é漢😀]{0,40}",
        "[0-9]{1,12}"
    ];
    let float = any::<f64>().prop_filter_map("a number of JSON", Number::from_f64);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-(1i64 << 53)..(1i64 << 53)).prop_map(Value::from),
        float.prop_map(Value::Number),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 200, 12, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..12)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn document() -> impl Strategy<Value = Map<String, Value>> {
    let name = prop_oneof![
        "[a-z]{1,3}",
        "[0-9]{1,3}",
        any::<String>(),
        Just("__proto__".to_owned())
    ];
    let name = name.prop_filter("a name without underscore", |name| {
        !name.starts_with('_') || name == "__proto__"
    });
    prop::collection::vec((name, value()), 0..20).prop_map(|members| members.into_iter().collect())
}

/// Returns whether two values are equal for JavaScript, which has only doubles.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn check(mapper: &mut dyn Mapper, document: &Map<String, Value>) -> Result<(), TestCaseError> {
    let body = serde_json::to_string(document).expect("JSON");
    let doc = Doc {
        members: br#""_id":"a","_rev":"1-x""#,
        body: body.as_bytes(),
    };
    let mut out = Emits::default();
    mapper.map(&[doc], &mut out).expect("maps");
    let mut whole = document.clone();
    whole.insert("_id".into(), "a".into());
    whole.insert("_rev".into(), "1-x".into());
    prop_assert_eq!(out.rows.len(), 3, "{}", body);
    for row in &out.rows {
        let value: Value = serde_json::from_slice(out.value(row)).expect("a row is JSON");
        prop_assert!(
            same(&value, &Value::Object(whole.clone())),
            "{} became {}",
            body,
            value
        );
    }
    // Written from the values, from the text, and by JavaScript itself.
    let texts: Vec<&[u8]> = out.rows.iter().map(|row| out.value(row)).collect();
    prop_assert_eq!(texts[1], texts[2], "{}", body);
    prop_assert_eq!(texts[0], texts[1], "{}", body);
    Ok(())
}

fn run(isolation: Isolation, cases: u32) {
    let engine = Engine::new(options(isolation));
    let sources = [
        "function(doc){emit(doc._id, doc)}",
        "function(doc){emit(0, {toJSON: function() { return doc }}); emit(1, JSON.parse(JSON.stringify(doc)))}",
    ];
    let mapper = engine.mapper(&group(&sources)).expect("compiles");
    let mapper = std::cell::RefCell::new(mapper);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        ..ProptestConfig::default()
    });
    runner
        .run(&document(), |document| {
            check(&mut **mapper.borrow_mut(), &document)
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn documents_go_through_a_map_function_unchanged() {
    run(Isolation::Thread, rounds(300, 1500));
}

#[test]
fn documents_go_through_a_worker_unchanged() {
    run(Isolation::Process, 300);
}

/// Any text where JSON is expected is refused, and does no harm.
#[test]
fn text_that_is_no_json_is_passed_over() {
    let engine = Engine::new(options(Isolation::Thread));
    let mapper = engine
        .mapper(&group(&["function(doc){emit(doc)}"]))
        .expect("compiles");
    let mapper = std::cell::RefCell::new(mapper);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 2000,
        ..ProptestConfig::default()
    });
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        "[{}\\[\\],:\"\\\\u0dce1.+-tfn ]{0,60}".prop_map(String::into_bytes),
    ];
    let texts = (bytes.clone(), bytes);
    runner
        .run(&texts, |(members, body)| {
            let doc = Doc {
                members: &members,
                body: &body,
            };
            let mut out = Emits::default();
            mapper.borrow_mut().map(&[doc], &mut out).expect("maps");
            for row in &out.rows {
                let json: Result<Value, _> = serde_json::from_slice(out.key(row));
                prop_assert!(json.is_ok(), "{:?}", String::from_utf8_lossy(out.key(row)));
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}
