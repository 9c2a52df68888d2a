//! Tests that running functions are found, which depends on QuickJS's own layout.

use std::cell::RefCell;

use super::heap;
use crate::{Clock, Host, Reply};

/// A host that looks which functions run.
#[derive(Default)]
struct Looking(RefCell<Vec<Vec<String>>>);

impl Host for Looking {
    fn call(&self, _: usize, _: &str, _: Clock<'_>) -> Reply {
        self.0.borrow_mut().push(profiler::running());
        Reply::Undefined
    }
}

#[test]
fn functions_that_run_are_told_by_name_or_line() {
    let (mut heap, context) = heap();
    let host = Looking::default();
    heap.enter(&context, &host, |scope| {
        let look = scope.host_object(&[c"look"]).expect("an object");
        let source = "(function (host) {
            function inner(n) { if (n > 0) { inner(n - 1); } else { host.look('x'); } return n; }
            const unnamed = [function () { inner(2); }];
            [1].map(function outer(x) { unnamed[0](); return x; });
            host.look('x');
            return 1;
        })";
        let function = scope.evaluate(source, c"test").expect("compiles");
        scope.call(&function, [&look]).expect("an answer");
    });
    let told = host.0.into_inner();
    let inner = [
        "inner",
        "inner",
        "inner",
        "(anonymous:3)",
        "outer",
        "(anonymous:1)",
    ];
    assert_eq!(told[0], inner);
    assert_eq!(told[1], ["(anonymous:1)"]);
    assert!(profiler::running().is_empty());
}

#[test]
fn deep_calls_and_long_names_are_told_as_far_as_there_is_room() {
    let (mut heap, context) = heap();
    let host = Looking::default();
    let name = "x".repeat(100);
    heap.enter(&context, &host, |scope| {
        let look = scope.host_object(&[c"look"]).expect("an object");
        let source = format!(
            "(function {name}(host, n) {{ return n === undefined ? {name}(host, 99) : n > 0 ? {name}(host, n - 1) : host.look('x'); }})"
        );
        let function = scope.evaluate(&source, c"test").expect("compiles");
        scope.call(&function, [&look]).expect("an answer");
    });
    let told = host.0.into_inner().remove(0);
    assert!(told.len() > 5 && told.len() <= 32, "{told:?}");
    assert!(told.iter().all(|n| *n == name[..48]), "{told:?}");
}
