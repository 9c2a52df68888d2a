//! The index query of a selector finds every document that the selector matches: random documents
//! and selectors, with a naive evaluation of the query over the index's entries.

use std::cell::Cell;

use mango::text::{Cover, Entry, EntryValue, HitCondition, entries};
use mango::{Limits, Selector, TextDefinition, TextKind};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Words of fields, few enough to collide.
fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "0", "x.y", ""])
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..3).prop_map(Value::from),
        prop::sample::select(vec![0.5, 1e300, -0.0, 12_345_678_901_234_567.0])
            .prop_map(Value::from),
        prop::sample::select(vec!["", "x", "xy", "new york", "1", "true"]).prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|members| members.into_iter().collect::<Value>()),
        ]
    })
}

fn document() -> impl Strategy<Value = Value> {
    prop::collection::vec((name(), value()), 0..5).prop_map(|members| {
        let mut doc = json!({"_id": "d"});
        for (name, value) in members {
            // Documents have no field that starts with `_` or has no name.
            if !name.is_empty() {
                doc[name] = value;
            }
        }
        doc
    })
}

fn path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c", "0", "1", "x\\.y"]);
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("."))
}

/// A condition whose result does not depend on the order of values of different types: ordered
/// comparisons, in which an index finds values of one type only, are combined with a `$type`.
fn condition() -> impl Strategy<Value = Value> {
    let ordered = prop::sample::select(vec!["$lt", "$lte", "$gt", "$gte"]);
    let leaf = prop_oneof![
        value().prop_map(|v| json!({"$eq": v})),
        value().prop_map(|v| json!({"$ne": v})),
        (ordered.clone(), -2i64..3).prop_map(|(op, n)| json!({"$type": "number", op: n})),
        (ordered.clone(), "[xz]{0,2}").prop_map(|(op, s)| json!({"$type": "string", op: s})),
        (ordered, any::<bool>()).prop_map(|(op, b)| json!({"$type": "boolean", op: b})),
        prop::collection::vec(value(), 0..4).prop_map(|v| json!({"$in": v})),
        prop::collection::vec(value(), 0..4).prop_map(|v| json!({"$nin": v})),
        any::<bool>().prop_map(|b| json!({"$exists": b})),
        prop::sample::select(vec![
            "null", "boolean", "number", "string", "array", "object"
        ])
        .prop_map(|t| json!({"$type": t})),
        Just(json!({"$mod": [2, 1]})),
        Just(json!({"$regex": "^x"})),
        "[xy]{0,2}".prop_map(|p| json!({"$beginsWith": p})),
        prop::collection::vec(value(), 0..3).prop_map(|v| json!({"$all": v})),
        (0u64..4).prop_map(|n| json!({"$size": n})),
    ];
    leaf.prop_recursive(2, 8, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|c| json!({"$not": c})),
            inner.clone().prop_map(|c| json!({"$elemMatch": c})),
            inner.clone().prop_map(|c| json!({"$allMatch": c})),
            (path(), inner.clone()).prop_map(|(p, c)| json!({"$elemMatch": {p: c}})),
            (path(), inner).prop_map(|(p, c)| json!({p: c})),
        ]
    })
}

fn selector() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (path(), condition()).prop_map(|(p, c)| json!({p: c})),
        (path(), value()).prop_map(|(p, v)| json!({p: v})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let operator = prop::sample::select(vec!["$and", "$or", "$nor"]);
        prop_oneof![
            (operator, prop::collection::vec(inner.clone(), 1..4))
                .prop_map(|(op, parts)| json!({op: parts})),
            inner.prop_map(|part| json!({"$not": part})),
        ]
    })
}

fn definition() -> impl Strategy<Value = Value> {
    let field = (
        prop::sample::select(vec!["a", "b", "a.b", "a.0", "x\\.y", "c.[]"]),
        prop::sample::select(vec!["string", "number", "boolean"]),
    );
    let fields = prop::collection::vec(field, 0..4).prop_map(|fields| {
        let field = |(name, kind)| json!({"name": name, "type": kind});
        fields.into_iter().map(field).collect::<Value>()
    });
    (fields, any::<bool>())
        .prop_map(|(fields, lengths)| json!({"fields": fields, "index_array_lengths": lengths}))
}

