//! The meaning of selectors beyond the recorded scenarios, refusals, and general laws.

use mango::{Doc, Limits, Selector, SelectorError};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn matches(selector: Value, document: Value) -> bool {
    Selector::parse(&selector).unwrap().matches(&document)
}

fn refusal(selector: Value) -> SelectorError {
    Selector::parse(&selector).unwrap_err()
}

#[test]
fn nested_objects_and_dotted_names_are_the_same_path() {
    for selector in [
        json!({"a": {"b": {"c": 1}}}),
        json!({"a.b.c": 1}),
        json!({"a": {"b.c": {"$eq": 1}}}),
    ] {
        assert!(matches(selector.clone(), json!({"a": {"b": {"c": 1}}})));
        assert!(!matches(selector, json!({"a": {"b": {"c": 2}}})));
    }
}

#[test]
fn no_negation_matches_a_missing_field() {
    let negations = [
        json!({"a": {"$ne": 1}}),
        json!({"a": {"$nin": [1]}}),
        json!({"$not": {"a": 1}}),
        json!({"a": {"$not": {"$regex": "x"}}}),
        json!({"$nor": [{"a": 1}]}),
        json!({"a": {"$not": {"$type": "string"}}}),
    ];
    for negation in negations {
        assert!(!matches(negation.clone(), json!({"b": 1})), "{negation}");
        assert!(matches(negation.clone(), json!({"a": 2})), "{negation}");
    }
}

#[test]
fn only_exists_false_and_its_equivalents_match_a_missing_field() {
    for selector in [
        json!({"a": {"$exists": false}}),
        json!({"$not": {"a": {"$exists": true}}}),
    ] {
        assert!(matches(selector.clone(), json!({})));
        assert!(!matches(selector, json!({"a": null})));
    }
}

#[test]
fn a_field_of_a_scalar_is_neither_present_nor_absent() {
    assert!(!matches(
        json!({"a.b": {"$exists": false}}),
        json!({"a": 1})
    ));
    assert!(!matches(json!({"a.b": {"$exists": true}}), json!({"a": 1})));
}

#[test]
fn an_empty_combination_restricts_nothing() {
    for selector in [
        json!({"$and": []}),
        json!({"$or": []}),
        json!({"$nor": []}),
        json!({"x": {"$or": []}}),
        json!({"x": {"$not": {"$or": []}}}),
        json!({"$not": {"$and": []}}),
    ] {
        let read = Selector::parse(&selector).unwrap();
        assert!(read.is_empty_combination(), "{selector}");
        assert!(read.matches(&json!({"a": 1})), "{selector}");
    }
    for selector in [
        json!({"a": 1, "$and": []}),
        json!({"a": 1, "$or": []}),
        json!({"$and": [{"$or": []}]}),
        json!({"$or": [{"$or": []}]}),
        json!({"$or": [{"x": 6}, {"$or": []}]}),
        json!({"$and": [{"_id": {"$gt": null}}, {"x": {"$not": {"$and": []}}}]}),
        json!({"l": {"$elemMatch": {"$or": []}}}),
        json!({"l": {"$allMatch": {"$or": []}}}),
        json!({"l": {"$elemMatch": {"$nor": []}}}),
    ] {
        let read = Selector::parse(&selector).unwrap();
        assert!(!read.is_empty_combination(), "{selector}");
        assert!(
            read.matches(&json!({"_id": "i", "a": 1, "l": [1]})),
            "{selector}"
        );
    }
    assert!(!matches(
        json!({"l": {"$elemMatch": {"$or": []}}}),
        json!({"l": []})
    ));
}

