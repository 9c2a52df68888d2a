//! Repeatable random choices: documents, and their text.

use serde_json::{Map, Value, json};

/// A cheap generator of repeatable choices.
pub struct Choices(pub u64);

impl Choices {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    pub fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

/// Names that the functions of the tests use, and names that lead elsewhere in JavaScript.
pub const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "x",
    "y",
    "z",
    "a",
    "b",
    "c",
    "x",
    "type",
    "next",
    "t",
    "q",
    "0",
    "1",
    "3",
    "01",
    "-1",
    "length",
    "constructor",
    "toString",
    "hasOwnProperty",
    "valueOf",
    "__proto__",
    "forEach",
    "map",
    "some",
    "every",
    "name",
    "slice",
    "toJSON",
    "x y",
    "a b",
    "日本",
    "prototype",
    "arr",
    "q\"\\\n",
    "",
    "4294967295",
    "then",
    "get",
];

const STRINGS: &[&str] = &[
    "",
    "x",
    "a",
    "abc",
    "length",
    "b c",
    "0",
    "[object Object]",
    "}]\"{[",
    "日本\u{1f600}",
    "\\",
    "\n\u{1}",
    "__proto__",
    "constructor",
];

impl Choices {
    /// Any JSON value, nested at most so deep.
    pub fn value(&mut self, depth: usize) -> Value {
        let kinds = if depth == 0 { 8 } else { 20 };
        match self.below(kinds) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(false),
            3 => json!(0),
            4 => json!([1, -1, 7, 12345678901i64][self.below(4)]),
            5 => json!([0.5, -2.25, 1e300][self.below(3)]),
            6 | 7 => json!(self.of(STRINGS)),
            8..=13 => Value::Object(self.object(depth - 1, 6)),
            14 => json!({}),
            15 => json!([]),
            _ => {
                let count = self.below(5);
                (0..count).map(|_| self.value(depth - 1)).collect()
            }
        }
    }

    pub fn object(&mut self, depth: usize, members_max: usize) -> Map<String, Value> {
        let count = self.below(members_max + 1);
        (0..count)
            .map(|_| (self.of(NAMES).to_owned(), self.value(depth)))
            .collect()
    }

    /// Returns a document's body: no member starts with an underscore.
    pub fn body(&mut self) -> Map<String, Value> {
        let mut body = self.object(4, 14);
        body.retain(|name, _| !name.starts_with('_'));
        body
    }

    /// Compact JSON text of a value, with escapes here and there.
    pub fn text(&mut self, value: &Value, out: &mut String) {
        match value {
            Value::Array(elements) => {
                out.push('[');
                for (i, element) in elements.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    self.text(element, out);
                }
                out.push(']');
            }
            Value::Object(members) => self.object_text(members, out),
            Value::String(text) => self.string(text, out),
            other => out.push_str(&other.to_string()),
        }
    }

    pub fn object_text(&mut self, members: &Map<String, Value>, out: &mut String) {
        out.push('{');
        for (i, (name, value)) in members.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            self.string(name, out);
            out.push(':');
            self.text(value, out);
        }
        out.push('}');
    }

    fn string(&mut self, text: &str, out: &mut String) {
        if self.below(8) > 0 {
            return out.push_str(&Value::from(text).to_string());
        }
        out.push('"');
        for unit in text.encode_utf16() {
            out.push_str(&format!("\\u{unit:04x}"));
        }
        out.push('"');
    }

    /// Random documents: their underscore members and bodies.
    pub fn documents(&mut self, count: usize) -> Vec<(String, String)> {
        let mut document = |i| {
            let members = if self.below(4) == 0 {
                format!(
                    "\"_id\":\"d{i}\",\"_rev\":\"1-a\",\"_attachments\":{}",
                    json!({"f": self.value(1)})
                )
            } else {
                format!("\"_id\":\"d{i}\",\"_rev\":\"1-a\"")
            };
            let body = self.body();
            let mut text = String::new();
            self.object_text(&body, &mut text);
            (members, text)
        };
        (0..count).map(&mut document).collect()
    }
}
