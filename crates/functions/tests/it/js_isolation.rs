//! A call leaves nothing behind for the next, of its own database or another: a fuzzer that
//! compares each call with the same call in a new engine.

use std::collections::HashMap;
use std::sync::Arc;

use crate::support;

use functions::js::{Engine, Isolation, Options};
use functions::{
    DesignDoc, Designs, Doc, Emits, Error, Indexes, ListIo, MapGroup, Owner, ReduceRow,
};
use support::{BOTH, options};

/// The body of each kind of function. `act` spoils the environment according to its argument, and
/// returns what it sees of it.
const ACT: &str = r#"function act(x) {
    var g = Function('return this')(), seen = [
        typeof kept === 'undefined' ? 0 : kept, ({}).injected || 0, [].injected || 0, Object.getOwnPropertyNames(g).length,
        Object.getOwnPropertyNames(Array.prototype).length, typeof Array.prototype.map, typeof sum, act.count || 0,
        ''.trim === g.trimmed, g.Math ? Math.PI : 0, /a/.lastIndex, typeof JSON, Object.isExtensible(g), typeof emit,
        Object.isFrozen(Object.prototype), String(isArray).length, typeof require
    ];
    var out = {};
    for (var c in x.counts) { out[c] = out[c] || {}; for (var n in x.counts[c]) out[c][n] = (out[c][n] || 0) + x.counts[c][n]; }
    switch (x.spoil) {
        case 1: kept = x.secret; break;
        case 2: Object.prototype.injected = x.secret; break;
        case 3: delete Array.prototype.map; break;
        case 4: sum = function () { return x.secret }; break;
        case 5: act.count = 1; g.trimmed = ''.trim; break;
        case 6: Math.PI = 3; Object.defineProperty(g, 'PI', {value: 3}); break;
        case 7: Object.freeze(Object.prototype); Object.preventExtensions(g); break;
        case 8: g.hoard = []; for (var i = 0; i < 40; i++) g.hoard.push(new Uint8Array(100000).fill(7)); break;
        case 9: delete g.JSON; g.emit = null; isArray = function () {}; break;
        case 10: try { var m = require('views/lib/m'); m.n = m.n + 1; m.deep.n = 5 } catch (e) {} break;
        case 11: Array.prototype.push = function () { return 7 }; String.prototype.split = null; break;
        case 12: throw {forbidden: x.secret || 'no'};
    }
    var lib = 0;
    try { lib = require('views/lib/m'); lib = [lib.n, lib.deep.n] } catch (e) { lib = 'none' }
    return seen.concat([lib, Object.keys(out).length]);
}"#;

/// An ordinary function of each kind, which is trusted to leave nothing behind, always sees the
/// same.
const PLAIN: &str = "[doc.counts ? Object.keys(doc.counts).sort().join('-') : 0, [1, 2].map(function (n) { return n * 2 }), sum([1, 2]), typeof Math.PI]";

/// Arguments: ordinary ones, ones that spoil, and JSON that leads to prototypes.
fn argument(n: usize) -> String {
    match n {
        0 => r#"{"n":1}"#.into(),
        1 => r#"{"counts":{"fruit":{"apples":3}}}"#.into(),
        2 => r#"{"counts":{"__proto__":{"injected":1000}}}"#.into(),
        3 => r#"{"counts":{"constructor":{"injected":2,"name":1}}}"#.into(),
        n => format!(r#"{{"spoil":{},"secret":"s{n}"}}"#, n - 3),
    }
}
const ARGUMENTS: usize = 16;

const LIB: &str = r#"{"m":"exports.n = 1; exports.deep = {n: 1}"}"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Map,
    Nouveau,
    Clouseau,
    Reduce,
    Rereduce,
    Filter,
    ViewFilter,
    Validate,
    Update,
    Show,
    List,
    Rewrite,
    Check,
}

const KINDS: [Kind; 13] = [
    Kind::Map,
    Kind::Nouveau,
    Kind::Clouseau,
    Kind::Reduce,
    Kind::Rereduce,
    Kind::Filter,
    Kind::ViewFilter,
    Kind::Validate,
    Kind::Update,
    Kind::Show,
    Kind::List,
    Kind::Rewrite,
    Kind::Check,
];

