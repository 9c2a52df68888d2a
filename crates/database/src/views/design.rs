//! Design documents as far as views go: which views they name, and which index holds them.

use std::collections::HashMap;
use std::sync::Arc;

use analysis::Flavour;
use index::reduce::Builtin;
use index::{ReduceSpec, Spec, ViewSpec};
use serde_json::{Map, Value};
use storage::Signature;

use crate::Error;
use crate::text::{TextSpec, text_member};

/// Where a view is in its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewAt {
    /// Its number in the index.
    pub view: usize,
    /// Its reduce function among those of the same map function.
    pub reduce: Option<usize>,
}

/// The views of one revision of a design document.
#[derive(Debug)]
pub struct Design {
    /// `_design/name`
    pub id: String,
    /// The document's revision.
    pub rev: document::Rev,
    /// The `language` as written.
    pub language: String,
    /// The definition of its index.
    pub spec: Arc<Spec>,
    /// The definition as a number, by which queries find the index.
    pub signature: Signature,
    views: HashMap<String, ViewAt>,
    /// Its text indexes by name; `None` for invalid ones.
    texts: HashMap<(Flavour, String), Option<Arc<TextSpec>>>,
    /// Built in the background (`autoupdate`, on unless said otherwise).
    pub autoupdate: bool,
}

impl Design {
    /// Reads a design document. Ignores views that CouchDB would not accept. `partitioned`: whether
    /// the database is. `time_zone`: of dates in JavaScript.
    pub fn read(
        id: &str,
        rev: document::Rev,
        doc: &Value,
        partitioned: bool,
        time_zone: &str,
    ) -> Design {
        let empty = Map::new();
        let options = doc["options"].as_object().unwrap_or(&empty);
        let flag = |name: &str, default| {
            options
                .get(name)
                .and_then(Value::as_bool)
                .unwrap_or(default)
        };
        let language = doc["language"].as_str().unwrap_or(functions::JAVASCRIPT);
        let mut spec = Spec {
            language: functions::language_name(language),
            lib: None,
            views: vec![],
            include_design: flag("include_design", false),
            local_seq: flag("local_seq", false),
            partitioned: partitioned && flag("partitioned", true),
            dialect: None,
        };
        let all = doc["views"].as_object().unwrap_or(&empty);
        spec.lib = all.get("lib").map(Value::to_string);
        let mut views = HashMap::new();
        for (name, view) in all.iter().filter(|(name, _)| *name != "lib") {
            if let Some(at) = add_view(&mut spec.views, view) {
                views.insert(name.clone(), at);
            }
        }
        if spec.language == functions::JAVASCRIPT {
            spec.dialect = functions::dialect(spec.sources(), time_zone);
        }
        Design {
            id: id.to_owned(),
            rev,
            language: language.to_owned(),
            signature: spec.signature(),
            spec: Arc::new(spec),
            views,
            texts: [Flavour::Clouseau, Flavour::Nouveau]
                .into_iter()
                .flat_map(|flavour| {
                    let all = TextSpec::of_design(flavour, doc, partitioned, time_zone);
                    all.into_iter()
                        .map(move |(name, spec)| ((flavour, name), spec.map(Arc::new)))
                })
                .collect(),
            autoupdate: doc["autoupdate"].as_bool().unwrap_or(true),
        }
    }

    /// Returns the views of an index that no design document defines. `id` is its name in logs.
    pub(crate) fn without_document(id: &str, spec: Spec) -> Design {
        Design {
            id: id.to_owned(),
            rev: document::Rev {
                generation: 0,
                hash: document::RevHash::Text(Box::default()),
            },
            language: spec.language.clone(),
            signature: spec.signature(),
            spec: Arc::new(spec),
            views: HashMap::new(),
            texts: HashMap::new(),
            autoupdate: false,
        }
    }

    /// The view of this name.
    pub fn view(&self, name: &str) -> Option<ViewAt> {
        self.views.get(name).copied()
    }

    /// The text index of this name.
    ///
    /// # Errors
    /// It does not exist, or is invalid.
    pub fn text(&self, flavour: Flavour, name: &str) -> Result<&Arc<TextSpec>, Error> {
        match self.texts.get(&(flavour, name.to_owned())) {
            None => Err(Error::NoTextIndex(name.to_owned())),
            Some(None) => {
                let wanted = match self.spec.language == mango::index::LANGUAGE {
                    true => "a definition of Mango",
                    false => "a function",
                };
                Err(Error::BadRequest(format!(
                    "`{}.{name}` must be an object with {wanted} as its `index`",
                    text_member(flavour)
                )))
            }
            Some(Some(spec)) => Ok(spec),
        }
    }

