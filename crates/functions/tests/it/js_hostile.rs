//! Malicious functions: none crashes the engine, and others work after each.

use crate::support;

use std::time::Duration;

use functions::js::{Engine, Isolation, Options};
use functions::{Doc, Emits, Error, MapGroup};
use support::{BOTH, assert_works, emits, group, options, run};

/// Runs a function for one document on both kinds of engines with small limits.
fn each_run(
    map: &str,
    engine: impl Fn(Isolation) -> Engine,
    check: impl Fn(Result<Vec<support::Row>, Error>),
) {
    for isolation in BOTH {
        let engine = engine(isolation);
        check(run(&engine, &group(&[map]), &[("a", r#"{"v":1}"#)]));
        assert_works(&engine);
    }
}

/// An engine with small limits.
fn small(isolation: Isolation) -> Engine {
    with_time(isolation, Duration::from_millis(200))
}

/// An engine for functions that do not end.
fn brief(isolation: Isolation) -> Engine {
    with_time(isolation, Duration::from_millis(50))
}

/// The same limits except for time, which ends nothing even on a busy machine.
fn patient(isolation: Isolation) -> Engine {
    with_time(isolation, Duration::from_secs(60))
}

fn with_time(isolation: Isolation, time: Duration) -> Engine {
    Engine::new(Options {
        time,
        memory_bytes: 16 << 20,
        emit_rows_max: 1000,
        emit_bytes_max: 1 << 20,
        ..options(isolation)
    })
}

/// Asserts that a function exceeds one of these limits, of which the first is the most likely.
fn assert_limit(map: &str, limits: &[&str]) {
    let engine = match limits {
        [TIME, ..] => brief,
        limits if limits.contains(&TIME) => small,
        _ => patient,
    };
    each_run(map, engine, |result| match result {
        Err(Error::Limit { limit, .. }) if limits.contains(&limit) => {}
        other => panic!("{map}: {other:?}"),
    });
}

/// Asserts that the function throws, so that it has no rows, and the engine continues with the same
/// heap.
fn assert_throws(map: &str) {
    each_run(map, patient, |result| {
        assert_eq!(result, Ok(Vec::new()), "{map}");
    });
}

const TIME: &str = "time_limit_ms";
const MEMORY: &str = "memory_limit_bytes";
const ROWS: &str = "emit_rows_limit";
const BYTES: &str = "emit_bytes_limit";

#[test]
fn endless_loops_are_stopped() {
    for map in [
        "function(doc){while(true);}",
        "function(doc){for(;;){try{while(true);}catch(e){}finally{continue}}}",
        "function(doc){(function f(){try{f()}catch(e){f()}finally{f()}})()}",
        "async (doc) => {for(;;) await null}",
        "async (doc) => {for(;;) try { await (async () => {for(;;);})() } catch (e) {}}",
        "function(doc){(function f(){Promise.resolve().then(f)})()}",
        "function(doc){for(;;)log('x')}",
        "function(doc){emit(0,{toJSON(){for(;;);}})}",
        "function(doc){emit(0,{get a(){for(;;);}})}",
        "function(doc){emit(0,new Proxy({},{ownKeys(){for(;;);}}))}",
        "function(doc){throw {get name(){for(;;);}}}",
        "function(doc){throw {toJSON(){for(;;);}}}",
        "function(doc){throw new Proxy([],{get(){for(;;);}})}",
        "function(doc){var e=new Error('x');Object.defineProperty(e,'message',{get(){for(;;);}});throw e}",
        "function(doc){Error.prepareStackTrace=function(){for(;;);};null.x}",
        "function(doc){[3,2,1].sort(function(){for(;;);})}",
        "function(doc){'a'.replace(/a/g,function(){for(;;);})}",
    ] {
        assert_limit(map, &[TIME, MEMORY]);
    }
}

#[test]
fn regular_expression_bombs_are_stopped() {
    for map in [
        "function(doc){/(a+)+$/.test('a'.repeat(60)+'b')}",
        "function(doc){try{/(x+x+)+y/.exec('x'.repeat(60))}catch(e){}; for(;;);}",
        "function(doc){for(;;)try{/(.*)*\\1$/.exec('x'.repeat(60)+'y')}catch(e){}}",
    ] {
        assert_limit(map, &[TIME]);
    }
}

#[test]
fn memory_bombs_are_stopped() {
    for map in [
        "function(doc){var a=[];for(;;)a.push(new Array(1000).fill('x'))}",
        "function(doc){var s='x';try{for(;;)s+=s}catch(e){} emit(s)}",
        "function(doc){for(;;)try{var a=[];for(var i=0;;i++)a.push('x'.repeat(1e5)+i)}catch(e){}}",
        "function(doc){var a=[];for(;;)try{a.push({a:[a.length]})}catch(e){}}",
        "function(doc){try{'x'.repeat(1e9)}catch(e){};emit(1)}",
        "function(doc){'x'.padEnd(2**29)}",
        "function(doc){new ArrayBuffer(1e9)}",
        "function(doc){new SharedArrayBuffer(1e9)}",
        "function(doc){new Uint8Array(1e9)}",
        "function(doc){'x'.repeat(1e8).split('')}",
        "function(doc){function* g(){for(;;)yield {}} [...g()]}",
        "function(doc){var m=new Map();for(;;)m.set({},'x'.repeat(1000)+m.size)}",
        "function(doc){var o={};for(var i=0;;i++)o['k'+i]=i}",
        "function(doc){var f=function(){};for(;;)f=f.bind(f)}",
        "function(doc){var a=[];for(;;)a.push(1n<<900000n)}",
        "function(doc){for(;;)Symbol.for('x'.repeat(1000)+Math.random())}",
        "function(doc){for(var s='1';;s+=s)eval('['+s+']')}",
        "function(doc){Array.from({length:1e9})}",
        "function(doc){globalThis.a=globalThis.a||[];for(;;)a.push(new Date)}",
        "function(doc){for(;;)Promise.resolve(1).then(function(){})}",
    ] {
        assert_limit(map, &[MEMORY, TIME]);
    }
}

#[test]
fn deep_recursion_is_an_exception() {
    for map in [
        "function(doc){emit(1);(function f(){f()})()}",
        "function(doc){emit(1);(function f(a){f([...a,1])})([])}",
        "function(doc){emit(1);var o={get a(){return o.a}};o.a}",
        "function(doc){emit(1);var o={toString(){return ''+o}};''+o}",
        "function(doc){emit(1);var p=new Proxy({},{get(t,k,r){return r[k]}});p.x}",
        "function(doc){emit(1);var p={};for(var i=0;i<1e5;i++)p=new Proxy(p,{});p.x}",
        "function(doc){emit(1);var a=[];for(var i=0;i<1e5;i++)a=[a];JSON.stringify(a)}",
        "function(doc){emit(1);JSON.parse('['.repeat(1e5))}",
        "function(doc){emit(1);eval('('.repeat(1e5))}",
        "function(doc){emit(1);eval('['.repeat(1e5)+']'.repeat(1e5))}",
        "function(doc){emit(1);eval('{'.repeat(1e5))}",
        "function(doc){emit(1);eval('!'.repeat(1e5)+'1')}",
        "function(doc){emit(1);eval('a=>'.repeat(1e5)+'1')}",
        "function(doc){emit(1);eval('1'+'**1'.repeat(1e5))}",
        "function(doc){emit(1);new RegExp('('.repeat(1e5)+')'.repeat(1e5))}",
        "function(doc){emit(1);new RegExp('(?:'.repeat(1e5)+')'.repeat(1e5))}",
        "function(doc){emit(1);new RegExp('['.repeat(1e5),'v')}",
        "function(doc){emit(1);(function mk(){return {get a(){return mk()}}})(); emit(2,(function mk(){return {get a(){return mk()}}})())}",
        "function(doc){emit(1);function T(){} T.prototype.toJSON=function(){return {a:new T}};emit(0,new T)}",
        "function(doc){emit(1);[1,2].sort(function f(){[1,2].sort(f)})}",
        "function(doc){emit(1);'a'.replace(/a/,function f(){return 'a'.replace(/a/,f)})}",
        "function(doc){emit(1);var a=[];a[0]=a;a.flat(Infinity)}",
        "function(doc){emit(1);class A extends (function f(){return f()})(){}}",
    ] {
        each_run(map, small, |result| match result {
            Ok(rows) => assert!(rows.is_empty(), "{map}: {rows:?}"),
            Err(Error::Limit { .. }) => {}
            Err(error) => panic!("{map}: {error:?}"),
        });
    }
}

#[test]
fn other_functions_go_on_after_a_stack_overflow() {
    for isolation in BOTH {
        let engine = patient(isolation);
        let group = group(&[
            "function(doc){(function f(){f()})()}",
            "function(doc){emit(doc.v)}",
        ]);
        let rows = run(&engine, &group, &[("a", r#"{"v":1}"#), ("b", r#"{"v":2}"#)]).expect("rows");
        assert_eq!(rows.len(), 2);
    }
}

#[test]
fn floods_of_rows_are_stopped() {
    for map in [
        "function(doc){for(;;)emit(doc)}",
        "function(doc){for(;;)try{emit(1)}catch(e){}}",
        "async (doc) => {for(;;)try{await emit(1)}catch(e){}}",
    ] {
        assert_limit(map, &[ROWS]);
    }
    for map in [
        "function(doc){emit(0,'x'.repeat(2e6))}",
        "function(doc){for(var i=0;i<100;i++)emit(i,'x'.repeat(20000))}",
        "function(doc){var a=['x'];for(var i=0;i<30;i++)a=[a,a];emit(a)}",
        "function(doc){var a={};for(var i=0;i<30;i++)a={a:a,b:a};emit(a)}",
        "function(doc){var a=[];a.length=4294967295;emit(a)}",
        "function(doc){emit(new Proxy([],{get(t,k){return k==='length'?4294967295:'xxxxxxxxxx'}}))}",
        "function(doc){emit({toJSON(){return 'é'.repeat(1e6)}})}",
    ] {
        assert_limit(map, &[BYTES, TIME, MEMORY]);
    }
}

#[test]
fn errors_that_cannot_be_shown_are_only_errors() {
    for map in [
        "function(doc){emit(1);throw {toString(){throw 1},get name(){throw 2},get message(){throw 3}}}",
        "function(doc){emit(1);throw null}",
        "function(doc){emit(1);throw undefined}",
        "function(doc){emit(1);throw Symbol('x')}",
        "function(doc){emit(1);throw 10n}",
        "function(doc){emit(1);throw new Proxy({},{get(){throw 1}})}",
        "function(doc){emit(1);var p=Proxy.revocable([],{});p.revoke();throw p.proxy}",
        "function(doc){emit(1);throw {[Symbol.toPrimitive](){throw 1}}}",
        "function(doc){emit(1);throw {forbidden:{toJSON(){throw 1}}}}",
        "function(doc){emit(1);var a=[];a[0]=a;throw a}",
        "function(doc){emit(1);throw [{toString(){throw 1}}]}",
        "function(doc){emit(1);throw 'x'.repeat(1e6)}",
        "function(doc){emit(1);throw '\\ud800'}",
        "function(doc){emit(1);Error.prepareStackTrace=function(){throw 1};null.x}",
        "function(doc){emit(1);Error.stackTraceLimit={valueOf(){throw 1}};null.x}",
        "function(doc){emit(1);Object.defineProperty(Error.prototype,'name',{get(){throw 1}});null.x}",
        "function(doc){emit(1);emit({toJSON(){throw {toString(){throw 1}}}})}",
    ] {
        assert_throws(map);
    }
}

/// Later functions run on the heap of the function that spoiled it.
#[test]
fn spoiled_prototypes_hurt_only_who_spoiled_them() {
    for spoil in [
        "Array.prototype.push=Array.prototype.slice=Array.prototype.map=function(){throw 1}",
        "Object.defineProperty(Array.prototype,0,{set(v){throw 1},get(){return 'bad'},configurable:true})",
        "Object.defineProperty(Object.prototype,'v',{set(v){throw 1},get(){throw 2}})",
        "Object.defineProperty(Object.prototype,'key',{set(v){throw 1},get(){throw 2}})",
        "Object.prototype.toJSON=function(){throw 1}",
        "Object.defineProperty(Object.prototype,'toJSON',{get(){throw 1}})",
        "String.prototype.toJSON=Number.prototype.toJSON=function(){throw 1}",
        "JSON.stringify=JSON.parse=null",
        "delete globalThis.JSON; delete globalThis.Object; delete globalThis.emit",
        "String.prototype.toString=String.prototype.valueOf=function(){for(;;);}",
        "Array.prototype[Symbol.iterator]=function(){throw 1}",
        "Object.setPrototypeOf(Array.prototype,new Proxy({},{get(){throw 1},has(){throw 2}}))",
        "Object.setPrototypeOf(globalThis,new Proxy({},{get(){throw 1},has(){throw 2}}))",
        "Object.freeze(globalThis);Object.freeze(Object.prototype);Object.freeze(Array.prototype)",
        "globalThis.emit=function(){throw 1}",
        "Function.prototype.call=Function.prototype.apply=function(){throw 1}",
        "for (var k of Object.getOwnPropertyNames(globalThis)) try { delete globalThis[k] } catch (e) {}",
        "for (var k of Object.getOwnPropertyNames(globalThis)) try { globalThis[k] = null } catch (e) {}",
        "Object.defineProperty(globalThis,'require',{get(){throw 1}})",
        "Promise.prototype.then=function(){throw 1}",
        "RegExp.prototype.exec=function(){return {}}",
        "Object.prototype.__proto__=null",
        "globalThis.__proto__={toJSON(){throw 1}}",
        "Object.defineProperty(Object.prototype,'length',{value:2**40})",
        "Error.prototype.toString=function(){throw 1};Object.setPrototypeOf(Error.prototype,null)",
    ] {
        for isolation in BOTH {
            let engine = small(isolation);
            let spoiling = format!("function(doc){{ {spoil}; throw new Error('spoiled') }}");
            let group = group(&[&spoiling, "function(doc){emit(doc._id,doc)}"]);
            let result = run(
                &engine,
                &group,
                &[("a", r#"{"v":[1]}"#), ("b", r#"{"v":{"w":1}}"#)],
            );
            if let Err(error) = result {
                assert!(matches!(error, Error::Limit { .. }), "{spoil}: {error:?}");
            }
            assert_works(&engine);
        }
    }
}

#[test]
fn tricks_of_the_language_do_no_harm() {
    for map in [
        "function(doc){var it;function* g(){it.next()} it=g();it.next()}",
        "function(doc){function* g(){try{yield 1}finally{emit(1)}} for(var x of g()) throw 1}",
        "function(doc){var a=[1,2,3,4,5];a.sort(function(){a.length=0;return 1});throw a}",
        "function(doc){var a=[1,2,3];a.forEach(function(){a.length=0;a.push({})});var b=new Uint8Array(8);b.buffer.transfer();b.fill(1);throw 1}",
        "function(doc){var a=new Array(100).fill(1);a.indexOf({valueOf(){a.length=0}},{valueOf(){a.length=0;return 0}});throw 1}",
        "function(doc){var b=new ArrayBuffer(16);var u=new Uint8Array(b);u.fill({valueOf(){b.transfer();return 1}});throw 1}",
        "function(doc){emit({get a(){delete this.b;delete this.c;return 1},b:1,c:2});throw 1}",
        "function(doc){var a=[1,{toJSON(){a.length=0}},3,4];emit(a);throw 1}",
        "function(doc){Atomics.wait(new Int32Array(new SharedArrayBuffer(8)),0,0,1000)}",
        "function(doc){import('x');throw 1}",
        "function(doc){new FinalizationRegistry(function(){}).register({},1);new WeakRef({});throw 1}",
        "function(doc){emit.call.call(emit.bind(emit,1),2);emit.apply(null,{length:1e6});throw 1}",
        "function(doc){new emit(1)}",
        "function(doc){var s='a'.repeat(1000);for(var i=0;i<1000;i++)s=s.slice(1)+'b';throw s}",
        "function(doc){eval('var emit=1;');eval('throw 1')}",
        "function(doc){with({emit:1}){throw emit}}",
        "function(doc){new Function('while','return 1')}",
        "function(doc){doc.__proto__.__proto__.x.y}",
        "function(doc){JSON.parse('{\"__proto__\":1}',function(k,v){delete this.x;throw 1})}",
        "function(doc){structuredClone(doc)}",
        "function(doc){for(var k in new Proxy({},{ownKeys(){return ['a','a']}}));}",
        "function(doc){Reflect.construct(function(){},[],new Proxy(function(){},{get(){throw 1}}))}",
    ] {
        assert_throws(map);
    }
}

#[test]
fn a_mapper_works_again_after_a_limit() {
    for isolation in BOTH {
        let engine = with_time(isolation, Duration::from_secs(1));
        let map = "function(doc){ if (doc.v === 1) for(;;); var a = []; if (doc.v === 2) for(;;) a.push({}); emit(doc.v) }";
        let mut mapper = engine.mapper(&group(&[map])).expect("compiles");
        for (v, works) in [(0, true), (1, false), (3, true), (2, false), (4, true)] {
            let body = format!("{{\"v\":{v}}}");
            let doc = Doc {
                members: br#""_id":"a","_rev":"1-x""#,
                body: body.as_bytes(),
            };
            let mut out = Emits::default();
            let result = mapper.map(&[doc], &mut out);
            assert_eq!(result.is_ok(), works, "{v}");
            assert_eq!(out.rows.len(), usize::from(works));
        }
    }
}

#[test]
fn the_clock_starts_anew_for_each_document() {
    for isolation in BOTH {
        let engine = Engine::new(Options {
            time: Duration::from_secs(1),
            ..options(isolation)
        });
        // Each takes less than the limit, all together more.
        let map = "function(doc){var end=Date.now()+200;while(Date.now()<end);emit(1)}";
        let docs = [("a", "{}"); 6];
        // A machine that stalls for a second makes one of them late.
        let run = || run(&engine, &group(&[map]), &docs).map(|rows| rows.len());
        assert!((0..5).any(|_| run() == Ok(6)));
    }
}

#[test]
fn sources_that_run_wild_while_they_are_compiled_are_stopped() {
    for isolation in BOTH {
        let engine = small(isolation);
        for source in [
            "(function(){for(;;);})()",
            "(function(){var a=[];for(;;)a.push({})})()",
            "(function f(){f()})()",
        ] {
            assert!(engine.mapper(&group(&[source])).is_err());
            assert!(engine.check(source, None).is_err());
            assert!(
                engine
                    .reducer(&"db".into(), source, None)
                    .rereduce(&[b"1"])
                    .is_err()
            );
        }
        let deep = format!("function(doc){{{}}}", "[".repeat(100_000));
        assert!(engine.check(&deep, None).is_err());
        let lib = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(engine.check("function(doc){}", Some(&lib)).is_err());
        assert!(engine.check("function(doc){}", Some("no JSON")).is_err());
        assert_works(&engine);
    }
}

/// Only a process can be stopped within a built-in function that neither ends nor allocates.
#[test]
fn built_in_functions_that_do_not_end_are_killed_with_their_process() {
    let engine = small(Isolation::Process);
    for map in [
        "function(doc){Array.prototype.indexOf.call({length:2**53-1},1)}",
        "function(doc){for(;;)try{Array.prototype.lastIndexOf.call({length:2**53-1},1)}catch(e){}}",
    ] {
        let result = run(&engine, &group(&[map]), &[("a", "{}")]);
        let Err(Error::Limit { limit: TIME, .. }) = result else {
            panic!("{result:?}");
        };
        assert_works(&engine);
    }
}

/// With isolation by threads most of them are stopped when they allocate.
#[test]
fn built_in_functions_that_allocate_are_stopped() {
    for isolation in BOTH {
        let engine = Engine::new(Options {
            time: Duration::from_millis(50),
            memory_bytes: 512 << 20,
            ..options(isolation)
        });
        let map = "function(doc){for(;;)'x'.repeat(3e6).split('')}";
        let result = run(&engine, &group(&[map]), &[("a", "{}")]);
        let Err(Error::Limit { limit: TIME, .. }) = result else {
            panic!("{result:?}");
        };
        assert_works(&engine);
    }
}

#[test]
fn one_design_documents_globals_are_not_anothers() {
    for isolation in BOTH {
        let engine = patient(isolation);
        let leak = "function(doc){leaked=(globalThis.leaked||0)+1;emit(leaked)}";
        assert_eq!(emits(&engine, leak, "{}"), [("1".into(), "null".into())]);
        let look = "function(doc){emit(typeof leaked)}";
        assert_eq!(
            emits(&engine, look, "{}"),
            [("\"undefined\"".into(), "null".into())]
        );
    }
}

/// Memory runs out at many places: while a heap is created, while functions are compiled or run,
/// and while their rows are written.
#[test]
fn memory_may_run_out_anywhere() {
    let body = format!(
        r#"{{"v":1,"a":[{}],"o":{{"p":[{{"q":"x"}}]}},"text":"{}"}}"#,
        vec![r#"{"b":[1,"two",{"c":null}]}"#; 40].join(","),
        "é".repeat(3000)
    );
    let maps = group(&[
        "function(doc){emit(doc.a.map(function(x){return x.b.concat([doc.v])}),doc)}",
        "function(doc){var o={};for(var i=0;i<500;i++)o['k'+i]=[i,{}];emit(o,Object.keys(o).join('-'))}",
        "function(doc){kept=globalThis.kept||[];kept.push({...doc},new Date);emit(kept.length)}",
    ]);
    let docs = vec![("a", &*body); 12];
    for step in 0..150 {
        let engine = Engine::new(Options {
            time: Duration::from_secs(60),
            memory_bytes: (2 << 20) + step * 9001,
            workers_max: 1,
            ..options(Isolation::Thread)
        });
        for _ in 0..2 {
            match run(&engine, &maps, &docs) {
                Ok(rows) => assert_eq!(rows.len(), 36),
                Err(Error::Limit { limit: MEMORY, .. }) => {}
                Err(error) => panic!("{step}: {error:?}"),
            }
            let mut reducer = engine.reducer(&"db".into(), "function(k, v) { var a = []; for (var i = 0; i < 3000; i++) a.push([i, v]); return a.length }", None);
            let values = vec![body.as_bytes(); 5 + step];
            match reducer.rereduce(&values) {
                Ok(answer) => assert_eq!(answer, b"3000"),
                Err(Error::Limit { limit: MEMORY, .. }) => {}
                Err(error) => panic!("{step}: {error:?}"),
            }
        }
    }
}

/// One document must not end the build of a view for all others.
#[test]
fn a_document_beyond_a_limit_is_left_out_of_the_function_that_exceeded_it() {
    let floods = "function(doc){ if (doc.v === 1) for (;;) emit(doc.v); emit(doc.v) }";
    let writes = "function(doc){ if (doc.v === 2) emit(0, 'x'.repeat(2e6)); emit(doc.v) }";
    let hoards = "function(doc){ var a = []; if (doc.v === 3) for (;;) a.push({}); emit(doc.v) }";
    for isolation in BOTH {
        let group = MapGroup {
            leaves_out: true,
            ..group(&[floods, writes, "function(doc){ emit(doc.v) }", hoards])
        };
        let mut mapper = patient(isolation).mapper(&group).expect("compiles");
        let bodies = ["0", "1", "2", "3", "4"].map(|v| format!("{{\"v\":{v}}}"));
        let docs = bodies.each_ref().map(|body| Doc {
            members: br#""_id":"a","_rev":"1-x""#,
            body: body.as_bytes(),
        });
        let mut out = Emits::default();
        mapper.map(&docs, &mut out).expect("maps");
        let left_out: Vec<_> = out.thrown.iter().map(|t| (t.doc, t.view)).collect();
        assert_eq!(left_out, [(1, 0), (2, 1), (3, 3)]);
        let limits = [ROWS, BYTES, MEMORY];
        for (thrown, name) in out.thrown.iter().zip(limits) {
            let Error::Limit { limit, .. } = &thrown.error else {
                panic!("{thrown:?}");
            };
            assert_eq!(*limit, name);
        }
        let rows: Vec<_> = out.rows.iter().map(|row| (row.doc, row.view)).collect();
        let all = (0..5).flat_map(|doc| (0..4).map(move |view| (doc, view)));
        let expected: Vec<_> = all.filter(|row| !left_out.contains(row)).collect();
        assert_eq!(rows, expected);
    }
}

/// Time is a property of the machine as well.
#[test]
fn a_document_beyond_the_time_limit_fails_the_call() {
    for isolation in BOTH {
        let group = MapGroup {
            leaves_out: true,
            ..group(&["function(doc){ for (;;); }"])
        };
        let result = run(&small(isolation), &group, &[("a", "{}")]);
        assert!(matches!(result, Err(Error::Limit { limit: TIME, .. })));
    }
}
