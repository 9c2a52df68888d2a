//! Converts a selector to CouchDB's form in Lucene's syntax: `_explain` shows it, and CouchDB
//! chooses an index by the fields in it. The actual query of an index is that of [`super::cover`].

use super::path::{Effort, Path};
use super::{ELEMENTS, FieldType, SortField, TextKind, field_name, path_name};
use crate::condition::{Condition, Relation};
use crate::error::FindError;
use crate::json::{Elements, Kind, members, string};
use crate::options::Find;
use crate::selector::{Selector, SelectorNode};
use crate::sort::Direction;

/// A converted selector, before it is written.
#[derive(Clone, Debug)]
enum Tree {
    And(Vec<Tree>),
    Or(Vec<Tree>),
    /// The first without the second.
    Not(Box<Tree>, Box<Tree>),
    /// All without this.
    NotThere(Box<Tree>),
    /// A field of a type with a value.
    Field(Path, &'static str, String),
    /// A field with null.
    Null(Path),
    /// The name of a field, and a suffix.
    Name(Path, &'static str),
    /// A string in a field.
    Regex(Path),
    Default(String),
}

/// The query of all documents: of a selector that is too large to convert.
const EVERYTHING: &str = "*:*";

/// Returns the query, as in `_explain`.
#[must_use]
pub fn lucene_query(selector: &Selector) -> String {
    let mut out = String::new();
    match converted(selector) {
        Ok(Some(tree)) => tree.write(&mut out),
        Ok(None) => {}
        Err(TooLarge) => out.push_str(EVERYTHING),
    }
    out
}

/// Returns the query of a text in all strings.
#[must_use]
pub fn default_query(text: &str) -> String {
    format!("$default:\"{}\"", escaped(text))
}

/// Returns the fields that an index of some fields must have, as `name:type` with names as written;
/// `$default` for `$text`. `None`: more than any index has.
pub(crate) fn fields_needed(selector: &Selector) -> Option<Vec<String>> {
    let mut fields = vec![];
    if let Some(tree) = converted(selector).ok()? {
        tree.fields(&mut fields);
    }
    fields.reverse();
    let mut known = std::collections::HashSet::new();
    fields.retain(|field| known.insert(field.clone()));
    Some(fields)
}

/// A selector stands for too many or too long fields.
struct TooLarge;

fn converted(selector: &Selector) -> Result<Option<Tree>, TooLarge> {
    let converter = Converter(Effort::new());
    let tree = converter.tree(&selector.root, &Path::default());
    match converter.0.is_over() {
        true => Err(TooLarge),
        false => Ok(tree),
    }
}

const EQUAL: Relation = Relation::Equal;

/// Converts a selector. Nothing that it returns counts once the effort is over.
struct Converter(Effort);

impl Converter {
    /// Counts the work on a value; false when it is too much.
    fn spend(&self, path: &Path, value_bytes: usize) -> bool {
        // A field with a long name cannot be left out.
        let bytes = match path.is_long() {
            true => usize::MAX / 2,
            false => value_bytes,
        };
        self.0.spend(path, bytes)
    }

    fn tree(&self, node: &SelectorNode, path: &Path) -> Option<Tree> {
        if !self.spend(path, 0) {
            return None;
        }
        let all =
            |nodes: &[SelectorNode]| nodes.iter().filter_map(|n| self.tree(n, path)).collect();
        Some(match node {
            SelectorNode::All(nodes) => Tree::And(all(nodes)),
            SelectorNode::Any(nodes) => Tree::Or(all(nodes)),
            SelectorNode::Not(node) => {
                Tree::Not(Box::new(exists(path)), Box::new(self.tree(node, path)?))
            }
            SelectorNode::Field(field, condition) => {
                let is_number = |part: &str| part.parse::<i64>().is_ok();
                let below = |as_elements: bool| -> Path {
                    let parts = field.path.parts();
                    parts.fold(path.clone(), |path, part| {
                        match as_elements && is_number(part) {
                            true => path.elements(),
                            false => path.member(part),
                        }
                    })
                };
                match field.path.parts().any(is_number) {
                    false => self.condition(condition, &below(false))?,
                    true => Tree::Or(vec![
                        self.condition(condition, &below(false))?,
                        self.condition(condition, &below(true))?,
                    ]),
                }
            }
            SelectorNode::Here(condition) => self.condition(condition, path)?,
            SelectorNode::Text(text) => Tree::Default(value_of(&text.operand)),
            SelectorNode::Everything => return None,
        })
    }

    fn condition(&self, condition: &Condition, path: &Path) -> Option<Tree> {
        if !self.spend(path, 0) {
            return None;
        }
        Some(match condition {
            Condition::Is(relation, operand) => self.relation(*relation, &operand.text, path)?,
            Condition::In(operands) => self.any_of(operands.values(), path),
            Condition::NotIn(operands) => Tree::Not(
                Box::new(exists(path)),
                Box::new(self.any_of(operands.values(), path)),
            ),
            Condition::Exists(true) | Condition::Type(_) => exists(path),
            Condition::Exists(false) => Tree::NotThere(Box::new(exists(path))),
            Condition::Modulo { .. } => Tree::Name(path.clone(), "_3anumber"),
            Condition::Regex(_) => Tree::Regex(path.clone()),
            Condition::BeginsWith(prefix) => {
                let value = format!("{}*", escaped(prefix));
                Tree::Field(path.clone(), "string", value)
            }
            Condition::All(literals) => self.all_of(&literals.text, path)?,
            Condition::Size(size) => Tree::Field(path.elements(), "length", size.to_string()),
            Condition::ElemMatch(below) | Condition::AllMatch(below) => {
                self.tree(&below.node, &path.elements())?
            }
            Condition::KeyMapMatch(_) => exists(path),
            Condition::Not(condition) => Tree::Not(
                Box::new(exists(path)),
                Box::new(self.condition(condition, path)?),
            ),
        })
    }

    /// Converts `$all`.
    fn all_of(&self, array: &[u8], path: &Path) -> Option<Tree> {
        let below = path.elements();
        let mut first_two = Elements::of(array);
        Some(match (first_two.next(), first_two.next()) {
            (Some(list), None) if Kind::of(list) == Kind::Array => Tree::Or(vec![
                self.relation(EQUAL, list, path)?,
                self.relation(EQUAL, list, &below)?,
            ]),
            _ => Tree::And(self.each(Elements::of(array), |v| self.value(v, &below))),
        })
    }

    /// Converts values until it is too much.
    fn each<T>(
        &self,
        values: impl Iterator<Item = T>,
        convert: impl Fn(T) -> Option<Tree>,
    ) -> Vec<Tree> {
        let values = values.take_while(|_| !self.0.is_over());
        values.filter_map(convert).collect()
    }

    fn any_of<'a>(&self, values: impl Iterator<Item = &'a [u8]>, path: &Path) -> Tree {
        let below = path.elements();
        let of_one = |value: &'a [u8]| -> Option<Tree> {
            Some(Tree::Or(vec![
                self.value(value, path)?,
                self.value(value, &below)?,
            ]))
        };
        Tree::Or(self.each(values, of_one))
    }

