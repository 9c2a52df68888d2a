//! A function that is declared to leave nothing behind leaves nothing behind.

use rquickjs::{Context, Function, Runtime, Value};

use super::choices::Choices;
use super::followed::FOLLOWED;
use super::maker::Maker;
use super::refused::REFUSED;
use super::rounds;
use crate::{Arguments, LastingEffect, lasting_effect};

/// Ordinary functions. Their heaps need not be rewound after each call.
const HARMLESS: &[&str] = &[
    "function (doc) { emit(doc._id, doc) }",
    "doc => emit(doc.a, {b: doc.b, c: [doc.c, doc['d']]})",
    "function (doc) { if (doc.type === 'order' && doc.items) doc.items.forEach(function (i) { emit(i.sku, i.n * 2) }) }",
    "function (doc) { var parts = doc.date.split('-'); emit([parts[0], parseInt(parts[1], 10)], 1) }",
    "function (doc) { for (var k in doc.tags) emit(doc.tags[k].toLowerCase().trim(), null) }",
    "function (doc) { const {a, b} = doc; for (const t of a) emit(t, `${b}`) }",
    "function (doc) { var out = {}; out.x = doc.x; out['y'] = doc.y; out[doc.k] = 1; emit(out, Object.keys(out).length) }",
    "function (doc) { var d = new Date(doc.at); d.setHours(0); emit([d.getFullYear(), d.getMonth() + 1], d.toISOString()) }",
    "function (doc) { function clean(s) { return s.replace(/[^a-z]+/gi, '') } emit(clean(doc.name), null) }",
    "function (doc) { var seen = new Set(), m = new Map(); seen.add(doc.a); m.set('a', doc.a); emit(seen.has(1), m.get('a')) }",
    "function (doc) { (function walk(x) { for (var k in x) if (typeof x[k] === 'object') walk(x[k]) })(doc) }",
    "function (doc) { try { emit(JSON.parse(doc.text).a) } catch (e) { log(e.message) } }",
    "function (doc) { if (Object.prototype.hasOwnProperty.call(doc, 'a')) emit(1) }",
    "function (keys, values) { return sum(values) }",
    "function (keys, values, rereduce) { return rereduce ? sum(values) : values.length }",
    "function (keys, values) { values.sort(function (a, b) { return a - b }); return values[0] }",
    "function (keys, values) { var r = {count: 0, total: 0}; values.forEach(function (v) { r.count += 1; r.total += v.n }); return r }",
    "function (keys, values) { var out = {}; for (var i = 0; i < values.length; i++) out[values[i]] = (out[values[i]] || 0) + 1; return out }",
    "function (keys, values) { return Math.max.apply === undefined ? 0 : values.reduce((a, b) => Math.max(a, b), -Infinity) }",
    "function (newDoc, oldDoc, userCtx) { if (userCtx.roles.indexOf('_admin') < 0) throw {forbidden: 'admins only'} }",
    "function (newDoc, oldDoc) { function need(f) { if (!newDoc[f]) throw({forbidden: f + ' is missing'}) } need('type'); need('name') }",
    "function (doc, req) { return doc.type == req.query.type }",
    "function (doc) { var a = []; a.push(doc.x); a[a.length - 1] = 2; a[0] = doc.x; emit(a.map(String).join('-')) }",
    "function (doc) { index('text', 'title', doc.title || '', {store: true}) }",
];

