//! Rows emitted by map functions.

use crate::support;

use functions::{Doc, EMITS_BYTES_MAX, Emits, Error, Indexes, MapGroup};
use support::{assert_emits, assert_emits_on, both, each, group, run};

#[test]
fn functions_of_all_styles_run() {
    for map in [
        "function(doc){emit(doc._id, doc.v)}",
        "function(doc){emit(doc._id, doc.v);};",
        "\n // hello\n function(doc) { emit(doc._id, doc.v); }\n",
        "function(doc){emit(doc._id, doc.v)} // done",
        "/* a */ function (doc) { emit(doc._id, doc.v) } /* b */;",
        "(doc) => { emit(doc._id, doc.v); }",
        "doc => emit(doc._id, doc.v)",
        "(function(doc){emit(doc._id, doc.v)})",
        "({_id, v}) => { const [key, ...rest] = [_id]; emit(`${key}`, v ?? rest?.length) }",
        "(function () { class A { #v; constructor(v) { this.#v = v } get v() { return this.#v } }
           return doc => emit(doc._id, new A(doc.v).v) })()",
    ] {
        assert_emits(map, r#"{"v":1}"#, &[(r#""a""#, "1")]);
    }
}

/// Expressions, and the JSON texts emitted for their values.
const WRITTEN: &[(&str, &str)] = &[
    ("", "null"),
    ("undefined", "null"),
    ("NaN", "null"),
    ("Infinity", "null"),
    ("function(){}", "null"),
    ("Symbol('x')", "null"),
    ("null", "null"),
    ("true", "true"),
    ("-0", "0"),
    ("1/3", "0.3333333333333333"),
    ("1e21", "1e+21"),
    ("1e-7", "1e-7"),
    ("123456789012345680000", "123456789012345680000"),
    ("-2147483648", "-2147483648"),
    ("4294967296", "4294967296"),
    ("0.1+0.2", "0.30000000000000004"),
    ("5e-324", "5e-324"),
    ("'x'", "\"x\""),
    (
        "'\\u0000\\u001f\\b\\f\\n\\r\\t\"\\\\/\\u007f'",
        "\"\\u0000\\u001f\\b\\f\\n\\r\\t\\\"\\\\/\u{7f}\"",
    ),
    ("'\\u2028é漢😀'", "\"\u{2028}é漢😀\""),
    ("'é'.repeat(3)", "\"ééé\""),
    ("['a','b'].join('x'.repeat(600)).length", "602"),
    ("[undefined,function(){},NaN,,1]", "[null,null,null,null,1]"),
    (
        "{a:undefined,b:2,c:function(){},d:{}}",
        "{\"b\":2,\"d\":{}}",
    ),
    ("{b:1,a:2,3:0,1:0}", "{\"1\":0,\"3\":0,\"b\":1,\"a\":2}"),
    ("{'\\n\"é':1,'':2}", "{\"\\n\\\"é\":1,\"\":2}"),
    ("new Date(0)", "\"1970-01-01T00:00:00.000Z\""),
    ("[new Date(NaN)]", "[null]"),
    ("Object(1)", "1"),
    ("[Object('x'),Object(false)]", "[\"x\",false]"),
    ("new Map([[1,2]])", "{}"),
    (
        "new (class A { constructor() { this.x = 1 } get y() { return 2 } })",
        "{\"x\":1}",
    ),
    (
        "Object.create({inherited:1},{own:{value:2,enumerable:true},hidden:{value:3}})",
        "{\"own\":2}",
    ),
    ("{toJSON(key){return 'k:'+key}}", "\"k:\""),
    (
        "{a:{toJSON(key){return {key}}},b:[{toJSON(key){return typeof key+key}}]}",
        "{\"a\":{\"key\":\"a\"},\"b\":[\"string0\"]}",
    ),
    ("{toJSON(){return undefined}}", "null"),
    ("{toJSON(){return function(){}}}", "null"),
    (
        "{toJSON(){return new Date(0)}}",
        "\"1970-01-01T00:00:00.000Z\"",
    ),
    ("{toJSON:1}", "{\"toJSON\":1}"),
    ("Object.assign(function(){},{toJSON(){return 5}})", "5"),
    ("new Proxy({a:1},{})", "{\"a\":1}"),
    ("new Proxy([1,2],{})", "[1,2]"),
    ("new Uint8Array([1,2])", "{\"0\":1,\"1\":2}"),
    ("/x/", "{}"),
    ("new Error('x')", "{}"),
    ("'a'+'\\ud800'+'b'", "\"a\u{fffd}b\""),
    ("'\\udc00\\ud800'", "\"\u{fffd}\u{fffd}\""),
    (
        "{['\\ud800']:new Proxy(['\\udfff'],{})}",
        "{\"\u{fffd}\":[\"\u{fffd}\"]}",
    ),
    ("JSON.parse('\"\\\\ud83d\\\\ude00\"')", "\"😀\""),
];

