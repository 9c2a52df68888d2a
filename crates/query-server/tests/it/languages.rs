//! The real query servers of other languages: Python's couchpy, and our own for Erlang, Node and
//! Python (`python3` here).
//! They are installed by `scripts/setup.sh test`.

use crate::common;

use std::time::{Duration, Instant};

use common::{Row, group, map, real_servers, rounds, row, wait_until_gone};
use query_server::language::{Error, ReduceRow};
use query_server::{Pools, Settings};

fn pools() -> Pools {
    Pools::new(real_servers()).expect("a thread")
}

const LANGUAGES: [&str; 4] = ["erlang", "node", "python", "python3"];

/// Two views: the member `k` with the member `v` if there is a `k`; and each element of `list` with
/// its index.
fn maps(language: &str) -> [&'static str; 2] {
    match language {
        "erlang" => [
            r#"fun({Doc}) ->
                case couch_util:get_value(<<"k">>, Doc) of
                    undefined -> ok;
                    Key -> Emit(Key, couch_util:get_value(<<"v">>, Doc, null))
                end
            end."#,
            r#"fun({Doc}) ->
                List = proplists:get_value(<<"list">>, Doc, []),
                [Emit(Value, Place) || {Place, Value} <- lists:zip(lists:seq(0, length(List) - 1), List)]
            end"#,
        ],
        "python" | "python3" => [
            "def view(doc):\n    if 'k' in doc:\n        yield doc['k'], doc.get('v')",
            "def view(doc):\n    for place, value in enumerate(doc.get('list', [])):\n        yield value, place",
        ],
        _ => [
            "function (doc) { if ('k' in doc) emit(doc.k, doc.v); }",
            "(doc) => { (doc.list || []).forEach((value, place) => emit(value, place)); };",
        ],
    }
}

const BODIES: [&str; 9] = [
    r#"{"k":"plain","v":1}"#,
    r#"{"k":null,"list":[null,true,false,0,-1,1.5,-2.25,1e-7,123456789012]}"#,
    r#"{"k":["é","😀","\"\\\n\t\u0001/","</script>"],"v":"\u2028"}"#,
    r#"{"k":{},"v":[]}"#,
    r#"{"k":{"a":{"b":[{"c":[[],{}]}]}},"v":{"é":"ü","":0}}"#,
    r#"{"x":1}"#,
    r#"{"k":[[[[[[[[[[1]]]]]]]]]],"list":["a","b","c"]}"#,
    r#"{"k":"","v":""}"#,
    r#"{"k":9007199254740991,"v":0.1}"#,
];

