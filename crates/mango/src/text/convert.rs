//! Converts a selector to CouchDB's form in Lucene's syntax: `_explain` shows it, and CouchDB
//! chooses an index by the fields in it. The actual query of an index is that of [`super::cover`].

use super::{ELEMENTS, FieldType, SortField, TextKind, field_name, path_name};
use crate::condition::{Condition, Relation};
use crate::error::FindError;
use crate::json::{Elements, Kind, members, string};
use crate::options::Find;
use crate::selector::{Selector, SelectorNode};
use crate::sort::Direction;

/// A converted selector, before it is written.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    And(Vec<Tree>),
    Or(Vec<Tree>),
    /// The first without the second.
    Not(Box<Tree>, Box<Tree>),
    /// All without this.
    NotThere(Box<Tree>),
    /// A field of a type with a value.
    Field(Vec<String>, &'static str, String),
    /// A field with null.
    Null(Vec<String>),
    /// The name of a field, and a suffix.
    Name(Vec<String>, String),
    /// A string in a field.
    Regex(Vec<String>),
    Default(String),
}

/// Returns the query, as in `_explain`.
#[must_use]
pub fn lucene_query(selector: &Selector) -> String {
    let mut out = String::new();
    if let Some(tree) = tree(&selector.root, &[]) {
        tree.write(&mut out);
    }
    out
}

/// Returns the query of a text in all strings.
#[must_use]
pub fn default_query(text: &str) -> String {
    format!("$default:\"{}\"", escaped(text))
}

/// Returns the fields that an index of some fields must have, as `name:type` with names as written;
/// `$default` for `$text`.
pub(crate) fn fields_needed(selector: &Selector) -> Vec<String> {
    let mut fields = vec![];
    if let Some(tree) = tree(&selector.root, &[]) {
        tree.fields(&mut fields);
    }
    fields.reverse();
    let mut known = std::collections::HashSet::new();
    fields.retain(|field| known.insert(field.clone()));
    fields
}

fn tree(node: &SelectorNode, path: &[String]) -> Option<Tree> {
    Some(match node {
        SelectorNode::All(nodes) => Tree::And(nodes.iter().filter_map(|n| tree(n, path)).collect()),
        SelectorNode::Any(nodes) => Tree::Or(nodes.iter().filter_map(|n| tree(n, path)).collect()),
        SelectorNode::Not(node) => Tree::Not(Box::new(exists(path)), Box::new(tree(node, path)?)),
        SelectorNode::Field(field, condition) => {
            let below = |as_elements: bool| -> Vec<String> {
                let own = field.path.parts().map(|part| {
                    match as_elements && part.parse::<i64>().is_ok() {
                        true => ELEMENTS.to_owned(),
                        false => part.to_owned(),
                    }
                });
                path.iter().cloned().chain(own).collect()
            };
            match field.path.parts().any(|part| part.parse::<i64>().is_ok()) {
                false => of_condition(condition, &below(false))?,
                true => Tree::Or(vec![
                    of_condition(condition, &below(false))?,
                    of_condition(condition, &below(true))?,
                ]),
            }
        }
        SelectorNode::Here(condition) => of_condition(condition, path)?,
        SelectorNode::Text(text) => Tree::Default(value_of(&text.operand)),
        SelectorNode::Everything => return None,
    })
}

fn elements_of(path: &[String]) -> Vec<String> {
    [path, &[ELEMENTS.to_owned()]].concat()
}

fn exists(path: &[String]) -> Tree {
    Tree::Or(vec![
        Tree::Name(path.to_vec(), "_3a*".to_owned()),
        Tree::Name(path.to_vec(), ".*".to_owned()),
    ])
}

fn of_condition(condition: &Condition, path: &[String]) -> Option<Tree> {
    Some(match condition {
        Condition::Is(relation, operand) => of_relation(*relation, &operand.text, path)?,
        Condition::In(operands) => of_in(operands.values(), path),
        Condition::NotIn(operands) => Tree::Not(
            Box::new(exists(path)),
            Box::new(of_in(operands.values(), path)),
        ),
        Condition::Exists(true) | Condition::Type(_) => exists(path),
        Condition::Exists(false) => Tree::NotThere(Box::new(exists(path))),
        Condition::Modulo { .. } => Tree::Name(path.to_vec(), "_3anumber".to_owned()),
        Condition::Regex(_) => Tree::Regex(path.to_vec()),
        Condition::BeginsWith(prefix) => {
            let value = format!("{}*", escaped(prefix));
            Tree::Field(path.to_vec(), "string", value)
        }
        Condition::All(literals) => {
            let values: Vec<&[u8]> = Elements::of(&literals.text).collect();
            let below = elements_of(path);
            match values.as_slice() {
                [list] if Kind::of(list) == Kind::Array => Tree::Or(vec![
                    of_relation(Relation::Equal, list, path)?,
                    of_relation(Relation::Equal, list, &below)?,
                ]),
                values => Tree::And(values.iter().filter_map(|v| of_value(v, &below)).collect()),
            }
        }
        Condition::Size(size) => Tree::Field(elements_of(path), "length", size.to_string()),
        Condition::ElemMatch(node) | Condition::AllMatch(node) => tree(node, &elements_of(path))?,
        Condition::KeyMapMatch(_) => exists(path),
        Condition::Not(condition) => Tree::Not(
            Box::new(exists(path)),
            Box::new(of_condition(condition, path)?),
        ),
    })
}

