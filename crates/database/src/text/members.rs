//! Reads objects member by member: parsed values take many times the memory of their text.

use std::fmt;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Error, Value};

/// Receives the name and the value of a member.
pub(super) type EachMember<'f, 'de> = &'f mut dyn FnMut(String, &'de RawValue) -> Result<(), Error>;

/// Calls `each` with the members of an object, in their order.
///
/// # Errors
/// It is not an object, or `each` fails.
pub(super) fn each_member<'de>(object: &'de str, each: EachMember<'_, 'de>) -> Result<(), Error> {
    let mut json = serde_json::Deserializer::from_str(object);
    json.deserialize_map(Members(each))
}

struct Members<'f, 'de>(EachMember<'f, 'de>);

impl<'de> Visitor<'de> for Members<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            (self.0)(name, value).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Returns a scalar; an empty list for any list or object.
///
/// # Errors
/// It is a number that cannot be read.
pub(super) fn scalar(value: &RawValue) -> Result<Value, Error> {
    match value.get().as_bytes().first() {
        Some(b'[' | b'{') => Ok(Value::Array(vec![])),
        _ => serde_json::from_str(value.get()),
    }
}
