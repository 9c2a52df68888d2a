//! Design functions in the real query servers of other languages. They are installed by
//! `scripts/setup.sh test`.

use crate::common;

use common::{group, map, real_servers, row};
use query_server::Pools;
use query_server::language::{DesignDoc, Error, ListIo};

fn pools() -> Pools {
    Pools::new(real_servers()).expect("a thread")
}

#[test]
fn couchpy_has_no_design_functions_and_is_replaced() {
    let pools = pools();
    let mut designs = pools.designs("db", "python").unwrap();
    let ddoc = design("python", "{}");
    for _ in 0..2 {
        let result = designs.call(&ddoc, &["shows", "s"], b"[null,{}]");
        assert!(matches!(result, Err(Error::Process(_))), "{result:?}");
    }
    assert_eq!(
        map(
            &pools,
            &group("python", &["def view(doc):\n    yield doc['k'], None"]),
            &["{\"k\":1}"]
        ),
        Ok(vec![row(0, 0, "1", "null")])
    );
}

#[test]
fn the_built_in_python_server_says_what_it_has() {
    let pools = pools();
    let mut designs = pools.designs("db", "python3").unwrap();
    let result = designs.call(&design("python3", "{}"), &["shows", "s"], b"[null,{}]");
    assert!(
        matches!(&result, Err(Error::Thrown { reason, .. }) if reason.contains("map and reduce")),
        "{result:?}"
    );
}

fn design(language: &str, json: &str) -> DesignDoc {
    DesignDoc {
        id: "_design/d".to_owned(),
        rev: "1-a".to_owned(),
        language: language.to_owned(),
        json: json.as_bytes().into(),
    }
}

/// A design document with the same functions in Erlang and JavaScript.
fn functions_of(language: &str) -> DesignDoc {
    let text = |source: &str| {
        let mut out = Vec::new();
        document::write_json_string(source, &mut out);
        String::from_utf8(out).expect("UTF-8")
    };
    let sources = if language == "erlang" {
        [
            r#"fun({New}, Old, _Ctx, _Sec) ->
                case proplists:get_value(<<"do">>, New) of
                    <<"forbid">> -> {[{<<"forbidden">>, <<"no">>}]};
                    <<"throw">> -> throw({[{<<"unauthorized">>, <<"who">>}]});
                    <<"break">> -> undefined = Old;
                    _ -> 1
                end
            end"#,
            r#"fun({Doc}, {Req}) -> proplists:get_value(<<"n">>, Doc) > proplists:get_value(<<"min">>, Req) end"#,
            r#"fun(Doc, {Req}) -> {[{<<"body">>, [proplists:get_value(<<"x">>, element(1, DDoc)), proplists:get_value(<<"q">>, Req), Doc]}]} end"#,
            r#"fun(Doc, _) -> [Doc, <<"done">>] end"#,
            r#"fun({Head}, _Req) ->
                Start({[{<<"headers">>, {[{<<"X">>, <<"y">>}]}}]}),
                Send(integer_to_binary(proplists:get_value(<<"total_rows">>, Head))),
                FoldRows(fun({Row}, _) -> Send([<<" ">>, proplists:get_value(<<"id">>, Row)]), {ok, nil} end, nil),
                <<" end">>
            end"#,
            r#"fun(_, _) -> <<"all">> end"#,
            r#"fun({Doc}) -> case proplists:get_value(<<"n">>, Doc) of 2 -> Emit(1, 1); _ -> ok end end"#,
            r#"fun({_}) -> {[{<<"path">>, <<"x/y">>}]} end"#,
        ]
    } else {
        [
            "function (doc, old) {
                if (doc.do === 'forbid') throw {forbidden: 'no'};
                if (doc.do === 'throw') throw {unauthorized: 'who'};
                if (doc.do === 'break') throw new Error('broken');
            }",
            "function (doc, req) { return doc.n > req.min; }",
            "function (doc, req) { return {json: [this.x, req.q, doc]}; }",
            "function (doc, req) { return [doc, 'done']; }",
            "function (head, req) {
                start({headers: {X: 'y'}});
                send(String(head.total_rows));
                let row;
                while ((row = getRow())) send(' ' + row.id);
                return ' end';
            }",
            "function () { return 'all'; }",
            "function (doc) { if (doc.n === 2) emit(1, 1); }",
            "function (req) { return {path: 'x/y'}; }",
        ]
    };
    let [validate, filter, show, update, list, lazy, view, rewrite] = sources.map(text);
    design(
        language,
        &format!(
            r#"{{"_id":"_design/d","x":"é","validate_doc_update":{validate},"filters":{{"f":{filter}}},"shows":{{"s":{show}}},
            "updates":{{"u":{update}}},"lists":{{"l":{list},"lazy":{lazy}}},"views":{{"v":{{"map":{view}}}}},"rewrites":{rewrite}}}"#
        ),
    )
}

