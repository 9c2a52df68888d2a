//! Tests of internals: that nothing leaks, and that garbage may be collected at any time.

mod leaks;
mod running;
mod scopes;
mod texts;

use std::cell::RefCell;

use crate::{Clock, Context, Form, Heap, Host, Interrupted, Limits, Reply, Scope};

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}

/// A host that records its calls, and answers by their arguments.
#[derive(Default)]
struct RecordingHost(RefCell<Vec<String>>);

impl Host for RecordingHost {
    fn call(&self, function: usize, text: &str, clock: Clock<'_>) -> Reply {
        self.0.borrow_mut().push(format!("{function}:{text}"));
        match text {
            "null" => Reply::Null,
            "stop" => Reply::Stop,
            "throw" => Reply::TypeError(c"100 %s of it"),
            "clock" => {
                clock.start();
                Reply::Undefined
            }
            text => Reply::Text(text.as_bytes().to_vec()),
        }
    }
}

fn heap() -> (Heap, Context) {
    let mut heap = Heap::new(&Limits::default()).expect("a heap");
    let context = heap.new_context().expect("a context");
    (heap, context)
}

/// Rows as `key value`, one document after the other; `None` where the function failed.
fn map(scope: &Scope<'_>, map: &str, docs: &[&[u8]], form: Form) -> Vec<Option<Vec<String>>> {
    let source = format!("({map})");
    let function = scope.evaluate(&source, c"map").expect("compiles");
    let mut out = Vec::new();
    let one = |doc: &&[u8]| {
        out.clear();
        scope.start_clock();
        let doc = scope.document(doc, form).ok()?;
        let mut rows = Vec::new();
        let row = |key, value| rows.push((key, value));
        let done = scope.call_emitting(&function, &doc, &mut out, 1 << 20, row);
        if done == Err(Interrupted) {
            drop(scope.take_exception());
            return None;
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let rows = rows.into_iter();
        Some(
            rows.map(|(key, value)| text(&out[key]) + " " + &text(&out[value]))
                .collect(),
        )
    };
    docs.iter().map(one).collect()
}