fn of_in<'a>(values: impl Iterator<Item = &'a [u8]>, path: &[String]) -> Tree {
    let below = elements_of(path);
    let both = |value: &[u8], path: &[String]| of_value(value, path);
    let of_one = |value: &'a [u8]| -> Option<Tree> {
        Some(Tree::Or(vec![both(value, path)?, both(value, &below)?]))
    };
    Tree::Or(values.filter_map(of_one).collect())
}

/// Returns a value without an operator.
fn of_value(value: &[u8], path: &[String]) -> Option<Tree> {
    match Kind::of(value) {
        Kind::Array | Kind::Object => of_relation(Relation::Equal, value, path),
        kind => Some(Tree::Field(path.to_vec(), type_of(kind), value_of(value))),
    }
}

fn of_relation(relation: Relation, value: &[u8], path: &[String]) -> Option<Tree> {
    let kind = Kind::of(value);
    match relation {
        Relation::Equal => Some(match kind {
            Kind::Null => Tree::Null(path.to_vec()),
            Kind::Array => {
                let below = elements_of(path);
                let length = Elements::of(value).count().to_string();
                let mut parts = vec![Tree::Field(below.clone(), "length", length)];
                let values = Elements::of(value);
                parts.extend(values.filter_map(|v| of_relation(Relation::Equal, v, &below)));
                Tree::And(parts)
            }
            Kind::Object => {
                let of_member = |(name, value): (String, &[u8])| {
                    let path = [path, &[name]].concat();
                    of_relation(Relation::Equal, value, &path)
                };
                Tree::And(members(value).filter_map(of_member).collect())
            }
            kind => Tree::Field(path.to_vec(), type_of(kind), value_of(value)),
        }),
        Relation::NotEqual => Some(Tree::Not(
            Box::new(exists(path)),
            Box::new(of_relation(Relation::Equal, value, path)?),
        )),
        _ if matches!(kind, Kind::Null | Kind::Array | Kind::Object) => Some(exists(path)),
        _ => {
            let (least, greatest) = match kind {
                Kind::Number => ("*", "*"),
                _ => ("\"\"", "\u{10ffff}"),
            };
            let value = value_of(value);
            let range = match relation {
                Relation::Less => format!("[{least} TO {value}}}"),
                Relation::LessOrEqual => format!("[{least} TO {value}]"),
                Relation::GreaterOrEqual => format!("[{value} TO {greatest}]"),
                _ => format!("{{{value} TO {greatest}]"),
            };
            Some(Tree::Field(path.to_vec(), type_of(kind), range))
        }
    }
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Number => "number",
        Kind::False | Kind::True => "boolean",
        Kind::Null => "null",
        Kind::String | Kind::Array | Kind::Object => "string",
    }
}

/// Writes a value as CouchDB does in a query.
fn value_of(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    match Kind::of(value) {
        Kind::String => {
            let text = string(value).unwrap_or_default();
            match text.contains(|c: char| c.is_numeric()) && is_number(&text) {
                true => format!("\"{text}\""),
                false => format!("\"{}\"", escaped(&text)),
            }
        }
        Kind::Null => "true".to_owned(),
        Kind::Number if text.contains(['.', 'e', 'E']) => match text.parse::<f64>() {
            Ok(n) => erlang_float(n),
            Err(_) => text.into_owned(),
        },
        _ => text.into_owned(),
    }
}

/// Returns whether CouchDB takes a string for one with a number in it, which it does not escape.
/// (Its expression is not anchored.)
fn is_number(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
}

