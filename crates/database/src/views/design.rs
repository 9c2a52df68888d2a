//! Design documents as far as views go: which views they name, and which index holds them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use analysis::Flavour;
use index::reduce::Builtin;
use index::{ReduceSpec, Spec, ViewSpec};
use serde_json::{Map, Value};
use storage::Signature;

use crate::Error;
use crate::design_limits::{INDEX_MEMBERS, INDEXES_MAX, too_many_indexes};
use crate::text::{TextSpec, text_member};

/// Where a view is in its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewAt {
    /// Its number in the index.
    pub view: usize,
    /// Its reduce function among those of the same map function.
    pub reduce: Option<usize>,
}

/// Text indexes by name; `None` for invalid ones.
type TextSpecs = HashMap<(Flavour, String), Option<Arc<TextSpec>>>;

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
    text_indexes: TextSpecs,
    /// Built in the background (`autoupdate`, on unless said otherwise).
    pub autoupdate: bool,
    /// The number of its views and text indexes when there are too many: none are read.
    excess: Option<usize>,
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
        let count: usize = INDEX_MEMBERS
            .iter()
            .filter_map(|name| doc[*name].as_object())
            .map(Map::len)
            .sum();
        // Older versions stored any number, and so do replications from such a server.
        let excess = (count > INDEXES_MAX).then_some(count);
        let none = Value::Null;
        let of_indexes = if excess.is_none() { doc } else { &none };
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
            by_access: false,
        };
        let all = of_indexes["views"].as_object().unwrap_or(&empty);
        spec.lib = all.get("lib").map(Value::to_string);
        let mut views = HashMap::new();
        let mut specs = ViewSpecs::default();
        for (name, view) in all.iter().filter(|(name, _)| *name != "lib") {
            if let Some(at) = specs.add(view) {
                views.insert(name.clone(), at);
            }
        }
        spec.views = specs.views;
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
            text_indexes: match excess {
                None => read_text_indexes(doc, partitioned, time_zone),
                Some(_) => HashMap::new(),
            },
            autoupdate: doc["autoupdate"].as_bool().unwrap_or(true),
            excess,
        }
    }

    /// Returns the views with their rows by principal too, if `has_access`: the database has access by
    /// document.
    pub(crate) fn for_access(mut self, has_access: bool) -> Design {
        if has_access {
            let spec = Spec::clone(&self.spec).with_access();
            self.signature = spec.signature();
            self.spec = Arc::new(spec);
        }
        self
    }

    /// Refuses a design document with too many views for a request that names one.
    pub(crate) fn within_limits(self: Arc<Self>) -> Result<Arc<Self>, Error> {
        match self.excess {
            None => Ok(self),
            Some(count) => Err(Error::BadRequest(too_many_indexes(count))),
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
            text_indexes: HashMap::new(),
            autoupdate: false,
            excess: None,
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
        match self.text_indexes.get(&(flavour, name.to_owned())) {
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
        self.text_indexes
            .keys()
            .map(|(flavour, name)| (*flavour, &**name))
    }

    /// The text indexes.
    pub(crate) fn text_indexes(&self) -> impl Iterator<Item = &Arc<TextSpec>> {
        self.text_indexes.values().flatten()
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
        let mut names: Vec<String> = names.into_iter().map(joined).collect();
        // Rows by principal have the names of their views.
        if self.spec.by_access {
            names.truncate(self.spec.mapped());
            names.extend_from_within(..);
        }
        names
    }

    /// About how much memory it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let names = self.views.keys().map(|name| name.len() + 64);
        let text_indexes = self.text_indexes().map(|t| t.source.len() + 512);
        512 + self.spec_bytes() + names.sum::<usize>() + text_indexes.sum::<usize>()
    }

    /// About how much memory the definition of its index takes, in bytes.
    pub(crate) fn spec_bytes(&self) -> usize {
        let reduces = |v: &ViewSpec| v.reduces.iter().map(reduce_bytes).sum::<usize>();
        let sources = self.spec.views.iter();
        let sources = sources.map(|v| v.map.len() + reduces(v) + 128);
        sources.sum::<usize>() + self.spec.lib.as_ref().map_or(0, String::len)
    }

    /// Whether it has views or text indexes.
    pub(crate) fn defines_indexes(&self) -> bool {
        self.has_views() || !self.text_indexes.is_empty()
    }

    /// Whether there is anything to index, text indexes aside.
    pub fn has_views(&self) -> bool {
        !self.views.is_empty()
    }
}