/// Functions that can leave something behind, some only for unusual documents.
const HARMFUL: &[&str] = &[
    "(function f(keys, values) { values.x = 1; if (keys) f(null, [].constructor.prototype) })",
    "function (doc) { seen = doc }",
    "function (doc) { this.seen = doc }",
    "function (doc) { globalThis.seen = doc }",
    "function (doc) { Function('return this')().seen = doc }",
    "function (doc) { (0, eval)('seen = 1') }",
    "function f(doc) { f.count = (f.count || 0) + 1 }",
    "function (doc) { arguments.callee.count = 1 }",
    "function (doc) { emit.count = 1 }",
    "function (doc) { emit = 1 }",
    "function (doc) { Array.prototype.extra = 1 }",
    "function (doc) { [].__proto__.extra = 1 }",
    "function (doc) { ({}).constructor.prototype.extra = 1 }",
    "function (doc) { var p = doc[doc.k]; p.extra = 1 }",
    "function (doc) { var p = doc[doc.k]; p[doc.j] = 1 }",
    "function (doc) { var o = {}; o[doc.k] = o[doc.k] || {}; o[doc.k].n = 1 }",
    "function (keys, values) { var out = {}; values.forEach(function(v) { for (var c in v) { out[c] = out[c] || {}; for (var n in v[c]) out[c][n] = (out[c][n] || 0) + v[c][n]; } }); return out }",
    "function (doc) { var o = {}; o.__proto__.extra = 1 }",
    "function (doc) { var o = {}; delete o.constructor.keys }",
    "function (doc) { delete doc.constructor.keys }",
    "function (doc) { delete Array.prototype.map }",
    "function (doc) { Object.defineProperty(doc.constructor, 'x', {value: 1}) }",
    "function (doc) { Object.assign(doc.constructor.prototype, {extra: 1}) }",
    "function (doc) { Object.setPrototypeOf(Array.prototype, null) }",
    "function (doc) { var f = [].push; f.call(Array.prototype, 1) }",
    "function (doc) { doc.constructor.prototype.push(1) }",
    "function (doc) { doc[doc.k].push(1) }",
    "function (doc) { var a = doc[doc.k]; a.sort() }",
    "function (doc) { [[1]].forEach(doc[doc.k]) }",
    "function (doc) { [[1]].map(Object.freeze) }",
    "function (doc) { var o = {slice: doc.constructor}; o.slice(1).x = 1 }",
    "function (doc) { var o = {slice: function () { return doc.constructor.prototype }}; o.slice().x = 1 }",
    "function (doc) { var o = {}; o.slice = doc[doc.k]; o.slice(1) }",
    "function (doc) { var o = {}; o[doc.k] = doc.constructor.assign; o.concat([].constructor.prototype, {x: 1}) }",
    "function (doc) { var o = {}; o[doc.k] = function () { return [].constructor.prototype }; o.slice().x = 1 }",
    "function (doc) { var o = JSON.parse('{\"a\":1}', function () { return doc.constructor.assign }); o.a(1) }",
    "function (doc) { new Object(doc.constructor.prototype).x = 1 }",
    "function (doc) { Object(doc.constructor.prototype).x = 1 }",
    "function (doc) { 'x'.search(/a/.constructor.prototype) }",
    "function (doc) { class A { static n = 1 } emit(A.n) }",
    "function (doc) { ({set a(v) { x = v }}).a = 1 }",
    "function (doc) { tag`x`.n = 1; function tag(s) { return s } }",
    "function (doc) { ((s) => s)`x`; }",
    "function (doc) { require('lib').n = 1 }",
    "function (doc) { var m = require('lib'); m.n = 1 }",
    "function (doc) { Symbol.for('x') }",
    "function (doc) { new WeakRef(doc) }",
    "async function (doc) { seen = 1 }",
    "function* (doc) { seen = 1 }",
    "function (doc) { Promise.resolve().then(() => { seen = 1 }) }",
    "function (doc) { for (seen in doc) ; }",
    "function (doc) { for (doc.a.b of [1]) ; }",
    "function (doc) { [doc.a.b] = [1] }",
    "function (doc) { ({a: doc.a.b} = {a: 1}) }",
    "function (doc) { var g = []; { function g() { return [].constructor } } var o = {}; o[doc.k] = g; o.slice().x = 1 }",
    "function (a, b = 1) { var a; a.x = 1 }",
    "function (doc) { var x = []; x = doc.constructor; x.y = 1 }",
    "function (doc) { var x = doc.constructor; [1].forEach(function () { x.y = 1 }) }",
    "function (doc) { function set(o) { o.x = 1 } set(doc.constructor.prototype) }",
    "function (doc) { try { throw [].constructor } catch (e) { e.x = 1 } }",
    "function (doc) { var o = {x: [].constructor}, {x} = o; x.y = 1 }",
    "function (doc) { var i = 0; i = doc.k; var o = {}; o[i] = [].constructor.assign; o.slice([].constructor, {x: 1}) }",
    "function (doc) { with (doc) { constructor.x = 1 } }",
    // Two variables of one name, or variables that hold other values than those of their
    // declarations.
    "function (doc) { try { throw doc.constructor.assign } catch (f) { f([].constructor.prototype, {x: 1}); var f = function () {} } }",
    "function (doc) { var f = function () {}; try { throw doc.constructor.assign } catch (f) { f([].constructor.prototype, {x: 1}) } }",
    "function (doc) { var f = function () {}; for (f of [doc.constructor.assign]) f([].constructor.prototype, {x: 1}) }",
    "function (doc) { var f = function () {}; for (var f of [doc.constructor.assign]) f([].constructor.prototype, {x: 1}) }",
    "function (doc) { let f = function () {}; { let f = doc.constructor.assign; f([].constructor.prototype, {x: 1}) } }",
    "function (doc, f) { function f() {} [1].forEach(f); f = doc.constructor.assign; f([].constructor, {x: 1}) }",
    "function (doc) { [doc.constructor.assign].forEach(function (f) { f([].constructor.prototype, {x: 1}) }); function f() {} }",
    "function ({constructor: c}) { c.x = 1 }",
    "function (doc) { for (const [k, v] of [[1, doc.constructor]]) v.x = 1 }",
    "function (doc) { ((a = doc.constructor) => { a.x = 1 })() }",
    "function (...all) { all[0].constructor.x = 1 }",
    "function (keys, values) { keys.constructor.x = 1; values.concat.x = 1 }",
    // Names with escapes.
    "function (doc) { var o = {}; o.\\u0073lice = doc.constructor.assign; o.slice([].constructor.prototype, {x: 1}) }",
    "function (doc) { var o = {\\u0073lice: doc.constructor.assign}; o.slice([].constructor.prototype, {x: 1}) }",
    "function (doc) { var o = {'\\x73lice': doc.constructor.assign}; o.slice([].constructor.prototype, {x: 1}) }",
    "function (doc) { var o = {__pr\\u006fto__: doc.constructor.prototype}; o.__proto__.x = 1 }",
    "function (doc) { \\u0073een = 1 }",
    // Functions that the language calls implicitly.
    "function (doc) { var a = [1]; a.constructor = doc.constructor; a.map(String).x = 1 }",
    "function (doc) { var r = /a/; r.exec = doc.constructor.assign; r.test(doc.constructor) }",
    "function (doc) { emit(doc, {toJSON: doc.constructor.assign}) }",
    "function (doc) { `${{toString: doc.constructor.assign}}` }",
    "function (doc) { +{valueOf: doc.constructor.assign} }",
    "function (doc) { ({get a() { seen = 1 }}).a }",
    "function (doc) { [...{[Symbol.iterator]: function () { seen = 1 }}] }",
    "function (doc) { JSON.stringify(doc, doc.constructor.assign) }",
    "function (doc) { 'a'.replace(/a/, doc.constructor.assign) }",
    "function (doc) { Array.from([1], doc.constructor.assign) }",
    "function (doc) { new Function('seen = 1')() }",
    "function (doc) { doc.constructor.constructor('seen = 1')() }",
    "function (doc) { (() => {}).constructor('seen = 1')() }",
    "function (doc) { new.target.x = 1 }",
    "function (doc) { import('x') }",
    // Helpers and globals.
    "function (doc) { sum = 1 }",
    "function (doc) { toJSON = null }",
    "function (doc) { log.x = 1 }",
    "function (doc) { isArray.call.x = 1 }",
    "function (doc) { Math.x = 1 }",
    "function (doc) { delete Math.abs }",
    "function (doc) { var m = Math; m.x = 1 }",
    "function (doc) { [JSON][0].x = 1 }",
    "function (doc) { Array.prototype.push.call(Array.prototype, 1) }",
    "function (doc) { Array.prototype.slice.call.x = 1 }",
    "function (doc) { RegExp.prototype.lastIndex = 1; /a/g.constructor.prototype.lastIndex = 1 }",
    "function (doc) { Date.prototype.x = new Date().constructor.x = 1 }",
];

