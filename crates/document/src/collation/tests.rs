use std::time::Instant;

use icu_collator::options::CollatorOptions;
use icu_collator::{Collator as Icu, CollatorBorrowed};
use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_normalizer::properties::CanonicalCombiningClassMapBorrowed;
use md5::{Digest, Md5};
use num_bigint::BigInt;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn key(json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    Collator::root()
        .write_sort_key(json.as_bytes(), &mut out)
        .unwrap_or_else(|error| panic!("{json}: {error}"));
    out
}

fn raw_key(json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    Collator::root()
        .write_raw_sort_key(json.as_bytes(), &mut out)
        .unwrap_or_else(|error| panic!("{json}: {error}"));
    out
}

fn icu() -> CollatorBorrowed<'static> {
    Icu::try_new(Default::default(), CollatorOptions::default()).unwrap()
}

/// A JSON value whose numbers are texts, for a direct implementation of the rules.
#[derive(Clone, Debug)]
enum Json {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn text(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(yes) => yes.to_string(),
            Self::Number(text) => text.clone(),
            Self::String(text) => Value::from(text.as_str()).to_string(),
            Self::Array(elements) => {
                let elements: Vec<String> = elements.iter().map(Self::text).collect();
                format!("[{}]", elements.join(","))
            }
            Self::Object(members) => {
                let member = |(name, value): &(String, Self)| {
                    format!("{}:{}", Value::from(name.as_str()), value.text())
                };
                let members: Vec<String> = members.iter().map(member).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    fn compare(&self, other: &Self, order: &Naive) -> Ordering {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => exact(left).cmp(&exact(right)),
            (Self::String(left), Self::String(right)) => (order.strings)(left, right),
            (Self::Array(left), Self::Array(right)) => left
                .iter()
                .zip(right)
                .map(|(left, right)| left.compare(right, order))
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len())),
            (Self::Object(left), Self::Object(right)) => left
                .iter()
                .zip(right)
                .map(|(left, right)| {
                    (order.strings)(&left.0, &right.0).then_with(|| left.1.compare(&right.1, order))
                })
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len())),
            _ => (order.rank)(self).cmp(&(order.rank)(other)),
        }
    }
}

struct Naive {
    rank: fn(&Json) -> u8,
    strings: fn(&str, &str) -> Ordering,
}

const VIEWS: Naive = Naive {
    rank: |value| match value {
        Json::Null => 0,
        Json::Bool(false) => 1,
        Json::Bool(true) => 2,
        Json::Number(_) => 3,
        Json::String(_) => 4,
        Json::Array(_) => 5,
        Json::Object(_) => 6,
    },
    strings: |left, right| icu().compare(left, right),
};

const ERLANG: Naive = Naive {
    rank: |value| match value {
        Json::Number(_) => 0,
        Json::Bool(false) => 1,
        Json::Null => 2,
        Json::Bool(true) => 3,
        Json::Object(_) => 4,
        Json::Array(_) => 5,
        Json::String(_) => 6,
    },
    strings: |left, right| left.as_bytes().cmp(right.as_bytes()),
};

/// Returns the value of a number × 2^1074, which is whole for every double.
fn exact(text: &str) -> BigInt {
    if let Ok(integer) = text.parse::<BigInt>() {
        return integer << 1074;
    }
    let bits = text.parse::<f64>().unwrap().to_bits();
    let fraction = BigInt::from(bits & ((1 << 52) - 1));
    let magnitude = match bits >> 52 & 0x7ff {
        0 => fraction,
        exponent => (fraction + (BigInt::from(1) << 52)) << (exponent - 1),
    };
    if bits >> 63 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

fn numbers() -> impl Strategy<Value = String> {
    prop_oneof![
        (-300..300_i64).prop_map(|number| number.to_string()),
        (-30..30).prop_map(|number| format!("{}.5", number)),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<i128>().prop_map(|number| number.to_string()),
        // Integers and doubles that are close to each other.
        (0..140_u32, -2..3_i64, any::<bool>()).prop_map(|(power, offset, float)| {
            let number = (BigInt::from(1) << power) + offset;
            if float {
                format!("{number}.0")
            } else {
                number.to_string()
            }
        }),
        any::<f64>()
            .prop_filter("is finite", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        "-?[1-9][0-9]{0,400}",
        Just("-0.0".to_owned()),
        Just("5e-324".to_owned()),
        Just("1.7976931348623157e308".to_owned()),
    ]
}

fn strings() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-cA-C]{0,3}",
        "[ -~]{0,12}",
        "[a\u{0}-\u{2}\u{200b}\u{300}\u{301}é\u{e000}\u{fffe}]{0,4}",
        any::<String>(),
    ]
}

