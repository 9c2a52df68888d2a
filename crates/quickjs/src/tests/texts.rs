use super::{heap, map};
use crate::{BuildError, Form, Interrupted, SilentHost, WHOLE};

/// Pieces of JSON, and of nearly valid JSON.
const PIECES: [&[u8]; 26] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"a\"",
    b"\"b\":",
    b"\"\\",
    b"\"",
    b"\\u",
    b"\\ud83d",
    b"\\ude00",
    b"\\n",
    b"1",
    b"-",
    b"-0.5e+3",
    b"true",
    b"nul",
    b" ",
    b"\xff",
    b"\xed\xa0\x80",
    "é".as_bytes(),
    b"\0",
    &[WHOLE],
    b"\"7\":{\"x\":[{}]}",
];

/// A cheap generator of repeatable choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    fn text(&mut self) -> Vec<u8> {
        let count = self.below(14);
        let inner = (0..count).flat_map(|_| PIECES[self.below(PIECES.len())].iter().copied());
        let mut text: Vec<u8> = inner.collect();
        if self.below(2) == 0 {
            text.splice(0..0, *b"{\"a\":");
            text.push(b'}');
        }
        text
    }
}

#[test]
fn any_bytes_may_be_given_for_documents_and_values() {
    let look = "function look(x, n){ if (n > 3 || typeof x !== 'object' || !x) return; for (var k in x) look(x[k], (n | 0) + 1); emit(Object.keys(x), x); delete x.a; x['7']; x.length }";
    let (mut heap, context) = heap();
    heap.enter(&context, &SilentHost, |scope| {
        scope.define_emit().expect("defined");
        let mut choices = Choices(1);
        for round in 0..3000 {
            let text = choices.text();
            let form = [Form::Lazy, Form::Records, Form::LazyRecords][round % 3];
            map(scope, look, &[&text], form);
            match scope.value(&text) {
                Ok(value) => drop(scope.json(&value).expect("JSON has no toJSON")),
                Err(BuildError::Exception) => drop(scope.take_exception()),
                Err(BuildError::Syntax | BuildError::Depth) => {}
            }
        }
        assert_eq!(scope.over(), None);
    });
    heap.collect();
    assert_eq!(heap.tear_down(), 0);
}

#[test]
fn values_come_out_as_they_went_in() {
    let (mut heap, context) = heap();
    heap.enter(&context, &SilentHost, |scope| {
        for text in [
            "null",
            "true",
            "-1",
            "1.5",
            "1e+21",
            "\"\"",
            "[]",
            "{}",
            r#"{"a":{"b":[1,{"c":"é漢😀\n"}],"":null},"__proto__":1}"#,
        ] {
            let value = scope.value(text.as_bytes()).expect("a value");
            assert_eq!(scope.json(&value), Ok(text.as_bytes().to_vec()));
        }
        for wrong in ["", "[", "[1,]", "{\"a\"}", "tru", "[1]x", "\"\\x\"", "nul"] {
            assert_eq!(
                scope.value(wrong.as_bytes()).err(),
                Some(BuildError::Syntax),
                "{wrong}"
            );
        }
        let deep = "[".repeat(1001) + &"]".repeat(1001);
        assert_eq!(scope.value(deep.as_bytes()).err(), Some(BuildError::Depth));
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        let value = scope.value(deep.as_bytes()).expect("a value");
        assert_eq!(scope.json(&value), Ok(deep.into_bytes()));
    });
    assert_eq!(heap.tear_down(), 0);
}

#[test]
fn records_are_made_at_once_and_what_is_whole_when_it_is_looked_at() {
    let doc = [&b"{\"r\":{\"x\":1},\"w\":"[..], &[WHOLE], b"{\"y\":nope}}"].concat();
    let (mut heap, context) = heap();
    heap.enter(&context, &SilentHost, |scope| {
        scope.define_emit().expect("defined");
        for form in [Form::Records, Form::LazyRecords] {
            let rows = map(
                scope,
                "function(doc){ emit(doc.r.x, typeof doc.w) }",
                &[&doc],
                form,
            );
            assert_eq!(rows, [Some(vec![r#"1 "object""#.to_owned()])]);
            // The value is read, and is not JSON.
            let rows = map(scope, "function(doc){ emit(doc.w.y) }", &[&doc], form);
            assert_eq!(rows, [None]);
        }
        assert!(scope.document(b"{\"a\":nope}", Form::Records).is_err());
        assert!(scope.document(b"{\"a\":nope}", Form::Lazy).is_ok());
    });
    assert_eq!(heap.tear_down(), 0);
}

#[test]
fn what_is_thrown_is_there_to_be_taken() {
    let (mut heap, context) = heap();
    heap.enter(&context, &SilentHost, |scope| {
        for (source, text) in [
            ("throw 'x'", "x"),
            ("throw new TypeError('no')", "TypeError: no"),
            ("null.x", "TypeError: cannot read property 'x' of null"),
        ] {
            assert_eq!(scope.evaluate(source, c"x").err(), Some(Interrupted));
            let thrown = scope.take_exception();
            assert_eq!(scope.text(&thrown), Ok(text.to_owned()));
        }
        let symbol = scope.evaluate("Symbol('x')", c"x").expect("a symbol");
        assert_eq!(scope.text(&symbol), Err(Interrupted));
        drop(scope.take_exception());
        let stringified = scope.stringify(&symbol).expect("undefined");
        assert!(stringified.is_nothing() && !stringified.is_string());
    });
    assert_eq!(heap.tear_down(), 0);
}