    /// All that is written as a text index, whether it is one or not.
    pub(crate) fn text_names(&self) -> impl Iterator<Item = (Flavour, &str)> {
        self.texts.keys().map(|(flavour, name)| (*flavour, &**name))
    }

    /// The text indexes.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Arc<TextSpec>> {
        self.texts.values().flatten()
    }

    /// The views by name.
    pub fn names(&self) -> impl Iterator<Item = (&str, ViewAt)> {
        self.views.iter().map(|(name, at)| (name.as_str(), *at))
    }

    /// Names of the views of each map function, divided by commas, by the numbers of the functions.
    pub(crate) fn names_by_number(&self) -> Vec<String> {
        let mut names: Vec<Vec<&str>> = vec![vec![]; self.spec.views.len()];
        for (name, at) in self.names() {
            names[at.view].push(name);
        }
        let joined = |mut names: Vec<&str>| {
            names.sort_unstable();
            names.join(",")
        };
        names.into_iter().map(joined).collect()
    }

    /// About how much memory it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let sources = self.spec.views.iter().map(|v| v.map.len() + 128);
        let names = self.views.keys().map(|name| name.len() + 64);
        let lib = self.spec.lib.as_ref().map_or(0, String::len);
        let texts = self.texts().map(|t| t.source.len() + 512);
        512 + sources.sum::<usize>() + names.sum::<usize>() + lib + texts.sum::<usize>()
    }

    /// Whether there is anything to index, text indexes aside.
    pub fn has_views(&self) -> bool {
        !self.views.is_empty()
    }
}

fn add_view(specs: &mut Vec<ViewSpec>, view: &Value) -> Option<ViewAt> {
    let map = match &view["map"] {
        Value::String(source) if !source.is_empty() => source.clone(),
        // An index of Mango: its fields and selector.
        fields @ Value::Object(_) => fields.to_string(),
        _ => return None,
    };
    let raw = view["options"]["collation"] == "raw";
    let i = match specs.iter().position(|s| s.map == map && s.raw == raw) {
        Some(i) => i,
        None => {
            specs.push(ViewSpec {
                map,
                raw,
                reduces: vec![],
            });
            specs.len() - 1
        }
    };
    let reduce = view["reduce"].as_str().filter(|r| !r.is_empty());
    let reduce = reduce.and_then(|source| {
        let spec = match Builtin::parse(source) {
            None => ReduceSpec::Custom(source.to_owned()),
            Some(builtin) => ReduceSpec::Builtin(builtin.ok()?),
        };
        let reduces = &mut specs[i].reduces;
        Some(reduces.iter().position(|r| *r == spec).unwrap_or_else(|| {
            reduces.push(spec);
            reduces.len() - 1
        }))
    });
    Some(ViewAt { view: i, reduce })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn design(doc: Value) -> Design {
        Design::read(
            "_design/d",
            document::Rev::parse("1-00").unwrap(),
            &doc,
            false,
            functions::UTC,
        )
    }

    #[test]
    fn views_with_one_map_function_share_their_rows() {
        let d = design(json!({"views": {
            "a": {"map": "M", "reduce": "_sum"},
            "b": {"map": "M", "reduce": "_count"},
            "c": {"map": "M"},
            "d": {"map": "N", "reduce": "_sum"},
            "lib": {"x": "1"}}}));
        assert_eq!(d.spec.views.len(), 2);
        assert_eq!(
            d.view("a"),
            Some(ViewAt {
                view: 0,
                reduce: Some(0)
            })
        );
        assert_eq!(
            d.view("b"),
            Some(ViewAt {
                view: 0,
                reduce: Some(1)
            })
        );
        assert_eq!(
            d.view("c"),
            Some(ViewAt {
                view: 0,
                reduce: None
            })
        );
        assert_eq!(d.view("lib"), None);
        assert_eq!(d.names_by_number(), ["a,b,c", "d"]);
    }

    #[test]
    fn an_edit_elsewhere_keeps_the_signature_and_one_of_a_function_changes_it() {
        let one = design(json!({"views": {"a": {"map": "M"}}, "x": 1}));
        let same = design(json!({"views": {"renamed": {"map": "M"}}, "x": 2}));
        let other = design(json!({"views": {"a": {"map": "M "}}}));
        let raw = design(json!({"views": {"a": {"map": "M", "options": {"collation": "raw"}}}}));
        assert_eq!(one.signature, same.signature);
        assert_ne!(one.signature, other.signature);
        assert_ne!(one.signature, raw.signature);
    }
}
