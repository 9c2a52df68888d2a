//! Searches the functions of a database's design documents for what depends on CouchDB's engine.

use std::time::Instant;

use functions::{Difference, JAVASCRIPT, design_functions, differences, language_name};
use serde_json::Value;

use crate::Error;
use crate::database::Database;

/// A function that depends on CouchDB's JavaScript engine.
#[derive(Clone, Debug)]
pub struct FunctionFacts {
    /// The design document: `_design/name`.
    pub design: String,
    /// The path of the function in it: `views/by_day/map`.
    pub function: String,
    /// The places in its source, at least one.
    pub differences: Vec<Difference>,
}

/// Functions of some design documents that depend on CouchDB's engine.
#[derive(Clone, Debug, Default)]
pub struct SomeFunctions {
    /// By design document and path.
    pub functions: Vec<FunctionFacts>,
    /// There are design documents that were not searched.
    pub has_more: bool,
}

impl Database {
    /// Searches the functions of at most `most` design documents, until a moment. Blocks.
    ///
    /// # Errors
    /// Those of reading.
    pub fn examine_functions(&self, most: usize, until: Instant) -> Result<SomeFunctions, Error> {
        self.if_live(self.examine_functions_now(most, until))
    }

    fn examine_functions_now(&self, most: usize, until: Instant) -> Result<SomeFunctions, Error> {
        let mut some = SomeFunctions::default();
        let mut searched = 0;
        let has_more = self.visit_designs(until, |id| {
            if searched >= most {
                return Ok(false);
            }
            searched += 1;
            if let Some(text) = self.design_text(id)? {
                some.add(id, &text, until);
            }
            Ok(true)
        })?;
        some.has_more |= has_more;
        Ok(some)
    }
}

impl SomeFunctions {
    /// Adds those functions of a design document that depend on the engine. Sources that cannot be
    /// read are left out: whether they compile was found out when they were written.
    fn add(&mut self, id: &str, text: &[u8], until: Instant) {
        let Ok(Value::Object(design)) = serde_json::from_slice(text) else {
            return;
        };
        let language = design.get("language").and_then(Value::as_str);
        if language_name(language.unwrap_or(JAVASCRIPT)) != JAVASCRIPT {
            return;
        }
        for function in design_functions(&design) {
            // One document may have hundred thousands of them.
            if Instant::now() >= until {
                self.has_more = true;
                return;
            }
            let differences = differences(function.source, function.form).unwrap_or_default();
            if !differences.is_empty() {
                self.functions.push(FunctionFacts {
                    design: id.to_owned(),
                    function: function.path.join("/"),
                    differences,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_searched_until_a_moment() {
        let text = br#"{"shows":{"a":"function (a) { return a instanceof Array }"}}"#;
        for (until, found) in [
            (Instant::now(), 0),
            (Instant::now() + std::time::Duration::from_secs(600), 1),
        ] {
            let mut some = SomeFunctions::default();
            some.add("_design/d", text, until);
            assert_eq!((some.functions.len(), some.has_more), (found, found == 0));
        }
    }
}