#[test]
fn values_are_written_as_json_stringify_writes_them() {
    let engines = both();
    for &(value, json) in WRITTEN {
        assert_emits_on(
            &engines,
            &format!(
                "function(doc){{emit(0, {})}}",
                if value.is_empty() { "undefined" } else { value }
            ),
            "{}",
            &[("0", json)],
        );
    }
    assert_emits("function(doc){emit()}", "{}", &[("null", "null")]);
    assert_emits(
        "function(doc){emit([undefined,1],{a:undefined,b:2})}",
        "{}",
        &[("[null,1]", "{\"b\":2}")],
    );
}

#[test]
fn what_cannot_be_written_makes_the_function_throw() {
    for value in [
        "(function(){var a=[];a[0]=a;return a})()",
        "(function(){var a={};a.b={c:a};return a})()",
        "10n",
        "{get x(){throw 1}}",
        "{toJSON(){throw 1}}",
        "new Proxy({},{ownKeys(){throw 1}})",
        "(function(){var a=1;for(var i=0;i<5000;i++)a=[a];return a})()",
    ] {
        assert_emits(
            &format!("function(doc){{emit(1,1);emit(0,{value})}}"),
            "{}",
            &[],
        );
    }
}

#[test]
fn documents_come_as_they_are() {
    let body = r#"{"a":[1,-0,1.0,0.5,1e3,12345678901234567890,123456789012,"x\u00e9\n\/\"","\ud83d\ude00",true,false,null,{},[]],"__proto__":{"x":1},"constructor":1,"10":2,"2":1,"":0,"é":"漢"}"#;
    let written = r#"{"2":1,"10":2,"_id":"a","_rev":"1-x","a":[1,0,1,0.5,1000,12345678901234567000,123456789012,"xé\n/\"","😀",true,false,null,{},[]],"__proto__":{"x":1},"constructor":1,"":0,"é":"漢"}"#;
    assert_emits("function(doc){emit(null,doc)}", body, &[("null", written)]);
    assert_emits(
        "function(doc){emit(Object.keys(doc).length, doc.x === undefined && doc.hasOwnProperty('__proto__'))}",
        body,
        &[("9", "true")],
    );
}

