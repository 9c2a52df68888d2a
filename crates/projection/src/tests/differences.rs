//! Planted differences are found at their places, and ordinary functions have none.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use crate::{Form, KINDS, Refusal, design_functions, differences};

/// Returns the kinds and lines of the differences of a function.
fn found(source: &str) -> Vec<(&'static str, u32)> {
    let found = differences(source, Form::Function);
    let found = found.unwrap_or_else(|refusal| panic!("{source}: {refusal}"));
    found
        .iter()
        .map(|found| (found.kind.id, found.line))
        .collect()
}

/// A function with this body from its second line on.
fn function(body: &str) -> String {
    format!("function (doc) {{\n{body}\n}}")
}

/// Bodies of functions, and the kind of difference that each has in its first line.
const PLANTED: &[(&str, &str)] = &[
    ("instanceof", "if (doc.tags instanceof Array) emit(1)"),
    ("instanceof", "if (doc.address instanceof Object) emit(1)"),
    (
        "instanceof",
        "var a = []; a = doc.tags; if (a instanceof Array) emit(1)",
    ),
    (
        "instanceof",
        "doc.all.forEach(function (one) { if (one instanceof Array) emit(one) })",
    ),
    ("instanceof", "if (doc.tags.constructor === Array) emit(1)"),
    ("instanceof", "if (Object == doc.a.constructor) emit(1)"),
    ("time-zone", "emit(new Date(doc.t).getHours())"),
    ("time-zone", "emit(new Date(2015, 6, 1).getTime())"),
    ("time-zone", "emit(Date())"),
    ("time-zone", "emit(new Date(doc.t).toLocaleDateString())"),
    ("locale", "emit(doc.n.toLocaleString('de-DE'))"),
    (
        "locale",
        "emit(doc.n.toLocaleString('en-US', {minimumFractionDigits: 2}))",
    ),
    ("locale", "emit(doc.a.localeCompare(doc.b, 'sv'))"),
    ("regexp-statics", "/(.)/.test(doc._id); emit((RegExp).$1)"),
    (
        "regexp-statics",
        "/(.)/.test(doc._id); emit((function (r) { return r.$1 })(RegExp))",
    ),
    (
        "error-position",
        "try { doc.a.b.c } catch (e) { emit(e.lineNumber) }",
    ),
    ("intl", "emit(new Intl.NumberFormat('de').format(doc.n))"),
    (
        "static-methods",
        "Array.forEach(doc.tags, function (tag) { emit(tag) })",
    ),
    ("static-methods", "emit(Array.slice(doc.tags, 1))"),
    ("static-methods", "emit(String.trim(doc.name))"),
    (
        "missing-method",
        "emit(new Date(doc.t).toLocaleFormat('%Y'))",
    ),
    ("missing-method", "emit(doc.name.quote())"),
    ("missing-method", "emit(doc.a.__count__)"),
    (
        "missing-global",
        "try { next() } catch (e) { if (e === StopIteration) emit(1) }",
    ),
    ("missing-global", "var it = Iterator(doc); emit(1)"),
    ("missing-global", "emit(new XML(doc.body).toString())"),
    ("for-each", "for each (var tag in doc.tags) emit(tag)"),
    (
        "expression-closure",
        "doc.tags.map(function (tag) tag.name).forEach(emit)",
    ),
    ("let-block", "let (a = doc.a, b = doc.b) { emit(a, b) }"),
    (
        "legacy-generator",
        "function tags() { for (var i in doc.tags) yield doc.tags[i] }",
    ),
    ("comprehension", "emit([tag.name for (tag in doc.tags)])"),
    (
        "comprehension",
        "emit([tag.name for each (tag in doc.tags) if (tag)])",
    ),
    (
        "catch-condition",
        "try { emit(doc.a.b) } catch (e if e instanceof TypeError) { emit(1) }",
    ),
    (
        "e4x",
        "var xml = <order><id>{doc._id}</id></order>; emit(xml.toString())",
    ),
    ("e4x", "emit(new XML(doc.body)..title)"),
    ("e4x", "emit(doc.xml.@id)"),
    ("sharp-variable", "var a = #1={self: #1#}; emit(a)"),
    (
        "legacy-accessor",
        "var a = {b getter: function () { return 1 }}; emit(a.b)",
    ),
];

#[test]
fn differences_of_each_kind_are_found() {
    for (kind, body) in PLANTED {
        let found = found(&function(body));
        assert!(found.contains(&(kind, 2)), "{body}: {found:?}");
    }
    for kind in KINDS {
        let is_planted = PLANTED.iter().any(|(id, _)| *id == kind.id);
        assert!(is_planted, "{} has no planted function", kind.id);
    }
}

