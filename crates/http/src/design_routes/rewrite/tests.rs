use super::*;
use crate::design_routes::rules::Rules;
use crate::reply::Body;
use node::segments;
use serde_json::{Value, json};

const BASE: Base<'static> = Base {
    db: "db",
    design: "d",
    secure: true,
};

/// The target of `GET /db/_design/d/_rewrite{uri}`.
fn led(rules: Value, method: &str, uri: &str) -> Result<Option<String>, ApiError> {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let path: Vec<String> = segments(path)
        .iter()
        .map(|s| String::from_utf8_lossy(s).into_owned())
        .collect();
    let rules = Rules::parse(rules.to_string().as_bytes(), 1000)?;
    rules.check(BASE.secure, 1000)?;
    let target = rules.target(BASE, method, &path, &Query::parse(Some(query)))?;
    Ok(target.map(|t| t.uri))
}

fn get(rule: Value, uri: &str) -> Option<String> {
    led(json!([rule]), "GET", uri).unwrap()
}

#[test]
fn the_documented_examples_hold() {
    let cases = [
        (
            json!({"from": "/a", "to": "/some"}),
            "/a",
            "/db/_design/d/some",
        ),
        (
            json!({"from": "/a/*", "to": "/some/*"}),
            "/a/b/c",
            "/db/_design/d/some/b/c",
        ),
        (
            json!({"from": "/a/b", "to": "/some"}),
            "/a/b?k=v",
            "/db/_design/d/some?k=v",
        ),
        (
            json!({"from": "/a/:foo/", "to": "/some/:foo/"}),
            "/a/b",
            "/db/_design/d/some/b?foo=b",
        ),
        (
            json!({"from": "/a/:foo", "to": "/some", "query": {"k": ":foo"}}),
            "/a/b",
            "/db/_design/d/some?k=b&foo=b",
        ),
        (
            json!({"from": "/a", "to": "/some/:foo"}),
            "/a?foo=b",
            "/db/_design/d/some/b?foo=b",
        ),
    ];
    for (rule, uri, target) in cases {
        assert_eq!(get(rule.clone(), uri).as_deref(), Some(target), "{rule}");
    }
}

#[test]
fn the_first_rule_that_fits_counts() {
    let rules = json!([
        {"from": "/a", "to": "put", "method": "PUT"},
        {"from": "/a", "to": "get", "method": "GET"},
        {"from": "/a", "to": "any"},
        "not a rule",
        {"from": "", "to": "root"},
    ]);
    let to = |method, uri| led(rules.clone(), method, uri).unwrap();
    assert_eq!(to("PUT", "/a").as_deref(), Some("/db/_design/d/put"));
    assert_eq!(to("GET", "/a").as_deref(), Some("/db/_design/d/get"));
    assert_eq!(to("POST", "/a").as_deref(), Some("/db/_design/d/any"));
    assert_eq!(to("GET", "/").as_deref(), Some("/db/_design/d/root"));
    assert_eq!(to("GET", "/b"), None);
    assert_eq!(to("GET", "/a/b"), None);
}

#[test]
fn a_rule_without_from_fits_everything() {
    let rule = json!({"to": "x/*"});
    assert_eq!(get(rule.clone(), "/").as_deref(), Some("/db/_design/d/x"));
    assert_eq!(get(rule, "/a/b").as_deref(), Some("/db/_design/d/x/a/b"));
}

#[test]
fn two_parents_lead_to_the_database_and_no_further() {
    assert_eq!(
        get(
            json!({"from": "/db/*", "to": "../../*"}),
            "/db/_design/x?meta=true"
        )
        .as_deref(),
        Some("/db/_design/x?meta=true")
    );
    let far = json!([{"from": "/ok", "to": "x"}, {"from": "/u", "to": "../../../_uuids"}]);
    let refused = led(far.clone(), "GET", "/ok").unwrap_err();
    assert_eq!(
        (refused.status, &*refused.error, &*refused.reason),
        (500, "insecure_rewrite_rule", "too many ../.. segments")
    );
    let open = Base {
        secure: false,
        ..BASE
    };
    let rules = Rules::parse(far.to_string().as_bytes(), 2).unwrap();
    rules.check(open.secure, 2).unwrap();
    let target = rules.target(open, "GET", &["u".to_owned()], &Query::default());
    let target = target.unwrap();
    assert_eq!(target.unwrap().uri, "/_uuids");
}

