use super::{RecordingHost, heap, map, rounds};
use crate::{Form, Heap, Limits, Scope, SilentHost};

/// Functions that touch documents in all ways, some of which throw.
const MAPS: [&str; 10] = [
    "function(doc){emit(doc._id,doc)}",
    "function(doc){emit([doc.a,new Date(0),{x:doc.n}],{toJSON:function(){return doc}})}",
    "function(doc){emit(1);throw new Error(doc._id)}",
    "function(doc){var a=[];a[0]=a;emit(1,a)}",
    "function(doc){emit(doc.s+'\\ud800',[doc.a,doc.missing])}",
    "function(doc){throw {forbidden:{get toJSON(){throw 1}}}}",
    "async (doc) => {await null;emit(doc)}",
    "function(doc){(function f(){f()})()}",
    "function(doc){emit(new Proxy(doc,{}),new Map)}",
    "function(doc){doc.later=1;delete doc.a;emit(Object.keys(doc),1)}",
];

/// Documents with ever new member names and values among them, and some that cannot be built.
fn map_all(scope: &Scope<'_>, from: usize, to: usize) {
    for number in from..to {
        let docs = [
            format!(
                r#"{{"_id":"doc{number}","a":[1,{{"b":"c{number}"}}],"n":{number}.5,"s":"é\n","k{number}":{{"z{number}":null}}}}"#
            ),
            r#"{"a":[1,[2,{"b":"#.to_owned(),
            format!(r#"{{"a":{{"b":["x",{number},{{"c":nope}}]}}}}"#),
            format!("{{\"a\":{}1", "[{\"a\":".repeat(600)),
        ];
        let docs: Vec<&[u8]> = docs.iter().map(|doc| doc.as_bytes()).collect();
        for source in MAPS {
            let form = [Form::Lazy, Form::Records, Form::LazyRecords][number % 3];
            map(scope, source, &docs, form);
        }
    }
}

/// As many documents as tables need to fill up, and for some bytes of each to be noticed. Under a sanitizer each takes ten times as
/// long.
fn many() -> usize {
    if cfg!(debug_assertions) {
        700
    } else {
        rounds(1000, 3000)
    }
}

#[test]
fn mapping_leaves_nothing_behind() {
    let many = many();
    let (mut heap, context) = heap();
    heap.enter(&context, &SilentHost, |scope| {
        scope.define_emit().expect("defined");
        map_all(scope, 0, 4 * many);
    });
    heap.collect();
    let before = heap.memory_used();
    heap.enter(&context, &SilentHost, |scope| {
        map_all(scope, 4 * many, 8 * many)
    });
    heap.collect();
    let after = heap.memory_used();
    assert!(after < before + (64 << 10), "{before} bytes became {after}");
    assert_eq!(heap.tear_down(), 0);
}

#[test]
fn garbage_may_be_collected_at_any_time() {
    let walk = "function(doc){var n=0;(function walk(x){for(var k in x)typeof x[k]==='object'?walk(x[k]):n++})(doc);emit(n,[doc,{...doc}])}";
    let ring = "function(doc){doc.a[0]=doc;doc.a[1].c[0]=doc.a;doc.o.p.a[0]=function(){return doc};emit(Object.keys(doc).length)}";
    let doc = br#"{"a":[{"b":[1,{"c":{}}]},{"c":["x",[{"d":null}]]}],"o":{"p":{"a":[[],{}]},"s":"x\n"},"n":1.5}"#;
    let (mut heap, context) = heap();
    heap.enter(&context, &SilentHost, |scope| {
        scope.define_emit().expect("defined");
        scope.runtime.control().stress.set(true);
        for form in [Form::Lazy, Form::LazyRecords] {
            let docs = [&doc[..]; 50];
            let rows = map(scope, walk, &docs, form);
            assert!(rows.iter().all(|row| *row == rows[0]), "{rows:?}");
            assert!(
                rows[0]
                    .as_ref()
                    .is_some_and(|rows| rows[0].starts_with("4 [{"))
            );
            for source in [ring, MAPS[0], MAPS[1], MAPS[4], MAPS[8]] {
                let rows = map(scope, source, &docs, form);
                assert!(rows.iter().all(Option::is_some), "{source}");
            }
        }
    });
    heap.collect();
    assert_eq!(heap.tear_down(), 0);
}

#[test]
fn contexts_give_back_what_they_have() {
    let mut heap = Heap::new(&Limits::default()).expect("a heap");
    let mut used = Vec::new();
    for _ in 0..20 {
        let context = heap.new_context().expect("a context");
        heap.enter(&context, &RecordingHost::default(), |scope| {
            scope.define_emit().expect("defined");
            let host = scope.host_object(&[c"say"]).expect("an object");
            let kept = scope.keep(host);
            map_all(scope, 0, 3);
            assert!(scope.kept(&kept).is_object());
        });
        heap.close_context(context);
        heap.collect();
        used.push(heap.memory_used());
    }
    assert!(used[19] <= used[5] + (64 << 10), "{used:?}");
    assert_eq!(heap.tear_down(), 0);
}

#[test]
fn a_heap_is_given_back_in_any_state() {
    let ends = [
        "for(;;);",
        "var a=[];for(;;)a.push(new Array(1000))",
        "x={};for(;;){x={x:x}}",
        "'x'.repeat(1e6).split('').map(x=>({x}))",
        "new Uint8Array(1e7).fill(1).map(x => { throw x })",
        "globalThis.later = Promise.resolve(1).then(() => { throw 1 }); 1",
    ];
    let limits = Limits {
        time: std::time::Duration::from_millis(50),
        memory_bytes: 8 << 20,
        ..Limits::default()
    };
    for source in ends {
        let mut heap = Heap::new(&limits).expect("a heap");
        let context = heap.new_context().expect("a context");
        heap.enter(&context, &SilentHost, |scope| {
            let kept = scope.evaluate(source, c"hostile").ok();
            let doc = scope.document(br#"{"a":[{"b":1}]}"#, Form::Lazy);
            // Neither is ever freed: the heap goes with all that is in it.
            std::mem::forget((kept, doc));
        });
    }
}