#[test]
fn a_condition_without_a_field_is_about_the_document() {
    let document = json!({"_id": "i", "_rev": "1-x", "a": 1});
    for (selector, expected) in [
        (json!({"a": 1, "$gt": 5}), true),
        (json!({"a": 2, "$gt": 5}), false),
        (json!({"$and": [{"$gt": null}]}), true),
        (json!({"$and": [{"$ne": 5}]}), true),
        (json!({"$nor": [{}]}), true),
        (json!({"$not": {"$and": [{}]}}), true),
        (json!({"$or": [{"$type": "object"}, {"a": 2}]}), true),
        (json!({"$and": [{}, {"a": 1}]}), false),
        (json!({"$or": [{}, {"a": 1}]}), true),
        (json!({"a": 1, "$exists": true}), true),
        (json!({"a": 1, "$keyMapMatch": {"$eq": "_rev"}}), true),
        (
            json!({"$and": [{"$eq": {"_id": "i", "_rev": "1-x", "a": 1}}]}),
            true,
        ),
    ] {
        let read = Selector::parse(&selector).unwrap();
        assert!(read.needs_whole());
        assert_eq!(read.matches(&document), expected, "{selector}");
        let stored = Doc {
            members: br#""_id":"i","_rev":"1-x""#,
            body: br#"{"a":1}"#,
        };
        assert_eq!(read.matches_doc(&stored), Ok(expected), "{selector}");
    }
}

