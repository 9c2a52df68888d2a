//! To map functions documents are frozen plain objects, though they are built only as far as they
//! are accessed.

use crate::support;

use functions::js::{Engine, Isolation};
use functions::{Doc, Emits, MapGroup};
use support::{assert_emits, assert_emits_on, both, both_brief, each, group, options, run};

const BODY: &str =
    r#"{"v":1,"o":{"p":{"q":[1,{"r":2}]},"s":"x"},"a":[{"b":1},{"b":2}],"7":"seven","e":{}}"#;

/// Asserts the value of an expression, and that it is the same for a document that was frozen by
/// JavaScript itself.
fn assert_same(engines: &[Engine], expression: &str, expected: &str) {
    let freeze = "function(x){(function f(x){if(x&&typeof x==='object'){Object.values(x).forEach(f);Array.isArray(x)||Object.freeze(x)}})(x);return x}";
    for document in [
        "doc",
        &format!("({freeze})(JSON.parse(JSON.stringify(doc)))"),
    ] {
        let map = format!(
            "function(document){{var real=function(doc){{return {expression}}};var doc=document;emit(0,real({document}))}}"
        );
        assert_emits_on(engines, &map, BODY, &[("0", expected)]);
    }
}

/// Expressions about [`BODY`], and their values.
const LOOKS: &[(&str, &str)] = &[
    ("Object.keys(doc)", r#"["7","_id","_rev","v","o","a","e"]"#),
    ("Object.keys(doc.o)", r#"["p","s"]"#),
    ("Object.entries(doc.o.p)", r#"[["q",[1,{"r":2}]]]"#),
    ("Reflect.ownKeys(doc).length", "7"),
    ("Object.getOwnPropertyNames(doc.e)", "[]"),
    ("Object.getOwnPropertySymbols(doc)", "[]"),
    (
        "Object.prototype.toString.call(doc.o)",
        r#""[object Object]""#,
    ),
    ("String(doc)", r#""[object Object]""#),
    (
        "[doc.o.constructor===Object, doc instanceof Object, Object.getPrototypeOf(doc)===Object.prototype]",
        "[true,true,true]",
    ),
    ("typeof doc", r#""object""#),
    ("Array.isArray(doc.a)", "true"),
    (
        "['v' in doc, 'w' in doc, 'toString' in doc, 7 in doc, '7' in doc]",
        "[true,false,true,true,true]",
    ),
    (
        "[doc.hasOwnProperty('v'), doc.hasOwnProperty('w'), Object.hasOwn(doc.o,'p'), doc.propertyIsEnumerable('v')]",
        "[true,false,true,true]",
    ),
    (
        "[doc[7], doc['7'], doc[8], doc.nothing, doc.o.p.nothing]",
        r#"["seven","seven",null,null,null]"#,
    ),
    (
        "[doc.o===doc.o, doc.o.p.q===doc.o.p.q, doc.a[0]===doc.a[0]]",
        "[true,true,true]",
    ),
    ("new Map([[doc.o,1]]).get(doc.o)", "1"),
    ("new WeakMap([[doc.o,1]]).get(doc.o)", "1"),
    (
        "Object.getOwnPropertyDescriptor(doc,'v')",
        r#"{"value":1,"writable":false,"enumerable":true,"configurable":false}"#,
    ),
    (
        "Object.getOwnPropertyDescriptor(doc,'w')===undefined",
        "true",
    ),
    (
        "Object.keys(Object.getOwnPropertyDescriptors(doc.o))",
        r#"["p","s"]"#,
    ),
    (
        "[Object.isFrozen(doc), Object.isSealed(doc.o), Object.isExtensible(doc.o.p)]",
        "[true,true,false]",
    ),
    (
        "Object.freeze(doc)===doc && Object.seal(doc.o)===doc.o && Object.preventExtensions(doc.e)===doc.e",
        "true",
    ),
    (
        "(function(){var k,n=[];for(k in doc)n.push(k);return n})()",
        r#"["7","_id","_rev","v","o","a","e"]"#,
    ),
    (
        "(function(){Object.prototype.extra=1;var k,n=[];for(k in doc.o)n.push(k);delete Object.prototype.extra;return n})()",
        r#"["p","s","extra"]"#,
    ),
    ("({...doc.o})", r#"{"p":{"q":[1,{"r":2}]},"s":"x"}"#),
    ("Object.assign({n:1},doc.o.p)", r#"{"n":1,"q":[1,{"r":2}]}"#),
    (
        "(function(){var c={...doc.o};c.s=2;delete c.p;return c})()",
        r#"{"s":2}"#,
    ),
    (
        "(({v,o:{p:{q:[,{r}]}},...rest})=>[v,r,Object.keys(rest)])(doc)",
        r#"[1,2,["7","_id","_rev","a","e"]]"#,
    ),
    ("doc.a.map(x=>x.b).reduce((a,b)=>a+b)", "3"),
    (
        "JSON.stringify(doc.o)",
        r#""{\"p\":{\"q\":[1,{\"r\":2}]},\"s\":\"x\"}""#,
    ),
    ("JSON.stringify(doc,['v','e'])", r#""{\"v\":1,\"e\":{}}""#),
    (
        "JSON.stringify(doc.o,function(k,v){return k==='q'?this===doc.o.p:v})",
        r#""{\"p\":{\"q\":true},\"s\":\"x\"}""#,
    ),
    ("Object.create(doc.o).s", r#""x""#),
    ("new Proxy(doc,{}).o.s", r#""x""#),
    ("new Proxy(doc,{get(t,k){return Reflect.get(t,k)}}).v", "1"),
    ("(function(){with(doc.o){return s}})()", r#""x""#),
    ("Object.is(doc.o,doc.o)", "true"),
];

#[test]
fn documents_look_like_plain_objects() {
    let engines = both();
    for &(expression, expected) in LOOKS {
        assert_same(&engines, expression, expected);
    }
}

#[test]
fn documents_cannot_be_changed() {
    let engines = both();
    for (expression, expected) in [
        (
            "(function(){doc.v=2;doc.w=2;doc.o.s=2;doc.o.p.t=2;return [doc.v,doc.w,doc.o.s,doc.o.p.t]})()",
            r#"[1,null,"x",null]"#,
        ),
        ("[delete doc.v, delete doc.w, doc.v]", "[false,true,1]"),
        (
            "[Reflect.set(doc,'v',2), Reflect.set(doc,'w',2), Reflect.deleteProperty(doc,'v'), Reflect.setPrototypeOf(doc,null)]",
            "[false,false,false,false]",
        ),
        (
            "[Reflect.defineProperty(doc,'v',{value:2}), Reflect.defineProperty(doc,'v',{value:1}), Reflect.defineProperty(doc,'w',{value:1}), Reflect.defineProperty(doc,'v',{get(){}}), Reflect.defineProperty(doc,'v',{writable:true}), Reflect.defineProperty(doc,'v',{})]",
            "[false,true,false,false,false,true]",
        ),
        (
            "(function(){var c=Object.create(doc);c.v=2;return c.v})()",
            "1",
        ),
        (
            "(function(){try{doc.__proto__=null}catch(e){};return doc.toString!==undefined})()",
            "true",
        ),
        (
            "(function(){try{Object.defineProperty(doc,'v',{value:2})}catch(e){return e instanceof TypeError}})()",
            "true",
        ),
        (
            "(function(){'use strict';var n=0;for(var f of [function(){doc.v=2},function(){doc.w=2},function(){delete doc.v},function(){Object.setPrototypeOf(doc,{})},function(){doc[Symbol()]=1},function(){Object.assign(doc,{v:2})}])try{f()}catch(e){n+=e instanceof TypeError}return n})()",
            "6",
        ),
    ] {
        assert_same(&engines, expression, expected);
    }
}

#[test]
fn changed_arrays_are_written_as_they_are_then() {
    for (change, a) in [
        ("", r#"[{"b":1},{"b":2}]"#),
        ("doc.a[0]=5", r#"[5,{"b":2}]"#),
        ("doc.a.reverse()", r#"[{"b":2},{"b":1}]"#),
        ("doc.a.length=0", "[]"),
        (
            "doc.a.sort(function(x,y){return y.b-x.b})",
            r#"[{"b":2},{"b":1}]"#,
        ),
        (
            "doc.a[1]={toJSON(k){return [typeof k,k]}}",
            r#"[{"b":1},["string","1"]]"#,
        ),
        ("doc.a[1]=undefined", r#"[{"b":1},null]"#),
    ] {
        let map = format!("function(doc){{ {change}; emit({{x:doc}}, doc) }}");
        let members =
            r#""7":"seven","_id":"a","_rev":"1-x","v":1,"o":{"p":{"q":[1,{"r":2}]},"s":"x"}"#;
        let doc = format!(r#"{{{members},"a":{a},"e":{{}}}}"#);
        assert_emits(&map, BODY, &[(&format!("{{\"x\":{doc}}}"), &doc)]);
        // And without a name that is a number, so that text is copied as far as possible.
        let body = BODY.replace(r#""7":"seven","#, "");
        let doc = doc.replace(r#""7":"seven","#, "");
        assert_emits(&map, &body, &[(&format!("{{\"x\":{doc}}}"), &doc)]);
    }
    assert_emits(
        "function(doc){ doc.o.p.q[1]=doc.o; emit(1); emit(2,doc) }",
        BODY,
        &[],
    );
}

#[test]
fn what_a_function_does_to_an_array_is_not_for_the_next_to_see() {
    each(|engine| {
        let group = group(&[
            "function(doc){ doc.a.reverse(); doc.a[0].b = 3; emit(doc.a) }",
            "function(doc){ emit(doc.a) }",
        ]);
        let rows = run(engine, &group, &[("a", BODY)]).expect("rows");
        assert_eq!(rows[0].2, r#"[{"b":2},{"b":1}]"#);
        assert_eq!(rows[1].2, r#"[{"b":1},{"b":2}]"#);
    });
}

#[test]
fn objects_with_many_members_are_found_in() {
    let members: Vec<_> = (0..5000)
        .map(|n| format!("\"k{n}\":{{\"n\":{n}}}"))
        .collect();
    let body = format!("{{{}}}", members.join(","));
    assert_emits(
        "function(doc){ emit(doc.k4999.n, [doc.k0.n, doc.k20.n, doc.k2500.n, doc.k5000, Object.keys(doc).length]); var s=0; for (var k in doc) s += doc[k].n || 0; emit(s) }",
        &body,
        &[("4999", "[0,20,2500,null,5002]"), ("12497500", "null")],
    );
    let body = format!("{{\"m\":{body}}}");
    assert_emits(
        "function(doc){ var s=0; for (var i=4999; i>=0; i--) s += doc.m['k'+i].n; emit(s, doc.m['k'+i]) }",
        &body,
        &[("12497500", "null")],
    );
}

#[test]
fn documents_do_not_outlive_their_call() {
    each(|engine| {
        let group = MapGroup {
            maps: vec![
                "function(doc){ kept = globalThis.kept || []; kept.push(doc.o, doc); emit(kept.map(function(d){ return d.s || d.v })) }".into(),
                "function(doc){ emit(typeof kept) }".into(),
            ],
            ..group(&[])
        };
        let docs = [("a", BODY), ("b", BODY), ("c", BODY)];
        let rows = run(engine, &group, &docs).expect("rows");
        let keys: Vec<_> = rows.iter().map(|row| &*row.2).collect();
        let (first, second) = (r#"["x",1]"#, r#""undefined""#);
        assert_eq!(keys, [first, second, first, second, first, second]);
    });
}

#[test]
fn documents_that_are_kept_count_as_memory() {
    each(|engine| {
        let map = "function(doc){ var kept = []; for (;;) kept.push({...doc, n: kept.length}) }";
        let body = format!("{{\"text\":\"{}\"}}", "x".repeat(100_000));
        assert!(run(engine, &group(&[map]), &[("a", &*body)]).is_err());
        // Values kept by a call are gone after it.
        let map = "function(doc){ kept = globalThis.kept || []; kept.push(doc.text + 'y'); emit(kept.length) }";
        let docs = vec![("a", &*body); 1000];
        let rows = run(engine, &group(&[map]), &docs).expect("rows");
        assert!(rows.iter().all(|row| row.2 == "1"));
    });
}

#[test]
fn rings_through_documents_are_collected() {
    let engine = Engine::new(options(Isolation::Thread));
    let map = "function(doc){ doc.o.p.q[0]=doc; doc.a[0]=function(){return doc}; emit(1) }";
    let mut mapper = engine.mapper(&group(&[map])).expect("compiles");
    let body = format!("{{\"text\":\"{}\",{}", "x".repeat(10_000), &BODY[1..]);
    let doc = Doc {
        members: br#""_id":"a","_rev":"1-x""#,
        body: body.as_bytes(),
    };
    let mut out = Emits::default();
    // Many times the memory limit.
    for _ in 0..10_000 {
        out.clear();
        mapper.map(&[doc], &mut out).expect("maps");
    }
    assert_eq!(out.rows.len(), 1);
}

#[test]
fn walking_down_a_deep_document_ends() {
    for engine in both_brief() {
        // Down to its end or nearly so, and as far as the time limit lets it.
        for depth in [5_000, 200_000] {
            let deep = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
            let map = "function(doc){ var n=0; for(var o=doc;o;o=o.a)n++; emit(n) }";
            let result = run(&engine, &group(&[map]), &[("a", &deep)]);
            if let Err(error) = result {
                assert!(matches!(error, functions::Error::Limit { .. }), "{error:?}");
            }
            support::assert_works(&engine);
        }
    }
}
