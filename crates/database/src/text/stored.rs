//! Reads stored fields of hits. They stay JSON text: values that are short take many times the
//! memory of their text.

use std::fmt;

use search::Error;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::members::each_member;

fn damaged(e: serde_json::Error) -> Error {
    Error::Engine(format!("stored fields: {e}"))
}

/// Returns stored fields, or only those with `wanted` names.
pub(super) fn shown(stored: String, wanted: Option<&[String]>) -> Result<Box<RawValue>, Error> {
    let Some(wanted) = wanted else {
        return RawValue::from_string(stored).map_err(damaged);
    };
    let mut text = String::from("{");
    each_member(&stored, &mut |name, value| {
        if !wanted.contains(&name) {
            return Ok(());
        }
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&serde_json::to_string(&name)?);
        text.push(':');
        text.push_str(value.get());
        Ok(())
    })
    .map_err(damaged)?;
    text.push('}');
    RawValue::from_string(text).map_err(damaged)
}

/// Returns the stored values of some fields, in the order of the names.
pub(super) fn values_of<'a>(
    stored: &'a str,
    names: &[String],
) -> Result<Vec<Option<&'a RawValue>>, Error> {
    let mut values = vec![None; names.len()];
    each_member(stored, &mut |found, value| {
        for (name, slot) in names.iter().zip(&mut values) {
            if *name == found {
                *slot = Some(value);
            }
        }
        Ok(())
    })
    .map_err(damaged)?;
    Ok(values)
}

/// Calls `each` with a value that is a string, or with each string of a list.
///
/// # Errors
/// Those of `each`, which end it.
pub(super) fn each_text<E: From<Error>>(
    value: &RawValue,
    each: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let mut failure = None;
    let texts = Texts {
        each: &mut |text| each(text).map_err(|e| failure = Some(e)),
    };
    let mut json = serde_json::Deserializer::from_str(value.get());
    let read = texts.deserialize(&mut json);
    match (failure, read) {
        (Some(failure), _) => Err(failure),
        (None, read) => read.map_err(|e| damaged(e).into()),
    }
}

/// The strings of a stored value.
struct Texts<'f> {
    /// Fails to end it.
    each: &'f mut dyn FnMut(&str) -> Result<(), ()>,
}

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or a list of them")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        (self.each)(text).map_err(|()| E::custom("it was ended"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let each = self.each;
        while let Some(()) = list.next_element_seed(Texts { each: &mut *each })? {}
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn texts_of(value: &Value, max: usize) -> Result<Vec<String>, Error> {
        let raw = RawValue::from_string(value.to_string()).unwrap();
        let mut texts = vec![];
        let read = each_text(&raw, &mut |text: &str| {
            texts.push(text.to_owned());
            match texts.len() > max {
                true => Err(Error::TooLong),
                false => Ok(()),
            }
        });
        read.map(|()| texts)
    }

    #[test]
    fn only_the_wanted_fields_are_shown() {
        let stored = json!({"a": [1.0, "x"], "b\"": "y", "c": 2.5}).to_string();
        assert_eq!(shown(stored.clone(), None).unwrap().get(), stored);
        let of = |wanted: &[&str]| {
            let wanted = names(wanted);
            shown(stored.clone(), Some(&wanted)).unwrap().to_string()
        };
        assert_eq!(of(&["c", "b\"", "d"]), r#"{"b\"":"y","c":2.5}"#);
        assert_eq!(of(&[]), "{}");
        assert!(shown("{".to_owned(), None).is_err());
        let wanted = names(&["d", "c", "c"]);
        let values = values_of(&stored, &wanted).unwrap();
        let values: Vec<_> = values.iter().map(|v| v.map(RawValue::get)).collect();
        assert_eq!(values, [None, Some("2.5"), Some("2.5")]);
    }

    #[test]
    fn texts_are_read_one_by_one() {
        assert_eq!(texts_of(&json!("a"), 9).unwrap(), ["a"]);
        let list = json!(["a", 1.5, "", -3, "b\n", 7]);
        assert_eq!(texts_of(&list, 9).unwrap(), ["a", "", "b\n"]);
        assert!(texts_of(&json!(2.5), 9).unwrap().is_empty());
        assert!(matches!(texts_of(&list, 1), Err(Error::TooLong)));
    }

    proptest! {
        #[test]
        fn shown_fields_are_those_of_the_values(
            fields in prop::collection::btree_map("[ab\"\\\\é]{0,3}", prop::collection::vec(".{0,4}", 0..4), 0..6),
            wanted in prop::collection::vec("[ab\"\\\\é]{0,3}", 0..6),
        ) {
            let fields: Map<String, Value> = fields.into_iter().map(|(name, values)| (name, json!(values))).collect();
            let mut expected = fields.clone();
            expected.retain(|name, _| wanted.contains(name));
            let stored = Value::Object(fields).to_string();
            let only = shown(stored, Some(&wanted)).unwrap();
            prop_assert_eq!(only.get(), Value::Object(expected).to_string());
        }
    }
}
