//! Functions that are followed, and what they are found to touch.

pub const FOLLOWED: &[(&str, &str)] = &[
    // Members
    ("function (doc) { emit(1, 2) }", ""),
    ("function () { emit(1, 2) }", ""),
    ("function (doc) { emit(doc.a, null) }", "a"),
    ("function (doc) { emit(doc._id, doc._rev) }", "_id _rev"),
    ("(function (doc) { emit(doc.a, doc.b) })", "a b"),
    ("function (doc) { emit(doc.a, doc.b) };\n", "a b"),
    ("function map(doc) { emit(doc.a, doc.b) }", "a b"),
    ("doc => emit(doc.a, doc.b)", "a b"),
    ("(doc) => { emit(doc.a, doc.b) }", "a b"),
    ("function (d) { emit(d.a.b.c, 1) }", "a.b.c"),
    ("function (doc) { emit(doc['a'], doc[\"b\"]) }", "a b"),
    ("function (doc) { emit(doc[`a`], 1) }", "a"),
    ("function (doc) { emit(doc['a']['x y'], 1) }", "a[\"x y\"]"),
    (
        "function (doc) { emit(doc['日本'], doc.\\u0061) }",
        "a 日本",
    ),
    ("function (doc) { emit(doc['1'], doc[0]) }", "0 1"),
    ("function (doc) { emit(doc.a[0], doc.a[1].x) }", "a.0 a.1.x"),
    (
        "function (doc) { emit(doc.a['0'].x, doc.a[1e0]) }",
        "a.0.x a.1",
    ),
    ("function (doc) { emit(doc.a['01'], doc.a[-1]) }", "a"),
    ("function (doc) { emit(doc.a['01'], 1) }", "a.01"),
    ("function (doc) { emit(doc.a[1.5], 1) }", "a"),
    ("function (doc) { var i = 1; emit(doc.a[i].x, 1) }", "a[].x"),
    ("function (doc) { emit(doc.a[doc.b].x, 1) }", "a[].x b"),
    ("function (doc) { emit(doc.a[doc.b], doc.b.c) }", "a b"),
    (
        "function (doc) { emit(doc.a[3], doc.a.length) }",
        "a.3 a.length",
    ),
    ("function (doc) { emit(doc.a.length, 1) }", "a.length"),
    (
        "function (doc) { emit(doc.a.b.length, doc.length) }",
        "a.b.length length",
    ),
    (
        "function (doc) { if (doc.a.length > 1) emit(doc.a.length, 1) }",
        "a.length",
    ),
    (
        "function (doc) { emit(doc.toString, doc.hasOwnProperty) }",
        "hasOwnProperty toString",
    ),
    (
        "function (doc) { if (doc.constructor === Object) emit(1, 1) }",
        "constructor?",
    ),
    ("function (doc) { emit(doc.constructor, 1) }", "constructor"),
    (
        "function (doc) { emit(doc.a.constructor.name, 1) }",
        "a.constructor.name",
    ),
    ("function (doc) { doc.a.b; emit(1, 1) }", "a.b?"),
    (
        "function (doc) { emit(doc.map, doc.a.forEach) }",
        "a.forEach map",
    ),
    // Tests
    (
        "function (doc) { if (doc.type === 'x') emit(doc.a, null) }",
        "a type?",
    ),
    (
        "function (doc) { if (doc.type == 'x') emit(doc.a, null) }",
        "a type",
    ),
    ("function (doc) { if (doc.type) emit(1, null) }", "type?"),
    ("function (doc) { if (!doc.type) emit(1, null) }", "type?"),
    ("function (doc) { emit(typeof doc.a, typeof doc) }", "a?"),
    ("function (doc) { if (doc && doc.a) emit(1, 1) }", "a?"),
    (
        "function (doc) { if (doc === null || doc === undefined) return; emit(doc.a === null, 1) }",
        "a?",
    ),
    (
        "function (doc) { if (doc != null) emit(doc.a == null, doc.b != undefined) }",
        "a? b?",
    ),
    ("function (doc) { emit(doc.a == void 0, 1) }", "a"),
    (
        "function (doc) { emit(doc.a === doc.b, doc.a === doc.a) }",
        "a? b?",
    ),
    (
        "function (doc) { var x = doc.a; emit(x === doc.a, x !== doc.b) }",
        "a? b?",
    ),
    ("function (doc) { emit(doc.a < 3, doc.b + 1) }", "a b"),
    ("function (doc) { emit(-doc.a, +doc.b) }", "a b"),
    ("function (doc) { emit(void doc.a, (doc.b, 1)) }", "a? b?"),
    ("function (doc) { emit((1, doc.a), 1) }", "a"),
    ("function (doc) { emit((1, doc).a, 1) }", "a"),
    (
        "function (doc) { while (doc.a) { emit(1, 1); break } }",
        "a?",
    ),
    (
        "function (doc) { do { emit(1, 1) } while (!doc.a === 7) }",
        "a?",
    ),
    (
        "function (doc) { for (doc.a; doc.b; doc.c) { emit(1, 1); break } }",
        "a? b?  c?",
    ),
    (
        "function (doc) { switch (doc.type) { case 'x': emit(doc.a, 1); break; case doc.b: emit(doc.c, 2) } }",
        "a b? c type?",
    ),
    (
        "function (doc) { emit('a' in doc, 'b' in doc ? 1 : 2) }",
        "a? b?",
    ),
    (
        "function (doc) { emit('x' in doc.a, 0 in doc.b) }",
        "a.x? b.0?",
    ),
    (
        "function (doc) { var k = 'x'; emit(k in doc.a, 1) }",
        "a[]?",
    ),
    ("function (doc) { emit(doc.a in doc.b, 1) }", "a b[]?"),
    (
        "function (doc) { emit(doc.a instanceof Array, doc instanceof Object) }",
        "a?",
    ),
    (
        "function (doc) { function C() {} emit(doc.a instanceof C, 1) }",
        "a",
    ),
    (
        "function (doc) { emit(Array.isArray(doc.a), isArray(doc.b)) }",
        "a? b?",
    ),
    (
        "function (doc) { emit(isArray(doc.a) && doc.a[0].x, 1) }",
        "a.0.x",
    ),
    (
        "function (doc) { var isArray = function (x) { return x }; emit(isArray(doc.a), 1) }",
        "a",
    ),
    (
        "function (doc) { if (doc.hasOwnProperty('a')) emit(doc.b, 1) }",
        "a? b hasOwnProperty?",
    ),
    (
        "function (doc) { emit(doc.a.hasOwnProperty('x'), doc.b.hasOwnProperty(0)) }",
        "a.hasOwnProperty? a.x? b.0? b.hasOwnProperty?",
    ),
    // Logic
    ("function (doc) { emit(doc.a && doc.a.b, 1) }", "a.b"),
    (
        "function (doc) { emit(doc.a && doc.a.b && doc.a.b.c, 1) }",
        "a.b.c",
    ),
    ("function (doc) { doc.a && emit(doc.b, 1) }", "a? b"),
    ("function (doc) { emit(doc.a || doc.b, 1) }", "a b"),
    (
        "function (doc) { emit((doc.a || {}).x, (doc.b || []).length) }",
        "a.x b.length",
    ),
    ("function (doc) { emit((doc || {}).x, 1) }", "x"),
    ("function (doc) { emit((doc.a ?? doc.b).x, 1) }", "a.x b.x"),
    (
        "function (doc) { emit(doc.c ? doc.a : doc.b, 1) }",
        "a b c?",
    ),
    (
        "function (doc) { emit((doc.c ? doc.a : doc.b).x, 1) }",
        "a.x b.x c?",
    ),
    (
        "function (doc) { emit(doc?.a?.b, doc.c?.[0]?.x) }",
        "a.b c.0.x",
    ),
    (
        "function (doc) { emit((doc?.a).b, doc.a?.length) }",
        "a.b a.length",
    ),
    ("function (doc) { emit(doc.a?.toUpperCase?.(), 1) }", "a"),
    // Escaping parts
    (
        "function (doc) { emit([doc.a, doc.b.c], {x: doc.c}) }",
        "a b.c c",
    ),
    ("function (doc) { emit([...doc.a], {...doc.b}) }", "a b"),
    (
        "function (doc) { emit(Math.max(...doc.a), Math.max.apply(null, doc.b)) }",
        "a b",
    ),
    ("function (doc) { emit(`${doc.a}-${doc.b.c}`, 1) }", "a b.c"),
    (
        "function (doc) { function t(s, v) { return v } emit(t`x${doc.a}`, 1) }",
        "a",
    ),
    (
        "function (doc) { emit(JSON.stringify(doc.a), JSON.stringify(doc.b.c)) }",
        "a b.c",
    ),
    (
        "function (doc) { emit(doc.a.toString(), String(doc.b)) }",
        "a b",
    ),
    (
        "function (doc) { emit(doc.a.toLowerCase().trim(), 1) }",
        "a",
    ),
    (
        "function (doc) { emit(doc.a.map(function (x) { return x.b }), 1) }",
        "a.length? a.map? a[].b",
    ),
    ("function (doc) { emit(doc.a.map(x => x), 1) }", "a"),
    (
        "function (doc) { emit(doc.a.filter(function (x) { return x.b }), 1) }",
        "a",
    ),
    ("function (doc) { emit(doc.a.b.join('-'), 1) }", "a.b"),
    ("function (doc) { emit(doc.a.concat(doc.b), 1) }", "a b"),
    (
        "function (doc) { emit(new Date(doc.a), new Array(doc.b.c).length) }",
        "a b.c",
    ),
    (
        "function (doc) { function f(x) { return x } emit(f(doc.a), f(f(doc.b.c))) }",
        "a b.c",
    ),
    (
        "function (doc) { var o = {}; o.x = doc.a; o[doc.b] = 1; emit(o, 1) }",
        "a b",
    ),
    ("function (doc) { last = doc.a; emit(last, 1) }", "a"),
    (
        "function (doc) { emit((function () { return doc.a })(), 1) }",
        "a",
    ),
    ("function (doc) { throw doc.a }", "a"),
    (
        "function (doc) { try { throw doc.a } catch (e) { emit(e, 1) } }",
        "a",
    ),
    ("function (doc) { return doc.a.b }", "a.b"),
    ("doc => doc.a", "a"),
    (
        "function (doc) { function* g() { yield doc.a } for (var x of g()) emit(x, 1) }",
        "a",
    ),
    (
        "function (doc) { class C { m() { return doc.a } } emit(new C().m(), 1) }",
        "a",
    ),
    (
        "function (doc) { class C { f = doc.a; [doc.b]() {} } emit(new C().f, 1) }",
        "a b",
    ),
    (
        "function (doc) { class C { static s = doc.a } emit(C.s, 1) }",
        "a",
    ),
    (
        "function (doc) { emit({get x() { return doc.a }}.x, 1) }",
        "a",
    ),
    (
        "function (doc) { (async function () { await doc.a })(); emit(1, doc.b) }",
        "a b",
    ),
    (
        "function (doc) { emit(Array.prototype.slice.call(doc.a), 1) }",
        "a",
    ),
    (
        "function (doc) { emit(Object.prototype.toString.call(doc.a), 1) }",
        "a",
    ),
    (
        "function (doc) { var f = doc.a.slice; emit(f.call(doc.a, 1), 1) }",
        "a",
    ),
    (
        "function (doc) { Object.keys(doc.a).forEach(function (k) { emit(k, doc.a[k].x) }) }",
        "a[].x",
    ),
    (
        "function (doc) { emit(Object.keys(doc.a), Object.values(doc.b)) }",
        "a[]? b",
    ),
    ("function (doc) { emit(doc.a ** 2, doc.b | 0) }", "a b"),
    ("function (doc) { var x = 1; x += doc.a; emit(x, 1) }", "a"),
    ("function (doc) { emit(delete {}[doc.a], 1) }", "a"),
    (
        "function (doc) { emit(/x/.test(doc.a), doc.b.replace(/y/g, doc.c)) }",
        "a b c",
    ),
    (
        "function (doc) { emit(doc.a.hasOwnProperty(doc.b), 1) }",
        "a b",
    ),
    (
        "function (doc) { var r = require('views/lib/x'); emit(r(doc.a), 1) }",
        "a",
    ),
    // Variables
    ("function (doc) { const a = doc.b; emit(a.c, 1) }", "b.c"),
    ("function (doc) { var d = doc; emit(d.a, 1) }", "a"),
    (
        "function (doc) { let d = doc, e = d; emit(e.a, d.b) }",
        "a b",
    ),
    (
        "function (doc) { var x = doc.a; if (!x) x = doc.b; emit(x.c, 1) }",
        "a.c b.c",
    ),
    (
        "function (doc) { var x; x = doc.a; x = x.b; emit(x.c, 1) }",
        "a.c a.b.c a.b.b.c a.b.b.b.c a.b.b.b.b.c a.b.b.b.b.b.c a.b.b.b.b.b.b.c a.b.b.b.b.b.b.b.c a.b.b.b.b.b.b.b.b",
    ),
    (
        "function (doc) { var x = {c: 1}; if (doc.t) { x = doc.a } emit(x.c, 1) }",
        "a.c t?",
    ),
    (
        "function (doc) { var x = doc.a || {}; emit(x.c, 1) }",
        "a.c",
    ),
    (
        "function (doc) { var x, y = x = doc.a; emit(x.c, y.d) }",
        "a.c a.d",
    ),
    (
        "function (doc) { var x; emit((x = doc.a).c, x.d) }",
        "a.c a.d",
    ),
    (
        "function (doc) { var x = 0; x ||= doc.a; emit(x.c, 1) }",
        "a",
    ),
    ("function (doc) { var x = doc.a; x += 1; emit(x, 1) }", "a"),
    (
        "function (doc) { var x = doc.a; var f = function () { return x.b }; emit(f(), 1) }",
        "a.b",
    ),
    (
        "function (doc) { var {a, b: {c}} = doc; emit(a.x, c.y) }",
        "a.x b.c.y",
    ),
    (
        "function (doc) { const {a = 1, b: {c = 2} = {}} = doc; emit(a, c) }",
        "a b.c",
    ),
    (
        "function (doc) { const {a = doc.b} = doc; emit(a.x, 1) }",
        "a.x b.x",
    ),
    (
        "function (doc) { const {'a b': x, ['c']: y, 0: z} = doc; emit(x, [y, z]) }",
        "0 [\"a b\"] c",
    ),
    (
        "function (doc) { const {a} = doc.b, {length} = doc.c; emit(a, length) }",
        "b.a c.length",
    ),
    (
        "function (doc) { const {b, ...rest} = doc.a; emit(b, rest) }",
        "a",
    ),
    ("function (doc) { const [x, y] = doc.a; emit(x, y) }", "a"),
    (
        "function (doc) { const k = 'b', {[k]: x} = doc.a; emit(x.c, 1) }",
        "a[].c",
    ),
    ("function (doc) { var x; [x] = doc.a; emit(x, 1) }", "a"),
    ("function (doc) { var x; ({x} = doc.a); emit(x, 1) }", "a"),
    (
        "function (doc) { var x; [x = doc.a] = []; emit(x, 1) }",
        "a",
    ),
    ("function ({a, b}) { emit(a.x, b) }", "a.x b"),
    ("function ({a: {b}, c = 1}) { emit(b, c) }", "a.b c"),
    (
        "({type, a}) => { if (type === 'x') emit(a.b, 1) }",
        "a.b type?",
    ),
    ("function ({a}, b = a.c) { emit(a.x, b) }", "a.c a.x"),
    ("function (doc = {}) { emit(doc.a, 1) }", "a"),
    ("function (doc, x = doc.a) { emit(x.b, 1) }", "a.b"),
    ("function (doc, x = () => doc.a.b) { emit(x(), 1) }", "a.b"),
    // Loops
    (
        "function (doc) { for (var i = 0; i < doc.a.length; i++) emit(doc.a[i].x, doc.a[i].y.z) }",
        "a.length a[].x a[].y.z",
    ),
    (
        "function (doc) { for (var i in doc.a) emit(doc.a[i].x, i) }",
        "a[].x",
    ),
    ("function (doc) { for (var k in doc.a) emit(k, 1) }", "a[]?"),
    (
        "function (doc) { for (const x of doc.a) emit(x.b, x.c) }",
        "a[].b a[].c",
    ),
    (
        "function (doc) { for (const {b, c} of doc.a) emit(b, c) }",
        "a[].b a[].c",
    ),
    (
        "function (doc) { for (const [k, v] of doc.a) emit(k, v) }",
        "a",
    ),
    ("function (doc) { for (var x of doc.a) emit(x, 1) }", "a"),
    (
        "function (doc) { var x; for (x of doc.a) emit(x.b, 1); emit(x.c, 1) }",
        "a[].b a[].c",
    ),
    (
        "function (doc) { var o = {}; for (o.x of doc.a) emit(o.x.b, 1) }",
        "a",
    ),
    (
        "function (doc) { for (var [k, v] of Object.entries(doc.a)) emit(k, v) }",
        "a",
    ),
    (
        "function (doc) { doc.a.forEach(function (x) { emit(x.b, x.c) }) }",
        "a.forEach? a.length? a[].b a[].c",
    ),
    (
        "function (doc) { doc.a.forEach(x => emit(x.b, 1)) }",
        "a.forEach? a.length? a[].b",
    ),
    ("function (doc) { doc.a.forEach(x => emit(x, 1)) }", "a"),
    (
        "function (doc) { doc.a.forEach(({b}, i, all) => emit(b, all[0].c)) }",
        "a.0.c a.forEach? a.length? a[].b",
    ),
    ("function (doc) { doc.a.forEach(emit) }", "a"),
    (
        "function (doc) { doc.a?.forEach?.(x => emit(x?.b, 1)) }",
        "a.forEach? a.length? a[].b",
    ),
    (
        "function (doc) { (doc.a || []).forEach(x => emit(x.b, 1)) }",
        "a.forEach? a.length? a[].b",
    ),
    (
        "function (doc) { emit(doc.a.some(x => x.b === 1), doc.a.every(x => x.c)) }",
        "a.every? a.length? a.some? a[].b? a[].c",
    ),
    (
        "function (doc) { doc.a.forEach(x => x.b.forEach(y => emit(y.c, 1))) }",
        "a.forEach? a.length? a[].b.forEach? a[].b.length? a[].b[].c",
    ),
    (
        "function (doc) { for (var n = doc.a; n; n = n.next) emit(n.b, 1) }",
        "a.b a.next.b a.next.next.b a.next.next.next.b a.next.next.next.next.b a.next.next.next.next.next.b a.next.next.next.next.next.next.b a.next.next.next.next.next.next.next.b a.next.next.next.next.next.next.next.next",
    ),
    (
        "function (doc) { outer: for (const x of doc.a) { for (const y of x.b) { if (y.c) continue outer; emit(y.d, 1) } } }",
        "a[].b[].c? a[].b[].d",
    ),
    // Scopes
    (
        "function (doc) { [{z: 1}].forEach(function (doc) { emit(doc.z, 1) }); emit(doc.a, 1) }",
        "a",
    ),
    (
        "function (doc) { try { null.x } catch (doc) { emit(typeof doc.message, 1) } emit(doc.a, 1) }",
        "a",
    ),
    (
        "function (doc) { { let doc = {q: 1}; emit(doc.q, 1) } emit(doc.a, 1) }",
        "a",
    ),
    ("function doc(doc) { emit(doc.a, 1) }", "a"),
    ("function doc() { emit(typeof doc, 1) }", ""),
    (
        "function (doc) { var later = () => doc.a.b; (function () { emit(later(), 1) })() }",
        "a.b",
    ),
    ("function (doc) { 'use strict'; emit(doc.a, 1) }", "a"),
    (
        "function (doc) { function P(x) { this.x = x } P.prototype.get = function () { return this.x }; emit(new P(doc.a).get(), 1) }",
        "a",
    ),
    (
        "function (doc) { var counts = {}; doc.a.split(' ').forEach(function (w) { counts[w] = (counts[w] || 0) + 1 }); emit(counts, 1) }",
        "a",
    ),
    (
        "function rec(doc) { if (!doc) return; emit(doc.a, 1); rec(doc.b) }",
        "a b",
    ),
    (
        "function (doc) { // emit(doc, eval)\n emit(doc.a, 'doc.b') /* arguments */ }",
        "a",
    ),
    ("function (doc) { emit(doc.arr, 1) } // the end", "arr"),
    ("function (doc) { const {} = doc.a; emit(1, 1) }", "a?"),
    (
        "function (doc) { doc.a.forEach(function () { emit(1, 1) }) }",
        "a.forEach? a.length?",
    ),
    (
        "function (doc) { if (doc.a) { var {x} = doc.a.b || {}; emit(x, typeof doc.a.c) } }",
        "a.b.x a.c?",
    ),
    (
        "function (doc) { for (const {b = 1} of doc.a || []) emit(b, 1) }",
        "a[].b",
    ),
    (
        "function (doc) { for (var i in doc.a) for (var j in doc.a[i]) emit(doc.a[i][j].x, j) }",
        "a[][].x",
    ),
    (
        "function (doc) { var a = doc.a, n = a.length; while (n--) emit(a[n].x, n) }",
        "a.length a[].x",
    ),
    (
        "function (doc) { emit(doc.a.b ? [doc.a.b, doc.a.c.length] : null, doc.a.c) }",
        "a.b a.c",
    ),
    (
        "function (doc) { emit('length' in doc.a, doc.b.length === undefined) }",
        "a.length? b.length?",
    ),
    (
        "function (doc) { emit(doc.a?.[0]?.b ?? doc.a?.['b'], 1) }",
        "a.0.b a.b",
    ),
    (
        "function (doc) { var x = doc.a; (() => { x = x.b })(); emit(x.c === 1, x.d) }",
        "a.b.b.b.b.b.b.b.b a.b.b.b.b.b.b.b.c a.b.b.b.b.b.b.b.d a.b.b.b.b.b.b.c? a.b.b.b.b.b.b.d a.b.b.b.b.b.c? a.b.b.b.b.b.d a.b.b.b.b.c? a.b.b.b.b.d a.b.b.b.c? a.b.b.b.d a.b.b.c? a.b.b.d a.b.c? a.b.d a.c? a.d",
    ),
];