#[test]
fn a_client_cannot_climb() {
    let rule = json!({"from": "/any/*", "to": "../../*"});
    assert_eq!(
        get(rule, "/any/%2E%2E/../_users").as_deref(),
        Some("/db/%2E%2E/%2E%2E/_users")
    );
    assert_eq!(
        get(json!({"from": "/:a", "to": ":a"}), "/..").as_deref(),
        Some("/db/_design/d/%2E%2E?a=..")
    );
    assert_eq!(
        get(json!({"from": "/:a", "to": ":a"}), "/x%2F..%3Fy").as_deref(),
        Some("/db/_design/d/x%2F..%3Fy?a=x%2F..%3Fy")
    );
}

#[test]
fn keys_are_json() {
    let rule = json!({"from": "/v/:k", "to": "_view/m", "query": {"key": ":k"}});
    assert_eq!(
        get(rule, "/v/2").as_deref(),
        Some("/db/_design/d/_view/m?key=%222%22&k=2")
    );
    let rule =
        json!({"from": "/v/:k", "to": "_view/m", "query": {"key": ":k"}, "formats": {"k": "int"}});
    assert_eq!(
        get(rule.clone(), "/v/2").as_deref(),
        Some("/db/_design/d/_view/m?key=2&k=2")
    );
    assert_eq!(
        get(rule, "/v/x").as_deref(),
        Some("/db/_design/d/_view/m?key=%22x%22&k=x")
    );
    let rule = json!({"from": "/c/:a/:b", "to": "_view/m", "query": {"key": [":a", ":b", 1, "c"]}});
    assert_eq!(
        get(rule, "/c/x/y").as_deref(),
        Some("/db/_design/d/_view/m?key=%5B%22x%22%2C%22y%22%2C1%2C%22c%22%5D&a=x&b=y")
    );
}

#[test]
fn variables_come_from_the_query_too() {
    let rule = json!({"from": "/c", "to": "_view/m", "query": {"key": [":a", {}], "include_docs": ":doc"}, "formats": {"doc": "bool"}});
    assert_eq!(
        get(rule, "/c?a=x&doc=TRUE").as_deref(),
        Some("/db/_design/d/_view/m?key=%5B%22x%22%2C%7B%7D%5D&include_docs=true&doc=TRUE&a=x")
    );
}

#[test]
fn the_rules_query_comes_before_the_clients() {
    let rule = json!({"from": "/f", "to": "_view/m", "query": {"startkey": 3, "limit": 5}});
    assert_eq!(
        get(rule, "/f?startkey=4&skip=1").as_deref(),
        Some("/db/_design/d/_view/m?startkey=3&limit=5&skip=1")
    );
}

#[test]
fn a_variable_that_nobody_gave_stays() {
    let rule = json!({"from": "/f", "to": "x/:gone", "query": {"q": ":gone"}});
    assert_eq!(
        get(rule, "/f").as_deref(),
        Some("/db/_design/d/x/undefined?q=:gone")
    );
}

#[test]
fn a_key_that_is_no_json_is_refused() {
    let e = led(json!([{"to": "x"}]), "GET", "/?key=x").unwrap_err();
    assert_eq!((e.status, &*e.reason), (400, "invalid UTF-8 JSON"));
}

#[test]
fn bad_rules_are_refused() {
    for rule in [
        json!({"from": 1}),
        json!({"from": "/a"}),
        json!({"to": 1}),
        json!({"to": "x", "query": []}),
        json!({"to": "x", "method": {}}),
        json!({"to": "x", "formats": 1}),
    ] {
        let e = led(json!([rule.clone()]), "GET", "/x").unwrap_err();
        assert_eq!((e.status, &*e.error), (500, "rewrite_error"), "{rule}");
    }
}