#[test]
fn a_difference_has_its_place_and_an_excerpt() {
    let source =
        "function (doc) {\n\n  var ä = 1; if (doc.a instanceof Array &&\n doc.b) emit(ä) }";
    let found = differences(source, Form::Function).unwrap();
    let [one] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((one.line, one.column), (3, 18));
    assert_eq!(one.code, "doc.a instanceof Array");
    let module = "exports.isList = function (x) {\n return x instanceof Array }";
    let found = differences(module, Form::Module).unwrap();
    assert_eq!(
        (found[0].kind.id, found[0].line, found[0].column),
        ("instanceof", 2, 9)
    );
}

/// Bodies that work in both engines alike, or check which functions exist.
const ORDINARY: &[&str] = &[
    "if (isArray(doc.tags)) doc.tags.forEach(function (tag) { emit(tag, 1) })",
    "if (isArray(doc.tags) || doc.tags instanceof Array) emit(1)",
    "var words = doc.name.split(' '); if (words instanceof Array && [] instanceof Array) emit(words)",
    "if (Array.isArray(doc.tags) || doc.tags.constructor === Array) emit([].slice.call(doc.tags))",
    "try { doc.a.b.c } catch (e) { log(e instanceof Object); emit(e.message) }",
    "emit(doc.words.sort(function (a, b) { return a > b }))",
    "if (/^map\\/(.*)$/.test(doc._id)) emit(RegExp.$1, RegExp['$&'])",
    "var r = RegExp; /(.)/.test(doc._id); emit(r.$1)",
    "emit(new RegExp(doc.r).test('x'), doc.r instanceof RegExp)",
    "emit(new Date(doc.t).getTime(), new Date(doc.t).toISOString())",
    "var d = new Date(Date.parse(doc.t)); emit([d.getUTCFullYear(), d.getUTCMonth() + 1])",
    "emit(Date.now() - new Date().getTime())",
    "emit(doc.n.toLocaleString(), doc.n.toLocaleString('en-US'))",
    "emit(doc.a.localeCompare(doc.b))",
    "emit(doc.toSource(), uneval(doc))",
    "if (typeof Intl !== 'undefined') emit(new Intl.NumberFormat().format(1)); else emit(doc.n)",
    "if (!Array.map) Array.map = function (a, f) { return a.map(f) }; emit(Array.map(doc.a, Number))",
    "var o = {getDate: function () { return 1 }, quote: function () { return 2 }}; emit(o.getDate(), o.quote())",
    "for (var k in doc) if (k.charAt(0) !== '_') emit(k, doc[k])",
    "emit(Array.from(doc.tags), String.fromCharCode(65), Array.of(1))",
    "var s = 'for each (x in y) Intl instanceof Array <a/>'; // let (x = 1) yield\n emit(s)",
    "emit(doc.a < doc.b, doc.a <doc.c, 1..toString())",
    "var getter = doc.getter, let_ = 1, each = doc.each; emit(getter, each)",
    "emit(JSON.stringify({get a() { return 1 }}), `for each ${doc._id}`)",
    "var a = Array.prototype.slice.call(arguments), b = Array.apply(null, a); emit(a, b)",
    "emit(doc.yield, doc.let, doc.XML, doc.Intl, doc.lineNumber)",
];

#[test]
fn ordinary_functions_have_no_differences() {
    for body in ORDINARY {
        let found = found(&function(body));
        assert_eq!(found, [], "{body}");
    }
}

#[test]
fn sources_that_do_not_compile_for_another_reason_are_not_read() {
    for source in [
        "function (doc) { emit(doc.a }",
        "function (doc) { var 1a }",
        "(",
    ] {
        let refused = differences(source, Form::Function);
        assert!(
            matches!(refused, Err(Refusal::Syntax(_))),
            "{source}: {refused:?}"
        );
    }
    let long = function(&"emit(1);".repeat(10_000));
    assert!(matches!(
        differences(&long, Form::Function),
        Err(Refusal::TooLong { .. })
    ));
}

#[test]
fn modules_of_a_limited_number_of_names_are_searched_for() {
    let names = 1..=2000;
    let shows: Map<String, Value> = names
        .clone()
        .map(|n| (n.to_string(), format!("require('lib/{n}')").into()))
        .collect();
    let lib: Map<String, Value> = names.map(|n| (n.to_string(), "1".into())).collect();
    let design = json!({"shows": shows, "lib": lib});
    let functions = design_functions(design.as_object().unwrap());
    let of = |form| functions.iter().filter(|of| of.form == form).count();
    assert_eq!((of(Form::Function), of(Form::Module)), (2000, 1000));
}

