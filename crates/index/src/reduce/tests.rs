use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const ALL: [Builtin; 8] = [
    Builtin::Sum,
    Builtin::Count,
    Builtin::Stats,
    Builtin::ApproxCountDistinct,
    Builtin::First,
    Builtin::Last,
    Builtin::Top(3),
    Builtin::Bottom(2),
];

fn reduce(builtin: Builtin, values: &[&str]) -> Vec<u8> {
    builtin.reduce(
        values
            .iter()
            .map(|value| (b"null".as_slice(), value.as_bytes())),
    )
}

fn result(builtin: Builtin, values: &[&str]) -> String {
    let result = builtin.finalize(&reduce(builtin, values)).unwrap();
    String::from_utf8(result).unwrap()
}

fn sum(values: &[&str]) -> String {
    result(Builtin::Sum, values)
}

fn stats(values: &[&str]) -> String {
    result(Builtin::Stats, values)
}

fn cause(values: &[&str]) -> Value {
    let error: Value = serde_json::from_str(&sum(values)).unwrap();
    assert_eq!(error["error"], "builtin_reduce_error", "{values:?}");
    error["caused_by"].clone()
}

#[test]
fn names_are_recognised_by_their_beginning_as_in_couchdb() {
    for (source, builtin) in [
        ("_sum\n", Builtin::Sum),
        ("_count", Builtin::Count),
        ("_stats", Builtin::Stats),
        ("_approx_count_distinct", Builtin::ApproxCountDistinct),
        ("_first", Builtin::First),
        ("_last", Builtin::Last),
        ("_top_1", Builtin::Top(1)),
        ("_bottom_100", Builtin::Bottom(100)),
    ] {
        assert_eq!(Builtin::parse(source), Some(Ok(builtin)));
    }
    for source in ["_", "_foo", "_top", "_bottom"] {
        let reason = format!("`{source}` is not a supported reduce function.");
        assert_eq!(Builtin::parse(source), Some(Err(reason)));
    }
    assert_eq!(Builtin::parse("sum(values)"), None);
    assert_eq!(Builtin::parse(""), None);
}

#[test]
fn the_number_of_a_rank_function_is_between_1_and_100() {
    for (number, reason) in [
        ("", "invalid rank reducer"),
        ("x", "invalid rank reducer"),
        ("1x", "invalid rank reducer"),
        ("+5", "invalid rank reducer"),
        ("-1", "invalid rank reducer"),
        ("0", "rank value must be between 1 and 100"),
        ("101", "rank value must be between 1 and 100"),
        (
            "99999999999999999999",
            "rank value must be between 1 and 100",
        ),
    ] {
        for function in ["_top_", "_bottom_"] {
            let parsed = Builtin::parse(&format!("{function}{number}"));
            assert_eq!(parsed, Some(Err(reason.to_owned())), "{function}{number}");
        }
    }
}

#[test]
fn integers_are_summed_exactly_and_doubles_as_doubles() {
    assert_eq!(sum(&["1", "2", "-4"]), "-1");
    assert_eq!(sum(&["9007199254740993", "1"]), "9007199254740994");
    assert_eq!(sum(&["18446744073709551615", "1"]), "18446744073709551616");
    let largest = i128::MAX.to_string();
    let beyond = "170141183460469231731687303715884105728";
    assert_eq!(sum(&[&largest, "1"]), beyond);
    assert_eq!(sum(&[beyond, "-1"]), largest);
    assert_eq!(sum(&["0.1", "0.2"]), "0.30000000000000004");
    assert_eq!(sum(&["1", "0.5", "1.5"]), "3.0");
    assert_eq!(sum(&["1e+300", "1e+300"]), "2.0e300");
    assert_eq!(sum(&[beyond, "0.5"]), "1.7014118346046923e38");
}

#[test]
fn a_sum_beyond_all_doubles_is_an_error_in_the_result() {
    assert_eq!(cause(&["1.7e308", "1.7e308"]), json!(1.7e308));
    let large = "9".repeat(400);
    assert_eq!(cause(&[&large, "0.5"]), json!(0.5));
    assert_eq!(cause(&["[1.7e308]", "1.7e308"]), json!(1.7e308));
}