/// One of the sources of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sample {
    /// `act` is declared in the function.
    Inside,
    /// A function with a variable of its own around it.
    Enclosed,
    /// It leaves nothing behind.
    Plain,
}

const SAMPLES: [Sample; 3] = [Sample::Inside, Sample::Enclosed, Sample::Plain];

fn function(sample: Sample, parameters: &str, body: &str) -> String {
    // The object with the instructions is `doc` in all of them.
    let plain = body.replace("act(doc)", PLAIN);
    match sample {
        Sample::Inside => format!("function ({parameters}) {{ {ACT} {body} }}"),
        Sample::Enclosed => format!(
            "(function () {{ var calls = 0; {ACT} return function ({parameters}) {{ calls++; {} }} }})()",
            body.replace("act(doc)", "[calls, act(doc)]")
        ),
        Sample::Plain => format!("function ({parameters}) {{ {plain} }}"),
    }
}

fn source(kind: Kind, sample: Sample) -> String {
    let (parameters, body) = match kind {
        Kind::Map => ("doc", "emit(doc._id.length, act(doc))"),
        Kind::Nouveau => (
            "doc",
            "index('string', 'f', JSON.stringify(act(doc)), {store: true})",
        ),
        Kind::Clouseau => ("doc", "index('f', JSON.stringify(act(doc)), {store: true})"),
        Kind::Reduce | Kind::Rereduce => (
            "keys, values",
            "var doc = values[0]; return [keys ? keys.length : 0, act(doc)]",
        ),
        Kind::Filter => (
            "doc, req",
            "return JSON.stringify(act(doc)).length % 2 == 0",
        ),
        Kind::ViewFilter => (
            "doc",
            "if (JSON.stringify(act(doc)).length % 2 == 0) emit(1)",
        ),
        Kind::Validate => ("doc, old", "throw {forbidden: JSON.stringify(act(doc))}"),
        Kind::Update => ("doc, req", "return [null, JSON.stringify(act(doc))]"),
        Kind::Show | Kind::Check => ("doc, req", "return JSON.stringify(act(doc))"),
        Kind::List => (
            "doc, req",
            "var row; while (row = getRow()) send(row.id); return JSON.stringify(act(doc))",
        ),
        Kind::Rewrite => (
            "doc",
            "return {path: 'x', query: {a: JSON.stringify(act(doc))}}",
        ),
    };
    function(sample, parameters, body)
}

/// One function, and the arguments of calls that are made together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Case {
    kind: Kind,
    sample: Sample,
    has_lib: bool,
    arguments: Vec<usize>,
}

fn ddoc(json: &str) -> DesignDoc {
    DesignDoc {
        id: "_design/d".into(),
        rev: "1-a".into(),
        language: "javascript".into(),
        json: json.as_bytes().into(),
    }
}