#[test]
fn integers_of_any_length_are_exact() {
    let (long, next) = (
        "123456789012345678901234567890",
        "123456789012345678901234567891",
    );
    let matches = |selector: String, value: &str| {
        let text = document::normalise(selector.as_bytes()).unwrap();
        let selector = Selector::read(&text, &Limits::default()).unwrap();
        let mut shown = vec![];
        selector.write_json(&mut shown);
        assert!(String::from_utf8(shown).unwrap().contains(long) || !text.is_ascii());
        selector.matches_doc(&Doc::whole(format!(r#"{{"n":{value}}}"#).as_bytes())) == Ok(true)
    };
    for operand in [
        long.to_owned(),
        format!(r#"{{"$in":[1,{long}]}}"#),
        format!(r#"{{"$not":{{"$nin":[{long}]}}}}"#),
        format!(r#"{{"$gte":{long},"$lt":{next}}}"#),
    ] {
        let selector = format!(r#"{{"n":{operand}}}"#);
        assert!(matches(selector.clone(), long), "{selector}");
        assert!(!matches(selector.clone(), next), "{selector}");
    }
    let all = format!(r#"{{"n":{{"$all":[{long}]}}}}"#);
    assert!(matches(all.clone(), &format!("[{long}]")) && !matches(all, &format!("[{next}]")));
    let modulo = format!(r#"{{"n":{{"$mod":[{long},1]}}}}"#);
    assert!(matches(modulo.clone(), next) && !matches(modulo.clone(), long));
    assert!(matches(modulo, "1"));
}

#[test]
fn a_long_field_name_is_refused() {
    let name = "x".repeat(mango::FIELD_NAME_BYTES_MAX);
    assert!(Selector::parse(&json!({&name: 1})).is_ok());
    let refused = SelectorError::LongFieldName(mango::FIELD_NAME_BYTES_MAX);
    assert_eq!(refusal(json!({format!("{name}x"): 1})), refused);
    assert_eq!(refusal(json!({name: {"x": 1}})), refused);
}

#[test]
fn many_operands_of_all_are_looked_up() {
    let numbers: Vec<u32> = (0..60_000).collect();
    let backwards: Vec<u32> = numbers.iter().rev().copied().collect();
    assert!(matches(
        json!({"n": {"$all": backwards}}),
        json!({"n": numbers})
    ));
    assert!(!matches(
        json!({"n": {"$all": [1, 2, 2]}}),
        json!({"n": [1, 1]})
    ));
    assert!(matches(
        json!({"n": {"$all": [1, 2, 2]}}),
        json!({"n": [2, 1]})
    ));
}

#[test]
fn ids_compare_byte_by_byte_and_other_strings_by_collation() {
    assert!(matches(json!({"_id": {"$lt": "a"}}), json!({"_id": "B"})));
    assert!(!matches(
        json!({"name": {"$lt": "a"}}),
        json!({"name": "B"})
    ));
    assert!(!matches(json!({"_id": "a"}), json!({"_id": "a\u{200b}"})));
    assert!(matches(json!({"name": "a"}), json!({"name": "a\u{200b}"})));
}

#[test]
fn all_compares_to_the_letter() {
    assert!(matches(
        json!({"a": {"$all": [1, "x"]}}),
        json!({"a": ["x", 2, 1]})
    ));
    assert!(!matches(json!({"a": {"$all": [1.0]}}), json!({"a": [1]})));
    assert!(matches(
        json!({"a": {"$all": [[1, 2]]}}),
        json!({"a": [1, 2]})
    ));
    assert!(!matches(json!({"a": {"$all": [1]}}), json!({"a": 1})));
}

#[test]
fn elements_are_judged_one_by_one() {
    let document = json!({"a": [{"k": 1, "v": "p"}, {"k": 2, "v": "q"}]});
    assert!(matches(
        json!({"a": {"$elemMatch": {"k": 1, "v": "p"}}}),
        document.clone()
    ));
    assert!(!matches(
        json!({"a": {"$elemMatch": {"k": 1, "v": "q"}}}),
        document.clone()
    ));
    assert!(matches(
        json!({"a": {"$allMatch": {"k": {"$gte": 1}}}}),
        document.clone()
    ));
    assert!(!matches(
        json!({"a": {"$allMatch": {"k": {"$gt": 1}}}}),
        document.clone()
    ));
    assert!(!matches(
        json!({"a": {"$allMatch": {"k": 1}}}),
        json!({"a": []})
    ));
    assert!(matches(
        json!({"a": {"$elemMatch": {"$not": {"k": 1}}}}),
        document.clone()
    ));
    assert!(matches(
        json!({"a": {"$elemMatch": {"$nor": [{"k": 1}, {"k": 3}]}}}),
        document
    ));
    assert!(matches(
        json!({"o": {"$keyMapMatch": {"$regex": "^x"}}}),
        json!({"o": {"a": 1, "xy": 2}})
    ));
    assert!(!matches(
        json!({"o": {"$keyMapMatch": {"$eq": "x"}}}),
        json!({"o": ["x"]})
    ));
}

#[test]
fn conditions_on_fields_that_elements_lack_take_no_longer_than_a_document_may() {
    let limits = Limits {
        selector_conditions_max: 200_000,
        ..Limits::default()
    };
    let branches = vec![json!({"z": 1}); 100_000];
    let selector = json!({"a": {"$elemMatch": {"$or": branches}}});
    let selector = Selector::parse_within(&selector, &limits).unwrap();
    // So few that the time was never read between two of them.
    let document = json!({"a": vec![json!({}); 19_000]}).to_string();
    let judged = selector.matches_doc(&Doc::whole(document.as_bytes()));
    assert!(judged.is_err(), "{judged:?}");
}

#[test]
fn the_fields_of_an_element_are_looked_up_in_it() {
    let document = json!({"a": [{"x": {"y": 1}, "z": [5, {"k": 6}]}, [7, {"k": 8}], "text", {}]});
    for (condition, expected) in [
        (json!({"x.y": 1, "z.0": 5, "z.1.k": 6}), true),
        (json!({"x.y": 1, "z.0": 6}), false),
        (json!({"0": 7, "1.k": 8}), true),
        (json!({"1.k": {"$elemMatch": {"$eq": 8}}}), false),
        (
            json!({"x": {"$exists": false}, "z": {"$exists": false}}),
            true,
        ),
        (
            json!({"z": {"$elemMatch": {"k": 6, "m": {"$exists": false}}}}),
            true,
        ),
        (json!({"z": {"$elemMatch": {"k": 5}}}), false),
        (json!({"$or": [{"$eq": "text"}, {"q": 1}]}), true),
        (
            json!({"$nor": [{"$type": "object"}, {"$type": "array"}, {"$eq": "text"}]}),
            false,
        ),
    ] {
        let selector = json!({"a": {"$elemMatch": condition}});
        assert_eq!(
            matches(selector.clone(), document.clone()),
            expected,
            "{selector}"
        );
    }
}

#[test]
fn conditions_on_a_long_value_hold_as_on_a_short_one() {
    let long = format!("ä{}", "x".repeat(3000));
    let other = format!("ä{}", "y".repeat(3000));
    let document = json!({"s": long, "l": [long, other], "o": {&long: 1, &other: 2}});
    for (selector, expected) in [
        (
            json!({"$and": [{"s": {"$gt": "a"}}, {"s": {"$lt": other}}, {"s": {"$gte": long}}]}),
            true,
        ),
        (
            json!({"$and": [{"s": {"$gt": "a"}}, {"s": {"$gt": other}}]}),
            false,
        ),
        (
            json!({"s": {"$in": [other, long]}, "l": {"$in": [other]}}),
            true,
        ),
        (json!({"l": {"$elemMatch": {"$gt": long}}}), true),
        (json!({"l": {"$allMatch": {"$gt": long}}}), false),
        (json!({"o": {"$keyMapMatch": {"$gt": long}}}), true),
        (json!({"o": {"$keyMapMatch": {"$gt": other}}}), false),
    ] {
        assert_eq!(
            matches(selector.clone(), document.clone()),
            expected,
            "{selector}"
        );
    }
}

#[test]
fn mod_is_of_integers_and_keeps_the_sign() {
    assert!(matches(json!({"n": {"$mod": [3, 1]}}), json!({"n": 4})));
    assert!(matches(json!({"n": {"$mod": [3, -1]}}), json!({"n": -4})));
    assert!(!matches(json!({"n": {"$mod": [3, 1]}}), json!({"n": 4.0})));
    assert!(matches(
        json!({"n": {"$mod": [-1, 0]}}),
        json!({"n": i64::MIN})
    ));
    assert_eq!(
        refusal(json!({"n": {"$mod": [0, 0]}})).to_string(),
        "Bad argument for operator $mod: [0,0]"
    );
}

#[test]
fn conditions_at_the_root_need_a_field_name() {
    assert_eq!(refusal(json!({"$gt": 1})), SelectorError::MissingFieldName);
    for selector in [json!({"": 1}), json!({"$not": {"": 1}})] {
        let invalid = SelectorError::InvalidFieldName(String::new());
        assert_eq!(refusal(selector), invalid);
    }
}

#[test]
fn operators_that_are_none_are_refused_wherever_they_stand() {
    for selector in [
        json!({"$bad": 1}),
        json!({"a": {"$bad": 1}}),
        json!({"$or": [{"a": {"$elemMatch": {"$bad": 1}}}]}),
    ] {
        assert_eq!(refusal(selector).to_string(), "Invalid operator: $bad");
    }
    assert_eq!(
        refusal(json!({"$where": "x"})),
        SelectorError::UnsupportedOperator("$where".into())
    );
    assert_eq!(
        refusal(json!({"a": {"$text": "x"}})),
        SelectorError::TextBelowRoot
    );
}

#[test]
fn a_bad_regular_expression_is_refused_with_its_cause() {
    let reason = refusal(json!({"a": {"$regex": "("}})).to_string();
    assert!(
        reason.starts_with("Bad argument for operator $regex: \"(\": unclosed group"),
        "{reason}"
    );
    let huge = refusal(json!({"a": {"$regex": "(\\w{1000}){1000}"}}));
    assert!(matches!(huge, SelectorError::BadRegex { .. }), "{huge}");
}

#[test]
fn selectors_beyond_the_limits_are_refused() {
    let nested = |depth| (0..depth).fold(json!({"a": 1}), |inner, _| json!({"$not": inner}));
    assert!(Selector::parse(&nested(Limits::default().selector_depth_max - 1)).is_ok());
    assert_eq!(
        refusal(nested(Limits::default().selector_depth_max)),
        SelectorError::TooDeep(Limits::default().selector_depth_max)
    );
    let elements = (0..Limits::default().selector_depth_max)
        .fold(json!({"$eq": 1}), |inner, _| json!({"$elemMatch": inner}));
    assert_eq!(
        refusal(json!({"a": elements})),
        SelectorError::TooDeep(Limits::default().selector_depth_max)
    );

    let conditions = |count: usize| json!({"$or": vec![json!({"a": 1}); count]});
    assert!(Selector::parse(&conditions(Limits::default().selector_conditions_max - 1)).is_ok());
    assert_eq!(
        refusal(conditions(Limits::default().selector_conditions_max)),
        SelectorError::TooManyConditions(Limits::default().selector_conditions_max)
    );

    let regexes =
        json!({"$or": vec![json!({"a": {"$regex": "x"}}); Limits::default().regexes_max + 1]});
    assert_eq!(
        refusal(regexes),
        SelectorError::TooManyRegexes(Limits::default().regexes_max)
    );
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        (-2.0_f64..2.0).prop_map(Value::from),
        "[abA]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[ab]", inner), 0..3)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// A document in which the fields `a` and `b` are present.
fn document() -> impl Strategy<Value = Value> {
    (value(), value()).prop_map(|(a, b)| json!({"_id": "x", "a": a, "b": b}))
}

/// A condition on `a` or `b` as a whole.
fn condition() -> impl Strategy<Value = Value> {
    let operator = prop::sample::select(vec!["$eq", "$ne", "$lt", "$lte", "$gt", "$gte"]);
    let condition = prop_oneof![
        (operator, value()).prop_map(|(operator, operand)| json!({operator: operand})),
        (
            prop::sample::select(vec!["$in", "$nin", "$all"]),
            prop::collection::vec(value(), 0..3)
        )
            .prop_map(|(operator, operands)| json!({operator: operands})),
        any::<bool>().prop_map(|wanted| json!({"$exists": wanted})),
        prop::sample::select(vec![
            "null", "boolean", "number", "string", "array", "object"
        ])
        .prop_map(|name| json!({"$type": name})),
        (1_i64..4, 0_i64..3).prop_map(|(divisor, remainder)| json!({"$mod": [divisor, remainder]})),
        (0_u64..3).prop_map(|length| json!({"$size": length})),
        "[ab]{0,2}".prop_map(|pattern| json!({"$regex": pattern})),
        "[ab]{0,2}".prop_map(|prefix| json!({"$beginsWith": prefix})),
        (
            prop::sample::select(vec!["$elemMatch", "$allMatch", "$keyMapMatch"]),
            value()
        )
            .prop_map(|(operator, operand)| json!({operator: {"$gte": operand}})),
    ];
    (prop::sample::select(vec!["a", "b"]), condition)
        .prop_map(|(field, condition)| json!({field: condition}))
}

/// JSON that sometimes looks like a selector.
fn anything() -> impl Strategy<Value = Value> {
    let names = [
        "$and",
        "$or",
        "$nor",
        "$not",
        "$eq",
        "$in",
        "$nin",
        "$exists",
        "$all",
        "$elemMatch",
        "$allMatch",
    ];
    let more = [
        "$keyMapMatch",
        "$mod",
        "$size",
        "$regex",
        "$text",
        "a",
        "b",
        "a.b",
        "a.0",
        "_id",
        "",
    ];
    let name = prop::sample::select([names.as_slice(), &more].concat());
    value().prop_recursive(5, 32, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((name.clone().prop_map(str::to_owned), inner), 1..3)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_makes_a_selector_panic(selector in anything(), document in anything()) {
        if let Ok(selector) = Selector::parse(&selector) {
            selector.matches(&document);
        }
    }

    #[test]
    fn not_is_the_opposite_where_the_field_is_present(condition in condition(), document in document()) {
        prop_assert_ne!(matches(condition.clone(), document.clone()), matches(json!({"$not": condition}), document));
    }

    #[test]
    fn the_laws_of_de_morgan_hold_where_the_fields_are_present(
        left in condition(), right in condition(), document in document()
    ) {
        let (not_left, not_right) = (json!({"$not": left}), json!({"$not": right}));
        let laws = [
            (json!({"$not": {"$and": [left, right]}}), json!({"$or": [not_left, not_right]})),
            (json!({"$not": {"$or": [left, right]}}), json!({"$and": [not_left, not_right]})),
            (json!({"$nor": [left, right]}), json!({"$and": [not_left, not_right]})),
            (json!({"$not": {"$nor": [left, right]}}), json!({"$or": [left, right]})),
        ];
        for (one, other) in laws {
            prop_assert_eq!(matches(one.clone(), document.clone()), matches(other, document.clone()), "{}", one);
        }
    }

    #[test]
    fn several_conditions_mean_all_of_them(left in condition(), right in condition(), document in document()) {
        let both = matches(left.clone(), document.clone()) && matches(right.clone(), document.clone());
        prop_assert_eq!(matches(json!({"$and": [left, right]}), document), both);
    }
}
