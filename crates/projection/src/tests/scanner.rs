use serde_json::{Map, Value, json};

use super::choices::{Choices, NAMES};
use crate::{
    Projection,
    need::{Need, array_index},
};

/// Applies a need to a value, in a slow and simple way.
fn naive(need: &Need, value: &Value) -> Value {
    match value {
        _ if need.whole => value.clone(),
        Value::Object(members) => {
            let taken = members.iter().filter_map(|(name, value)| {
                let mut both = need.names.get(name).or(need.any.as_deref())?.clone();
                if let Some(any) = &need.any {
                    both.merge(any);
                }
                Some((name.clone(), naive(&both, value)))
            });
            Value::Object(taken.collect())
        }
        Value::Array(elements) => naive_array(need, elements),
        scalar => scalar.clone(),
    }
}

fn naive_array(need: &Need, elements: &[Value]) -> Value {
    let indexes: Vec<u32> = need
        .names
        .keys()
        .filter_map(|name| array_index(name))
        .collect();
    let mut element = Need::default();
    for index in &indexes {
        element.merge(&need.names[&index.to_string()]);
    }
    if let Some(any) = &need.any {
        element.merge(any);
    }
    let length = need.names.contains_key("length");
    if need.any.is_some() || !indexes.is_empty() {
        let last = indexes.iter().max().map_or(0, |&max| max as usize + 1);
        let count = if need.any.is_some() || length {
            elements.len()
        } else {
            last
        };
        elements
            .iter()
            .take(count)
            .map(|value| naive(&element, value))
            .collect()
    } else if length {
        elements.iter().map(|_| json!(0)).collect()
    } else {
        json!([])
    }
}

/// Some need, most often of names that documents have.
fn need(choices: &mut Choices, depth: usize) -> Need {
    let mut need = Need::default();
    if depth == 0 || choices.below(5) == 0 {
        need.add(&[], choices.below(2) == 0);
        return need;
    }
    for _ in 0..choices.below(5) {
        let name = choices.of(NAMES).to_owned();
        let inner = self::need(choices, depth - 1);
        need.names.insert(name, inner);
    }
    if choices.below(4) == 0 {
        let any = Need {
            any: Some(Box::new(self::need(choices, depth - 1))),
            ..Need::default()
        };
        need.merge(&any);
    }
    need
}

fn members(choices: &mut Choices) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("_id".into(), json!("id"));
    members.insert("_rev".into(), json!("1-x"));
    if choices.below(3) == 0 {
        members.insert("_attachments".into(), choices.value(3));
    }
    members
}

/// The text of an object without its braces.
fn without_braces(text: &str) -> &str {
    text.strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
        .unwrap()
}

#[test]
fn the_scanner_takes_what_the_naive_projector_takes() {
    let mut choices = Choices(11);
    for round in 0..30_000 {
        let mut need = need(&mut choices, 4);
        need.any = None;
        need.whole = false;
        if choices.below(3) == 0 {
            need.add(&[crate::need::Step::Name("_id".into())], true);
        }
        if choices.below(4) == 0 {
            need.names
                .insert("_attachments".into(), self::need(&mut choices, 2));
        }
        let mut document = members(&mut choices);
        let body = choices.body();
        let (mut members_text, mut body_text) = (String::new(), String::new());
        choices.object_text(&document, &mut members_text);
        choices.object_text(&body, &mut body_text);
        document.extend(body);

        let projection = Projection::new(need.clone());
        let mut out = b"before".to_vec();
        projection.project(
            without_braces(&members_text).as_bytes(),
            body_text.as_bytes(),
            &mut out,
        );
        let out = std::str::from_utf8(out.strip_prefix(b"before").unwrap()).unwrap();
        let parsed: Value =
            serde_json::from_str(out).unwrap_or_else(|error| panic!("{round}: {error}: {out}"));
        let expected = naive(&need, &Value::Object(document));
        assert_eq!(
            parsed.to_string(),
            expected.to_string(),
            "{round}: {} of {members_text} {body_text}",
            projection.describe()
        );
    }
}

#[test]
fn text_that_is_not_compact_json_is_copied() {
    let projection = Projection::analyse("function (doc) { emit(doc.a.b, doc._id) }").unwrap();
    for body in [
        "",
        "{",
        "{\"a\"",
        "{\"x\":1,",
        "[1]",
        "{\"a\":{\"b\":",
        "{ \"a\" : 1 }",
        "nonsense",
        "{\"x\":\"\\",
        "{a:1}",
    ] {
        let mut out = Vec::new();
        projection.project(b"\"_id\":\"x\"", body.as_bytes(), &mut out);
        let rest = body.strip_prefix('{').unwrap_or(body);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("{{\"_id\":\"x\",{rest}")
        );
    }
}

#[test]
fn any_bytes_are_survived() {
    let projection = Projection::analyse(
        "function (doc) { emit(doc.a[1].b, doc._id); emit(doc.b.length, doc.c); for (var i in doc.x) emit(doc.x[i].y, 1) }",
    )
    .unwrap();
    let mut choices = Choices(5);
    let mut out = Vec::new();
    for _ in 0..60_000 {
        let mut text = String::new();
        let body = choices.body();
        choices.object_text(&body, &mut text);
        let mut bytes = text.into_bytes();
        for _ in 0..1 + choices.below(3) {
            let at = choices.below(bytes.len());
            match choices.below(3) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = b"{}[]\",:\\0a \xff"[choices.below(12)],
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        out.clear();
        let half = choices.below(bytes.len());
        projection.project(&bytes[..half], &bytes, &mut out);
    }
}

#[test]
fn the_shapes_that_tests_and_lengths_need_are_kept() {
    let project = |source: &str, body: &str| {
        let projection = Projection::analyse(source).unwrap();
        let mut out = Vec::new();
        projection.project(b"\"_id\":\"i\",\"_rev\":\"1-r\"", body.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    };
    let body = r#"{"a":[{"b":1,"c":[2]},3],"t":{"u":[1]},"s":"text","l":[[1],{"x":[]},3]}"#;
    assert_eq!(
        project("function (doc) { emit(doc.a[0].b, 1) }", body),
        r#"{"a":[{"b":1}]}"#
    );
    assert_eq!(
        project("function (doc) { emit(doc.l.length, 1) }", body),
        r#"{"l":[0,0,0]}"#
    );
    assert_eq!(
        project(
            "function (doc) { if (doc.t && doc.a) emit(doc._id, doc.s) }",
            body
        ),
        r#"{"_id":"i","a":[],"t":{},"s":"text"}"#
    );
    assert_eq!(
        project("function (doc) { emit(doc.t.u, doc._rev) }", body),
        r#"{"_rev":"1-r","t":{"u":[1]}}"#
    );
    assert_eq!(
        project("function (doc) { emit(doc.nothing, 1) }", body),
        "{}"
    );
    assert_eq!(
        project("function (doc) { emit(doc._id, 1) }", "{}"),
        r#"{"_id":"i"}"#
    );
    assert_eq!(project("function (doc) { emit(1, doc.a) }", "{}"), "{}");
    assert_eq!(
        project(
            "function (doc) { emit(doc._access[0], doc._id) }",
            r#"{"_access":["a"],"b":1}"#
        ),
        r#"{"_id":"i","_access":["a"]}"#
    );
}