#[test]
fn arrays_and_objects_are_summed_by_their_parts() {
    assert_eq!(sum(&["[1,2]", "3"]), "[4,2]");
    assert_eq!(sum(&["3", "[1,2]"]), "[4,2]");
    assert_eq!(sum(&["2", "[3,5,7]", "[0,0,0,42]", "1", "3"]), "[9,5,7,42]");
    assert_eq!(sum(&["[]"]), "[0]");
    assert_eq!(sum(&[r#"{"b":1,"a":2}"#]), r#"{"b":1,"a":2}"#);
    assert_eq!(
        sum(&[
            r#"{"b":1,"a":{"x":1}}"#,
            r#"{"c":[1],"a":{"y":1.5,"x":2}}"#,
            r#"{"c":[1,1]}"#
        ]),
        r#"{"a":{"x":3,"y":1.5},"b":1,"c":[2,1]}"#
    );
    assert_eq!(sum(&[r#"{"é\"":1}"#, r#"{"\u00e9\"":1}"#]), r#"{"é\"":2}"#);
}

#[test]
fn what_cannot_be_added_is_named_as_the_cause() {
    assert_eq!(cause(&["\"x\"", "1"]), json!("x"));
    assert_eq!(cause(&["1", "null"]), Value::Null);
    assert_eq!(cause(&["1", r#"{"a":1}"#]), json!({"a": 1}));
    assert_eq!(cause(&[r#"{"a":1}"#, "[1]"]), json!([1]));
    assert_eq!(cause(&[r#"{"a":1}"#, r#"{"a":"x"}"#]), json!("x"));
    assert_eq!(cause(&["[1,\"x\"]", "[1,1,1]"]), json!(["x"]));
    // A value that nothing was added to passes.
    assert_eq!(sum(&["[1,\"x\"]"]), "[1,\"x\"]");
}

#[test]
fn an_error_goes_through_further_reductions() {
    let builtin = Builtin::Sum;
    let parts = [
        reduce(builtin, &["1"]),
        reduce(builtin, &["true"]),
        reduce(builtin, &["2"]),
    ];
    let state = builtin.rereduce(parts.iter().map(Vec::as_slice));
    assert_eq!(state, parts[1]);
    let parts = [
        reduce(Builtin::Stats, &["1"]),
        reduce(Builtin::Stats, &["null"]),
    ];
    let state = Builtin::Stats.rereduce(parts.iter().map(Vec::as_slice));
    assert!(Builtin::Stats.finalize(&state).is_err());
}

#[test]
fn statistics_are_of_numbers_arrays_and_earlier_statistics() {
    assert_eq!(
        stats(&["3", "1", "2"]),
        r#"{"sum":6,"count":3,"min":1,"max":3,"sumsqr":14}"#
    );
    assert_eq!(
        stats(&["0.5", "1.5"]),
        r#"{"sum":2.0,"count":2,"min":0.5,"max":1.5,"sumsqr":2.5}"#
    );
    assert_eq!(
        stats(&["123456789012345680000"]),
        concat!(
            r#"{"sum":123456789012345680000,"count":1,"min":123456789012345680000,"max":123456789012345680000,"#,
            r#""sumsqr":15241578753238837021795455814662400000000}"#
        )
    );
    assert_eq!(
        stats(&["999999999999999999999"]),
        concat!(
            r#"{"sum":999999999999999999999,"count":1,"min":999999999999999999999,"max":999999999999999999999,"#,
            r#""sumsqr":999999999999999999998000000000000000000001}"#
        )
    );
    assert_eq!(
        stats(&[
            r#"{"sum":6,"count":3,"min":1,"max":3,"sumsqr":14,"more":"x"}"#,
            "4"
        ]),
        r#"{"sum":10,"count":4,"min":1,"max":4,"sumsqr":30}"#
    );
    assert_eq!(
        stats(&["[1,[2]]", "[3,[4]]"]),
        concat!(
            r#"[{"sum":4,"count":2,"min":1,"max":3,"sumsqr":10},"#,
            r#"[{"sum":6,"count":2,"min":2,"max":4,"sumsqr":20}]]"#
        )
    );
    // Of equal numbers the later stays.
    assert_eq!(
        stats(&["1", "1.0"]),
        r#"{"sum":2.0,"count":2,"min":1.0,"max":1.0,"sumsqr":2.0}"#
    );
}

#[test]
fn statistics_of_anything_else_fail() {
    for values in [
        &["null"] as &[_],
        &["1", "\"x\""],
        &["1", "[1]"],
        &["[1]", "1"],
        &["[1]", "[1,2]"],
        &["[\"x\"]"],
        &[r#"{"sum":6}"#],
        &[r#"{"sum":"6","count":3,"min":1,"max":3,"sumsqr":14}"#],
        &["1e308"],
        &["no json"],
    ] {
        let state = reduce(Builtin::Stats, values);
        assert!(Builtin::Stats.finalize(&state).is_err(), "{values:?}");
    }
    let failed = reduce(Builtin::Stats, &["null"]);
    let error = Builtin::Stats.finalize(&failed).unwrap_err();
    assert_eq!(
        error.to_string(),
        "The _stats function requires that map values be numbers or arrays of numbers, not 'null'"
    );
}

#[test]
fn ranks_hold_each_value_once_in_the_order_of_views() {
    let values = ["5", "\"b\"", "9", "5.0", "null", "\"B\"", "[1,\"]\"]", "9"];
    assert_eq!(result(Builtin::Top(2), &values), r#"[[1,"]"],"B"]"#);
    assert_eq!(result(Builtin::Top(4), &values), r#"[[1,"]"],"B","b",9]"#);
    assert_eq!(result(Builtin::Bottom(3), &values), "[null,5,9]");
    assert_eq!(
        result(Builtin::Bottom(100), &values),
        r#"[null,5,9,"b","B",[1,"]"]]"#
    );
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    assert_eq!(
        result(Builtin::Top(1), &["1", &deep, "{}"]),
        format!("[{deep}]")
    );
}

#[test]
fn the_first_and_the_last_value_are_those_of_the_rows() {
    assert_eq!(result(Builtin::First, &["3", "1", "2"]), "3");
    assert_eq!(result(Builtin::Last, &["3", "1", "{}"]), "{}");
}

#[test]
fn nothing_reduces_to_nothing() {
    for builtin in ALL {
        let state = reduce(builtin, &[]);
        assert!(state.is_empty());
        assert!(
            builtin
                .rereduce(std::iter::once(state.as_slice()))
                .is_empty()
        );
        let state = reduce(builtin, &["7"]);
        let with_nothing = [b"".as_slice(), &state, b""];
        assert_eq!(builtin.rereduce(with_nothing.into_iter()), state);
    }
    assert_eq!(sum(&[]), "0");
    assert_eq!(result(Builtin::Count, &[]), "0");
    assert_eq!(result(Builtin::ApproxCountDistinct, &[]), "0");
    assert_eq!(result(Builtin::Top(1), &[]), "[]");
    assert_eq!(result(Builtin::First, &[]), "null");
    assert_eq!(
        stats(&[]),
        r#"{"sum":0,"count":0,"min":0,"max":0,"sumsqr":0}"#
    );
}

fn distinct(keys: impl Iterator<Item = u64>) -> u64 {
    let keys: Vec<String> = keys.map(|key| format!("\"key {key}\"")).collect();
    let rows = keys.iter().map(|key| (key.as_bytes(), b"1".as_slice()));
    let builtin = Builtin::ApproxCountDistinct;
    let result = builtin.finalize(&builtin.reduce(rows)).unwrap();
    String::from_utf8(result).unwrap().parse().unwrap()
}

#[test]
fn few_different_keys_are_counted_exactly() {
    for count in [1, 2, 10, 100, 255, 256] {
        assert_eq!(distinct(0..count), count);
        assert_eq!(distinct((0..count * 5).map(|key| key % count)), count);
    }
}

#[test]
fn many_different_keys_are_estimated_within_a_few_per_cent() {
    for count in [
        257_u64, 1_000, 2_000, 5_000, 10_000, 20_000, 100_000, 500_000,
    ] {
        let estimate = distinct(0..count);
        let error = estimate as f64 / count as f64 - 1.0;
        // The standard error is 2.3 per cent; the keys are always the same.
        assert!(error.abs() < 0.07, "{estimate} for {count}");
    }
}

#[test]
fn a_state_of_different_keys_stays_small() {
    let keys: Vec<String> = (0..100_000).map(|key: u32| key.to_string()).collect();
    let rows = keys.iter().map(|key| (key.as_bytes(), b"1".as_slice()));
    assert_eq!(Builtin::ApproxCountDistinct.reduce(rows).len(), 2049);
}

#[test]
fn a_sum_that_does_not_shrink_is_replaced_by_an_error() {
    let limit = ReduceLimit::default();
    let large = vec![b'1'; 5001];
    assert_eq!(limit.check(10_002, large.clone(), "db/d/v"), large);
    let error: Value =
        serde_json::from_slice(&limit.check(10_001, large.clone(), "db/d/v")).unwrap();
    assert_eq!(
        error,
        json!({
            "error": "builtin_reduce_error",
            "reason": "Reduce output must shrink more rapidly: input size: 10001 output size: 5001 context: db/d/v"
        })
    );
    assert_eq!(limit.check(1, vec![b'1'; 5000], "db/d/v").len(), 5000);
    let error = limit.check(10_001, large, "db/d/v");
    assert!(is_overflow_of(&error, 10_001, 5001));
    assert!(!is_overflow_of(&error, 10_001, 5002));
    let older = br#"{"error":"builtin_reduce_error","reason":"Reduce output must shrink more rapidly: input size: 1 output size: 2"}"#;
    assert!(is_overflow_of(older, 1, 2) && !is_overflow_of(older, 1, 20));
}

/// Values that any function can work with in any grouping: sums of integers do not depend on it.
fn values() -> impl Strategy<Value = Vec<String>> {
    let integers = || prop_oneof![-9..9_i64, any::<i64>()];
    let array =
        prop::collection::vec(integers(), 2).prop_map(|elements| Value::from(elements).to_string());
    let scaled = integers().prop_map(|number| (i128::from(number) * 10_i128.pow(19)).to_string());
    prop_oneof![
        prop::collection::vec(integers().prop_map(|number| number.to_string()), 0..30),
        prop::collection::vec(array, 0..30),
        prop::collection::vec(scaled, 0..30),
    ]
}

proptest! {
    #[test]
    fn states_of_parts_make_the_state_of_the_whole(values in values(), cuts in prop::collection::vec(0..30_usize, 0..4)) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(values.len())).collect();
        cuts.extend([0, values.len()]);
        cuts.sort_unstable();
        for builtin in ALL {
            let parts: Vec<Vec<u8>> = cuts
                .windows(2)
                .map(|cut| reduce(builtin, &values[cut[0]..cut[1]]))
                .collect();
            let (left, right) = parts.split_at(parts.len() / 2);
            let halves = [left, right].map(|half| builtin.rereduce(half.iter().map(Vec::as_slice)));
            let state = builtin.rereduce(halves.iter().map(Vec::as_slice));
            prop_assert_eq!(&state, &reduce(builtin, &values), "{:?}", builtin);
        }
    }

    #[test]
    fn distinct_keys_are_merged_as_if_they_had_come_at_once(
        keys in prop::collection::vec(0..600_u32, 0..900),
        cut in 0..900_usize,
    ) {
        let builtin = Builtin::ApproxCountDistinct;
        let keys: Vec<String> = keys.iter().map(u32::to_string).collect();
        let rows = |keys: &[String]| {
            builtin.reduce(keys.iter().map(|key| (key.as_bytes(), b"".as_slice())))
        };
        let (left, right) = keys.split_at(cut.min(keys.len()));
        let parts = [rows(left), rows(right)];
        let state = builtin.rereduce(parts.iter().map(Vec::as_slice));
        prop_assert_eq!(state, rows(&keys));
    }

    #[test]
    fn no_value_and_no_state_does_harm(
        texts in prop::collection::vec("[\\[\\]{},:\"\\\\!a0-9.eE +-]{0,16}", 0..5),
        bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        for builtin in ALL {
            let values: Vec<&str> = texts.iter().map(String::as_str).collect();
            let states = [reduce(builtin, &values), bytes.clone()];
            let state = builtin.rereduce(states.iter().map(Vec::as_slice));
            let _ = builtin.finalize(&state);
            let _ = builtin.finalize(&bytes);
        }
    }

    #[test]
    fn numbers_compare_as_their_values(left in any::<i64>(), right in any::<i64>(), power in 0..63_u32) {
        use super::number::Number;
        let left_number = Number::Integer(i128::from(left) << power);
        let right_number = Number::Integer(i128::from(right) << power);
        prop_assert_eq!(left_number.compare(&right_number), left.cmp(&right));
        let float = Number::Float(right as f64);
        let exact = i128::from(left).cmp(&(right as f64 as i128));
        prop_assert_eq!(Number::Integer(i128::from(left)).compare(&float), exact);
    }
}

#[test]
fn what_is_no_json_is_quoted_in_errors() {
    for text in ["", "nul", "01", "[1", "{\"a\"}", "\"\\x\"", "1 2", "}"] {
        assert_eq!(cause(&["1", text]), json!(text));
    }
}

#[test]
fn deep_values_are_passed_on_but_not_summed() {
    let deep = "[".repeat(100_000) + "1" + &"]".repeat(100_000);
    assert!(cause(&["1", &deep]).is_array() || sum(&[&deep]).len() > 100_000);
    let nested = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    assert_eq!(
        sum(&[&nested(200), &nested(200)]),
        nested(200).replace('1', "2")
    );
    assert!(sum(&[&nested(5000), &nested(5000)]).contains("builtin_reduce_error"));
    assert!(
        Builtin::Stats
            .finalize(&reduce(Builtin::Stats, &[&deep]))
            .is_err()
    );
}