    /// Converts a value without an operator.
    fn value(&self, value: &[u8], path: &Path) -> Option<Tree> {
        match Kind::of(value) {
            Kind::Array | Kind::Object => self.relation(EQUAL, value, path),
            kind => self
                .spend(path, value.len())
                .then(|| Tree::Field(path.clone(), type_of(kind), value_of(value))),
        }
    }

    fn relation(&self, relation: Relation, value: &[u8], path: &Path) -> Option<Tree> {
        if !self.spend(path, value.len()) {
            return None;
        }
        let kind = Kind::of(value);
        match relation {
            Relation::Equal => Some(self.equal(kind, value, path)),
            Relation::NotEqual => Some(Tree::Not(
                Box::new(exists(path)),
                Box::new(self.equal(kind, value, path)),
            )),
            _ if matches!(kind, Kind::Null | Kind::Array | Kind::Object) => Some(exists(path)),
            _ => Some(Tree::Field(
                path.clone(),
                type_of(kind),
                range(relation, kind, value),
            )),
        }
    }

    fn equal(&self, kind: Kind, value: &[u8], path: &Path) -> Tree {
        match kind {
            Kind::Null => Tree::Null(path.clone()),
            Kind::Array => {
                let below = path.elements();
                let length = Elements::of(value).count().to_string();
                let mut parts = vec![Tree::Field(below.clone(), "length", length)];
                parts.extend(self.each(Elements::of(value), |v| self.relation(EQUAL, v, &below)));
                Tree::And(parts)
            }
            Kind::Object => {
                let of_member = |(name, value): (String, &[u8])| {
                    self.relation(EQUAL, value, &path.member(&name))
                };
                Tree::And(self.each(members(value), of_member))
            }
            kind => Tree::Field(path.clone(), type_of(kind), value_of(value)),
        }
    }
}