/// Returns whether a document with these entries satisfies the query.
fn has(entries: &[Entry], wanted: &HitCondition) -> bool {
    let texts = |field: &str| {
        let of_field = entries.iter().filter(|entry| entry.name == *field);
        let texts: Vec<&String> = of_field
            .filter_map(|entry| match &entry.value {
                EntryValue::Text(text) => Some(text),
                EntryValue::Number(_) => None,
            })
            .collect();
        texts
    };
    match wanted {
        HitCondition::Word(field, word) => texts(field).contains(&word),
        HitCondition::Prefix(field, prefix) => texts(field).iter().any(|t| t.starts_with(prefix)),
        HitCondition::Number(field, low, high) => entries.iter().any(|entry| match entry.value {
            EntryValue::Number(n) if entry.name == *field => {
                low.is_none_or(|low| n >= low) && high.is_none_or(|high| n <= high)
            }
            _ => false,
        }),
        HitCondition::Text(_) => true,
        HitCondition::All(parts) => parts.iter().all(|part| has(entries, part)),
        HitCondition::Any(parts) => parts.iter().any(|part| has(entries, part)),
        HitCondition::Without(wanted, without) => has(entries, wanted) && !has(entries, without),
    }
}

#[test]
fn a_field_whose_name_is_too_long_for_an_index_restricts_nothing() {
    let long = "k".repeat(5000);
    let read = TextDefinition::read(TextKind::Text, b"{}", &Limits::default()).unwrap();
    for (document, selector) in [
        (
            json!({"a": {&long: 1}}),
            json!({"a": {"$eq": {&long: 1}}, "b": {"$exists": false}}),
        ),
        (
            json!({"a": {&long: [1]}, "b": 2}),
            json!({"a": {&long: [1]}, "b": 2}),
        ),
    ] {
        let Ok(parsed) = Selector::parse(&selector) else {
            continue;
        };
        let text = document.to_string();
        let found = entries(&read, mango::members(text.as_bytes()));
        assert!(parsed.matches(&document));
        match Cover::of(&parsed, &read) {
            Cover::Everything => {}
            Cover::Part(wanted) => assert!(has(&found, &wanted), "{wanted:?}"),
        }
    }
}

#[test]
fn a_document_that_matches_is_found() {
    let cases = 20_000;
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let inputs = (
        prop::collection::vec(document(), 8),
        selector(),
        definition(),
    );
    let (matched, left_out) = (Cell::new(0), Cell::new(0));
    let run = TestRunner::new(config).run(&inputs, |(docs, selector, definition)| {
        let definition = definition.to_string();
        let limits = Limits::default();
        let read = TextDefinition::read(TextKind::Text, definition.as_bytes(), &limits).unwrap();
        let Ok(parsed) = Selector::parse(&selector) else {
            return Ok(());
        };
        // An index of some fields is not used for a query of everything.
        let Cover::Part(wanted) = Cover::of(&parsed, &read) else {
            return Ok(());
        };
        for doc in docs {
            let text = doc.to_string();
            let found = entries(&read, mango::members(text.as_bytes()));
            let is_found = has(&found, &wanted);
            left_out.set(left_out.get() + u32::from(!is_found));
            if parsed.matches(&doc) {
                matched.set(matched.get() + 1);
                prop_assert!(
                    is_found,
                    "{doc} {selector} {definition}\n{wanted:?}\n{found:?}"
                );
            }
        }
        Ok(())
    });
    run.unwrap_or_else(|e| panic!("{e}"));
    // The test is meaningful only with documents of both kinds.
    assert!(matched.get() > cases / 100, "{matched:?}");
    assert!(left_out.get() > cases, "{left_out:?}");
}