fn show(answer: Result<Vec<u8>, Error>) -> String {
    answer.map_or_else(|error| format!("{error:?}"), |answer| text(&answer))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[derive(Default)]
struct Rows {
    text: String,
    left: usize,
}

impl ListIo for Rows {
    fn start(&mut self, response: &[u8]) -> Result<(), Error> {
        self.text += &text(response);
        Ok(())
    }
    fn chunk(&mut self, chunk: &str) -> Result<(), Error> {
        self.text += chunk;
        Ok(())
    }
    fn row(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let left = self.left;
        self.left = left.saturating_sub(1);
        Ok((left > 0).then(|| format!("{{\"id\":\"r{left}\"}}").into_bytes()))
    }
}

impl Case {
    /// Returns the result of each call. Calls that are made together have separate results.
    fn run(&self, engine: &Engine, database: &Arc<str>) -> Vec<String> {
        match self.kind {
            Kind::Map | Kind::Nouveau | Kind::Clouseau => self.map(engine, database),
            Kind::Reduce | Kind::Rereduce => self.reduce(engine, database),
            Kind::Check => {
                let check = engine.check(&source(self.kind, self.sample), self.lib());
                vec![format!("{check:?}"); self.arguments.len()]
            }
            _ => self.design(engine, database),
        }
    }

    fn lib(&self) -> Option<&'static str> {
        self.has_lib.then_some(LIB)
    }

    fn map(&self, engine: &Engine, database: &Arc<str>) -> Vec<String> {
        // Functions that are trusted, among others that are not.
        let samples = match self.sample {
            Sample::Plain => [Sample::Plain, Sample::Inside, Sample::Plain],
            _ => SAMPLES,
        };
        let group = MapGroup {
            language: "javascript".into(),
            maps: samples.map(|sample| source(self.kind, sample)).to_vec(),
            lib: self.lib().map(str::to_owned),
            owner: Owner {
                database: database.clone(),
                design: "_design/d".into(),
                views: vec!["a".into(), "b".into(), "c".into()],
            },
            tells: true,
            leaves_out: false,
            indexes: match self.kind {
                Kind::Nouveau => Indexes::Nouveau,
                Kind::Clouseau => Indexes::Clouseau,
                _ => Indexes::No,
            },
            records: false,
        };
        let bodies: Vec<String> = self.arguments.iter().map(|n| argument(*n)).collect();
        let docs: Vec<Doc<'_>> = bodies
            .iter()
            .map(|body| Doc {
                members: br#""_id":"a","_rev":"1-x""#,
                body: body.as_bytes(),
            })
            .collect();
        let mut mapper = engine.mapper(&group).expect("compiles");
        let mut out = Emits::default();
        mapper.map(&docs, &mut out).expect("maps");
        let mut answers = vec![String::new(); docs.len()];
        for row in &out.rows {
            let (key, value) = (text(out.key(row)), text(out.value(row)));
            answers[row.doc as usize] += &format!("{} {key} {value}\n", row.view);
        }
        for thrown in &out.thrown {
            answers[thrown.doc as usize] += &format!("{} {}\n", thrown.view, thrown.error);
        }
        answers
    }

    fn reduce(&self, engine: &Engine, database: &Arc<str>) -> Vec<String> {
        let source = source(self.kind, self.sample);
        let mut reducer = engine.reducer(database, &source, self.lib());
        let arguments = self.arguments.iter().map(|n| argument(*n));
        let answers = arguments.map(|value| {
            let answer = match self.kind {
                Kind::Reduce => reducer.reduce(&[ReduceRow {
                    key: b"1",
                    id: br#""a""#,
                    value: value.as_bytes(),
                }]),
                _ => reducer.rereduce(&[value.as_bytes(), b"2"]),
            };
            answer.map_or_else(|error| format!("{error:?}"), |answer| text(&answer))
        });
        answers.collect()
    }

    /// The design document of a function, and where in it the function is.
    fn design_doc(&self) -> (DesignDoc, &'static [&'static str]) {
        let function = serde_json::Value::from(source(self.kind, self.sample));
        let lib = self.lib().unwrap_or("{}");
        let (json, path): (String, &[&str]) = match self.kind {
            Kind::Filter => (
                format!(r#""filters":{{"f":{function}}}"#),
                &["filters", "f"],
            ),
            Kind::Update => (
                format!(r#""updates":{{"f":{function}}}"#),
                &["updates", "f"],
            ),
            Kind::List => (format!(r#""lists":{{"f":{function}}}"#), &["lists", "f"]),
            Kind::Validate => (
                format!(r#""validate_doc_update":{function}"#),
                &["validate_doc_update"],
            ),
            Kind::Rewrite => (format!(r#""rewrites":{function}"#), &["rewrites"]),
            Kind::ViewFilter => (String::new(), &["views", "v", "map"]),
            _ => (format!(r#""shows":{{"f":{function}}}"#), &["shows", "f"]),
        };
        let views = match self.kind {
            Kind::ViewFilter => format!(r#""views":{{"lib":{lib},"v":{{"map":{function}}}}}"#),
            _ => format!(r#"{json},"views":{{"lib":{lib}}}"#),
        };
        (ddoc(&format!(r#"{{"_id":"_design/d",{views}}}"#)), path)
    }

    fn design(&self, engine: &Engine, database: &Arc<str>) -> Vec<String> {
        let (ddoc, path) = self.design_doc();
        let mut designs = engine.designs(database);
        let arguments: Vec<String> = self.arguments.iter().map(|n| argument(*n)).collect();
        match self.kind {
            Kind::Filter | Kind::ViewFilter => self.filter(&mut *designs, &ddoc, path, &arguments),
            Kind::Validate => {
                let args: Vec<String> = arguments
                    .iter()
                    .map(|doc| format!("[{doc},null,{{}},{{}}]"))
                    .collect();
                let args: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
                let mut answers = vec![];
                while answers.len() < args.len() {
                    let some = designs.call_some(&ddoc, path, &args[answers.len()..]);
                    answers.extend(some.into_iter().map(show));
                }
                answers
            }
            Kind::List => {
                let lists = arguments.iter().map(|head| {
                    let mut rows = Rows {
                        left: 2,
                        ..Rows::default()
                    };
                    let args = format!("[{head},{{}}]");
                    let done = designs.list(&ddoc, path, args.as_bytes(), &mut rows);
                    format!("{done:?} {}", rows.text)
                });
                lists.collect()
            }
            _ => {
                let calls = arguments.iter().map(|doc| {
                    let args = match self.kind {
                        Kind::Rewrite => format!("[{doc}]"),
                        _ => format!("[{doc},{{}}]"),
                    };
                    show(designs.call(&ddoc, path, args.as_bytes()))
                });
                calls.collect()
            }
        }
    }

    /// All documents pass a filter in one call.
    fn filter(
        &self,
        designs: &mut dyn Designs,
        ddoc: &DesignDoc,
        path: &[&str],
        documents: &[String],
    ) -> Vec<String> {
        let docs = documents.join(",");
        let args = match self.kind {
            Kind::Filter => format!(r#"[[{docs}],{{"query":{{}}}}]"#),
            _ => format!("[[{docs}]]"),
        };
        let answer = show(designs.call(ddoc, path, args.as_bytes()));
        let passed = serde_json::from_str::<(bool, Vec<bool>)>(&answer);
        passed.map_or(vec![answer], |(_, passed)| {
            passed.iter().map(ToString::to_string).collect()
        })
    }

    /// Returns the result of each call without any call before it, in an engine of its own.
    fn alone(&self, known: &mut HashMap<Case, String>) -> Vec<String> {
        let each = self.arguments.iter().map(|&n| {
            let alone = Case {
                arguments: vec![n],
                ..self.clone()
            };
            let answer = known.entry(alone.clone()).or_insert_with(|| {
                let mut answers = alone.run(&small(Isolation::Thread), &"alone".into());
                assert_eq!(answers.len(), 1, "{alone:?}");
                answers.remove(0)
            });
            answer.clone()
        });
        each.collect()
    }
}

fn small(isolation: Isolation) -> Engine {
    Engine::new(Options {
        memory_bytes: 8 << 20,
        ..options(isolation)
    })
}

/// Repeatable choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// SETTEE_SEED sets the seed, SETTEE_CALLS the number of rounds.
#[test]
fn every_call_answers_as_if_it_were_the_first() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let (seed, rounds) = (
        number("SETTEE_SEED", 1),
        number("SETTEE_CALLS", support::rounds(250, 500)),
    );
    let mut known = HashMap::new();
    let databases: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
    for isolation in BOTH {
        let engine = small(isolation);
        let mut choices = Choices(seed);
        for round in 0..rounds {
            let count = 1 + choices.below(4);
            let case = Case {
                kind: KINDS[choices.below(KINDS.len())],
                sample: SAMPLES[choices.below(SAMPLES.len())],
                has_lib: choices.below(2) == 0,
                arguments: (0..count).map(|_| choices.below(ARGUMENTS)).collect(),
            };
            // A filter that throws has no result for any of its documents.
            let throws = |n: &usize| *n == 15 && case.sample != Sample::Plain;
            let is_filter = matches!(case.kind, Kind::Filter | Kind::ViewFilter);
            if is_filter && case.arguments.iter().any(throws) {
                continue;
            }
            let database = &databases[choices.below(databases.len())];
            let answers = case.run(&engine, database);
            assert_eq!(
                answers,
                case.alone(&mut known),
                "seed {seed}, round {round}, {isolation:?}: {case:?}"
            );
        }
    }
}

/// Its text as one expression is harmless, but does not compile. Rearranged as statements before
/// and after an anonymous function it is another function, which counts its calls.
const TWO_FUNCTIONS: &str = "doc => { if (0) /'/; // ' }; function () {} globalThis.kept = (globalThis.kept || 0) + 1; emit(globalThis.kept); x = `
/(/; // `
}";

#[test]
fn a_function_that_is_compiled_otherwise_than_it_reads_leaves_nothing() {
    for isolation in BOTH {
        let engine = small(isolation);
        for maps in [&[TWO_FUNCTIONS][..], &["doc => emit(1)", TWO_FUNCTIONS]] {
            let rows = support::run(&engine, &support::group(maps), &[("a", "{}"); 3]);
            let keys: Vec<String> = rows.expect("rows").into_iter().map(|row| row.2).collect();
            assert_eq!(keys, vec!["1"; 3 * maps.len()]);
        }
    }
}

/// The name of a module in a comment loads the module, which may change what the function calls.
#[test]
fn modules_that_a_comment_names_leave_nothing() {
    let module = "var n = 0; Array.prototype.slice = function () { return ++n }";
    let lib = serde_json::json!({ "m": module }).to_string();
    let body = "/* require('views/lib/m') */ return [].slice()";
    for isolation in BOTH {
        let engine = small(isolation);
        let reduce = format!("function (keys, values) {{ {body} }}");
        let mut reducer = engine.reducer(&"db".into(), &reduce, Some(&lib));
        for _ in 0..3 {
            assert_eq!(reducer.rereduce(&[b"1"]), Ok(b"1".to_vec()));
        }
        let filter = serde_json::Value::from(format!("function (doc, req) {{ {body} === 1 }}"));
        let json = format!(r#"{{"filters":{{"f":{filter}}},"views":{{"lib":{lib}}}}}"#);
        let ddoc = ddoc(&json);
        let mut designs = engine.designs(&"db".into());
        let passed = designs.call(&ddoc, &["filters", "f"], b"[[{},{},{}],{}]");
        assert_eq!(passed, Ok(b"[true,[true,true,true]]".to_vec()));
    }
}

/// Values of one database do not reach another by functions of the same source, nor change its
/// stored sums.
#[test]
fn reduce_functions_of_two_databases_share_nothing() {
    let leak = "function (k, v) { var g = Function('return this')(), o = g.seen || 'nothing'; g.seen = v[0].secret; return o }";
    let count = "function (keys, values) { var out = {}; values.forEach(function (v) { for (var c in v) { out[c] = out[c] || {}; for (var n in v[c]) out[c][n] = (out[c][n] || 0) + v[c][n]; } }); return out; }";
    let hoard = "function () { var g = Function('return this')(); g.kept = g.kept || []; for (var i = 0; i < 45; i++) g.kept.push(new Uint8Array(100000).fill(7)); return g.kept.length }";
    for isolation in BOTH {
        let engine = small(isolation);
        let mut one = engine.reducer(&"one".into(), leak, None);
        let mut two = engine.reducer(&"two".into(), leak, None);
        for _ in 0..4 {
            let secret: &[u8] = br#"{"secret":"of one"}"#;
            assert_eq!(one.rereduce(&[secret]), Ok(b"\"nothing\"".to_vec()));
            assert_eq!(two.rereduce(&[b"{}"]), Ok(b"\"nothing\"".to_vec()));
        }
        let mut one = engine.reducer(&"one".into(), count, None);
        let mut two = engine.reducer(&"two".into(), count, None);
        for _ in 0..4 {
            let spoils: &[u8] = br#"{"__proto__":{"apples":1000,"injected":1}}"#;
            one.rereduce(&[spoils]).expect("an answer");
            let fruit: &[u8] = br#"{"fruit":{"apples":3}}"#;
            assert_eq!(two.rereduce(&[fruit]), Ok(fruit.to_vec()));
        }
        let mut one = engine.reducer(&"one".into(), hoard, None);
        for _ in 0..8 {
            assert_eq!(one.rereduce(&[b"1"]), Ok(b"45".to_vec()));
            support::assert_works(&engine);
        }
    }
}