#[test]
fn names_are_encoded() {
    let base = Base {
        db: "a/b",
        design: "é x",
        secure: true,
    };
    let rules = Rules::parse(br#"[{"to":"s"}]"#, 1).unwrap();
    let target = rules.target(base, "GET", &[], &Query::default()).unwrap();
    assert_eq!(target.unwrap().uri, "/a%2Fb/_design/%C3%A9%20x/s");
}

#[test]
fn rules_and_their_parts_are_limited() {
    let rules = |count: usize| Value::from(vec![json!({"from": "a", "to": "b"}); count]);
    assert_eq!(led(rules(1000), "GET", "/c").unwrap(), None);
    let e = led(rules(1001), "GET", "/c").unwrap_err();
    assert_eq!(e.status, 400);
    assert!(e.reason.contains("max_rewrite_rules"), "{}", e.reason);
    // The setting may be lowered after they were parsed.
    let parsed = Rules::parse(rules(3).to_string().as_bytes(), 3).unwrap();
    assert!(parsed.check(true, 3).is_ok() && parsed.check(true, 2).is_err());
    let e = led(json!([{"from": "x", "to": "y/".repeat(256)}]), "GET", "/x").unwrap_err();
    assert!(e.reason.contains("more than 256 parts"), "{}", e.reason);
    let e = led(json!([{"to": "y".repeat(2 << 20)}]), "GET", "/x").unwrap_err();
    assert!(e.reason.contains("longer than"), "{}", e.reason);
}

#[test]
fn a_target_is_limited_whatever_a_rule_repeats() {
    let long = format!("/{}", "a".repeat(10_000));
    let variables = vec![":v"; 100];
    for rule in [
        json!({"from": ":v", "to": variables.join("/")}),
        json!({"from": ":v", "to": "x", "query": {"q": variables}}),
    ] {
        let e = led(json!([rule]), "GET", &long).unwrap_err();
        assert_eq!((e.status, &*e.error), (414, "too_long"));
    }
    let short = json!({"from": ":v", "to": variables.join("/")});
    assert!(get(short, "/a").is_some());
}

#[test]
fn rewriting_ends_somewhere() {
    assert!(check_limit(99, 100).is_ok());
    let e = check_limit(100, 100).unwrap_err();
    assert_eq!(
        (e.status, &*e.reason),
        (400, "Exceeded rewrite recursion limit")
    );
}

fn function(reply: Value) -> Result<Meaning, ApiError> {
    of_function(reply.to_string().as_bytes(), Some("sandbox"))
}

fn target_of(reply: Value) -> Result<Target, ApiError> {
    match function(reply)? {
        Meaning::Forward(forward) => forward.target(BASE, &Query::parse(Some("a=1&b=x+y"))),
        _ => panic!("the reply is a path"),
    }
}

fn forwarded(reply: Value) -> Target {
    target_of(reply).expect("a target")
}

#[test]
fn targets_of_functions_have_a_bound() {
    let long = TARGET_BYTES_MAX;
    for rewrite in [
        json!({"path": "a/".repeat(long / 2 + 1)}),
        // Encoded, it is longer.
        json!({"path": "é".repeat(long / 4)}),
        json!({"path": "x", "query": {"a": "é".repeat(long / 4)}}),
        json!({"path": "x", "query": {"a": "b".repeat(long)}}),
    ] {
        let refused = target_of(json!(["ok", rewrite])).expect_err("it is too long");
        assert_eq!((refused.status, &*refused.error), (414, "too_long"));
    }
    let short = target_of(json!(["ok", {"path": "a/".repeat(long / 4)}]));
    assert!(short.is_ok());
    let headers = json!(["ok", {"path": "x", "headers": {"a": "b".repeat(long)}}]);
    assert_eq!(target_of(headers).expect_err("too long").status, 500);
    let many = (0..2000).map(|n| (format!("x-{n}"), json!("y")));
    let many: serde_json::Map<_, _> = many.collect();
    let headers = json!(["ok", {"path": "x", "headers": many}]);
    assert_eq!(target_of(headers).expect_err("too many").status, 500);
    let values = vec![json!([0]); 200_000];
    let quoted = json!(["ok", {"path": "x", "headers": {"a": values[..1000]}}]);
    assert_eq!(target_of(quoted).expect_err("not a string").status, 500);
    let ignored = json!(["ok", {"path": "x", "unknown": values}]);
    assert!(target_of(ignored).is_ok());
}

#[test]
fn a_function_gives_a_path_and_the_query_stays() {
    let target = forwarded(json!(["ok", {"path": "../../x", "method": "PUT"}]));
    assert_eq!(target.uri, "/db/x?a=1&b=x%20y");
    assert_eq!(target.method.as_deref(), Some("PUT"));
    assert_eq!(target.body, None);
}

#[test]
fn a_function_changes_what_it_names() {
    let target = forwarded(json!(["ok", {
        "path": "/_view/v?own=1", "query": {"key": "\"k\""}, "headers": {"X-A": "b"}, "body": "text", "unknown": 1,
    }]));
    assert_eq!(target.uri, "/db/_design/d/_view/v?own=1&key=%22k%22");
    assert_eq!(target.headers, [("X-A".to_owned(), "b".to_owned())]);
    assert_eq!(target.body.as_deref(), Some(&b"text"[..]));
}

#[test]
fn a_functions_path_becomes_a_uri_whatever_it_has() {
    let target =
        forwarded(json!(["ok", {"path": "a b/é/%41/x#y/../../../../../../../../z", "query": {}}]));
    assert_eq!(target.uri, "/z");
    let target = forwarded(json!(["ok", {"path": "a b/é/%41/x#y\r\n", "query": {}}]));
    assert_eq!(target.uri, "/db/_design/d/a%20b/%C3%A9/%41/x%23y%0D%0A");
}

#[test]
fn a_function_may_answer_by_itself() {
    let reply =
        json!(["ok", {"code": 403, "headers": {"Content-Type": "text/plain"}, "body": "no"}]);
    let Ok(Meaning::Respond(reply)) = function(reply) else {
        panic!("the reply has a code");
    };
    assert_eq!(reply.status, 403);
    let header = |name| {
        reply
            .headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_bytes())
    };
    assert_eq!(header("content-type"), Some(&b"text/plain"[..]));
    assert_eq!(header("content-security-policy"), Some(&b"sandbox"[..]));
    assert_eq!(reply.headers.len(), 2);
    assert!(matches!(reply.body, Body::Full(b) if b == "no"));
}