#[test]
fn a_documents_own_text_is_only_taken_when_it_is_its_json() {
    let emit = "function(doc){emit(doc, doc.a)}";
    let id = r#""_id":"a","_rev":"1-x""#;
    for (body, written) in [
        (r#"{"a":{"b":"c\n","d":1}}"#, r#""a":{"b":"c\n","d":1}"#),
        (r#"{"a":1.0}"#, r#""a":1"#),
        (r#"{"a":"\u0041\/"}"#, r#""a":"A/""#),
        (r#"{"a":9007199254740993}"#, r#""a":9007199254740992"#),
        (r#"{ "a" : 1 }"#, r#""a":1"#),
    ] {
        let key = format!("{{{id},{written}}}");
        let value = &written[4..];
        assert_emits(emit, body, &[(&key, value)]);
    }
    // A `toJSON` of all objects, and a member of that name.
    assert_emits(
        "function(doc){Object.prototype.toJSON=function(){return 5};emit(doc,0)}",
        r#"{"a":1}"#,
        &[("5", "0")],
    );
    assert_emits(
        emit,
        r#"{"a":1,"toJSON":2}"#,
        &[(&format!(r#"{{{id},"a":1,"toJSON":2}}"#), "1")],
    );
    assert_emits(
        "function(doc){emit(1,{doc:doc,a:[doc]})}",
        r#"{"a":1}"#,
        &[(
            "1",
            &format!(r#"{{"doc":{{{id},"a":1}},"a":[{{{id},"a":1}}]}}"#),
        )],
    );
}

#[test]
fn documents_are_frozen() {
    assert_emits(
        "function(doc){doc.v=5; doc.w=6; delete doc.v; doc.o.p=7; emit([doc.v,doc.w,doc.o.p], doc)}",
        r#"{"v":1,"o":{"p":2}}"#,
        &[(
            "[1,null,2]",
            r#"{"_id":"a","_rev":"1-x","v":1,"o":{"p":2}}"#,
        )],
    );
    assert_emits(
        "function(doc){'use strict'; emit(1); doc.v=5}",
        r#"{"v":1}"#,
        &[],
    );
    assert_emits("function(doc){emit(1); doc.a.push(2)}", r#"{"a":[1]}"#, &[]);
}

#[test]
fn values_are_written_after_the_function_has_returned() {
    assert_emits(
        "function(doc){var o={n:0}; for(var i=0;i<3;i++){o.n++; emit(i,o)}}",
        "{}",
        &[
            ("0", r#"{"n":3}"#),
            ("1", r#"{"n":3}"#),
            ("2", r#"{"n":3}"#),
        ],
    );
}

#[test]
fn rows_come_in_order_of_documents_functions_and_calls() {
    each(|engine| {
        let group = group(&[
            "function(doc){emit(doc.v,1);emit(doc.v,1);emit(0,doc._id)}",
            "function(doc){if(doc.v==2)throw 'bad';emit('second',null)}",
            "function(doc){emit(1);throw new Error('late')}",
        ]);
        let docs = [("a", r#"{"v":1}"#), ("b", r#"{"v":2}"#), ("c", "{}")];
        let rows = run(engine, &group, &docs).expect("rows");
        let text: Vec<_> = rows
            .iter()
            .map(|(doc, view, key, value)| format!("{doc} {view} {key} {value}"))
            .collect();
        assert_eq!(
            text,
            [
                "0 0 1 1",
                "0 0 1 1",
                "0 0 0 \"a\"",
                "0 1 \"second\" null",
                "1 0 2 1",
                "1 0 2 1",
                "1 0 0 \"b\"",
                "2 0 null 1",
                "2 0 null 1",
                "2 0 0 \"c\"",
                "2 1 \"second\" null",
            ]
        );
    });
}

#[test]
fn a_call_appends_to_what_is_there() {
    each(|engine| {
        let mut mapper = engine
            .mapper(&group(&["function(doc){emit(doc._id,doc)}"]))
            .expect("compiles");
        let mut out = Emits::default();
        let doc = Doc {
            members: br#""_id":"a","_rev":"1-x""#,
            body: b"{}",
        };
        mapper.map(&[doc], &mut out).expect("maps");
        mapper.map(&[doc, doc], &mut out).expect("maps");
        assert_eq!(out.rows.len(), 3);
        for row in &out.rows {
            assert_eq!(out.key(row), br#""a""#);
            assert_eq!(out.value(row), br#"{"_id":"a","_rev":"1-x"}"#);
        }
        assert_eq!(out.rows[2].doc, 1);
    });
}

#[test]
fn documents_with_long_rows_are_mapped_in_several_calls() {
    each(|engine| {
        let maps = ["function(doc) { emit(doc._id, 'x'.repeat(1 << 20)); }"];
        let mut mapper = engine.mapper(&group(&maps)).expect("compiles");
        let doc = Doc {
            members: br#""_id":"a","_rev":"1-x""#,
            body: b"{}",
        };
        let docs = [doc; 30];
        let (mut done, mut calls) = (0, 0);
        while done < docs.len() {
            let mut out = Emits::default();
            let some = mapper.map_some(&docs[done..], &mut out).expect("maps");
            assert!(
                some > 0 && out.size() < EMITS_BYTES_MAX + (2 << 20),
                "{some} documents"
            );
            assert!(out.rows.iter().map(|row| row.doc as usize).eq(0..some));
            done += some;
            calls += 1;
        }
        assert!(calls > 3, "{calls} calls");
    });
}

#[test]
fn what_is_thrown_is_told_by_document_and_line_where_that_is_asked_for() {
    let throws = "function(doc) {\n  var f = function() {\n    doc.a.b;\n  };\n  if (doc.v === 1)\n    f();\n  if (doc.v === 2) throw {forbidden: 'no'};\n  emit(doc.v);\n}";
    each(|engine| {
        let group = MapGroup {
            tells: true,
            ..group(&["function(doc) { emit(1) }", throws])
        };
        let mut mapper = engine.mapper(&group).expect("compiles");
        let bodies = [r#"{"v":0}"#, r#"{"v":1}"#, r#"{"v":2}"#, r#"{"v":3}"#];
        let docs = bodies.map(|body| Doc {
            members: br#""_id":"a","_rev":"1-x""#,
            body: body.as_bytes(),
        });
        let mut out = Emits::default();
        mapper.map(&docs, &mut out).expect("maps");
        let at: Vec<_> = out.rows.iter().map(|row| (row.doc, row.view)).collect();
        assert_eq!(at, [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (3, 1)]);
        let [first, second] = &out.thrown[..] else {
            panic!("two documents fail: {:?}", out.thrown);
        };
        assert_eq!((first.doc, first.view, first.line), (1, 1, Some(6)));
        assert_eq!(first.error.name(), "TypeError");
        assert_eq!((second.doc, second.view, second.line), (2, 1, None));
        assert_eq!(second.error, Error::Forbidden("no".into()));
        assert_eq!(out.failures, [0, 2]);
    });
}

#[test]
fn calls_of_index_are_rows_and_what_is_wrong_is_thrown() {
    let source = "function(doc) {
        index('text', 't', doc.t, {store: doc.s});
        if (doc.bad) index(doc.bad, 'x', doc.v);
        index('double', 'n', doc.v, null);
        emit('no business of an index');
    }";
    each(|engine| {
        let group = MapGroup {
            indexes: Indexes::Nouveau,
            ..group(&[source])
        };
        let docs = [
            ("a", r#"{"t":"x","v":1.5,"s":true}"#),
            ("b", r#"{"t":"y","v":"1"}"#),
            ("c", r#"{"t":"z","v":1,"bad":"geo"}"#),
            ("d", r#"{"t":5,"v":1}"#),
            ("e", r#"{"t":"w","v":1e999}"#),
        ];
        let rows = run(engine, &group, &docs).expect("rows");
        let text: Vec<_> = rows
            .iter()
            .map(|(doc, _, key, value)| format!("{doc} {key} {value}"))
            .collect();
        assert_eq!(
            text,
            [
                r#"0 ["text","t"] ["x",true]"#,
                r#"0 ["double","n"] [1.5,null]"#,
                r#"4 ["text","t"] ["w",null]"#,
                r#"4 ["double","n"] [null,null]"#,
            ]
        );
        // Functions of views do not see it.
        let plain = MapGroup {
            indexes: Indexes::No,
            ..group
        };
        assert!(run(engine, &plain, &docs).expect("rows").is_empty());
    });
}

#[test]
fn calls_of_clouseaus_index_are_rows_and_what_is_wrong_drops_the_document() {
    let source = "function(doc) {
        index('t', doc.t, doc.o);
        index(doc.name || 'n', doc.v);
    }";
    each(|engine| {
        let group = MapGroup {
            indexes: Indexes::Clouseau,
            ..group(&[source])
        };
        let docs = [
            (
                "a",
                r#"{"t":"x","v":1.5,"o":{"store":"yes","facet":true,"other":5}}"#,
            ),
            ("b", r#"{"t":"y","v":null}"#),
            ("c", r#"{"t":"y","v":[1]}"#),
            ("d", r#"{"t":"y","v":1,"name":"_id"}"#),
            ("e", r#"{"t":"y","v":1,"name":5}"#),
            ("f", r#"{"t":"y","v":1,"o":"store"}"#),
            ("g", r#"{"t":"z","v":true}"#),
        ];
        let rows = run(engine, &group, &docs).expect("rows");
        let text: Vec<_> = rows
            .iter()
            .map(|(doc, _, key, value)| format!("{doc} {key} {value}"))
            .collect();
        assert_eq!(
            text,
            [
                r#"0 "t" ["x",{"store":"yes","facet":true,"other":5}]"#,
                r#"0 "n" [1.5,{}]"#,
                r#"6 "t" ["z",{}]"#,
                r#"6 "n" [true,{}]"#,
            ]
        );
    });
}

#[test]
fn modules_of_views_lib_can_be_required() {
    each(|engine| {
        let group = MapGroup {
            maps: vec![
                "function(doc){emit(require('views/lib/a').f(doc.v), require('views/lib/sub/b').name)}".into(),
                "function(doc){var a=require('views/lib/a'); a.count=(a.count||0)+1; emit(a.count)}".into(),
                "function(doc){emit(require('views/lib/none').x)}".into(),
            ],
            lib: Some(
                r#"{"a":"var b=require('./sub/b'); exports.f=function(x){return x+b.name}","sub":{"b":"exports.name='B'"}}"#.into(),
            ),
            ..group(&[])
        };
        let rows = run(engine, &group, &[("a", r#"{"v":1}"#)]).expect("rows");
        assert_eq!(rows[0].2, r#""1B""#);
        assert_eq!(rows[0].3, r#""B""#);
        assert_eq!(rows[1].2, "1");
        assert_eq!(rows.len(), 2);
    });
}

#[test]
fn sources_that_are_no_functions_do_not_compile() {
    each(|engine| {
        for source in [
            "function(doc) { emit(",
            "1+1",
            "",
            "{}",
            "function map(doc){ emit(doc._id); }",
            "throw 1",
            "\0",
        ] {
            let Err(error) = engine.mapper(&group(&[source])).map(drop) else {
                panic!("{source} compiles");
            };
            assert!(
                matches!(error, Error::Compile(_) | Error::Thrown { .. }),
                "{source}: {error:?}"
            );
            assert!(engine.check(source, None).is_err(), "{source}");
        }
        engine.check("function(doc){}", None).expect("a function");
        engine
            .check("function(doc){}", Some("{}"))
            .expect("a function");
    });
}

#[test]
fn an_order_to_give_up_ends_the_call() {
    each(|engine| {
        let fatal = run(
            engine,
            &group(&["function(doc){throw 'fatal_error'}"]),
            &[("a", "{}")],
        );
        let Err(Error::Thrown { name, .. }) = fatal else {
            panic!("{fatal:?}");
        };
        assert_eq!(name, "map_runtime_error");
        let fatal = run(
            engine,
            &group(&["function(doc){throw ['fatal','my_error','because']}"]),
            &[("a", "{}")],
        );
        assert_eq!(
            fatal,
            Err(Error::Thrown {
                name: "my_error".into(),
                reason: "because".into()
            })
        );
    });
}

#[test]
fn promises_do_their_work_within_the_call() {
    assert_emits(
        "async function(doc){ emit(1); await null; emit(2); }",
        "{}",
        &[("1", "null"), ("2", "null")],
    );
    assert_emits(
        "function(doc){ Promise.reject(1); Promise.resolve(3).then(x => emit(x)); emit(1) }",
        "{}",
        &[("1", "null"), ("3", "null")],
    );
}

#[test]
fn helpers_are_there() {
    assert_emits(
        "function(doc){ log('hello'); log({a:1}); emit(sum([1,2,3]), [isArray([]), isArray(1), toJSON({a:1})]) }",
        "{}",
        &[("6", r#"[true,false,"{\"a\":1}"]"#)],
    );
}

#[test]
fn documents_that_nest_too_deeply_are_passed_over() {
    each(|engine| {
        let deep = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let (fine, too_deep, absurd) = (deep(900), deep(5_000), deep(1_000_000));
        let docs = [
            ("a", &*fine),
            ("b", &*too_deep),
            ("c", &*absurd),
            ("d", "{}"),
        ];
        let rows = run(engine, &group(&["function(doc){emit(doc._id,doc)}"]), &docs).expect("rows");
        assert_eq!(rows.len(), 2);
        assert_eq!(
            rows[0].3,
            format!("{{\"_id\":\"a\",\"_rev\":\"1-x\",{}", &fine[1..])
        );
        assert_eq!(rows[1].0, 3);
    });
}
