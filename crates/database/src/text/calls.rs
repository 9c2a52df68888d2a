//! Reads the calls of `index` that a function made for a document.

use functions::{Emit, Emits};
use search::{ClassicOptions, Fields};
use serde_json::Value;

/// The fields that a document's calls of `index` produced.
pub(super) fn fields_of(rows: &[Emit], emits: &Emits) -> Result<Fields, search::Error> {
    let mut fields = Fields::new();
    for (at, row) in rows.iter().enumerate() {
        let odd = |e: serde_json::Error| odd_call(at, &e);
        let (kind, name): (String, String) = serde_json::from_slice(emits.key(row)).map_err(odd)?;
        let (value, store): (Value, Value) =
            serde_json::from_slice(emits.value(row)).map_err(odd)?;
        fields.add(at, &kind, &name, value, &store)?;
    }
    Ok(fields)
}

/// A call with invalid parameters, which functions of other languages can make.
fn odd_call(at: usize, e: &serde_json::Error) -> search::Error {
    let what = format!("call: {e}");
    search::Error::FieldValue { at, what }
}

/// The fields that a document's calls of Clouseau's `index` produced.
pub(super) fn classic_fields_of(rows: &[Emit], emits: &Emits) -> Result<Fields, search::Error> {
    let mut fields = Fields::classic();
    for (at, row) in rows.iter().enumerate() {
        let odd = |e: serde_json::Error| odd_call(at, &e);
        let name: String = serde_json::from_slice(emits.key(row)).map_err(odd)?;
        let (value, options): (Value, Value) =
            serde_json::from_slice(emits.value(row)).map_err(odd)?;
        fields.add_classic(&name, value, &classic_options(&options));
    }
    Ok(fields)
}

/// Options as Clouseau reads them: by Lucene's names, or as booleans.
fn classic_options(options: &Value) -> ClassicOptions {
    let word = |name: &str| match &options[name] {
        Value::String(word) => Some(word.to_ascii_lowercase()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    };
    let index = word("index");
    let index = index.as_deref().unwrap_or("analyzed");
    ClassicOptions {
        index: !matches!(index, "false" | "no"),
        analyzed: !matches!(index, "not_analyzed" | "not_analyzed_no_norms"),
        store: matches!(word("store").as_deref(), Some("true" | "yes")),
        facet: options["facet"] == Value::Bool(true),
        boost: match options["boost"].as_f64() {
            // Below 0 no length of a field is kept.
            Some(boost) if boost.is_finite() => boost.max(0.0) as f32,
            _ => 1.0,
        },
    }
}