#[test]
fn a_function_may_know_of_no_rule() {
    assert!(matches!(
        function(json!(["no_dispatch_rule"])),
        Ok(Meaning::Nowhere)
    ));
}

#[test]
fn a_function_that_answers_nonsense_is_told_so() {
    let cases = [
        (json!(["ok", 5]), "bad rewrite"),
        (json!(["ok", {}]), "Rewrite result must produce a new path."),
        (json!(["ok", {"path": 5}]), "bad path"),
        (json!(["ok", {"path": "x", "method": 5}]), "bad method"),
        (json!(["ok", {"path": "x", "body": {}}]), "bad body"),
        (json!(["ok", {"path": "x", "headers": []}]), "bad headers"),
        (json!(["ok", {"path": "x", "query": "a=b"}]), "bad query"),
        (json!(["ok", {"code": 199}]), "bad code"),
        (json!(["ok", {"code": 600}]), "bad code"),
        (json!(["ok", {"code": "200"}]), "bad code"),
        (
            json!(["ok", {"path": "x", "query": {"a": 1}}]),
            "object key/value must be strings a=1",
        ),
        (json!({"a": 1}), "bad rewrite"),
    ];
    for (reply, reason) in cases {
        let Err(e) = function(reply.clone()) else {
            panic!("{reply} is nonsense");
        };
        assert_eq!(
            (e.status, &*e.error, &*e.reason),
            (500, "rewrite_error", reason)
        );
    }
}

proptest::proptest! {
    #[test]
    fn no_rule_and_no_request_panics(
        from in "[/:*.a-c]{0,12}", to in "[/:*.a-c]{0,12}", uri in "[/.%?=&a-c]{0,16}", value in "[:*a-c]{0,3}",
    ) {
        let rule = json!({"from": from, "to": to, "query": {"q": value, "key": [value]}});
        // Whatever the result is, the target is a path.
        if let Ok(Some(target)) = led(json!([rule]), "GET", &uri) {
            assert!(target.starts_with('/'));
        }
    }
}