/// Erlang's `float_to_binary`.
fn erlang_float(n: f64) -> String {
    let text = format!("{n:.20e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// Escapes Lucene's special characters, and spaces, by a backslash.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '&' | '|' if chars.peek() == Some(&c) => {
                chars.next();
                out.extend(['\\', c, c]);
            }
            '+' | '-' | '(' | ')' | '{' | '}' | '[' | ']' | '!' | '^' | '~' | '*' | '?' | ':'
            | '/' | '\\' | '"' | ' ' | '\t' | '\r' | '\n' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

impl Tree {
    fn write(&self, out: &mut String) {
        let names = |path: &[String]| path_name(named(path));
        match self {
            Tree::And(parts) => write_parts(parts, " AND ", out),
            Tree::Or(parts) => write_parts(parts, " OR ", out),
            Tree::Not(first, second) => {
                let mut without = String::new();
                second.write(&mut without);
                out.push('(');
                first.write(out);
                if !without.is_empty() {
                    out.push_str(&format!(" AND NOT ({without})"));
                }
                out.push(')');
            }
            Tree::NotThere(tree) => {
                out.push_str("($fieldnames:/.*/  AND NOT (");
                tree.write(out);
                out.push_str("))");
            }
            Tree::Field(path, kind, value) => {
                let name = field_name(named(path), kind);
                out.push_str(&format!("({name}:{value})"));
            }
            Tree::Null(path) => out.push_str(&format!("({}_3anull:true)", names(path))),
            Tree::Name(path, rest) => {
                out.push_str(&format!("($fieldnames:{}{rest})", names(path)));
            }
            Tree::Regex(path) => {
                out.push_str(&format!("($fieldnames:{}_3astring)", names(path)));
            }
            Tree::Default(value) => out.push_str(&format!("($default:{value})")),
        }
    }

    /// Collects the fields in it; CouchDB lists them in reverse.
    fn fields(&self, out: &mut Vec<String>) {
        match self {
            Tree::Or(parts) => {
                // For a value that may be an element, the field itself is enough.
                if let [first @ Tree::Field(..), Tree::Field(path, ..)] = parts.as_slice()
                    && path.iter().any(|part| part == ELEMENTS)
                {
                    return first.fields(out);
                }
                parts.iter().for_each(|part| part.fields(out));
            }
            Tree::And(parts) => parts.iter().for_each(|part| part.fields(out)),
            Tree::Not(first, second) => {
                first.fields(out);
                second.fields(out);
            }
            Tree::NotThere(_) => out.clear(),
            Tree::Field(_, "length", _) | Tree::Null(_) | Tree::Name(..) => {}
            Tree::Field(path, kind, _) => out.push(written(path, kind)),
            Tree::Regex(path) => out.push(written(path, "string")),
            Tree::Default(_) => out.push("$default".to_owned()),
        }
    }
}

/// Returns the parts of a path that CouchDB writes.
fn named(path: &[String]) -> impl Iterator<Item = &str> {
    path.iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
}

fn written(path: &[String], kind: &str) -> String {
    let parts: Vec<String> = path.iter().map(|part| part.replace('.', "\\.")).collect();
    format!("{}:{kind}", parts.join("."))
}

fn write_parts(parts: &[Tree], between: &str, out: &mut String) {
    let written = parts.iter().map(|part| {
        let mut text = String::new();
        part.write(&mut text);
        text
    });
    let written: Vec<String> = written.filter(|text| !text.is_empty()).collect();
    if !written.is_empty() {
        out.push_str(&format!("({})", written.join(between)));
    }
}

/// Returns the sort fields of hits, and CouchDB's form of them.
///
/// # Errors
/// [`FindError::TextSort`]: the type of a field is unknown.
pub fn sort_fields(
    find: &Find,
    kind: TextKind,
) -> Result<(Vec<SortField>, Vec<String>), FindError> {
    let mut fields = vec![];
    let mut shown = vec![];
    for (name, direction) in &find.sort.fields {
        let path = crate::FieldPath::parse(name)?;
        let suffix = |kind: &FieldType| name.ends_with(&format!(":{}", kind.name()));
        let given = [FieldType::String, FieldType::Number]
            .into_iter()
            .find(suffix);
        let (field, kind_of) = match given {
            Some(kind) => (path_name(path.parts()), kind),
            None => {
                let kind = compared_with(&find.selector.root, name);
                let kind = kind.ok_or_else(|| FindError::TextSort(name.clone()))?;
                (field_name(path.parts(), kind.name()), kind)
            }
        };
        let is_number = kind_of == FieldType::Number;
        let descending = *direction == Direction::Descending;
        let sign = if descending { "-" } else { "" };
        let suffix = match (is_number, kind) {
            (false, _) => "string",
            (true, TextKind::Text) => "number",
            (true, TextKind::Nouveau) => "double",
        };
        shown.push(format!("{sign}{field}<{suffix}>"));
        fields.push(SortField {
            field,
            is_number,
            descending,
        });
    }
    Ok((fields, shown))
}

/// Returns the single type of the values that a field is compared with.
fn compared_with(root: &SelectorNode, name: &str) -> Option<FieldType> {
    fn collect(node: &SelectorNode, name: &str, out: &mut Vec<FieldType>) {
        match node {
            SelectorNode::All(nodes) | SelectorNode::Any(nodes) => {
                nodes.iter().for_each(|n| collect(n, name, out))
            }
            SelectorNode::Field(field, condition) if *field.name == *name => match condition {
                Condition::Is(_, operand) => match operand.kind {
                    Kind::String => out.push(FieldType::String),
                    Kind::Number => out.push(FieldType::Number),
                    _ => {}
                },
                Condition::Regex(_) | Condition::BeginsWith(_) | Condition::Type(_) => {
                    out.push(FieldType::String);
                }
                Condition::Size(_) => out.push(FieldType::Number),
                _ => {}
            },
            _ => {}
        }
    }
    let mut found = vec![];
    collect(root, name, &mut found);
    let first = *found.first()?;
    found.iter().all(|kind| *kind == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn query(selector: Value) -> String {
        lucene_query(&Selector::parse(&selector).unwrap())
    }

    #[test]
    fn queries_are_written_as_couchdb_writes_them() {
        // From a real CouchDB's `_explain`.
        for (selector, expected) in [
            (
                json!({"name": "dan brown"}),
                r#"(name_3astring:"dan\ brown")"#,
            ),
            (
                json!({"name": {"$ne": "x"}}),
                r#"((($fieldnames:name_3a*) OR ($fieldnames:name.*)) AND NOT ((name_3astring:"x")))"#,
            ),
            (json!({"age": {"$gte": -5}}), "(age_3anumber:[-5 TO *])"),
            (
                json!({"$or": [{"a": 1}, {"b": "x"}]}),
                r#"((a_3anumber:1) OR (b_3astring:"x"))"#,
            ),
            (
                json!({"$nor": [{"a": 1}]}),
                "(((($fieldnames:a_3a*) OR ($fieldnames:a.*)) AND NOT ((a_3anumber:1))))",
            ),
            (
                json!({"a": {"$exists": false}}),
                "($fieldnames:/.*/  AND NOT ((($fieldnames:a_3a*) OR ($fieldnames:a.*))))",
            ),
            (
                json!({"a.b": {"$in": [1, "x"]}}),
                r#"(((a.b_3anumber:1) OR (a.b._5b_5d_3anumber:1)) OR ((a.b_3astring:"x") OR (a.b._5b_5d_3astring:"x")))"#,
            ),
            (json!({"a": {"$regex": "^x"}}), "($fieldnames:a_3astring)"),
            (json!({"a": null}), "(a_3anull:true)"),
        ] {
            assert_eq!(query(selector.clone()), expected, "{selector}");
        }
    }

    #[test]
    fn queries_are_those_of_couchdbs_own_tests() {
        for (selector, expected) in [
            (
                json!({"f": [1, 2]}),
                "((f._5b_5d_3alength:2) AND (f._5b_5d_3anumber:1) AND (f._5b_5d_3anumber:2))",
            ),
            (
                json!({"f": {"$beginsWith": "fo o"}}),
                r"(f_3astring:fo\ o*)",
            ),
            (json!({"f": {"$size": 6}}), "(f._5b_5d_3alength:6)"),
            (json!({"f": {"$mod": [2, 0]}}), "($fieldnames:f_3anumber)"),
            (
                json!({"f": {"$all": ["a", "b"]}}),
                r#"((f._5b_5d_3astring:"a") AND (f._5b_5d_3astring:"b"))"#,
            ),
            (
                json!({"f": {"$elemMatch": {"$eq": "v"}}}),
                r#"(f._5b_5d_3astring:"v")"#,
            ),
            (json!({"$text": "text"}), r#"($default:"text")"#),
            (
                json!({"f": {"$lt": 41.5}}),
                "(f_3anumber:[* TO 4.15000000000000000000e+01})",
            ),
            (json!({"f": {"$in": []}}), ""),
        ] {
            assert_eq!(query(selector.clone()), expected, "{selector}");
        }
    }

    #[test]
    fn an_index_needs_the_fields_that_values_are_compared_with() {
        let fields = |selector: Value| fields_needed(&Selector::parse(&selector).unwrap());
        assert_eq!(
            fields(json!({"a": 1, "b": {"$regex": "x"}})),
            ["b:string", "a:number"]
        );
        assert_eq!(fields(json!({"a": {"$in": ["x"]}})), ["a:string"]);
        assert_eq!(
            fields(json!({"a": {"$exists": true}})),
            Vec::<String>::new()
        );
        assert_eq!(fields(json!({"$text": "x"})), ["$default"]);
    }
}
