//! That nothing leaks, which only shows from inside.

use super::Options;
use super::context::{Context, Prelude};
use super::mapper::ThreadMapper;
use super::runtime::Runtime;
use crate::{Doc, Emits, MapGroup, Mapper, Owner};

fn group(maps: &[&str]) -> MapGroup {
    MapGroup {
        language: "javascript".into(),
        maps: maps.iter().map(ToString::to_string).collect(),
        lib: Some(r#"{"a":"exports.x = 1"}"#.into()),
        owner: Owner::default(),
        records: false,
    }
}

const MAPS: [&str; 9] = [
    "function(doc){emit(doc._id,doc)}",
    "function(doc){emit([doc.a,new Date(0),{x:doc.n}],{toJSON:function(){return doc}})}",
    "function(doc){emit(1);throw new Error(doc._id)}",
    "function(doc){var a=[];a[0]=a;emit(1,a)}",
    "function(doc){emit(require('views/lib/a').x,doc.s+'\\ud800')}",
    "function(doc){throw {forbidden:{get toJSON(){throw 1}}}}",
    "async (doc) => {await null;emit(doc)}",
    "function(doc){(function f(){f()})()}",
    "function(doc){emit(new Proxy(doc,{}),new Map)}",
];

/// Documents with ever new member names and values among them, and some that cannot be built.
fn map_all(mapper: &mut ThreadMapper, from: usize, to: usize) {
    let mut out = Emits::default();
    for number in from..to {
        let members = format!(r#""_id":"doc{number}","_rev":"1-x""#);
        let bodies = [
            format!(
                r#"{{"a":[1,{{"b":"c{number}"}}],"n":{number}.5,"s":"é\n","k{number}":{{"z{number}":null}}}}"#
            ),
            r#"{"a":[1,[2,{"b":"#.to_owned(),
            format!(r#"{{"a":{{"b":["x",{number},{{"c":nope}}]}}}}"#),
            format!("{{\"a\":{}1", "[{\"a\":".repeat(600)),
        ];
        for body in &bodies {
            let doc = Doc {
                members: members.as_bytes(),
                body: body.as_bytes(),
            };
            out.clear();
            mapper.map(&[doc], &mut out).expect("maps");
        }
        assert!(out.rows.is_empty());
    }
}

#[test]
fn mapping_leaves_nothing_behind() {
    let mut mapper = ThreadMapper::new(&Options::default(), &group(&MAPS)).expect("compiles");
    // Tables fill up first.
    map_all(&mut mapper, 0, 3000);
    mapper.collect();
    let before = mapper.memory_used();
    map_all(&mut mapper, 3000, 9000);
    mapper.collect();
    let after = mapper.memory_used();
    assert!(after < before + (64 << 10), "{before} bytes became {after}");
}

#[test]
fn garbage_may_be_collected_at_any_time() {
    let walk = "function(doc){var n=0;(function walk(x){for(var k in x)typeof x[k]==='object'?walk(x[k]):n++})(doc);emit(n,[doc,{...doc}])}";
    let ring = "function(doc){doc.a[0]=doc;doc.a[1].c[0]=doc.a;doc.o.p.a[0]=function(){return doc};emit(Object.keys(doc).length)}";
    let maps = [&MAPS[..6], &[walk, ring]].concat();
    let mut mapper = ThreadMapper::new(&Options::default(), &group(&maps)).expect("compiles");
    mapper.stress();
    let body = r#"{"a":[{"b":[1,{"c":{}}]},{"c":["x",[{"d":null}]]}],"o":{"p":{"a":[[],{}]},"s":"x\n"},"n":1.5}"#;
    for number in 0..100 {
        let members = format!(r#""_id":"doc{number}","_rev":"1-x""#);
        let doc = Doc {
            members: members.as_bytes(),
            body: body.as_bytes(),
        };
        let mut out = Emits::default();
        mapper.map(&[doc], &mut out).expect("maps");
        let views: Vec<u32> = out.rows.iter().map(|row| row.view).collect();
        assert_eq!(views, [0, 1, 4, 6, 7]);
    }
    assert_eq!(mapper.close(), 0);
}

#[test]
fn a_runtime_can_be_taken_down_in_order() {
    let mut mapper = ThreadMapper::new(&Options::default(), &group(&MAPS)).expect("compiles");
    map_all(&mut mapper, 0, 300);
    // QuickJS aborts the process when a value is left.
    assert_eq!(mapper.close(), 0);
}

#[test]
fn contexts_can_be_taken_down_in_order() {
    let runtime = Runtime::new(&Options::default()).expect("a runtime");
    let mut used = Vec::new();
    for _ in 0..20 {
        runtime.enter(|| {
            let mut context = Context::new(&runtime).expect("a context");
            for source in [
                "function(k,v){return k}",
                "1+1",
                "throw 1",
                "{",
                "(function f(){f()})()",
            ] {
                let modules = context.modules(Some(r#"{"a":"1"}"#)).expect("modules");
                let function = context.compile(source, modules.as_ref());
                if let Ok(function) = function {
                    let keys = context.value(br#"[[1,{"a":2}]]"#).expect("a value");
                    let args = [function.raw(), keys.raw()];
                    let answer = context.prelude(Prelude::Reduce, &args).expect("an answer");
                    assert_eq!(context.json(&answer), Ok(br#"[[1,{"a":2}]]"#.to_vec()));
                }
                assert!(context.value(br#"[[1,{"a":2}],[{"a":[}]"#).is_err());
            }
            context.close();
        });
        runtime.collect();
        used.push(runtime.memory_used());
    }
    assert!(used[19] <= used[5] + (64 << 10), "{used:?}");
    assert_eq!(runtime.close(), 0);
}
