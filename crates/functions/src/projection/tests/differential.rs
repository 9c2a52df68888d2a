//! Each function gives the same rows for the projected document as for the whole one, and throws if and only if it did.

use rquickjs::{Context, Ctx, Function, Runtime};
use serde_json::json;

use super::{Choices, followed::FOLLOWED, refused::REFUSED};
use crate::external::Settings;
use crate::js::{Engine, Options};
use crate::projection::{Projection, whole};
use crate::{Doc, Emits, Functions, Languages, MapGroup, Mapper};

/// Collects the rows as text at the moment of `emit`, and what was thrown.
const HARNESS: &str = r#"
    (function () {
        var rows = [], stringify = JSON.stringify, parse = JSON.parse;
        globalThis.emit = function (key, value) { rows.push(stringify([key, value])) };
        globalThis.log = globalThis.sum = function () {};
        globalThis.isArray = Array.isArray;
        globalThis.require = function () { return function (x) { return stringify(x) } };
        return function (map, text) {
            rows = [];
            var thrown = null;
            try { map(parse(text)) } catch (e) { thrown = e instanceof Error ? e.name + e.message : stringify(e) }
            return stringify([rows, thrown]);
        };
    })()
"#;

struct Side<'js> {
    run: Function<'js>,
    maps: Vec<Function<'js>>,
}

impl<'js> Side<'js> {
    fn new(ctx: &Ctx<'js>, sources: &[&str]) -> Side<'js> {
        let run = ctx.eval(HARNESS).unwrap();
        let maps = sources
            .iter()
            .map(|source| {
                let source = source.trim_end_matches([';', '\n', ' ']);
                let mut options = rquickjs::context::EvalOptions::default();
                options.strict = false;
                ctx.eval_with_options(format!("({source}\n)"), options)
                    .unwrap_or_else(|error| panic!("{source}: {error} {:?}", ctx.catch()))
            })
            .collect();
        Side { run, maps }
    }

    fn rows(&self, text: &[u8]) -> Vec<String> {
        let text = std::str::from_utf8(text).unwrap();
        self.maps
            .iter()
            .map(|map| self.run.call((map.clone(), text)).unwrap())
            .collect()
    }
}

/// One document.
struct Texts {
    full: Vec<u8>,
    projected: Vec<u8>,
}

/// Runs the functions over random documents, whole and projected. Answers how many rows there were and how many throws.
fn compare(sources: &[&str], projection: &Projection, seed: u64, count: usize) -> (usize, usize) {
    let runtime = Runtime::new().unwrap();
    let (whole_context, projected_context) = (
        Context::full(&runtime).unwrap(),
        Context::full(&runtime).unwrap(),
    );
    let mut choices = Choices(seed);
    let texts: Vec<Texts> = documents(&mut choices, count)
        .iter()
        .map(|(members, body)| {
            let (mut full, mut projected) = (Vec::new(), Vec::new());
            whole(members.as_bytes(), body.as_bytes(), &mut full);
            projection.project(members.as_bytes(), body.as_bytes(), &mut projected);
            Texts { full, projected }
        })
        .collect();
    let run = |context: &Context, text: fn(&Texts) -> &[u8]| {
        context.with(|ctx| {
            let side = Side::new(&ctx, sources);
            texts
                .iter()
                .map(|texts| side.rows(text(texts)))
                .collect::<Vec<_>>()
        })
    };
    let expected = run(&whole_context, |texts| &texts.full);
    let found = run(&projected_context, |texts| &texts.projected);
    for (Texts { full, projected }, (expected, found)) in
        texts.iter().zip(expected.iter().zip(&found))
    {
        assert_eq!(
            expected,
            found,
            "{sources:?} takes {}\n    of {}\n    as {}",
            projection.describe(),
            String::from_utf8_lossy(full),
            String::from_utf8_lossy(projected)
        );
    }
    let emitted = expected
        .iter()
        .flatten()
        .filter(|result| !result.starts_with("[[],"))
        .count();
    let thrown = expected
        .iter()
        .flatten()
        .filter(|result| !result.ends_with(",null]"))
        .count();
    (emitted, thrown)
}

#[test]
fn rows_are_the_same_with_and_without_projection() {
    let (mut emitted, mut thrown) = (0, 0);
    for (i, (source, _)) in FOLLOWED.iter().enumerate() {
        let projection = Projection::analyse(source).unwrap();
        let (rows, throws) = compare(&[source], &projection, i as u64 * 7919, 300);
        emitted += rows;
        thrown += throws;
    }
    // The documents do reach the functions: neither do all calls throw, nor none.
    assert!(emitted > 10_000, "{emitted}");
    assert!(thrown > 3_000, "{thrown}");
}

#[test]
fn groups_that_share_a_document_give_the_same_rows() {
    let mut choices = Choices(3);
    for seed in 0..60 {
        let count = 2 + choices.below(6);
        let sources: Vec<&str> = (0..count)
            .map(|_| FOLLOWED[choices.below(FOLLOWED.len())].0)
            .collect();
        let projection = Projection::of_group(&sources, None).unwrap();
        compare(&sources, &projection, seed + 1_000_000, 60);
    }
}

/// Random documents: their underscore members and bodies.
fn documents(choices: &mut Choices, count: usize) -> Vec<(String, String)> {
    let document = |i| {
        let members = if choices.below(4) == 0 {
            format!(
                "\"_id\":\"d{i}\",\"_rev\":\"1-a\",\"_attachments\":{}",
                json!({"f": choices.value(1)})
            )
        } else {
            format!("\"_id\":\"d{i}\",\"_rev\":\"1-a\"")
        };
        let body = choices.body();
        let mut text = String::new();
        choices.object_text(&body, &mut text);
        (members, text)
    };
    (0..count).map(document).collect()
}

/// The rows of all functions, document by document, as text.
fn rows_by(mapper: &mut dyn Mapper, documents: &[(String, String)]) -> Vec<String> {
    let docs: Vec<_> = documents
        .iter()
        .map(|(members, body)| Doc {
            members: members.as_bytes(),
            body: body.as_bytes(),
        })
        .collect();
    let mut out = Emits::default();
    mapper.map(&docs, &mut out).unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes);
    out.rows
        .iter()
        .map(|row| {
            let (key, value) = (text(out.key(row)), text(out.value(row)));
            format!("{} {} {key} {value}", row.doc, row.view)
        })
        .collect()
}