fn values() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        numbers().prop_map(Json::Number),
        strings().prop_map(Json::String),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::vec((strings(), inner), 0..4).prop_map(Json::Object),
        ]
    })
}

/// Values that have much in common.
fn pairs() -> impl Strategy<Value = (Json, Json)> {
    let wrapped = (values(), values(), values()).prop_map(|(common, left, right)| {
        (
            Json::Array(vec![common.clone(), left]),
            Json::Array(vec![common, right]),
        )
    });
    let numbers =
        (numbers(), numbers()).prop_map(|(left, right)| (Json::Number(left), Json::Number(right)));
    let strings =
        (strings(), strings()).prop_map(|(left, right)| (Json::String(left), Json::String(right)));
    prop_oneof![(values(), values()), wrapped, numbers, strings]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn sort_keys_compare_as_the_rules_say((left, right) in pairs()) {
        let (a, b) = (key(&left.text()), key(&right.text()));
        prop_assert_eq!(a.cmp(&b), left.compare(&right, &VIEWS));
        prop_assert!(a == b || !a.starts_with(&b) && !b.starts_with(&a));
        prop_assert!(a.as_slice() < HIGHEST && !a.is_empty());
    }

    #[test]
    fn raw_sort_keys_compare_as_erlangs_terms((left, right) in pairs()) {
        let (a, b) = (raw_key(&left.text()), raw_key(&right.text()));
        prop_assert_eq!(a.cmp(&b), left.compare(&right, &ERLANG));
        prop_assert!(a == b || !a.starts_with(&b) && !b.starts_with(&a));
        prop_assert_eq!(
            compare_erlang(left.text().as_bytes(), right.text().as_bytes()),
            left.compare(&right, &ERLANG)
        );
    }

    #[test]
    fn a_sort_key_says_where_it_ends(value in values(), rest in prop::collection::vec(any::<u8>(), 0..8)) {
        for key in [key(&value.text()), raw_key(&value.text())] {
            let row = [key.as_slice(), &rest].concat();
            prop_assert_eq!(skip(&row), Some(key.len()));
            for end in 0..key.len() {
                prop_assert_eq!(skip(&key[..end]), None);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_sort_key_do_no_harm(bytes in prop::collection::vec(0..0x2a_u8, 0..40), count in 0..4_usize) {
        if let Some(length) = skip(&bytes) {
            prop_assert!(length <= bytes.len());
        }
        if let Some(length) = group_prefix(&bytes, count) {
            prop_assert!(length <= bytes.len());
        }
    }

    #[test]
    fn a_group_shares_a_prefix_and_nothing_else_does(
        left in prop::collection::vec(values(), 0..4),
        right in prop::collection::vec(values(), 0..4),
        common in prop::collection::vec(values(), 0..3),
        count in 1..5_usize,
    ) {
        let array = |tail: Vec<Json>| Json::Array([common.clone(), tail].concat());
        let group = |array: &Json| match array {
            Json::Array(elements) => Json::Array(elements.iter().take(count).cloned().collect()),
            _ => unreachable!("it is an array"),
        };
        let (left, right) = (array(left), array(right));
        let (a, b) = (key(&left.text()), key(&right.text()));
        let same = group(&left).compare(&group(&right), &VIEWS).is_eq();
        let prefix = &a[..group_prefix(&a, count).unwrap()];
        prop_assert_eq!(b.starts_with(prefix), same);
        prop_assert_eq!(group_prefix(&a, 0), Some(0));
        let first = first_elements(left.text().as_bytes(), count).into_owned();
        prop_assert_eq!(String::from_utf8(first).unwrap(), group(&left).text());
    }

    #[test]
    fn any_text_gives_a_key_or_an_error(text in "[\\[\\]{},:\"\\\\nulfatrse0-9.eE +-]{0,24}") {
        let mut out = b"before".to_vec();
        let written = Collator::root().write_sort_key(text.as_bytes(), &mut out);
        prop_assert!(out.starts_with(b"before"));
        prop_assert_eq!(out.len() > 6, written.is_ok());
        if serde_json::from_str::<Value>(&text).is_ok_and(|value| !value.is_null()) {
            prop_assert!(written.is_ok());
        }
        let _ = first_elements(text.as_bytes(), 2);
        let _ = compare_erlang(text.as_bytes(), b"1");
    }
}

/// A generator whose numbers are the same on every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

fn assert_as_the_collator_says(icu: &CollatorBorrowed<'_>, text: &str) {
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    Collator::root().strings.write(text.as_bytes(), &mut fast);
    let Ok(()) = icu.write_sort_key_to(text, &mut slow);
    assert_eq!(fast, slow, "{text:?}");
    assert!(!slow.contains(&0), "{text:?}");
}

#[test]
fn keys_from_the_table_are_the_collators() {
    let icu = icu();
    for first in 0..0x80_u8 {
        for second in 0..0x80_u8 {
            let text = String::from_utf8(vec![first, second]).unwrap();
            assert_as_the_collator_says(&icu, &text);
        }
    }
    let mut numbers = Numbers(7);
    let alphabets: [Vec<u8>; 5] = [
        (b' '..=b'~').collect(),
        (b'a'..=b'z').chain(b'A'..=b'Z').collect(),
        (b'a'..=b'z').chain(b'0'..=b'9').collect(),
        b"aA".to_vec(),
        (0..0x80).collect(),
    ];
    for round in 0..1_000_000 {
        let alphabet = &alphabets[round % alphabets.len()];
        let length = numbers.next(if round % 100 == 0 { 400 } else { 24 });
        let text: Vec<u8> = (0..length)
            .map(|_| alphabet[numbers.next(alphabet.len())])
            .collect();
        assert_as_the_collator_says(&icu, &String::from_utf8(text).unwrap());
    }
}

#[test]
fn runs_of_small_letters_are_compressed_as_the_collator_does() {
    let icu = icu();
    for before in 0..210 {
        for after in [0, 1, 33, 34, 97, 98, 99, 200] {
            let text = format!("{}A{}", "x".repeat(before), "x".repeat(after));
            assert_as_the_collator_says(&icu, &text);
        }
        assert_as_the_collator_says(&icu, &"x".repeat(before));
    }
}

/// Texts of marks of several classes, and what may be between them. `count` is how often each
/// character is repeated.
fn marked(count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let characters =
        "\u{301}\u{316}\u{344}\u{591}\u{93c}\u{e38}\u{f71}\u{f73}\u{3099}aé\u{e40}か\u{34f}";
    let character = prop::sample::select(characters.chars().collect::<Vec<_>>());
    let parts = prop::collection::vec((character, count), 0..8);
    parts.prop_map(|parts| {
        let repeated = |(character, count)| std::iter::repeat_n(character, count);
        parts.into_iter().flat_map(repeated).collect::<String>()
    })
}

/// Returns a text with divided runs.
fn divided(text: &str) -> String {
    let classes = CanonicalCombiningClassMapBorrowed::new();
    let (mut out, mut run) = (String::new(), 0);
    for character in text.chars() {
        run = if runs::is_mark(&classes, character) {
            run + 1
        } else {
            0
        };
        if run > runs::RUN_MAX {
            out.push('\u{34f}');
            run = 1;
        }
        out.push(character);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn texts_without_long_runs_have_the_collators_keys(text in marked(1..32)) {
        prop_assert_eq!(runs::divide(text.as_bytes()), None);
        assert_as_the_collator_says(&icu(), &text);
    }

    #[test]
    fn long_runs_are_divided(text in marked(100..700)) {
        let naive = divided(&text);
        let found = runs::divide(text.as_bytes());
        prop_assert_eq!(found, (naive != text).then(|| naive.clone().into_bytes()));
        prop_assert_eq!(runs::divide(naive.as_bytes()), None);
        let key = |text: &str| {
            let mut key = Vec::new();
            Collator::root().strings.write(text.as_bytes(), &mut key);
            key
        };
        prop_assert_eq!(key(&text), key(&naive));
        prop_assert!(Collator::root().compare_strings(&text, &naive).is_eq());
    }
}

#[test]
fn invalid_text_divides_no_run_but_ends_one() {
    let marks = "\u{301}".repeat(runs::RUN_MAX);
    let text = [marks.as_bytes(), b"\xff", marks.as_bytes()].concat();
    assert_eq!(runs::divide(&text), None);
    let long = [marks.as_bytes(), "\u{301}".as_bytes(), b"\xcc"].concat();
    let divided = [marks.as_bytes(), "\u{34f}\u{301}".as_bytes(), b"\xcc"].concat();
    assert_eq!(runs::divide(&long), Some(divided));
}

#[test]
fn marks_are_what_the_collator_reads_with_the_letter_before() {
    let classes = CanonicalCombiningClassMapBorrowed::new();
    let nfd = DecomposingNormalizerBorrowed::new_nfd();
    for character in '\0'..=char::MAX {
        let text = character.to_string();
        let first = nfd.normalize(&text).chars().next().unwrap();
        let is_mark = classes.get_u8(first) != 0;
        assert_eq!(runs::is_mark(&classes, character), is_mark, "{character:?}");
    }
}

#[test]
fn a_long_run_of_one_mark_keeps_the_collators_key() {
    let classes = CanonicalCombiningClassMapBorrowed::new();
    let nfd = DecomposingNormalizerBorrowed::new_nfd();
    let icu = icu();
    for mark in '\u{300}'..=char::MAX {
        // Those that decompose into several marks are ordered with the others of the run.
        let is_one = nfd.normalize(&mark.to_string()).chars().count() == 1;
        if is_one && runs::is_mark(&classes, mark) {
            let text = format!("a{}", mark.to_string().repeat(runs::RUN_MAX + 9));
            assert!(runs::divide(text.as_bytes()).is_some(), "{mark:?}");
            assert_as_the_collator_says(&icu, &text);
        }
    }
}

#[test]
fn texts_with_long_runs_compare_as_their_keys_do() {
    let run = |lower: usize, upper: usize| {
        let (lower, upper) = ("\u{316}".repeat(lower), "\u{301}".repeat(upper));
        format!("a{upper}{lower}")
    };
    let texts = [run(100, 200), run(101, 200), run(200, 101), run(400, 400)];
    for left in &texts {
        for right in &texts {
            let keys = [left, right].map(|text| key(&Value::from(text.as_str()).to_string()));
            let order = Collator::root().compare_strings(left, right);
            assert_eq!(order, keys[0].cmp(&keys[1]), "{left:?} {right:?}");
        }
    }
}

/// Texts of ASCII, and of characters that change their neighbours in other places.
fn neighbours() -> impl Strategy<Value = String> {
    let characters =
        "aAbBlLnz-_ .09~\t\0éß\u{301}\u{b7}\u{387}\u{20d2}\u{34f}\u{e40}\u{e01}か\u{3099}\u{1f600}";
    let character = prop::sample::select(characters.chars().collect::<Vec<_>>());
    let characters = prop::collection::vec(character, 0..5);
    characters.prop_map(|characters| characters.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_first_difference_that_decides_agrees_with_the_keys(
        start in neighbours(),
        left in neighbours(),
        right in neighbours(),
    ) {
        let strings = &Collator::root().strings;
        let (left, right) = (format!("{start}{left}"), format!("{start}{right}"));
        let key = |text: &str| {
            let mut key = Vec::new();
            strings.write(text.as_bytes(), &mut key);
            key
        };
        if let Some(order) = strings.order_of_first_difference(left.as_bytes(), right.as_bytes()) {
            prop_assert_eq!(order, key(&left).cmp(&key(&right)));
        }
        let [left, right] = [left, right].map(|text| text + &"z".repeat(1 << 10));
        prop_assert_eq!(strings.compare(&left, &right), key(&left).cmp(&key(&right)));
    }
}

#[test]
fn different_characters_of_the_table_decide_without_keys() {
    let strings = &Collator::root().strings;
    for left in b' '..=b'~' {
        for right in b' '..=b'~' {
            let texts = [left, right].map(|character| [b'x', character]);
            let order = strings.order_of_first_difference(&texts[0], &texts[1]);
            let is_case = left.eq_ignore_ascii_case(&right);
            assert_eq!(order.is_none(), is_case, "{left} {right}");
        }
    }
}

/// Compares times of the same run: that of a text of twice the length is about twice as long. It
/// was four times as long.
#[test]
fn time_grows_with_the_length_of_a_run_and_not_with_its_square() {
    for (start, mark, count) in [
        ("", '\u{591}', 64_000),
        ("a", '\u{f71}', 10_000),
        ("\u{e40}a", '\u{301}', 64_000),
    ] {
        let time = |count: usize| {
            let text = format!("{start}{}", mark.to_string().repeat(count));
            let times = (0..3).map(|_| {
                let began = Instant::now();
                let mut key = Vec::new();
                Collator::root().strings.write(text.as_bytes(), &mut key);
                began.elapsed()
            });
            times.min().unwrap()
        };
        // The square would take 256 times as long.
        let (short, long) = (time(count / 16), time(count));
        assert!(long < 100 * short, "{mark:?}: {short:?}, then {long:?}");
    }
}

#[test]
fn the_table_knows_all_printable_ascii() {
    let strings = string::Strings::new();
    for character in b' '..=b'~' {
        let known = strings.table[usize::from(character)] & string::UNKNOWN == 0;
        assert!(known, "{:?}", char::from(character));
    }
}

#[test]
fn sort_keys_have_not_changed_since_their_version_was_given() {
    let mut sum = Md5::new();
    let mut key = Vec::new();
    for character in '\0'..=char::MAX {
        key.clear();
        let text = character.to_string();
        Collator::root().strings.write(text.as_bytes(), &mut key);
        assert!(!key.contains(&0), "{character:?}");
        sum.update(&key);
        sum.update([0]);
    }
    for json in ["[null,false,true,0,1,-1.5,1e300]", r#"{"aB":[],"":{}}"#] {
        sum.update(self::key(json));
        sum.update(raw_key(json));
    }
    let sum: String = sum
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        (VERSION, sum.as_str()),
        (1, "4b3f7b463acf2539612eebe694445a88"),
        "raise VERSION and put the new sum here"
    );
}

#[test]
fn equal_numbers_have_equal_keys_and_small_ones_short_keys() {
    for (left, right) in [
        ("1", "1.0"),
        ("0", "-0.0"),
        ("0", "0e5"),
        ("18446744073709551616", "18446744073709551616.0"),
        ("-2.5e3", "-2500"),
    ] {
        assert_eq!(key(left), key(right), "{left} and {right}");
    }
    assert!(key("9007199254740992.0") < key("9007199254740993"));
    assert!(key("-9007199254740993") < key("-9007199254740992.0"));
    assert_eq!(key("0").len(), 1);
    assert_eq!(key("-1").len(), 3);
    assert_eq!(key("255").len(), 3);
    assert!(key("1714564800000").len() <= 8);
}

#[test]
fn strings_with_escapes_are_the_strings_they_mean() {
    assert_eq!(key(r#""\u0061\/""#), key(r#""a/""#));
    assert_eq!(key(r#""a\u0000""#), key(r#""a""#));
    assert_eq!(key(r#""\u00e9""#), key("\"e\u{301}\""));
    assert!(raw_key(r#""a""#) < raw_key(r#""a\u0000""#));
    assert!(raw_key(r#""a\u0000\u0001""#) < raw_key(r#""a\u0001""#));
}

#[test]
fn white_space_does_not_count() {
    assert_eq!(
        key(" [ 1 , { \"a\" : [ ] , \"b\" : { } } ]\n"),
        key(r#"[1,{"a":[],"b":{}}]"#)
    );
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "nul",
        "nulll",
        "1 2",
        "[1",
        "[1,]",
        "[,1]",
        "]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{1:1}",
        "[1}",
        "{\"a\":1]",
        "\"a",
        "\"\u{1}\"",
        r#""\ud800""#,
        r#""\x""#,
        "01",
        "1.",
        "-",
        "1e400",
        "+1",
    ] {
        let mut out = Vec::new();
        assert_eq!(
            Collator::root().write_sort_key(text.as_bytes(), &mut out),
            Err(DocError::InvalidJson),
            "{text:?}"
        );
        assert!(out.is_empty());
    }
}

#[test]
fn keys_may_be_deep_but_not_endless() {
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    for depth in [1, 63, 64, 65, 128, 129, 4096] {
        let key = key(&nested(depth));
        assert_eq!(skip(&key), Some(2 * depth));
    }
    let mixed = format!("{}1{}", r#"{"a":[0,"#.repeat(1000), "]}".repeat(1000));
    assert_eq!(skip(&key(&mixed)), Some(key(&mixed).len()));
    let mut out = Vec::new();
    assert_eq!(
        Collator::root().write_sort_key(nested(100_000).as_bytes(), &mut out),
        Err(DocError::TooDeep)
    );
    let long = "1".repeat(100_000);
    assert_eq!(
        Collator::root().write_sort_key(long.as_bytes(), &mut out),
        Err(DocError::IntegerTooLarge)
    );
}

#[test]
fn bounds_enclose_all_keys() {
    for json in ["null", r#"{"\uffff":{}}"#, "-1e308", "\"\u{ffff}\""] {
        for key in [key(json), raw_key(json)] {
            assert!(key.as_slice() < HIGHEST);
            let row = [key.as_slice(), "\u{10ffff}".as_bytes()].concat();
            assert!(row < [key.as_slice(), HIGHEST].concat());
        }
    }
}
