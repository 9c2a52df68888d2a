//! Reads the calls of `index` that a function made for a document.

use functions::{Emit, Emits};
use search::{ClassicOptions, Fields};
use serde_json::Value;
use serde_json::value::RawValue;

use super::members::{each_member, scalar};

/// The fields that a document's calls of `index` produced.
pub(super) fn fields_of(rows: &[Emit], emits: &Emits) -> Result<Fields, search::Error> {
    let mut fields = Fields::new();
    for (at, row) in rows.iter().enumerate() {
        let odd = |e: serde_json::Error| odd_call(at, &e);
        let (kind, name): (String, String) = serde_json::from_slice(emits.key(row)).map_err(odd)?;
        let (value, store) = value_of(emits.value(row)).map_err(odd)?;
        let store = scalar(store).map_err(odd)?;
        fields.add(at, &kind, &name, value, &store)?;
    }
    Ok(fields)
}

/// Reads the value of a call, and what follows it: the function may pass anything there.
fn value_of(row: &[u8]) -> Result<(Value, &RawValue), serde_json::Error> {
    let (value, rest): (&RawValue, &RawValue) = serde_json::from_slice(row)?;
    Ok((scalar(value)?, rest))
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
        let (value, options) = value_of(emits.value(row)).map_err(odd)?;
        let options = classic_options(options).map_err(odd)?;
        fields.add_classic(&name, value, &options);
    }
    Ok(fields)
}

/// Options as Clouseau reads them: by Lucene's names, or as booleans.
fn classic_options(options: &RawValue) -> Result<ClassicOptions, serde_json::Error> {
    let word = |value: &Value| match value {
        Value::String(word) => Some(word.to_ascii_lowercase()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    };
    let [mut index, mut store, mut facet, mut boost] = [const { Value::Null }; 4];
    if options.get().starts_with('{') {
        each_member(options.get(), &mut |name, value| {
            let known = match name.as_str() {
                "index" => &mut index,
                "store" => &mut store,
                "facet" => &mut facet,
                "boost" => &mut boost,
                _ => return Ok(()),
            };
            *known = scalar(value)?;
            Ok(())
        })?;
    }
    let index = word(&index);
    let index = index.as_deref().unwrap_or("analyzed");
    Ok(ClassicOptions {
        index: !matches!(index, "false" | "no"),
        analyzed: !matches!(index, "not_analyzed" | "not_analyzed_no_norms"),
        store: matches!(word(&store).as_deref(), Some("true" | "yes")),
        facet: facet == Value::Bool(true),
        boost: match boost.as_f64() {
            // Below 0 no length of a field is kept.
            Some(boost) if boost.is_finite() => boost.max(0.0) as f32,
            _ => 1.0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> ClassicOptions {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        classic_options(&raw).unwrap()
    }

    #[test]
    fn options_are_those_of_clouseau() {
        for text in [
            "{}",
            "null",
            "[true]",
            r#"{"index":[],"store":{},"junk":[[1]]}"#,
        ] {
            let read = options(text);
            assert!(
                read.index && read.analyzed && !read.store && !read.facet,
                "{text}"
            );
            assert_eq!(read.boost, 1.0);
        }
        let read = options(r#"{"index":"NOT_analyzed","store":"Yes","facet":true,"boost":2}"#);
        assert!(read.index && !read.analyzed && read.store && read.facet);
        assert_eq!(read.boost, 2.0);
        let read = options(r#"{"index":true,"index":false,"store":true,"boost":-1}"#);
        assert!(!read.index && read.store && read.boost == 0.0);
    }

    #[test]
    fn lists_and_objects_of_calls_are_not_parsed() {
        let list = format!("[{}0]", "[1],".repeat(1000));
        let row = format!("[{list},{list}]");
        let (value, rest) = value_of(row.as_bytes()).unwrap();
        assert_eq!((value, rest.get()), (Value::Array(vec![]), list.as_str()));
        let (value, store) = value_of(br#"["a",true]"#).unwrap();
        assert_eq!(value, "a");
        assert_eq!(scalar(store).unwrap(), true);
        let (value, _) = value_of(b"[1.5,null]").unwrap();
        assert_eq!(value, 1.5);
        assert!(value_of(b"[1]").is_err() && value_of(b"1").is_err());
    }
}