/// Compiling these may change something.
const SCRIPTS: &[&str] = &[
    "(function () { var n = 0; return function (doc) { emit(n++) } })()",
    "x = 1; (function (doc) {})",
    "(x = 1, function (doc) {})",
    "function (doc) {}, x = 1",
    "function (doc) {} <!-- x",
    "1",
];

#[test]
fn ordinary_functions_leave_nothing_behind() {
    for source in HARMLESS {
        let arguments = match source.starts_with("function (keys") {
            true => Arguments::Own,
            false => Arguments::Shared,
        };
        assert_eq!(
            lasting_effect(source, arguments),
            LastingEffect::Nothing,
            "{source}"
        );
    }
}

#[test]
fn functions_that_may_leave_something_are_not_trusted() {
    for source in HARMFUL {
        for arguments in [Arguments::Own, Arguments::Shared] {
            assert_ne!(
                lasting_effect(source, arguments),
                LastingEffect::Nothing,
                "{source}"
            );
        }
    }
    for source in SCRIPTS {
        let found = lasting_effect(source, Arguments::Own);
        assert_eq!(found, LastingEffect::ByCompilation, "{source}");
    }
}

/// A function that returns the text of everything reachable from the global object; and other
/// functions that tests need.
const WALK: &str = r#"
(function () {
    var ownKeys = Reflect.ownKeys, descriptor = Object.getOwnPropertyDescriptor, prototype = Object.getPrototypeOf;
    var extensible = Object.isExtensible, text = String, join = Array.prototype.join, M = Map;
    var get = M.prototype.get, set = M.prototype.set, has = M.prototype.has, call = Reflect.apply, root = globalThis;
    globalThis.emit = function () {};
    globalThis.index = function () {};
    globalThis.log = function () {};
    globalThis.isArray = Array.isArray;
    globalThis.sum = function (values) { var n = 0; for (var i = 0; i < values.length; i++) n += values[i]; return n };
    function walk() {
        var ids = new M(), todo = [], parts = [], count = 0;
        function name(value) {
            if ((typeof value !== 'object' || value === null) && typeof value !== 'function')
                return typeof value === 'symbol' ? 'symbol' : typeof value + text(value);
            if (!call(has, ids, [value])) { call(set, ids, [value, count]); todo[count++] = value }
            return '#' + call(get, ids, [value]);
        }
        name(root);
        for (var at = 0; at < count; at++) {
            var o = todo[at], keys = ownKeys(o), n = keys.length;
            parts[parts.length] = '\n#' + at + (extensible(o) ? '+' : '-') + name(prototype(o));
            for (var i = 0; i < n; i++) {
                var d = descriptor(o, keys[i]);
                var flags = (d.writable ? 'w' : '') + (d.enumerable ? 'e' : '') + (d.configurable ? 'c' : '');
                parts[parts.length] = text(keys[i]) + flags + name(d.value) + name(d.get) + name(d.set);
            }
        }
        return call(join, parts, [' ']);
    }
    var parse = JSON.parse;
    return [walk, function (f, texts) {
        var args = [];
        for (var i = 0; i < texts.length; i++) args[i] = parse(texts[i]);
        try { call(f, undefined, args) } catch (e) {}
    }];
})()
"#;

