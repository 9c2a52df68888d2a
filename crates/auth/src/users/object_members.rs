//! The members of a JSON object, in order, their values as they were written.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An object's members.
pub(crate) struct ObjectMembers<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'a> ObjectMembers<'a> {
    /// `None` when the text is not an object.
    pub(crate) fn parse(json: &'a [u8]) -> Option<ObjectMembers<'a>> {
        serde_json::from_slice(json).ok()
    }

    /// Returns the object's text, with `first` before the members that `keep` lets pass. Texts of
    /// values are JSON.
    pub(super) fn rewritten(
        &self,
        first: &[(&str, String)],
        keep: impl Fn(&str) -> bool,
    ) -> Vec<u8> {
        let kept = self.0.iter().filter(|(name, _)| keep(name));
        let kept = kept.map(|(name, value)| (name.as_str(), value.get()));
        let first = first.iter().map(|(name, value)| (*name, value.as_str()));
        let mut out = vec![b'{'];
        for (name, value) in first.chain(kept) {
            if out.len() > 1 {
                out.push(b',');
            }
            document::write_json_string(name, &mut out);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'}');
        out
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ObjectMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = vec![];
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(InOrder).map(ObjectMembers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_they_were_written_and_in_order() {
        let json = br#"{"b":1.50,"a":{"x":[1e400]},"\u00e9\"":"\u00e9"}"#;
        let members = ObjectMembers::parse(json).expect("an object");
        let all = members.rewritten(&[], |_| true);
        assert_eq!(
            String::from_utf8(all).expect("UTF-8"),
            r#"{"b":1.50,"a":{"x":[1e400]},"é\"":"\u00e9"}"#
        );
        let some = members.rewritten(&[("n", "\"v\"".to_owned())], |name| name == "a");
        assert_eq!(some, br#"{"n":"v","a":{"x":[1e400]}}"#);
        assert_eq!(members.rewritten(&[], |_| false), b"{}");
        assert!(ObjectMembers::parse(b"[]").is_none());
    }
}