#[test]
fn the_engine_gives_the_same_rows_for_records_as_for_whole_documents() {
    let engine = Engine::new(Options::default());
    let functions = Functions::new(Options::default(), Settings::default()).unwrap();
    let mut choices = Choices(29);
    let mut emitted = 0;
    // CouchDB takes no functions with a name.
    let compiles = |source: &&str| engine.check(source, None).is_ok();
    let sources: Vec<&str> = FOLLOWED.iter().map(|f| f.0).filter(compiles).collect();
    let mut groups: Vec<Vec<&str>> = sources.iter().map(|source| vec![*source]).collect();
    for _ in 0..40 {
        let count = 2 + choices.below(4);
        let group = (0..count).map(|_| sources[choices.below(sources.len())]);
        groups.push(group.collect());
    }
    for sources in groups {
        let group = MapGroup {
            language: "javascript".to_owned(),
            maps: sources.iter().map(|source| (*source).to_owned()).collect(),
            ..MapGroup::default()
        };
        let projections = functions.projections(&group);
        assert!(projections.iter().all(Result::is_ok), "{projections:?}");
        let documents = documents(&mut choices, 60);
        let whole = rows_by(&mut *engine.mapper(&group).unwrap(), &documents);
        let records = rows_by(&mut *functions.mapper(&group).unwrap(), &documents);
        assert_eq!(whole, records, "{sources:?} takes {projections:?}");
        emitted += whole.len();
    }
    assert!(emitted > 5_000, "{emitted}");
}