/// Runs a function with all arguments, and returns the differences afterwards.
fn difference(source: &str, calls: &[[String; 2]]) -> Option<String> {
    let runtime = Runtime::new().unwrap();
    let context = Context::full(&runtime).unwrap();
    context.with(|ctx| {
        let functions: Vec<Function> = ctx.eval(WALK).unwrap();
        let (walk, run) = (&functions[0], &functions[1]);
        let mut options = rquickjs::context::EvalOptions::default();
        options.strict = false;
        let source = source.trim_end_matches([';', '\n', ' ']);
        // Some do not compile in an expression, others not at all.
        let function: Function = ctx
            .eval_with_options(format!("({source}\n)"), options)
            .ok()?;
        let before: String = walk.call(()).unwrap();
        for call in calls {
            let _: Value = run.call((function.clone(), call.to_vec())).unwrap();
        }
        let after: String = walk.call(()).unwrap();
        let mut lines = before.lines().zip(after.lines());
        let changed = lines.find(|(before, after)| before != after);
        let changed = changed.map(|(before, after)| format!("{before}\n{after}"));
        changed.or_else(|| (before != after).then(|| "more objects".to_owned()))
    })
}

/// Documents whose names and texts lead to built-in objects.
fn calls() -> Vec<[String; 2]> {
    let names = [
        "constructor",
        "__proto__",
        "prototype",
        "slice",
        "concat",
        "push",
        "map",
        "toString",
        "valueOf",
        "toJSON",
        "assign",
        "defineProperty",
        "setPrototypeOf",
        "x",
        "length",
    ];
    let mut calls = vec![];
    for (n, k) in names.iter().enumerate() {
        let j = names[(n * 7 + 3) % names.len()];
        let document = format!(
            r#"{{"k":"{k}","j":"{j}","a":{{"{k}":{{"{j}":1,"x":[1]}},"{j}":2}},"b":["{k}",["{j}"]],"x":{{"k":"{j}"}},"s":"{k}"}}"#
        );
        let values = format!(r#"["{k}",{{"{k}":{{"{j}":1}}}},[{{"{j}":"{k}"}}],3]"#);
        calls.push([document.clone(), values.clone()]);
        calls.push([values, document]);
    }
    calls
}

#[test]
fn what_harmful_functions_leave_behind_is_seen() {
    let calls = calls();
    let seen = HARMFUL.iter().filter(|f| difference(f, &calls).is_some());
    let seen = seen.count();
    assert!(seen > 15, "{seen}");
}

#[test]
fn functions_of_the_tables_that_are_trusted_leave_nothing_behind() {
    let calls = calls();
    let tables = FOLLOWED.iter().chain(REFUSED).map(|(source, _)| *source);
    let mut trusted = 0;
    for source in tables.chain(HARMLESS.iter().copied()) {
        if lasting_effect(source, Arguments::Own) == LastingEffect::Nothing {
            trusted += 1;
            assert_eq!(difference(source, &calls), None, "{source}");
        }
    }
    assert!(trusted > 60, "{trusted}");
}

/// Functions of random pieces that change, pass on and call things.
struct Pieces<'c> {
    choices: &'c mut Choices,
}

