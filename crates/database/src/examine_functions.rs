//! Searches the functions of a database's design documents for what depends on CouchDB's engine.

use std::time::Instant;

use functions::{Difference, JAVASCRIPT, design_functions, differences, language_name};
use serde_json::Value;
use storage::{IdIter, RecordHead};

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
        for shard in self.all_shards() {
            let view = shard.view()?;
            let mut ids = IdIter::new(&view.snapshot, shard.number);
            ids.seek(b"_design/");
            while let Some((id, value)) = ids.entry().filter(|(id, _)| id.starts_with(b"_design/"))
            {
                let is_there = !RecordHead::decode(value)?.deleted;
                if let Ok(id) = str::from_utf8(id)
                    && is_there
                {
                    if searched >= most || Instant::now() >= until {
                        some.has_more = true;
                        return Ok(some);
                    }
                    searched += 1;
                    if let Some(text) = self.design_text(id)? {
                        add_functions(id, &text, &mut some.functions);
                    }
                }
                ids.next();
            }
            ids.status()?;
        }
        Ok(some)
    }
}

/// Adds those functions of a design document that depend on the engine. Sources that cannot be read
/// are left out: whether they compile was found out when they were written.
fn add_functions(id: &str, text: &[u8], found: &mut Vec<FunctionFacts>) {
    let Ok(Value::Object(design)) = serde_json::from_slice(text) else {
        return;
    };
    let language = design.get("language").and_then(Value::as_str);
    if language_name(language.unwrap_or(JAVASCRIPT)) != JAVASCRIPT {
        return;
    }
    for function in design_functions(&design) {
        let differences = differences(function.source, function.form).unwrap_or_default();
        if !differences.is_empty() {
            found.push(FunctionFacts {
                design: id.to_owned(),
                function: function.path.join("/"),
                differences,
            });
        }
    }
}