/// About how much memory a reduce function takes, in bytes.
fn reduce_bytes(reduce: &ReduceSpec) -> usize {
    let source = match reduce {
        ReduceSpec::Builtin(_) => 0,
        ReduceSpec::Custom(source) => source.len(),
    };
    size_of::<ReduceSpec>() + source
}

/// The text indexes of a design document.
fn read_text_indexes(doc: &Value, partitioned: bool, time_zone: &str) -> TextSpecs {
    let mut text_indexes = TextSpecs::new();
    for flavour in [Flavour::Clouseau, Flavour::Nouveau] {
        for (name, spec) in TextSpec::of_design(flavour, doc, partitioned, time_zone) {
            text_indexes.insert((flavour, name), spec.map(Arc::new));
        }
    }
    text_indexes
}

/// The views of a design document that were read so far.
#[derive(Default)]
struct ViewSpecs<'d> {
    views: Vec<ViewSpec>,
    /// The numbers of map functions, each with whether its keys are compared as bytes.
    maps: HashMap<(Cow<'d, str>, bool), usize>,
    /// The numbers of reduce functions among those of the same map function.
    reduces: HashMap<(usize, ReduceSpec), usize>,
}

impl<'d> ViewSpecs<'d> {
    /// Adds a view; `None` for one that CouchDB would not accept.
    fn add(&mut self, view: &'d Value) -> Option<ViewAt> {
        let map = match &view["map"] {
            Value::String(source) if !source.is_empty() => Cow::Borrowed(source.as_str()),
            // An index of Mango: its fields and selector.
            fields @ Value::Object(_) => Cow::Owned(fields.to_string()),
            _ => return None,
        };
        let raw = view["options"]["collation"] == "raw";
        let next = self.views.len();
        let views = &mut self.views;
        let view_number = *self.maps.entry((map, raw)).or_insert_with_key(|(map, _)| {
            views.push(ViewSpec {
                map: map.clone().into_owned(),
                raw,
                reduces: vec![],
            });
            next
        });
        let reduce = view["reduce"].as_str().filter(|r| !r.is_empty());
        Some(ViewAt {
            view: view_number,
            reduce: reduce.and_then(|source| self.add_reduce(view_number, source)),
        })
    }

    /// Adds a reduce function of a map function; `None` for a built-in one that does not exist.
    fn add_reduce(&mut self, view: usize, source: &str) -> Option<usize> {
        let spec = match Builtin::parse(source) {
            None => ReduceSpec::Custom(source.to_owned()),
            Some(builtin) => ReduceSpec::Builtin(builtin.ok()?),
        };
        let reduces = &mut self.views[view].reduces;
        let number = self.reduces.entry((view, spec.clone()));
        Some(*number.or_insert_with(|| {
            reduces.push(spec);
            reduces.len() - 1
        }))
    }
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
    fn more_views_than_the_limit_are_refused_but_the_document_is_read() {
        let views = |count: usize| {
            let view = |n: usize| (n.to_string(), json!({"map": format!("M{n}")}));
            let views: Map<String, Value> = (0..count).map(view).collect();
            Arc::new(design(json!({"views": views})))
        };
        let most = views(INDEXES_MAX).within_limits().unwrap();
        assert_eq!(most.view("999").unwrap().view, 999);
        let more = views(INDEXES_MAX + 1);
        assert!(!more.has_views() && more.spec.views.is_empty());
        let refused = more.within_limits().unwrap_err();
        assert!(
            refused.to_string().contains("this one has 1001"),
            "{refused}"
        );
    }

    #[test]
    fn reduces_of_one_map_function_are_counted_once() {
        let d = design(json!({"views": {
            "a": {"map": "M", "reduce": "function() {}"},
            "b": {"map": "M", "reduce": "_sum"},
            "c": {"map": "N", "reduce": "function() {}"},
            "d": {"map": "M", "reduce": "function() {}"},
            "e": {"map": "M", "options": {"collation": "raw"}, "reduce": "_sum"}}}));
        let at = |view, reduce| {
            Some(ViewAt {
                view,
                reduce: Some(reduce),
            })
        };
        assert_eq!([d.view("a"), d.view("d")], [at(0, 0); 2]);
        assert_eq!(
            [d.view("b"), d.view("c"), d.view("e")],
            [at(0, 1), at(1, 0), at(2, 0)]
        );
        let reduces = d.spec.views.iter().map(|v| v.reduces.len());
        assert_eq!(reduces.collect::<Vec<_>>(), [2, 1, 1]);
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