impl Pieces<'_> {
    fn function(&mut self) -> String {
        let mut body = String::from("var u, v = {}, w = []; function f(p) { v = p; return v } ");
        for _ in 0..2 + self.choices.below(5) {
            body += &self.statement(2);
        }
        format!("function (doc, other) {{ {body} }}")
    }

    fn name(&mut self) -> &'static str {
        self.choices.of(&[
            "x",
            "k",
            "a",
            "b",
            "constructor",
            "prototype",
            "__proto__",
            "slice",
            "concat",
            "toString",
            "call",
            "length",
        ])
    }

    fn variable(&mut self) -> &'static str {
        self.choices
            .of(&["u", "v", "w", "doc", "other", "u", "v", "w"])
    }

    fn target(&mut self) -> String {
        let v = self.variable();
        match self.choices.below(8) {
            0 | 1 => v.to_owned(),
            2 | 3 => format!("{v}.{}", self.name()),
            4 => format!("{v}[{}]", self.expression(1)),
            5 => format!("{v}.{}.{}", self.name(), self.name()),
            6 => format!("{v}[doc.k].x"),
            _ => format!("({}).{}", self.expression(1), self.name()),
        }
    }

    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.choices.below(8) {
                0 => "1".to_owned(),
                1 => "'slice'".to_owned(),
                2 => "doc.k".to_owned(),
                3 => "other.b[0]".to_owned(),
                _ => self.variable().to_owned(),
            };
        }
        let e = self.expression(depth - 1);
        let f = self.expression(depth - 1);
        match self.choices.below(20) {
            0 | 1 => format!("({e}).{}", self.name()),
            2 | 3 => format!("({e})[{f}]"),
            4 => format!("[{e}, {f}]"),
            5 => format!("({{{}: {e}, y: {f}}})", self.name()),
            6 => format!("({{[{e}]: {f}}})"),
            7 => format!("({e} || {f})"),
            8 => format!("({e} + {f})"),
            9 => format!("(doc.k ? {e} : {f})"),
            10 => format!("({e}).slice({f})"),
            11 => format!("({e}).concat({f})"),
            12 => format!("({e}).map(function (q) {{ return {f} }})"),
            13 => format!(
                "({e}).{}({f})",
                self.choices.of(&[
                    "split", "push", "sort", "get", "pop", "exec", "search", "at"
                ])
            ),
            14 => format!("f({e})"),
            15 => format!("Object.assign({e}, {f})"),
            16 => format!("JSON.parse(JSON.stringify({e}))"),
            17 => format!("Object.values({e})"),
            18 => format!("(function (p) {{ return p || {f} }})({e})"),
            _ => format!(
                "new {}({e})",
                self.choices
                    .of(&["Map", "Array", "Date", "Set", "RegExp", "Error"])
            ),
        }
    }

    fn statement(&mut self, depth: usize) -> String {
        let e = self.expression(2);
        if depth == 0 {
            return format!("{} = {e}; ", self.target());
        }
        match self.choices.below(12) {
            0..=4 => format!("{} = {e}; ", self.target()),
            5 => format!("{} += {e}; ", self.target()),
            6 => format!("delete {}; ", self.target()),
            7 => format!("for (u in {e}) {{ {} }} ", self.statement(depth - 1)),
            8 => format!(
                "for (var o of [{e}]) {{ o.x = 1; {} }} ",
                self.statement(depth - 1)
            ),
            9 => format!(
                "try {{ {} }} catch (e) {{ {} }} ",
                self.statement(depth - 1),
                self.statement(depth - 1)
            ),
            10 => format!(
                "({e}).forEach(function (v) {{ {} }}); ",
                self.statement(depth - 1)
            ),
            _ => format!("if ({e}) {{ {} }} ", self.statement(depth - 1)),
        }
    }
}

/// SETTEE_SEED sets the first seed, SETTEE_FUNCTIONS the number of functions.
#[test]
fn functions_of_random_pieces_that_are_trusted_leave_nothing_behind() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let seed = number("SETTEE_SEED", 5);
    let count = number("SETTEE_FUNCTIONS", rounds(1_000, 4_000));
    let calls = calls();
    let mut choices = Choices(seed);
    let mut trusted = 0;
    for n in 0..count {
        let source = match n % 8 {
            0 => {
                let choices = &mut choices;
                let variables = 0;
                Maker { choices, variables }.function()
            }
            _ => {
                let choices = &mut choices;
                Pieces { choices }.function()
            }
        };
        if lasting_effect(&source, Arguments::Own) == LastingEffect::Nothing {
            trusted += 1;
            assert_eq!(difference(&source, &calls), None, "{source}");
        }
    }
    assert!(trusted * 100 > count, "{trusted} of {count}");
}
