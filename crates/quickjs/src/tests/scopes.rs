use super::{RecordingHost, heap, map};
use crate::{Enter, Form, Heap, Limit, Limits, SilentHost};

#[test]
fn a_heap_is_what_it_was_when_it_is_taken_back() {
    let (mut heap, context) = heap();
    let keep = heap.enter(&context, &SilentHost, |scope| {
        scope.define_random().expect("defined");
        scope.define_emit().expect("defined");
        let set_up = "var state = {n: 0, list: []}; (function (x) { state.n++; state.list.push(x); return [state.n, state.list.length] })";
        scope.keep(scope.evaluate(set_up, c"set up").expect("a function"))
    });
    let mut heap = heap.rewinding();
    let used = heap.memory_used();
    let mut random = Vec::new();
    for round in 0..50 {
        heap.enter(&context, &SilentHost, |scope| {
            let count = scope.kept(&keep);
            let text = format!(r#"{{"round{round}":[{}]}}"#, "{\"a\":1},".repeat(100) + "2");
            for expected in [&b"[1,1]"[..], b"[2,2]"] {
                let value = scope.value(text.as_bytes()).expect("a value");
                let answer = scope.call(&count, [&value]).expect("an answer");
                assert_eq!(scope.json(&answer).expect("JSON"), expected);
            }
            let spoil = "Array.prototype.push = null; delete globalThis.JSON; globalThis.big = new Array(1e4).fill({}); emit = 1; Math.random()";
            let number = scope.evaluate(spoil, c"spoil").expect("a number");
            random.push(scope.text(&number).expect("a text"));
            scope.keep(number);
            map(scope, "function(doc){ doc.a[0].b }", &[br#"{"a":[{"b":[]}]}"#], Form::Lazy);
        });
        heap.rewind();
        assert_eq!(heap.memory_used(), used);
    }
    random.sort();
    random.dedup();
    assert_eq!(random.len(), 50);
}

#[test]
fn what_is_kept_after_the_image_is_gone_with_it() {
    let (mut heap, context) = heap();
    let first = heap.enter(&context, &SilentHost, |scope| {
        scope.keep(scope.boolean(true))
    });
    let mut heap = heap.rewinding();
    heap.enter(&context, &SilentHost, |scope| {
        scope.keep(scope.evaluate("({})", c"x").expect("an object"));
    });
    heap.rewind();
    heap.enter(&context, &SilentHost, |scope| {
        assert_eq!(scope.text(&scope.kept(&first)), Ok("true".into()));
        let second = scope.keep(scope.null());
        assert!(scope.kept(&second).is_nothing());
    });
}

#[test]
fn jobs_of_a_context_that_was_closed_find_no_state() {
    let (mut heap, context) = heap();
    let other = heap.new_context().expect("a context");
    heap.enter(&context, &SilentHost, |scope| {
        let later = "(function (doc) { Promise.resolve().then(function () { globalThis.seen = doc.a.b }) })";
        let later = scope.evaluate(later, c"later").expect("a function");
        let doc = scope.document(br#"{"a":{"b":1}}"#, Form::Lazy);
        scope.call(&later, [&doc.expect("a document")]).expect("nothing");
    });
    heap.close_context(context);
    heap.enter(&other, &SilentHost, |scope| {
        scope.run_jobs();
        assert_eq!(scope.over(), None);
    });
    heap.collect();
    assert_eq!(heap.tear_down(), 0);
}

#[test]
fn scripts_talk_to_the_host_that_is_lent() {
    let (mut heap, context) = heap();
    let told = RecordingHost::default();
    let keep = heap.enter(&context, &told, |scope| {
        let host = scope.host_object(&[c"say", c"ask"]).expect("an object");
        let talk = "(function (host) { return function (x) { host.say('said ' + x); return host.ask(x) } })";
        let talk = scope.evaluate(talk, c"talk").expect("a function");
        scope.keep(scope.call(&talk, [&host]).expect("a function"))
    });
    let answers = heap.enter(&context, &told, |scope| {
        let talk = scope.kept(&keep);
        ["x", "null", "clock", "throw", "stop"].map(|text| {
            let text = scope.string(text).expect("a string");
            match scope.call(&talk, [&text]) {
                Ok(answer) => scope.text(&answer),
                Err(failed) => {
                    let thrown = scope.take_exception();
                    scope.text(&thrown).map(|text| format!("{failed}: {text}"))
                }
            }
        })
    });
    let answers = answers.map(|answer| answer.expect("a text"));
    assert_eq!(answers[..3], ["x", "null", "undefined"]);
    assert_eq!(
        answers[3],
        "JavaScript threw, or hit a limit: TypeError: 100 %s of it"
    );
    assert!(answers[4].starts_with("JavaScript threw"));
    let said = ["0:said x", "1:x", "0:said null", "1:null"];
    assert_eq!(told.0.borrow()[..4], said);
}

#[test]
fn heaps_move_between_threads_and_run_beside_each_other() {
    let count = "globalThis.n = (globalThis.n || 0) + 1";
    let mut heaps: Vec<_> = (0..4).map(|_| heap()).collect();
    for round in 1..=5 {
        heaps = std::thread::scope(|scope| {
            let threads: Vec<_> = heaps
                .drain(..)
                .map(|(mut heap, context)| {
                    scope.spawn(move || {
                        let n = heap.enter(&context, &SilentHost, |scope| {
                            let n = scope.evaluate(count, c"count").expect("a number");
                            scope.text(&n).expect("a text")
                        });
                        assert_eq!(n, round.to_string());
                        (heap, context)
                    })
                })
                .collect();
            let done = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            done.collect()
        });
    }
}

#[test]
fn a_script_runs_in_heaps_that_did_not_compile_it() {
    let (mut heap, context) = heap();
    let source = "(function () { return [this === globalThis, 'é', 1.5] })()";
    let script = heap.enter(&context, &SilentHost, |scope| {
        scope.compile(source, c"script")
    });
    let script = script.expect("compiles");
    drop(heap);
    for _ in 0..2 {
        let (mut heap, context) = super::heap();
        let answer = heap.enter(&context, &SilentHost, |scope| {
            scope.json(&scope.run(&script).expect("runs"))
        });
        assert_eq!(answer, Ok(r#"[true,"é",1.5]"#.as_bytes().to_vec()));
        assert_eq!(heap.tear_down(), 0);
    }
}

/// QuickJS returns byte code that lacks what it had no memory for.
#[test]
fn a_script_that_there_was_no_memory_to_write_does_not_compile() {
    let names: Vec<String> = (0..400).map(|n| format!("name{n}: 'text {n}'")).collect();
    let source = format!(
        "(function () {{ return {{ {} }} }})().name7",
        names.join(", ")
    );
    let limits = Limits {
        memory_bytes: 2 << 20,
        ..Limits::default()
    };
    let (mut compiled, mut refused) = (0, 0);
    for spare in (16 << 10..256 << 10).step_by(1 << 10) {
        let mut heap = Heap::new(&limits).expect("memory for a heap");
        let context = heap.new_context().expect("memory for a context");
        let filler = limits.memory_bytes - heap.memory_used() - spare;
        let script = heap.enter(&context, &SilentHost, |scope| {
            let fill = format!("globalThis.filler = new ArrayBuffer({filler})");
            scope.evaluate(&fill, c"fill").expect("memory for it");
            scope.compile(&source, c"script")
        });
        let Ok(script) = script else {
            refused += 1;
            continue;
        };
        compiled += 1;
        let (mut heap, context) = super::heap();
        let answer = heap.enter(&context, &SilentHost, |scope| {
            scope.run(&script).map(|value| scope.json(&value))
        });
        assert_eq!(answer, Ok(Ok(b"\"text 7\"".to_vec())), "{spare}");
    }
    assert!(compiled > 0 && refused > 0, "{compiled}, {refused}");
}

#[test]
fn a_heap_within_a_heap_is_entered_by_itself() {
    let (mut outer, context) = heap();
    outer.enter(&context, &SilentHost, |scope| {
        let one = scope.value(b"[1]").expect("a value");
        let (mut inner, context) = heap();
        let text = inner.enter(&context, &SilentHost, |scope| {
            let two = scope.value(b"[2]").expect("a value");
            scope.json(&two).expect("JSON")
        });
        assert_eq!(text, b"[2]");
        assert_eq!(inner.tear_down(), 0);
        assert_eq!(scope.json(&one).expect("JSON"), b"[1]");
    });
}

#[test]
fn limits_end_what_runs_and_stay_hit() {
    let mut limits = Limits {
        time: std::time::Duration::from_secs(60),
        memory_bytes: 4 << 20,
        emit_rows_max: 10,
        emit_bytes_max: 100,
        ..Limits::default()
    };
    for (source, limit) in [
        (
            "function(){ var a = []; for(;;) a.push({}) }",
            Limit::Memory,
        ),
        ("function(){ for(;;) emit(1) }", Limit::Rows),
        ("function(doc){ emit('x'.repeat(2e6)) }", Limit::Bytes),
        ("function(){ for(;;); }", Limit::Time),
    ] {
        if limit == Limit::Time {
            limits.time = std::time::Duration::from_millis(30);
        }
        let mut heap = Heap::new(&limits).expect("a heap");
        let context = heap.new_context().expect("a context");
        heap.enter(&context, &SilentHost, |scope| {
            scope.define_emit().expect("defined");
            assert_eq!(map(scope, source, &[b"{}"], Form::Lazy), [None]);
            assert_eq!(scope.over(), Some(limit), "{source}");
        });
        assert_eq!(heap.over(), Some(limit));
        let again = heap.enter(&context, &SilentHost, |scope| {
            scope
                .evaluate("for(var i=0;i<1e6;i++);", c"again")
                .map(drop)
        });
        assert!(again.is_err());
    }
}

/// Runs a function with limits; returns the limit that it hit.
fn limit_of(source: &str, limits: &Limits) -> Option<Limit> {
    let mut heap = Heap::new(limits).expect("a heap");
    let context = heap.new_context().expect("a context");
    heap.enter(&context, &SilentHost, |scope| {
        scope.define_emit().expect("defined");
        map(scope, source, &[b"{}"], Form::Lazy);
    });
    heap.over()
}

#[test]
fn large_blocks_count_towards_the_time_limit_like_many_small_ones() {
    let limits = Limits {
        time: std::time::Duration::from_millis(5),
        ..Limits::default()
    };
    // Few steps and few blocks, which take longer than the limit.
    for allocation in [
        "'x'.repeat(1e7)",
        "'x'.repeat(5e6) + i",
        "new Uint8Array(1e7)",
        "new Array(5e5).fill(i)",
        "part.split('x,')",
        "JSON.parse(text)",
        "JSON.stringify(part)",
        "part.replace(/y/g, 'z')",
        "part.toUpperCase()",
        "[part, part].join('-')",
        "numbers.concat(numbers)",
        "numbers.slice()",
        "numbers.map(function (n) { return n; })",
        "encodeURIComponent(part)",
    ] {
        // `part` is just longer than a block for which the clock is read. QuickJS encodes all of it even after the limit, in each round.
        let source = format!(
            "function () {{ var part = 'x,y'.repeat(1e5), numbers = new Array(2e5).fill(1);
                var text = '[' + '1,'.repeat(2e5) + '1]';
                for (var i = 0; i < 1000; i++) try {{ {allocation}; }} catch (e) {{}} }}"
        );
        assert_eq!(
            limit_of(&source, &limits),
            Some(Limit::Time),
            "{allocation}"
        );
    }
}

#[test]
fn a_function_that_catches_that_there_is_no_memory_ends() {
    let limits = Limits {
        time: std::time::Duration::from_secs(600),
        memory_bytes: 16 << 20,
        ..Limits::default()
    };
    for allocation in ["'x'.repeat(1e6) + all.length", "new Uint8Array(5e6)", "{}"] {
        let source = format!(
            "function () {{ var all = []; for (;;) try {{ all.push({allocation}); }} catch (e) {{}} }}"
        );
        assert_eq!(
            limit_of(&source, &limits),
            Some(Limit::Memory),
            "{allocation}"
        );
    }
}
