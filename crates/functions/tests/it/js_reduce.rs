//! Custom reduce functions, and functions of design documents.

use crate::support;

use functions::js::{Engine, Options};
use functions::{DesignDoc, Error, ListIo, ReduceRow};
use support::{BOTH, assert_works, both_brief, each, in_time, options};

fn reduce(engine: &Engine, source: &str, rows: &[(&str, &str, &str)]) -> Result<String, Error> {
    let rows: Vec<_> = rows
        .iter()
        .map(|(key, id, value)| ReduceRow {
            key: key.as_bytes(),
            id: id.as_bytes(),
            value: value.as_bytes(),
        })
        .collect();
    let answer = engine.reducer(&"db".into(), source, None).reduce(&rows)?;
    Ok(String::from_utf8(answer).expect("JSON is UTF-8"))
}

#[test]
fn reduce_functions_see_keys_with_ids_and_values() {
    each(|engine| {
        let rows = [
            ("[1,\"é\"]", r#""a""#, "1"),
            ("null", r#""b""#, r#"{"x":[2]}"#),
        ];
        assert_eq!(
            reduce(
                engine,
                "function(keys, values, rereduce) { return [keys, values, rereduce, arguments.length] }",
                &rows
            ),
            Ok(r#"[[[[1,"é"],"a"],[null,"b"]],[1,{"x":[2]}],false,3]"#.into())
        );
        assert_eq!(reduce(engine, "(k, v) => v.length", &[]), Ok("0".into()));
        assert_eq!(
            reduce(engine, "function(k, v) { }", &rows),
            Ok("null".into())
        );
        assert_eq!(
            reduce(
                engine,
                "function(k, v) { v.push(1); return v.pop() }",
                &rows
            ),
            Ok("1".into())
        );
        assert_eq!(
            reduce(engine, "function(k, v) { throw 'x' }", &rows),
            Ok("null".into())
        );
        assert_eq!(
            reduce(engine, "function(k, v) { return sum([1,2]) }", &rows),
            Ok("3".into())
        );
    });
}

#[test]
fn rereduce_gets_no_keys() {
    each(|engine| {
        let source = "function(keys, values, rereduce) { return [keys, values, rereduce] }";
        let mut reducer = engine.reducer(&"db".into(), source, None);
        for _ in 0..3 {
            let answer = reducer.rereduce(&[b"1", b"{\"a\":2}"]).expect("an answer");
            assert_eq!(answer, br#"[null,[1,{"a":2}],true]"#);
        }
    });
}

#[test]
fn reduce_functions_can_require_views_lib() {
    each(|engine| {
        let lib = r#"{"add":"exports.add = function(v) { return v.reduce(function(a, b) { return a + b }, 0) }"}"#;
        let source = "function(k, v) { return require('views/lib/add').add(v) }";
        let answer = engine
            .reducer(&"db".into(), source, Some(lib))
            .rereduce(&[b"1", b"2", b"3"]);
        assert_eq!(answer, Ok(b"6".to_vec()));
    });
}

#[test]
fn reduce_functions_that_do_not_compile_or_end_are_errors() {
    for isolation in BOTH {
        let engine = Engine::new(Options {
            time: std::time::Duration::from_millis(100),
            ..options(isolation)
        });
        assert!(matches!(
            reduce(&engine, "1+1", &[]),
            Err(Error::Compile(_))
        ));
        for source in [
            "function(k, v) { for(;;); }",
            "function(k, v) { for(;;) try { for(;;); } catch (e) {} }",
            "function(k, v) { var a = []; for(;;) a.push('x'.repeat(1000) + a.length) }",
            "function(k, v) { return {toJSON() { for(;;); }} }",
        ] {
            assert!(
                matches!(reduce(&engine, source, &[]), Err(Error::Limit { .. })),
                "{source}"
            );
            assert_works(&engine);
        }
        assert!(reduce(&engine, "function(k, v) { return 1n }", &[]).is_err());
        assert!(
            reduce(
                &engine,
                "function(k, v) { var a = []; a[0] = a; return a }",
                &[]
            )
            .is_err()
        );
        assert_works(&engine);
    }
}

#[test]
fn a_hundred_reduce_functions_take_turns() {
    each(|engine| {
        for round in 0..2 {
            for number in 0..100 {
                let source = format!(
                    "function(k, v) {{ seen = (globalThis.seen || 0) + 1; return {number} }}"
                );
                let answer = engine.reducer(&"db".into(), &source, None).rereduce(&[]);
                assert_eq!(answer, Ok(number.to_string().into_bytes()), "{round}");
            }
        }
    });
}

fn design(json: &str) -> DesignDoc {
    DesignDoc {
        id: "_design/d".into(),
        rev: "1-a".into(),
        language: "javascript".into(),
        json: json.as_bytes().into(),
    }
}

fn call(engine: &Engine, ddoc: &DesignDoc, path: &[&str], args: &str) -> Result<String, Error> {
    let answer = engine
        .designs(&"db".into())
        .call(ddoc, path, args.as_bytes())?;
    Ok(String::from_utf8(answer).expect("JSON is UTF-8"))
}

const DESIGN: &str = r#"{
    "_id": "_design/d", "_rev": "1-a", "name": "D",
    "lib": {"names": "exports.hello = 'hello ' + require('../name2')"},
    "name2": "module.exports = 'you'",
    "validate_doc_update": "function(doc, old, user) { if (doc.bad) throw {forbidden: 'bad'}; if (!user.name) throw {unauthorized: 'who'}; if (doc.worse) throw new TypeError('worse') }",
    "filters": {"f": "function(doc, req) { return doc.v > req.query.min }"},
    "updates": {"u": "function(doc, req) { doc = doc || {_id: req.uuid}; doc.n = (doc.n || 0) + 1; return [doc, 'done'] }"},
    "shows": {"s": "function(doc, req) { return require('lib/names').hello + ' ' + this.name }", "loop": "function() { for(;;); }"},
    "lists": {
        "l": "function(head, req) { start({headers: {'X-A': 'b'}}); send('<'); var row; while (row = getRow()) send(row.key + ';'); return '>' }",
        "slow": "function() { var row, n = 0; while (row = getRow()) n++; return '' + n }",
        "loop": "function() { send('x'); for(;;); }",
        "throws": "function() { getRow(); throw 'x' }"
    },
    "views": {"v": {"map": "function(doc) { if (doc.v) emit(1) }"}}
}"#;

#[test]
fn design_functions_answer_as_the_protocol_has_it() {
    each(|engine| {
        let ddoc = design(DESIGN);
        for _ in 0..2 {
            let call = |path: &[&str], args: &str| call(engine, &ddoc, path, args);
            let validate = ["validate_doc_update"];
            assert_eq!(
                call(&validate, r#"[{},null,{"name":"a"},{}]"#),
                Ok("1".into())
            );
            assert_eq!(
                call(&validate, r#"[{"bad":1},null,{"name":"a"},{}]"#),
                Err(Error::Forbidden("bad".into()))
            );
            assert_eq!(
                call(&validate, "[{},null,{},{}]"),
                Err(Error::Unauthorized("who".into()))
            );
            assert_eq!(
                call(&validate, r#"[{"worse":1},null,{"name":"a"},{}]"#),
                Err(Error::Thrown {
                    name: "TypeError".into(),
                    reason: "worse".into()
                })
            );
            assert_eq!(
                call(
                    &["filters", "f"],
                    r#"[[{"v":1},{"v":3}],{"query":{"min":2}}]"#
                ),
                Ok("[true,[false,true]]".into())
            );
            assert_eq!(
                call(&["views", "v", "map"], r#"[[{"v":1},{}]]"#),
                Ok("[true,[true,false]]".into())
            );
            assert_eq!(
                call(&["updates", "u"], r#"[null,{"uuid":"x","method":"POST"}]"#),
                Ok(r#"["up",{"_id":"x","n":1},{"body":"done"}]"#.into())
            );
            assert_eq!(
                call(&["shows", "s"], r#"[null,{"path":[]}]"#),
                Ok(r#"["resp",{"body":"hello you D"}]"#.into())
            );
            assert!(
                matches!(call(&["shows", "none"], "[null,{}]"), Err(Error::Thrown { name, .. }) if name == "not_found")
            );
            assert!(call(&["shows", "s"], "no JSON").is_err());
        }
        assert_works(engine);
    });
}

#[derive(Default)]
struct Rows {
    started: Vec<String>,
    text: String,
    left: usize,
    fail: bool,
}

impl ListIo for Rows {
    fn start(&mut self, response: &[u8]) -> Result<(), Error> {
        self.started
            .push(String::from_utf8_lossy(response).into_owned());
        Ok(())
    }
    fn chunk(&mut self, text: &str) -> Result<(), Error> {
        self.text.push_str(text);
        Ok(())
    }
    fn row(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if self.fail {
            return Err(Error::Forbidden("no rows".into()));
        }
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        Ok(Some(
            format!("{{\"id\":\"a\",\"key\":{},\"value\":null}}", self.left).into_bytes(),
        ))
    }
}

#[test]
fn list_functions_read_rows_and_write_text() {
    each(|engine| {
        let ddoc = design(DESIGN);
        let mut designs = engine.designs(&"db".into());
        let mut io = Rows {
            left: 3,
            ..Rows::default()
        };
        designs
            .list(&ddoc, &["lists", "l"], br#"[{},{"path":[]}]"#, &mut io)
            .expect("a list");
        assert_eq!(io.text, "<2;1;0;>");
        assert_eq!(io.started, [r#"{"headers":{"X-A":"b"}}"#]);

        let mut io = Rows {
            left: 5000,
            ..Rows::default()
        };
        designs
            .list(&ddoc, &["lists", "slow"], b"[{},{}]", &mut io)
            .expect("a list");
        assert_eq!(io.text, "5000");

        let mut io = Rows {
            fail: true,
            ..Rows::default()
        };
        let failed = designs.list(&ddoc, &["lists", "l"], b"[{},{}]", &mut io);
        assert_eq!(failed, Err(Error::Forbidden("no rows".into())));

        let mut io = Rows::default();
        assert!(matches!(
            designs.list(&ddoc, &["lists", "throws"], b"[{},{}]", &mut io),
            Err(Error::Thrown { .. })
        ));
        assert_works(engine);
    });
}

#[test]
fn design_functions_that_do_not_end_are_stopped_and_others_go_on() {
    for engine in both_brief() {
        let ddoc = design(DESIGN);
        let mut designs = engine.designs(&"db".into());
        for _ in 0..2 {
            let stopped = call(&engine, &ddoc, &["shows", "loop"], "[null,{}]");
            assert!(matches!(stopped, Err(Error::Limit { .. })), "{stopped:?}");
            let mut io = Rows::default();
            let stopped = designs.list(&ddoc, &["lists", "loop"], b"[{},{}]", &mut io);
            assert!(matches!(stopped, Err(Error::Limit { .. })), "{stopped:?}");
            let answer = in_time(|| call(&engine, &ddoc, &["shows", "s"], r#"[null,{"path":[]}]"#));
            assert_eq!(answer, Ok(r#"["resp",{"body":"hello you D"}]"#.into()));
        }
        assert_works(&engine);
    }
}

#[test]
fn many_design_documents_keep_apart() {
    for (isolation, memory_bytes) in BOTH.into_iter().zip([4 << 20, 32 << 20]) {
        let engine = &Engine::new(Options {
            memory_bytes,
            ..options(isolation)
        });
        for round in 0..2 {
            for number in 0..80 {
                let json = format!(
                    r#"{{"shows":{{"s":"function() {{ seen = (globalThis.seen || 0) + 1; return seen + ' {number}' }}"}}}}"#
                );
                let ddoc = DesignDoc {
                    id: format!("_design/{number}"),
                    ..design(&json)
                };
                let answer = call(engine, &ddoc, &["shows", "s"], "[null,{}]").expect("a show");
                assert!(
                    answer.ends_with(&format!(" {number}\"}}]")),
                    "{round}: {answer}"
                );
                assert!(
                    answer.contains("\"1 ") || answer.contains("\"2 "),
                    "{answer}"
                );
            }
        }
    }
}

#[test]
fn calls_from_many_threads_do_not_meet() {
    each(|engine| {
        let ddoc = design(DESIGN);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let answer = call(engine, &ddoc, &["shows", "s"], r#"[null,{"path":[]}]"#);
                        assert_eq!(answer, Ok(r#"["resp",{"body":"hello you D"}]"#.into()));
                        assert_works(engine);
                    }
                });
            }
        });
    });
}

#[test]
fn a_list_function_may_wait_for_who_needs_a_worker() {
    struct Nested<'a>(&'a Engine, bool);
    impl ListIo for Nested<'_> {
        fn start(&mut self, _: &[u8]) -> Result<(), Error> {
            Ok(())
        }
        fn chunk(&mut self, _: &str) -> Result<(), Error> {
            Ok(())
        }
        fn row(&mut self) -> Result<Option<Vec<u8>>, Error> {
            if std::mem::replace(&mut self.1, true) {
                return Ok(None);
            }
            assert_works(self.0);
            Ok(Some(b"{}".to_vec()))
        }
    }
    for isolation in BOTH {
        let engine = Engine::new(Options {
            workers_max: 1,
            ..options(isolation)
        });
        let mut io = Nested(&engine, false);
        let done = engine.designs(&"db".into()).list(
            &design(DESIGN),
            &["lists", "slow"],
            b"[{},{}]",
            &mut io,
        );
        assert_eq!(done, Ok(()));
    }
}
