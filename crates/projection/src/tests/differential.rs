//! Each function gives the same rows for the projected document as for the whole one, and throws if
//! and only if it did.

use rquickjs::{Context, Ctx, Function, Runtime};

use super::{choices::Choices, followed::FOLLOWED, maker::Maker, refused::REFUSED};
use crate::{Projection, whole};

/// Collects the rows as text at the moment of `emit`, and thrown values.
const HARNESS: &str = r#"
    (function () {
        var rows = [], stringify = JSON.stringify, parse = JSON.parse;
        globalThis.emit = function (key, value) { rows.push(stringify([key, value])) };
        globalThis.log = globalThis.sum = function () {};
        globalThis.isArray = Array.isArray;
        globalThis.require = function () { return function (x) { return stringify(x) } };
        return function (map, text) {
            rows = [];
            var thrown = null;
            try { map(parse(text)) } catch (e) { thrown = e instanceof Error ? e.name + e.message : stringify(e) }
            return stringify([rows, thrown]);
        };
    })()
"#;

struct Side<'js> {
    run: Function<'js>,
    maps: Vec<Function<'js>>,
}

impl<'js> Side<'js> {
    fn new(ctx: &Ctx<'js>, sources: &[&str]) -> Side<'js> {
        let run = ctx.eval(HARNESS).unwrap();
        let maps = sources
            .iter()
            .map(|source| {
                let source = source.trim_end_matches([';', '\n', ' ']);
                let mut options = rquickjs::context::EvalOptions::default();
                options.strict = false;
                ctx.eval_with_options(format!("({source}\n)"), options)
                    .unwrap_or_else(|error| panic!("{source}: {error} {:?}", ctx.catch()))
            })
            .collect();
        Side { run, maps }
    }

    fn rows(&self, text: &[u8]) -> Vec<String> {
        let text = std::str::from_utf8(text).unwrap();
        self.maps
            .iter()
            .map(|map| self.run.call((map.clone(), text)).unwrap())
            .collect()
    }
}

/// One document.
struct Texts {
    full: Vec<u8>,
    projected: Vec<u8>,
}

/// Runs the functions over random documents, whole and projected. Returns the number of rows and
/// the number of throws.
fn compare(sources: &[&str], projection: &Projection, seed: u64, count: usize) -> (usize, usize) {
    let runtime = Runtime::new().unwrap();
    let (whole_context, projected_context) = (
        Context::full(&runtime).unwrap(),
        Context::full(&runtime).unwrap(),
    );
    let mut choices = Choices(seed);
    let texts: Vec<Texts> = choices
        .documents(count)
        .iter()
        .map(|(members, body)| {
            let (mut full, mut projected) = (Vec::new(), Vec::new());
            whole(members.as_bytes(), body.as_bytes(), &mut full);
            projection.project(members.as_bytes(), body.as_bytes(), &mut projected);
            Texts { full, projected }
        })
        .collect();
    let run = |context: &Context, text: fn(&Texts) -> &[u8]| {
        context.with(|ctx| {
            let side = Side::new(&ctx, sources);
            texts
                .iter()
                .map(|texts| side.rows(text(texts)))
                .collect::<Vec<_>>()
        })
    };
    let expected = run(&whole_context, |texts| &texts.full);
    let found = run(&projected_context, |texts| &texts.projected);
    for (Texts { full, projected }, (expected, found)) in
        texts.iter().zip(expected.iter().zip(&found))
    {
        assert_eq!(
            expected,
            found,
            "{sources:?} takes {}\n    of {}\n    as {}",
            projection.describe(),
            String::from_utf8_lossy(full),
            String::from_utf8_lossy(projected)
        );
    }
    let emitted = expected
        .iter()
        .flatten()
        .filter(|result| !result.starts_with("[[],"))
        .count();
    let thrown = expected
        .iter()
        .flatten()
        .filter(|result| !result.ends_with(",null]"))
        .count();
    (emitted, thrown)
}

#[test]
fn rows_are_the_same_with_and_without_projection() {
    let (mut emitted, mut thrown) = (0, 0);
    for (i, (source, _)) in FOLLOWED.iter().enumerate() {
        let projection = Projection::analyse(source).unwrap();
        let (rows, throws) = compare(&[source], &projection, i as u64 * 7919, 300);
        emitted += rows;
        thrown += throws;
    }
    // The documents do reach the functions: neither do all calls throw, nor none.
    assert!(emitted > 10_000, "{emitted}");
    assert!(thrown > 3_000, "{thrown}");
}

#[test]
fn groups_that_share_a_document_give_the_same_rows() {
    let mut choices = Choices(3);
    for seed in 0..60 {
        let count = 2 + choices.below(6);
        let sources: Vec<&str> = (0..count)
            .map(|_| FOLLOWED[choices.below(FOLLOWED.len())].0)
            .collect();
        let projection = Projection::of_group(&sources, None).unwrap();
        compare(&sources, &projection, seed + 1_000_000, 60);
    }
}

/// Functions combined from random pieces: accepted ones must emit the same rows.
#[test]
fn functions_made_of_random_pieces_give_the_same_rows() {
    let mut choices = Choices(17);
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..1500 {
        let mut made = Maker {
            choices: &mut choices,
            variables: 0,
        };
        let source = made.function();
        match Projection::analyse(&source) {
            Ok(projection) => {
                accepted += 1;
                compare(&[&source], &projection, seed + 2_000_000, 40);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        accepted > 300 && refused > 100,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn the_tables_are_large_enough_and_hold_no_function_twice() {
    let mut sources: Vec<&str> = FOLLOWED
        .iter()
        .chain(REFUSED)
        .map(|(source, _)| *source)
        .collect();
    let count = sources.len();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), count);
    assert!(FOLLOWED.len() >= 150, "{}", FOLLOWED.len());
}
