use super::{followed::FOLLOWED, refused::REFUSED};
use crate::{Projection, Refusal};

#[test]
fn functions_are_followed_to_what_they_touch() {
    let mut wrong = Vec::new();
    for (source, expected) in FOLLOWED {
        let mut expected: Vec<&str> = split(expected);
        expected.sort_unstable();
        let found = Projection::analyse(source).map(|projection| {
            let mut paths: Vec<String> = serde_json::from_str(&projection.describe()).unwrap();
            paths.sort_unstable();
            paths
        });
        if found.as_ref().is_ok_and(|paths| *paths == expected) {
            continue;
        }
        wrong.push(format!(
            "{source}\n    expected {expected:?}\n    found    {found:?}"
        ));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// At spaces that are not inside of quotes.
fn split(paths: &str) -> Vec<&str> {
    let mut quoted = false;
    paths
        .split(|c: char| {
            quoted ^= c == '"';
            c == ' ' && !quoted
        })
        .filter(|path| !path.is_empty())
        .collect()
}

#[test]
fn what_cannot_be_followed_is_refused_with_a_reason() {
    let mut wrong = Vec::new();
    for (source, expected) in REFUSED {
        match Projection::analyse(source) {
            Err(refusal) if refusal.to_string().contains(expected) => {}
            found => wrong.push(format!(
                "{source}\n    expected {expected}\n    found    {:?}",
                found
                    .map(|projection| projection.describe())
                    .map_err(|refusal| refusal.to_string())
            )),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_group_is_refused_when_one_function_is() {
    let a = "function (doc) { emit(doc.a, 1) }";
    let b = "function (doc) { emit(doc.b.c, 1) }";
    let whole = "function (doc) { emit(1, doc) }";
    let group = Projection::of_group(&[a, b], None).unwrap();
    assert_eq!(group.describe(), r#"["a","b.c"]"#);
    assert_eq!(
        Projection::of_group(&[a, whole], None),
        Err((1, Refusal::Passed))
    );
    assert_eq!(
        Projection::of_group::<&str>(&[], None).unwrap().describe(),
        "[]"
    );
}

#[test]
fn library_modules_count_when_a_function_may_require_them() {
    let plain = "function (doc) { emit(doc.a, 1) }";
    let requires = "function (doc) { emit(require('views/lib/x').f(doc.a), 1) }";
    let lib = |source: &str| serde_json::json!({"deep": {"x": source}}).to_string();
    let hostile = [
        "Object.prototype.__defineGetter__('q', function () { return this })",
        "Array.prototype.q = 1",
        "exports.f = Function('return this')",
        "var p = Object.getPrototypeOf([])",
        "not javascript at all",
    ];
    for source in hostile {
        let lib = lib(source);
        assert_eq!(
            Projection::of_group(&[plain, requires], Some(&lib)),
            Err((1, Refusal::Library)),
            "{source}"
        );
        assert!(Projection::of_group(&[plain], Some(&lib)).is_ok());
    }
    let harmless = [
        "exports.f = function (x) { return x + 1 }",
        "Object.defineProperty(exports, '__esModule', {value: true}); exports.f = x => x;",
        "function P() { this.x = arguments[0] } P.prototype.get = function () { return this.x }; exports.f = P; // end",
    ];
    for source in harmless {
        assert!(
            Projection::of_group(&[requires], Some(&lib(source))).is_ok(),
            "{source}"
        );
    }
    assert_eq!(
        Projection::of_group(&[requires], Some("{")),
        Err((0, Refusal::Library))
    );
}

/// One byte of source can nest one level deeper, in many ways.
#[test]
fn deeply_nested_sources_are_refused_or_followed_but_never_overflow_the_stack() {
    let pieces = [
        "(",
        "[",
        "{",
        "!",
        "-",
        "a=>",
        "a?b:",
        "if(a)",
        "a=",
        "new ",
        "a+",
        "a**",
        "`${",
        "a.b.",
        "f(",
        "x[",
        "...",
        "({a:",
        "function(){",
        "while(1)",
        "typeof ",
        "else ",
        "async()=>",
        "class{a=",
        "a||",
        "a??",
        "a,",
        "[a,",
        "a:",
        "do ",
        "()=>{",
        "{a(){",
        "(a=",
        "[...",
        "for(;;)",
        "try{",
        "switch(a){case ",
        "await ",
        "yield ",
        "a\n",
        "/a/+",
        "/*",
        "a?.b",
        "({get a(){",
        "a`${",
        "<",
        "return ",
        "let[",
        "var{a:",
        "class a extends ",
        "@a",
        "import(",
        "a<b>",
        "+",
        "~",
        "++",
    ];
    for piece in pieces {
        for (before, after) in [("function (doc) {", "}"), ("", ""), ("doc => ", "")] {
            let room = (64 << 10) - before.len() - after.len();
            let source = format!("{before}{}{after}", piece.repeat(room / piece.len()));
            drop(Projection::analyse(&source));
        }
    }
    // The same nesting, closed properly, so that the tree is built and walked.
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("!", ""),
        ("-", ""),
        ("a+", ""),
        ("{", "}"),
        ("if(a)", ";"),
        ("a=>", ""),
        ("a?a:", ""),
        ("a=", ""),
        ("f(", ")"),
        ("x[", "]"),
        ("{a:", "}"),
        ("()=>(", ")"),
        ("a**", ""),
        ("a,", ""),
        ("a||", ""),
        ("[[", "]]"),
        ("typeof ", ""),
    ] {
        let count = (63 << 10) / (open.len() + close.len());
        let core = if open == "{" { "" } else { "1" };
        for (before, after) in [("function (doc) { ", " }"), ("function (doc) { x = ", " }")] {
            let source = format!(
                "{before}{}{core}{}{after}",
                open.repeat(count),
                close.repeat(count)
            );
            drop(Projection::analyse(&source));
        }
    }
    // A chain that is followed up step by step.
    let source = format!("function (doc) {{ emit(doc{}, 1) }}", ".a".repeat(30_000));
    drop(Projection::analyse(&source));
    let too_long = format!("function (doc) {{ {} }}", " ".repeat(200_000));
    assert!(matches!(
        Projection::analyse(&too_long),
        Err(Refusal::TooLong { .. })
    ));
}