fn exists(path: &Path) -> Tree {
    Tree::Or(vec![
        Tree::Name(path.clone(), "_3a*"),
        Tree::Name(path.clone(), ".*"),
    ])
}

/// Writes the values that are less or greater than a value.
fn range(relation: Relation, kind: Kind, value: &[u8]) -> String {
    let (least, greatest) = match kind {
        Kind::Number => ("*", "*"),
        _ => ("\"\"", "\u{10ffff}"),
    };
    let value = value_of(value);
    match relation {
        Relation::Less => format!("[{least} TO {value}}}"),
        Relation::LessOrEqual => format!("[{least} TO {value}]"),
        Relation::GreaterOrEqual => format!("[{value} TO {greatest}]"),
        _ => format!("{{{value} TO {greatest}]"),
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
        match self {
            Tree::And(parts) => write_parts(parts, " AND ", out),
            Tree::Or(parts) => write_parts(parts, " OR ", out),
            Tree::Not(first, second) => {
                out.push('(');
                first.write(out);
                let end = out.len();
                out.push_str(" AND NOT (");
                let without = out.len();
                second.write(out);
                match out.len() == without {
                    true => out.truncate(end),
                    false => out.push(')'),
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
            Tree::Null(path) => {
                out.push_str(&format!("({}_3anull:true)", path_name(named(path))));
            }
            Tree::Name(path, rest) => {
                out.push_str(&format!("($fieldnames:{}{rest})", path_name(named(path))));
            }
            Tree::Regex(path) => {
                out.push_str(&format!(
                    "($fieldnames:{}_3astring)",
                    path_name(named(path))
                ));
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
                    && path.parts().contains(&ELEMENTS)
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
fn named(path: &Path) -> impl Iterator<Item = &str> {
    path.parts().into_iter().filter(|part| !part.is_empty())
}

fn written(path: &Path, kind: &str) -> String {
    let parts = path.parts().into_iter();
    let parts: Vec<String> = parts.map(|part| part.replace('.', "\\.")).collect();
    format!("{}:{kind}", parts.join("."))
}

fn write_parts(parts: &[Tree], between: &str, out: &mut String) {
    let start = out.len();
    out.push('(');
    for part in parts {
        let end = out.len();
        if end > start + 1 {
            out.push_str(between);
        }
        let written = out.len();
        part.write(out);
        if out.len() == written {
            out.truncate(end);
        }
    }
    match out.len() == start + 1 {
        true => out.truncate(start),
        false => out.push(')'),
    }
}

/// Maximum number of fields that hits are sorted by. Each field is looked up in the whole selector,
/// and each bookmark contains its value.
pub const SORT_FIELDS_MAX: usize = 32;

/// Returns the sort fields of hits, and CouchDB's form of them.
///
/// # Errors
/// [`FindError::TooManySortFields`]; [`FindError::TextSort`]: the type of a field is unknown.
pub fn sort_fields(
    find: &Find,
    kind: TextKind,
) -> Result<(Vec<SortField>, Vec<String>), FindError> {
    if find.sort.fields.len() > SORT_FIELDS_MAX {
        return Err(FindError::TooManySortFields(SORT_FIELDS_MAX));
    }
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
    fn a_selector_that_stands_for_too_much_is_a_query_of_everything() {
        let deep = |depth: usize| (0..depth).fold(json!([1]), |inner, _| json!([inner]));
        let numbers = (0..24).fold(
            json!({"$eq": 1}),
            |inner, _| json!({"$elemMatch": {"0": inner}}),
        );
        for selector in [
            json!({"a": {"$eq": {"k".repeat(4000): vec![1; 2000]}}}),
            json!({"a": {"$eq": {"k".repeat(5000): 1}}}),
            json!({"a": deep(900)}),
            // Each position is also the name of a member.
            json!({"a": numbers}),
        ] {
            let read = Selector::parse(&selector).unwrap();
            assert_eq!(lucene_query(&read), EVERYTHING);
            assert_eq!(fields_needed(&read), None);
        }
        // Many values of one field are no more than their text.
        let many = json!({"a": {"$in": (0..5000).collect::<Vec<_>>()}});
        let many = Selector::parse(&many).unwrap();
        assert_eq!(fields_needed(&many), Some(vec!["a:number".to_owned()]));
        assert!(lucene_query(&many).len() > 100_000);
    }

    #[test]
    fn an_index_needs_the_fields_that_values_are_compared_with() {
        let fields = |selector: Value| fields_needed(&Selector::parse(&selector).unwrap()).unwrap();
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