#[test]
fn design_functions_run_in_erlang_and_node() {
    let pools = pools();
    for language in ["erlang", "node"] {
        let ddoc = functions_of(language);
        let mut designs = pools.designs("db", language).unwrap();
        let mut call = |path: &[&str], args: &str| designs.call(&ddoc, path, args.as_bytes());
        let text = |result: Result<Vec<u8>, Error>| String::from_utf8(result.unwrap()).unwrap();

        let mut validate = |what: &str| {
            call(
                &["validate_doc_update"],
                &format!(r#"[{{"do":"{what}"}},null,{{}},{{}}]"#),
            )
        };
        assert_eq!(validate("pass"), Ok(b"1".to_vec()), "{language}");
        assert_eq!(
            validate("forbid"),
            Err(Error::Forbidden("no".to_owned())),
            "{language}"
        );
        assert_eq!(
            validate("throw"),
            Err(Error::Unauthorized("who".to_owned())),
            "{language}"
        );
        assert!(
            matches!(validate("break"), Err(Error::Thrown { .. })),
            "{language}"
        );

        let docs = r#"[{"n":1},{"n":2},{"n":3},{}]"#;
        // An atom, as an absent member is in Erlang, is more than any number.
        let last = language == "erlang";
        assert_eq!(
            text(call(&["filters", "f"], &format!(r#"[{docs},{{"min":1}}]"#))),
            format!("[true,[false,true,true,{last}]]"),
            "{language}"
        );
        assert_eq!(
            text(call(&["views", "v", "map"], &format!("[{docs}]"))),
            "[true,[false,true,false,false]]",
            "{language}"
        );
        let shown = text(call(&["shows", "s"], r#"[{"a":1},{"q":"?"}]"#));
        let expected = r#"["é","?",{"a":1}]"#;
        assert!(shown.contains(expected), "{language}: {shown}");
        let updated = text(call(&["updates", "u"], r#"[{"a":1},{}]"#));
        assert!(
            updated.starts_with(r#"["up",{"a":1},{"#) && updated.contains(r#""body":"done""#),
            "{language}: {updated}"
        );
        assert_eq!(
            text(call(&["rewrites"], "[{}]")),
            r#"["ok",{"path":"x/y"}]"#,
            "{language}"
        );
        let missing = call(&["shows", "missing"], "[null,{}]");
        assert!(
            matches!(&missing, Err(Error::Thrown { name, .. }) if name == "not_found"),
            "{language}: {missing:?}"
        );
    }
}

#[derive(Default)]
struct Collected {
    text: String,
    taken: usize,
}

impl ListIo for Collected {
    fn start(&mut self, response: &[u8]) -> Result<(), Error> {
        self.text
            .push_str(std::str::from_utf8(response).expect("UTF-8"));
        Ok(())
    }
    fn chunk(&mut self, text: &str) -> Result<(), Error> {
        self.text.push_str(text);
        Ok(())
    }
    fn row(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.taken += 1;
        let rows = [
            r#"{"id":"a","key":1,"value":null}"#,
            r#"{"id":"é","key":2,"value":null}"#,
        ];
        Ok(rows.get(self.taken - 1).map(|row| row.as_bytes().to_vec()))
    }
}

#[test]
fn list_functions_run_in_erlang_and_node() {
    let pools = pools();
    for language in ["erlang", "node"] {
        let ddoc = functions_of(language);
        let mut designs = pools.designs("db", language).unwrap();
        for _ in 0..2 {
            let mut io = Collected::default();
            designs
                .list(&ddoc, &["lists", "l"], br#"[{"total_rows":2},{}]"#, &mut io)
                .unwrap();
            assert!(
                io.text.contains(r#""X":"y""#) && io.text.ends_with("}2 a é end"),
                "{language}: {}",
                io.text
            );
            let mut io = Collected::default();
            designs
                .list(
                    &ddoc,
                    &["lists", "lazy"],
                    br#"[{"total_rows":2},{}]"#,
                    &mut io,
                )
                .unwrap();
            assert!(io.text.ends_with("}all"), "{language}: {}", io.text);
        }
        assert_eq!(pools.counts(language), (0, 1), "{language}");
    }
}
