//! Which analyzer is for which field of an index.

use crate::{Analyzer, Error, Flavour};
use serde_json::Value;
use std::collections::HashMap;

/// An index's analyzers: one for all fields, and those of fields with one of their own.
#[derive(Debug, Clone)]
pub struct FieldAnalyzers {
    default: Analyzer,
    fields: HashMap<String, Analyzer>,
}

impl FieldAnalyzers {
    /// Parses the `analyzer` of a design document's index; `standard` when it is missing.
    ///
    /// Clouseau's form for many fields is `{"name": "perfield", "default": …, "fields": {"title":
    /// …}}`, where each `…` is a name or an object. In it, an unknown analyzer is replaced by the
    /// default one, and an unknown default by `standard`, as in Clouseau. `_id` and `_partition`
    /// are always keywords.
    ///
    /// # Errors
    ///
    /// An unknown analyzer outside of `perfield`, and invalid options of `edge_ngram`.
    pub fn parse(flavour: Flavour, analyzer: Option<&Value>) -> Result<Self, Error> {
        let standard = Analyzer::named(flavour, "standard").expect("standard is known");
        let mut fields = HashMap::new();
        let default = match analyzer {
            None => standard,
            // The name alone is one without fields.
            Some(Value::String(name)) if flavour == Flavour::Clouseau && name == "perfield" => {
                standard
            }
            Some(definition)
                if definition.get("name").and_then(Value::as_str) == Some("perfield") =>
            {
                let default = match definition.get("default") {
                    None => standard,
                    Some(inner) => lenient(flavour, inner, &standard)?,
                };
                for (field, inner) in definition
                    .get("fields")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                {
                    fields.insert(field.clone(), lenient(flavour, inner, &default)?);
                }
                default
            }
            Some(definition) => Analyzer::parse(flavour, definition)?,
        };
        let keyword = Analyzer::named(flavour, "keyword").expect("keyword is known");
        for name in ["_id", "_partition"] {
            fields.insert(name.to_owned(), keyword.clone());
        }
        Ok(Self { default, fields })
    }

    /// One default and analyzers of fields: Nouveau's `default_analyzer` and `field_analyzers`.
    ///
    /// # Errors
    ///
    /// An unknown analyzer.
    pub fn with_fields(
        flavour: Flavour,
        default: Option<&Value>,
        fields: Option<&Value>,
    ) -> Result<Self, Error> {
        let mut all = Self::parse(flavour, default)?;
        for (field, definition) in fields.and_then(Value::as_object).into_iter().flatten() {
            all.fields
                .insert(field.clone(), Analyzer::parse(flavour, definition)?);
        }
        Ok(all)
    }

    /// Returns a copy with `analyzer` for `field`.
    #[must_use]
    pub fn with(mut self, field: &str, analyzer: Analyzer) -> Self {
        self.fields.insert(field.to_owned(), analyzer);
        self
    }

    /// Returns the analyzer of `field`.
    #[must_use]
    pub fn of(&self, field: &str) -> &Analyzer {
        self.fields.get(field).unwrap_or(&self.default)
    }
}

/// Returns the analyzer, or `other` where Clouseau would take it.
fn lenient(flavour: Flavour, definition: &Value, other: &Analyzer) -> Result<Analyzer, Error> {
    match Analyzer::parse(flavour, definition) {
        Err(Error::Grams) => Err(Error::Grams),
        parsed => Ok(parsed.unwrap_or_else(|_| other.clone())),
    }
}
