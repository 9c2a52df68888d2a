//! Tests that nothing leaks, including the prelude.

use std::sync::Arc;

use query_server::language::{Doc, Emits, Indexes, MapGroup, Mapper, Owner};

use super::Options;
use super::environment::{Environment, Prelude, new_heap};
use super::host::Console;
use super::mapper::{Compilations, ThreadMapper};
use super::sandbox::KEEPS;

fn group(maps: &[&str]) -> MapGroup {
    MapGroup {
        language: "javascript".into(),
        maps: maps.iter().map(ToString::to_string).collect(),
        lib: Some(r#"{"a":"exports.x = 1"}"#.into()),
        owner: Owner::default(),
        records: false,
        tells: false,
        leaves_out: false,
        indexes: Indexes::No,
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

/// Returns a mapper that is not rewound: rewinding would hide leaks.
fn mapper_of(maps: &[&str]) -> ThreadMapper {
    KEEPS.set(true);
    let compilations = Arc::new(Compilations::new(&Options::default()));
    ThreadMapper::new(&compilations, &group(maps)).expect("compiles")
}

/// Documents with new member names and values each time, and some that cannot be built.
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
    let mut mapper = mapper_of(&MAPS);
    // Tables fill up first.
    map_all(&mut mapper, 0, 3000);
    mapper.heap().collect();
    let before = mapper.heap().memory_used();
    map_all(&mut mapper, 3000, 9000);
    mapper.heap().collect();
    let after = mapper.heap().memory_used();
    assert!(after < before + (64 << 10), "{before} bytes became {after}");
}

#[test]
fn a_runtime_can_be_taken_down_in_order() {
    let mut mapper = mapper_of(&MAPS);
    map_all(&mut mapper, 0, 300);
    // QuickJS aborts the process when a value is left.
    assert_eq!(mapper.tear_down(), 0);
}

#[test]
fn contexts_can_be_taken_down_in_order() {
    let mut heap = new_heap(&Options::default().limits()).expect("a heap");
    let console = Console::default();
    let mut used = Vec::new();
    for _ in 0..20 {
        let environment = Environment::new(&mut heap, &console).expect("a context");
        environment.enter(&mut heap, &console, |entered| {
            for source in [
                "function(k,v){return k}",
                "1+1",
                "throw 1",
                "{",
                "(function f(){f()})()",
            ] {
                let modules = entered.modules(Some(r#"{"a":"1"}"#)).expect("modules");
                let function = entered.compile(source, modules.as_ref());
                if let Ok(function) = function {
                    let keys = entered.value(br#"[[1,{"a":2}]]"#).expect("a value");
                    let rows = [&function, &keys];
                    let answer = entered.prelude(Prelude::Reduce, rows);
                    let answer = answer.expect("an answer");
                    assert_eq!(entered.json(&answer), Ok(br#"[[1,{"a":2}]]"#.to_vec()));
                }
                assert!(entered.value(br#"[[1,{"a":2}],[{"a":[}]"#).is_err());
            }
        });
        environment.close(&mut heap);
        heap.collect();
        used.push(heap.memory_used());
    }
    assert!(used[19] <= used[5] + (64 << 10), "{used:?}");
    assert_eq!(heap.tear_down(), 0);
}
