//! `Date` reads texts as SpiderMonkey does.
//!
//! `dates.jsonl` has texts, random ones too, with the times that the shell of SpiderMonkey 102
//! returned for `Date.parse` in UTC, and if that is between 1997 and 2029, in the time zone
//! Europe/Berlin.

use functions::UTC;
use functions::js::{Engine, Isolation, Options};
use serde_json::{Value, json};

use crate::support::{assert_emits, emits, options};

/// Europe/Berlin since 1997.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

const PARSE: &str = "function (doc) { doc.texts.forEach(function (text) {
    emit(text, [Date.parse(text), new Date(text).getTime()]) }) }";

fn recorded() -> Vec<Vec<Value>> {
    let lines = include_str!("dates.jsonl").lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn engine(time_zone: &str) -> Engine {
    Engine::new(Options {
        time_zone: time_zone.to_owned(),
        ..options(Isolation::Process)
    })
}

/// Compares the times of texts: pairs.
fn assert_times(engine: &Engine, texts: &[(&Value, &Value)]) {
    let doc = json!({"texts": texts.iter().map(|(text, _)| text).collect::<Vec<_>>()});
    let found = emits(engine, PARSE, &doc.to_string());
    assert_eq!(found.len(), texts.len());
    for ((text, time), (_, found)) in texts.iter().zip(found) {
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found, json!([time, time]), "{text}");
    }
}

#[test]
fn texts_are_read_as_by_spidermonkey() {
    let recorded = recorded();
    let times: Vec<_> = recorded.iter().map(|row| (&row[0], &row[1])).collect();
    assert!(times.len() > 800);
    assert_times(&engine(UTC), &times);
}

#[test]
fn texts_without_a_zone_are_in_that_of_dates() {
    let recorded = recorded();
    let abroad = recorded
        .iter()
        .filter_map(|row| Some((&row[0], row.get(2)?)));
    let abroad: Vec<_> = abroad.collect();
    assert!(abroad.len() > 50);
    assert_times(&engine(BERLIN), &abroad);
}

#[test]
fn date_is_otherwise_that_of_the_language() {
    let map = "function (doc) {
        var date = new Date(doc.text), now = Date.now();
        emit(1, [date instanceof Date, date.constructor === Date, Object.prototype.toString.call(date)]);
        emit(2, [typeof Date(), typeof Date(0), new Date(2015, 6).getMonth(), Date.UTC(2015, 0), Date.length, Date.name]);
        emit(3, [new Date(NaN).getTime(), new Date(5).getTime(), new Date(null).getTime(), new Date(undefined).getTime()]);
        emit(4, [new Date(date).getTime() === date.getTime(), Math.abs(new Date() - now) < 60000, new Date('x').getTime()]);
        emit(5, [Object.keys(Date), date.toJSON(), Date.parse(), new Date(new Date(0)).getTime(), Date.prototype === Object.getPrototypeOf(date)]);
        function Own() { return Reflect.construct(Date, ['Dec 25, 1995 UTC'], Own) }
        Own.prototype = Object.create(Date.prototype);
        emit(6, [new Own() instanceof Own, new Own().getTime()]);
    }";
    let body = r#"{"text":"25 Dec 1995 13:30 GMT"}"#;
    assert_emits(
        map,
        body,
        &[
            ("1", r#"[true,true,"[object Date]"]"#),
            ("2", r#"["string","string",6,1420070400000,7,"Date"]"#),
            ("3", "[null,5,0,null]"),
            ("4", "[true,true,null]"),
            ("5", r#"[[],"1995-12-25T13:30:00.000Z",null,0,true]"#),
            ("6", "[true,819849600000]"),
        ],
    );
}

#[test]
fn replaced_functions_do_not_change_how_dates_are_read() {
    let map = "function (doc) {
        String.prototype.charCodeAt = String.prototype.slice = function () { return 'x' };
        Date.UTC = function () { return 1 };
        emit(1, new Date(doc.text).getTime());
    }";
    let body = r#"{"text":"25 Dec 1995 13:30 GMT"}"#;
    assert_emits(map, body, &[("1", "819898200000")]);
}