#[test]
fn a_design_document_has_functions_and_the_modules_that_they_require() {
    let design = json!({
        "_id": "_design/d",
        "_attachments": {"a.js": {"stub": true}},
        "language": "javascript",
        "title": "require('title')",
        "views": {
            "lib": {"a": "exports.b = require('./b')", "b": "1", "unused": "2"},
            "v": {"map": "function (doc) { require('views/lib/a') }", "reduce": "_sum"},
            "w": {"map": "m", "reduce": "r"},
        },
        "shows": {"s": "function () { return require('lib/x').y + require('title') }"},
        "lib": {"x": "exports.y = 1"},
        "filters": {"f": "f", "none": 1},
        "validate_doc_update": "v",
        "rewrites": [{"from": "a", "to": "b"}],
        "indexes": {"i": {"analyzer": "standard", "index": "i"}},
        "nouveau": {"n": {"index": "n"}},
    });
    let Value::Object(design) = design else {
        unreachable!()
    };
    let functions = design_functions(&design);
    let of = |wanted| {
        let of = functions
            .iter()
            .filter(move |function| function.form == wanted);
        of.map(|function| function.path.join("/"))
            .collect::<Vec<_>>()
    };
    let all = [
        "filters/f",
        "indexes/i/index",
        "nouveau/n/index",
        "shows/s",
        "validate_doc_update",
        "views/v/map",
        "views/w/map",
        "views/w/reduce",
    ];
    assert_eq!(of(Form::Function), all);
    assert_eq!(
        of(Form::Module),
        ["lib/x", "title", "views/lib/a", "views/lib/b"]
    );
}

/// Returns all texts in a value that look like functions.
fn functions_in(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.trim_start().starts_with("function") => {
            found.push(text.clone())
        }
        Value::Array(elements) => elements.iter().for_each(|value| functions_in(value, found)),
        Value::Object(members) => members
            .values()
            .for_each(|value| functions_in(value, found)),
        _ => {}
    }
}

#[test]
fn functions_of_recorded_scenarios_have_no_differences() {
    let folder = Path::new("../../tests/vectors");
    let mut sources = vec![];
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                functions_in(&serde_json::from_str(line).unwrap(), &mut sources);
            }
        }
    }
    sources.sort();
    sources.dedup();
    assert!(sources.len() > 100, "{}", sources.len());
    for source in &sources {
        if let Ok(found) = differences(source, Form::Function) {
            assert_eq!(found, [], "{source}");
        }
    }
}

#[test]
fn the_manual_has_the_table_of_kinds() {
    let page = std::fs::read_to_string("../../docs/src/guide/check-functions.md").unwrap();
    let mut table =
        String::from("| kind | effect | how the engines differ | instead |\n|---|---|---|---|\n");
    for kind in KINDS {
        let (effect, differs, instead) = (kind.effect.name(), kind.differs, kind.instead);
        table.push_str(&format!(
            "| `{}` | {effect} | {differs} | {instead} |\n",
            kind.id
        ));
    }
    assert!(
        page.contains(&table),
        "docs/src/guide/check-functions.md should have:\n{table}"
    );
}

/// Parts of sources, with brackets that may not close.
const PARTS: &[&str] = &[
    "function (doc) {",
    "}",
    "(",
    ")",
    "[",
    "]",
    "`",
    "${",
    "'",
    "\"",
    "\\",
    "/",
    "*",
    "//",
    "/*",
    "<",
    ">",
    "..",
    ".",
    "@",
    "#1",
    "=",
    "::",
    ":",
    "ä",
    "\u{2028}",
    "\n",
    " ",
    "for",
    "each",
    "let",
    "yield",
    "catch",
    "if",
    "getter",
    "RegExp",
    ".$1",
    "Array",
    "instanceof",
    "1.",
    "doc.a",
    "emit",
    "new Date(1, 2)",
    ";",
    ",",
    "=>",
    "?.",
];

proptest! {
    #[test]
    fn any_text_has_an_answer(parts in vec(select(PARTS), 0..30)) {
        let source = parts.concat();
        for form in [Form::Function, Form::Module] {
            for found in differences(&source, form).into_iter().flatten() {
                let lines = source.matches('\n').count() as u32 + 1;
                prop_assert!(found.line >= 1 && found.line <= lines);
            }
        }
    }
}