/// Functions put together from pieces at random: what is accepted must give the same rows.
#[test]
fn functions_made_of_random_pieces_give_the_same_rows() {
    let mut choices = Choices(17);
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..1500 {
        let mut made = Maker {
            choices: &mut choices,
            variables: 0,
        };
        let source = made.function();
        match Projection::analyse(&source) {
            Ok(projection) => {
                accepted += 1;
                compare(&[&source], &projection, seed + 2_000_000, 40);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        accepted > 300 && refused > 100,
        "{accepted} accepted, {refused} refused"
    );
}

/// Makes functions at random.
struct Maker<'c> {
    choices: &'c mut Choices,
    variables: usize,
}

impl Maker<'_> {
    fn function(&mut self) -> String {
        let head = self.choices.of(&[
            "function (doc) ",
            "function (doc) ",
            "function (doc) ",
            "doc => ",
            "function f(doc) ",
            "function ({a, b: v0, c: v1 = 1}, doc = {}) ",
        ]);
        let mut body = String::from("{ var v0, v1, v2; ");
        for _ in 0..1 + self.choices.below(5) {
            body += &self.statement(3);
        }
        format!("{head}{body} }}")
    }

    fn statement(&mut self, depth: usize) -> String {
        let e = self.expression(depth);
        let f = self.expression(depth);
        if depth == 0 {
            return format!("emit({e}, {f}); ");
        }
        let s = self.statement(depth - 1);
        let v = self.variable();
        match self.choices.below(16) {
            0..=3 => format!("emit({e}, {f}); "),
            4 | 5 => format!("{v} = {e}; "),
            6 => format!("if ({e}) {{ {s} }} else {{ {v} = {f}; }} "),
            7 => format!("for (var {v} in {e}) {{ {s} }} "),
            8 => format!("for (var {v} of {e}) {{ {s} }} "),
            9 => format!("for (var i = 0; i < 3; i++) {{ emit({e}[i], 1); }} "),
            10 => format!("var {{a: {v}, b: {{x: v2}} = {{}}}} = {e}; {s}"),
            11 => format!("try {{ {s} }} catch (e) {{ emit({e}, 1) }} "),
            12 => format!("({e}).forEach(function ({v}, i) {{ {s} }}); "),
            13 => format!("(function ({v}) {{ {s} }})({e}); "),
            14 => format!("switch ({e}) {{ case {f}: {s} default: emit(1, {v}) }} "),
            _ => format!("{{ let {v} = {e}; {s} }} "),
        }
    }

    fn variable(&mut self) -> String {
        self.variables += 1;
        self.choices.of(&["v0", "v1", "v2"]).to_owned()
    }

    fn name(&mut self) -> &'static str {
        self.choices.of(&[
            "a",
            "b",
            "c",
            "x",
            "y",
            "type",
            "next",
            "length",
            "constructor",
            "toString",
            "a",
            "b",
        ])
    }

    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 || self.choices.below(6) == 0 {
            let name = self.name();
            return match self.choices.below(8) {
                0 => "doc".into(),
                1 => self.variable(),
                2 => self
                    .choices
                    .of(&["1", "null", "'x'", "[]", "{}", "undefined", "'a'", "0"])
                    .into(),
                _ => format!("doc.{name}"),
            };
        }
        let e = self.expression(depth - 1);
        let f = self.expression(depth - 1);
        let name = self.name();
        let v = self.variable();
        match self.choices.below(24) {
            0..=4 => format!("({e}).{name}"),
            5 => format!("({e})?.{name}"),
            6 => format!("({e})[{}]", self.choices.below(3)),
            7 => format!("({e})[{v}]"),
            8 => format!("({e} && {f})"),
            9 => format!("({e} || {f})"),
            10 => format!("({e} ? {f} : {v})"),
            11 => format!("({e} === {f})"),
            12 => format!("({e} == {f})"),
            13 => format!("!({e})"),
            14 => format!("typeof ({e})"),
            15 => format!("({v} = {e})"),
            16 => format!("[{e}, {f}]"),
            17 => format!("({{k: {e}}})"),
            18 => format!("('{name}' in ({e}))"),
            19 => format!("Array.isArray({e})"),
            20 => format!("({e}, {f})"),
            21 => format!("({e}).map(function ({v}) {{ return {f} }})"),
            22 => format!("({e}).hasOwnProperty('{name}')"),
            _ => format!("({e} ?? {f})"),
        }
    }
}

#[test]
fn the_tables_are_large_enough_and_hold_no_function_twice() {
    let mut sources: Vec<&str> = FOLLOWED
        .iter()
        .chain(REFUSED)
        .map(|(source, _)| *source)
        .collect();
    let count = sources.len();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), count);
    assert!(FOLLOWED.len() >= 150, "{}", FOLLOWED.len());
}