#[test]
fn all_languages_map_the_same_documents_to_the_same_rows() {
    let pools = pools();
    let control = r#""\"\\\n\t\u0001/""#;
    let expected: Vec<Row> = vec![
        row(0, 0, "\"plain\"", "1"),
        row(1, 0, "null", "null"),
        row(1, 1, "null", "0"),
        row(1, 1, "true", "1"),
        row(1, 1, "false", "2"),
        row(1, 1, "0", "3"),
        row(1, 1, "-1", "4"),
        row(1, 1, "1.5", "5"),
        row(1, 1, "-2.25", "6"),
        // As CouchDB writes it, in all languages.
        row(1, 1, "1.0e-7", "7"),
        row(1, 1, "123456789012", "8"),
        row(
            2,
            0,
            &format!(r#"["é","😀",{control},"</script>"]"#),
            "\"\u{2028}\"",
        ),
        row(3, 0, "{}", "[]"),
        row(4, 0, r#"{"a":{"b":[{"c":[[],{}]}]}}"#, r#"{"é":"ü","":0}"#),
        row(6, 0, "[[[[[[[[[[1]]]]]]]]]]", "null"),
        row(6, 1, "\"a\"", "0"),
        row(6, 1, "\"b\"", "1"),
        row(6, 1, "\"c\"", "2"),
        row(7, 0, "\"\"", "\"\""),
        row(8, 0, "9007199254740991", "0.1"),
    ];
    for language in LANGUAGES {
        assert_eq!(
            map(&pools, &group(language, &maps(language)), &BODIES),
            Ok(expected.clone()),
            "{language}"
        );
    }
}

#[test]
fn large_integers_keep_their_digits_where_the_language_has_them() {
    let pools = pools();
    let bodies = [r#"{"k":123456789012345678901234567890,"v":1.0}"#];
    for language in ["erlang", "python", "python3"] {
        assert_eq!(
            map(&pools, &group(language, &maps(language)), &bodies),
            Ok(vec![row(0, 0, "123456789012345678901234567890", "1.0")]),
            "{language}"
        );
    }
}

/// Texts, and what Erlang makes of them and writes.
const ERLANG_JSON: &[(&str, &str)] = &[
    (" [ ] ", "[]"),
    (
        "[\n{ } ,\t{\r\"a\" : [ 1 , 2 ] , \"b\":{}}\n]",
        r#"[{},{"a":[1,2],"b":{}}]"#,
    ),
    (
        "[0,-0,-1,10,1.0,-1.5,1e3,1E-2,2.5e+10,-3e0]",
        "[0,0,-1,10,1.0,-1.5,1.0e3,0.01,2.5e10,-3.0]",
    ),
    (
        "[1e308,1e-300,123456789.125]",
        "[1.0e308,1.0e-300,123456789.125]",
    ),
    (
        r#""\u00e9\ud83d\ude00\u0000\/\b\f\n\r\t\"\\""#,
        r#""é😀\u0000/\b\f\n\r\t\"\\""#,
    ),
    (
        r#"["\ud83d","\ude00","\ud83d\ud83d\ude00","\ud83dx","\ud83d\n"]"#,
        r#"["�","�","�😀","�x","�\n"]"#,
    ),
    (
        r#"{"a\nb":{"":null},"é":true,"x":false}"#,
        r#"{"a\nb":{"":null},"é":true,"x":false}"#,
    ),
    ("\"plain\"", "\"plain\""),
];

/// Texts that no JSON parser takes.
const NO_JSON: &[&str] = &[
    "",
    " ",
    "[",
    "]",
    "{",
    "}",
    "[1,]",
    "[,1]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{a:1}",
    "{1:2}",
    "[1 2]",
    "nul",
    "-",
    "1.",
    ".5",
    "1e",
    "1e400",
    "--1",
    "\"",
    "\"\\",
    "\"\\u12",
    "\"\\uzzzz\"",
    "1 1",
    "[1]]",
    "\"a\":1",
    "[1:2]",
    "{\"a\":1:2}",
    "{\"a\",1}",
];

#[test]
fn erlang_reads_and_writes_all_json() {
    let pools = pools();
    let body = |text: &str| {
        let mut out = b"{\"t\":".to_vec();
        document::write_json_string(text, &mut out);
        out.push(b'}');
        String::from_utf8(out).unwrap()
    };
    let map_texts = |source: &str, texts: &[&str]| {
        let bodies: Vec<String> = texts.iter().map(|text| body(text)).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        map(&pools, &group("erlang", &[source]), &bodies).unwrap()
    };
    // Through the codec as text, and as the value that is emitted.
    let texts: Vec<&str> = ERLANG_JSON.iter().map(|(text, _)| *text).collect();
    let source = r#"fun({Doc}) ->
        Value = couch_util:json_decode(couch_util:get_value(<<"t">>, Doc)),
        Value = couch_util:json_decode(couch_util:json_encode(Value)),
        Emit(null, Value)
    end"#;
    let expected: Vec<Row> = ERLANG_JSON
        .iter()
        .enumerate()
        .map(|(n, (_, value))| row(n as u32, 0, "null", value))
        .collect();
    assert_eq!(map_texts(source, &texts), expected);
    let rows = map_texts(
        r#"fun({[_, _, {_, Text}]}) -> Emit(couch_util:json_decode(Text), null) end"#,
        NO_JSON,
    );
    assert_eq!(rows, []);
}

#[test]
fn many_documents_come_back_in_order() {
    let pools = pools();
    let bodies: Vec<String> = (0..3000)
        .map(|n| format!(r#"{{"k":{n},"v":"{}"}}"#, "x".repeat(n % 1000)))
        .collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    for language in LANGUAGES {
        let rows = map(&pools, &group(language, &maps(language)), &bodies).unwrap();
        assert_eq!(rows.len(), 3000, "{language}");
        for (n, (doc, view, key, value)) in rows.iter().enumerate() {
            assert_eq!(
                (*doc as usize, *view, key, value.len()),
                (n, 0, &n.to_string(), n % 1000 + 2),
                "{language}"
            );
        }
    }
}

/// A map function that throws, by the document's `do`, before or after it emitted.
fn throwing(language: &str) -> &'static str {
    match language {
        "erlang" => {
            r#"fun({Doc}) ->
                Do = proplists:get_value(<<"do">>, Doc),
                Emit(Do, 1),
                case Do of
                    <<"throw">> -> throw(oops);
                    <<"exit">> -> exit(normal);
                    <<"error">> -> 1 / list_to_integer("0");
                    <<"unstorable">> -> Emit({a, b}, self());
                    _ -> Log("logged"), Log(<<"logged">>), Log({1, [2]}), io:format("printed~n")
                end
            end"#
        }
        "python" | "python3" => {
            "def view(doc):
    yield doc['do'], 1
    if doc['do'] != 'ok':
        raise Exception(doc['do'])
    log('logged')"
        }
        _ => {
            "function (doc) { emit(doc.do, 1); if (doc.do !== 'ok') throw doc.do; log('logged'); }"
        }
    }
}

#[test]
fn a_document_for_which_a_function_throws_has_no_rows_of_it() {
    let pools = pools();
    let bodies = ["ok", "throw", "exit", "error", "unstorable", "ok"]
        .map(|what| format!(r#"{{"do":"{what}","k":1}}"#));
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    for language in LANGUAGES {
        let rows = map(
            &pools,
            &group(language, &[throwing(language), maps(language)[0]]),
            &bodies,
        )
        .unwrap();
        let mut expected = vec![];
        for doc in 0..6 {
            if doc == 0 || doc == 5 {
                expected.push(row(doc, 0, "\"ok\"", "1"));
            }
            expected.push(row(doc, 1, "1", "null"));
        }
        assert_eq!(rows, expected, "{language}");
    }
}

#[test]
fn python_functions_may_print_read_and_exit() {
    let pools = pools();
    let source = "\
import os, sys

def told(doc):
    return doc['n']

def view(doc):
    print('printed')
    os.write(1, b'written')
    assert sys.stdin.read() == ''
    if told(doc) == 1:
        sys.exit(3)
    if told(doc) == 2:
        return
    yield '\\ud83d' if told(doc) == 3 else told(doc), None";
    let bodies = [r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":4}"#];
    let rows = map(&pools, &group("python3", &[source]), &bodies);
    assert_eq!(
        rows,
        Ok(vec![row(0, 0, "0", "null"), row(3, 0, "4", "null")])
    );
    // Half of a surrogate pair is not text, but does no harm to the documents around it.
    let rows = map(
        &pools,
        &group("python3", &[source]),
        &[r#"{"n":3}"#, r#"{"n":4}"#],
    );
    assert_eq!(rows.unwrap().last(), Some(&row(1, 0, "4", "null")));
    let nothing = "def view(doc):\n    pass";
    assert_eq!(
        map(&pools, &group("python3", &[nothing]), &["{}"]),
        Ok(vec![])
    );
    let mut reducer = pools
        .reducer(
            "db",
            "python3",
            "def f(keys, values): return max(values)",
            None,
        )
        .unwrap();
    assert_eq!(reducer.rereduce(&[b"1", b"3"]), Ok(b"3".to_vec()));
    let mut failing = pools
        .reducer(
            "db",
            "python3",
            "def f(keys, values): return values[9]",
            None,
        )
        .unwrap();
    assert!(matches!(
        failing.rereduce(&[b"1"]),
        Err(Error::Thrown { .. })
    ));
}

#[test]
fn functions_that_do_not_compile_are_said() {
    let pools = pools();
    for (language, sources) in [
        (
            "erlang",
            [
                "fun({Doc}) -> ",
                "fun(Doc) -> Unknown end",
                "1 + 1",
                "fun(A) -> 1 end, 2",
                "\"open",
            ],
        ),
        (
            "node",
            ["function (doc) {", "1 + 1", "function (", "'x'", "}"],
        ),
        ("python", ["def view(doc):", "x = 1", "def (", "1 +", "}"]),
        (
            "python3",
            ["def view(doc):", "import json", "def (", "1 / 0", "}"],
        ),
    ] {
        for source in sources {
            let result = pools.check(language, source);
            assert!(
                matches!(result, Err(Error::Compile(_))),
                "{language}: {source}: {result:?}"
            );
        }
        // Each ends a process, and the next waits for another to start.
        for source in sources.into_iter().take(rounds(1, 5)) {
            let result = map(
                &pools,
                &group(language, &[maps(language)[0], source]),
                &["{}"],
            );
            assert!(
                matches!(result, Err(Error::Compile(_))),
                "{language}: {source}: {result:?}"
            );
        }
        assert_eq!(
            pools.check(language, maps(language)[0]),
            Ok(()),
            "{language}"
        );
    }
}

fn endless(language: &str) -> &'static str {
    match language {
        "erlang" => "fun(_) -> (fun Loop() -> Loop() end)() end",
        "python" | "python3" => "def view(doc):\n    while True: pass",
        _ => "function (doc) { for (;;); }",
    }
}

#[test]
fn a_hung_function_is_killed_and_the_next_user_served() {
    let pools = pools();
    for language in LANGUAGES {
        pools.configure(Settings {
            timeout: Duration::from_secs(1),
            ..real_servers()
        });
        assert_eq!(
            map(&pools, &group(language, &[endless(language)]), &["{}"]),
            Err(Error::Limit {
                limit: "os_process_timeout",
                value: "1000".to_owned()
            }),
            "{language}"
        );
        assert_eq!(pools.counts(language), (0, 0), "{language}");
        pools.configure(real_servers());
        assert_eq!(
            map(&pools, &group(language, &maps(language)), &["{\"k\":1}"]),
            Ok(vec![row(0, 0, "1", "null")])
        );
    }
}

#[test]
fn many_slow_documents_are_no_slow_answer() {
    let pools = Pools::new(Settings {
        timeout: Duration::from_secs(3),
        ..real_servers()
    })
    .unwrap();
    // Together longer than one answer may take; all are sent ahead.
    let slow = [
        ("erlang", "fun(_) -> timer:sleep(60), Emit(1, 2) end"),
        (
            "node",
            "function (doc) { const end = Date.now() + 60; while (Date.now() < end); emit(1, 2); }",
        ),
        (
            "python",
            "def view(doc):\n    import time\n    time.sleep(0.06)\n    yield 1, 2",
        ),
        (
            "python3",
            "def view(doc):\n    import time\n    time.sleep(0.06)\n    yield 1, 2",
        ),
    ];
    std::thread::scope(|scope| {
        for (language, source) in slow {
            let pools = &pools;
            scope.spawn(move || {
                // On a busy machine the start can take longer than an answer may.
                let quick = group(language, &maps(language));
                while let Err(error) = map(pools, &quick, &["{}"]) {
                    assert!(matches!(error, Error::Limit { .. }), "{language}: {error}");
                }
                let rows = map(pools, &group(language, &[source]), &["{}"; 60]);
                assert_eq!(rows.map(|rows| rows.len()), Ok(60), "{language}");
            });
        }
    });
}

fn sum(language: &str) -> &'static str {
    match language {
        "erlang" => {
            "fun(Keys, Values, ReReduce) ->
                {[{<<\"sum\">>, lists:sum([case V of {[{_, S}]} -> S; _ -> V end || V <- Values])}]}
            end"
        }
        "python" | "python3" => {
            "def total(keys, values, rereduce):\n    return {'sum': sum(v['sum'] if rereduce else v for v in values)}"
        }
        _ => {
            "function (keys, values, rereduce) { return {sum: sum(values.map((v) => rereduce ? v.sum : v))}; }"
        }
    }
}

#[test]
fn all_languages_reduce_and_rereduce() {
    let pools = pools();
    for language in LANGUAGES {
        let mut reducer = pools.reducer("db", language, sum(language), None).unwrap();
        let values: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let rows: Vec<ReduceRow<'_>> = values
            .iter()
            .map(|value| ReduceRow {
                key: b"[\"\xc3\xa9\",1]",
                id: b"\"id\"",
                value: value.as_bytes(),
            })
            .collect();
        let text = |result: Result<Vec<u8>, Error>| String::from_utf8(result.unwrap()).unwrap();
        assert_eq!(
            text(reducer.reduce(&rows)),
            r#"{"sum":499500}"#,
            "{language}"
        );
        assert_eq!(
            text(reducer.reduce(&rows[..2])),
            r#"{"sum":1}"#,
            "{language}"
        );
        assert_eq!(
            text(reducer.rereduce(&[br#"{"sum":1.5}"#, br#"{"sum":2}"#])),
            r#"{"sum":3.5}"#,
            "{language}"
        );
    }
}

#[test]
fn keys_of_a_reduction_are_pairs_of_key_and_id() {
    let pools = pools();
    for (language, source) in [
        (
            "erlang",
            "fun(null, V, true) -> V; (Keys, _, false) -> Keys end",
        ),
        (
            "node",
            "function (keys, values, rereduce) { return rereduce ? values : keys; }",
        ),
        (
            "python",
            "def f(keys, values, rereduce):\n    return values if rereduce else keys",
        ),
        (
            "python3",
            "def f(keys, values, rereduce):\n    return values if rereduce else keys",
        ),
    ] {
        let mut reducer = pools.reducer("db", language, source, None).unwrap();
        let row = ReduceRow {
            key: b"{\"a\":1}",
            id: "\"é\"".as_bytes(),
            value: b"2",
        };
        assert_eq!(
            reducer.reduce(&[row]).unwrap(),
            r#"[[{"a":1},"é"]]"#.as_bytes(),
            "{language}"
        );
        assert_eq!(
            reducer.rereduce(&[b"null"]).unwrap(),
            b"[null]",
            "{language}"
        );
    }
}

#[test]
fn erlang_reductions_that_fail_are_errors() {
    let pools = pools();
    let run = |source| {
        pools
            .reducer("db", "erlang", source, None)
            .unwrap()
            .rereduce(&[b"1"])
    };
    assert!(matches!(
        run("fun(_, _, _) -> throw(x) end"),
        Err(Error::Thrown { .. })
    ));
    assert!(matches!(run("fun(_) -> 1 end"), Err(Error::Thrown { .. })));
    assert!(matches!(
        run("fun(_, _, _) -> self() end"),
        Err(Error::Thrown { .. })
    ));
    assert!(matches!(run("no end"), Err(Error::Compile(_))));
    assert_eq!(
        run("fun(_, _, _) -> #{a => 'b', 1 => \"c\"} end"),
        Ok(br#"{"1":[99],"a":"b"}"#.to_vec())
    );
}

#[test]
fn a_program_of_ours_is_put_back_when_it_was_cleaned_away() {
    let pools = pools();
    let group = group(
        "erlang",
        &["fun(_) -> Emit(list_to_binary(init:get_plain_arguments()), 2) end"],
    );
    let rows = map(&pools, &group, &["{}"]).unwrap();
    let folder = std::path::Path::new(rows[0].2.trim_matches('"'));
    for gone in [folder, folder.parent().unwrap()] {
        std::fs::remove_dir_all(gone).unwrap();
        pools.configure(real_servers());
        assert_eq!(map(&pools, &group, &["{}"]).map(|rows| rows.len()), Ok(1));
    }
}

#[test]
fn no_process_and_no_file_is_left() {
    let pools = pools();
    let source = "fun(_) -> Emit(list_to_binary(os:getpid()), list_to_binary(init:get_plain_arguments())) end";
    let rows = map(&pools, &group("erlang", &[source]), &["{}"]).unwrap();
    let pid = rows[0].2.trim_matches('"').parse().unwrap();
    let folder = std::path::PathBuf::from(rows[0].3.trim_matches('"'));
    assert!(folder.is_dir());
    drop(pools);
    wait_until_gone(pid);
    // A thread of the pool that was just looking around may hold it a moment longer than its owner.
    let started = Instant::now();
    while folder.parent().unwrap().exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "{folder:?}");
        std::thread::yield_now();
    }
}
