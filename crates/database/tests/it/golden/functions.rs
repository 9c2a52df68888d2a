//! Map and reduce functions of the golden stores. Their sources are JavaScript's, so that the indexes are those of JavaScript;
//! here they are written in Rust, so that the stores depend on no interpreter.

use std::sync::Arc;

use functions::{
    Designs, Doc, Emit, Emits, Error, Languages, MapGroup, Mapper, NoLanguages, Place, ReduceRow,
    Reducer,
};
use serde_json::{Value, json};

pub const BY_N: &str = "function (doc) { if (doc.n !== undefined) { emit(doc.n, doc.v); } }";
pub const BY_GROUP: &str = "function (doc) { emit([doc.group, doc.name], doc.n); }";
pub const BY_NAME: &str = "function (doc) { emit(doc.name, doc._local_seq); }";
pub const CONFLICTS: &str =
    "function (doc) { if (doc._conflicts) { emit(null, doc._conflicts); } }";
pub const COUNT: &str =
    "function (keys, values, rereduce) { return rereduce ? sum(values) : values.length; }";

/// Runs the functions above. When a store is read nothing is to be mapped: what is in its indexes is used.
#[derive(Clone, Copy, Debug)]
pub struct Golden {
    pub maps: bool,
}

impl Languages for Golden {
    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        assert!(self.maps, "{} is built anew", group.owner);
        Ok(Box::new(Maps(group.maps.clone())))
    }
    fn reducer(
        &self,
        _: &Arc<str>,
        _: &str,
        source: &str,
        _: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error> {
        assert_eq!(source, COUNT);
        Ok(Box::new(Count))
    }
    fn designs(&self, place: &Place, language: &str) -> Result<Box<dyn Designs>, Error> {
        NoLanguages.designs(place, language)
    }
    fn check(&self, _: &Place, _: &str, _: &str, _: Option<&str>) -> Result<(), Error> {
        Ok(())
    }
}

struct Maps(Vec<String>);

impl Mapper for Maps {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        for (n, doc) in docs.iter().enumerate() {
            let members: Value = read(&[b"{", doc.members, b"}"].concat());
            let body: Value = read(doc.body);
            for (view, map) in self.0.iter().enumerate() {
                if let Some((key, value)) = emitted(map, &members, &body) {
                    let mut put = |json: &Value| {
                        let start = out.bytes.len() as u32;
                        out.bytes.extend_from_slice(json.to_string().as_bytes());
                        (start, out.bytes.len() as u32)
                    };
                    let (key, value) = (put(&key), put(&value));
                    out.rows.push(Emit {
                        doc: n as u32,
                        view: view as u32,
                        key,
                        value,
                    });
                }
            }
        }
        Ok(())
    }
}

fn read(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap()
}

fn emitted(map: &str, members: &Value, body: &Value) -> Option<(Value, Value)> {
    match map {
        BY_N => (!body["n"].is_null()).then(|| (body["n"].clone(), body["v"].clone())),
        BY_GROUP => Some((json!([body["group"], body["name"]]), body["n"].clone())),
        BY_NAME => Some((body["name"].clone(), members["_local_seq"].clone())),
        CONFLICTS => {
            let conflicts = &members["_conflicts"];
            (!conflicts.is_null()).then(|| (Value::Null, conflicts.clone()))
        }
        other => panic!("no such map function: {other}"),
    }
}

struct Count;

impl Reducer for Count {
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error> {
        Ok(rows.len().to_string().into_bytes())
    }
    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let values = values.iter().map(|v| read(v).as_u64().unwrap());
        Ok(values.sum::<u64>().to_string().into_bytes())
    }
}
