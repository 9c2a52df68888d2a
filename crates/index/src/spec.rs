//! The specification of an index, and its signature.

use std::borrow::Cow;

use functions::{Indexes, JAVASCRIPT, MapGroup, Owner};
use md5::{Digest, Md5};

use crate::reduce::Builtin;
use storage::Signature;

/// A view of an index: a map function, and the reduce functions of all views that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewSpec {
    /// The source, in the design document's language.
    pub map: String,
    /// Rows in the order of Erlang's terms instead of the collation's (`"collation": "raw"`).
    pub raw: bool,
    /// In the order of the views.
    pub reduces: Vec<ReduceSpec>,
}

/// Rows with longer sort keys do not count as bytes of a block, in bytes: fences are in memory, and a
/// block of few rows would begin with a long one.
const COUNTED_SORT_MAX: usize = 16 << 10;

impl ViewSpec {
    /// Returns how many bytes of its block a row is; `bytes` is the length of its key and value as JSON
    /// text. It is 0 where blocks of few rows would take much memory: for long keys, and if there is a
    /// reduce function whose states are as long as values, since each block has one.
    pub fn counted_bytes(&self, sort_len: usize, bytes: u64) -> u64 {
        let is_short = |reduce: &ReduceSpec| match reduce {
            ReduceSpec::Builtin(builtin) => builtin.has_short_states(),
            ReduceSpec::Custom(_) => false,
        };
        match sort_len <= COUNTED_SORT_MAX && self.reduces.iter().all(is_short) {
            true => bytes,
            false => 0,
        }
    }
}

/// A reduce function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReduceSpec {
    /// A built-in function of CouchDB.
    Builtin(Builtin),
    /// Source in the design document's language.
    Custom(String),
}

/// The views of one design document, built together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Language of the functions.
    pub language: String,
    /// `views.lib` as JSON text.
    pub lib: Option<String>,
    /// Each with a map function of its own.
    pub views: Vec<ViewSpec>,
    /// Design documents are mapped too.
    pub include_design: bool,
    /// Documents have `_local_seq`.
    pub local_seq: bool,
    /// Rows are ordered by partition first.
    pub partitioned: bool,
    /// The differences of engines that the sources depend on: [`functions::dialect`].
    pub dialect: Option<String>,
    /// The second half of `views` has the rows of the first half by principal:
    /// [`Spec::with_access`].
    pub by_access: bool,
}

impl Spec {
    /// Returns the specification for a database with access: it has each row once more for each
    /// principal that may read its document, in a further view for each view. These have no map
    /// functions of their own.
    #[must_use]
    pub fn with_access(mut self) -> Spec {
        let by_principal = |view: &ViewSpec| ViewSpec {
            map: String::new(),
            ..view.clone()
        };
        let more: Vec<ViewSpec> = self.views.iter().map(by_principal).collect();
        self.views.extend(more);
        self.by_access = true;
        self
    }

    /// Returns whether a view has the rows of another one by principal.
    pub(crate) fn is_by_principal(&self, view: usize) -> bool {
        self.by_access && view >= self.mapped()
    }

    /// Returns the number of views that have a map function.
    pub fn mapped(&self) -> usize {
        match self.by_access {
            true => self.views.len() / 2,
            false => self.views.len(),
        }
    }

    /// Returns the signature, equal for specifications that give the same rows and reductions;
    /// names do not matter.
    ///
    /// **The hashed content may never change**: indexes are found by it, and one that is not found
    /// is rebuilt. The golden test below pins it. It is the MD5 of these parts, each preceded by
    /// its length in 8 bytes: `index 1`, the version of sort keys, the language, `views.lib`, three
    /// flags; then of each view its map function, a flag, the number of its reduce functions, and
    /// of each of these `builtin `, `custom ` or `isolated ` and its text; then the dialect, if
    /// there is one; then `access 1`, if rows are kept by principal. `isolated ` is a JavaScript function: as `custom ` it was in indexes whose
    /// reductions functions of other databases may have changed, so these are rebuilt.
    pub fn signature(&self) -> Signature {
        let mut md5 = Md5::new();
        let mut add = |part: &[u8]| {
            md5.update((part.len() as u64).to_be_bytes());
            md5.update(part);
        };
        add(b"index 1");
        add(&document::collation::VERSION.to_be_bytes());
        add(self.language.as_bytes());
        add(self.lib.as_deref().unwrap_or_default().as_bytes());
        add(&[
            u8::from(self.include_design),
            u8::from(self.local_seq),
            u8::from(self.partitioned),
        ]);
        for view in &self.views {
            add(view.map.as_bytes());
            add(&[u8::from(view.raw)]);
            add(&(view.reduces.len() as u64).to_be_bytes());
            for reduce in &view.reduces {
                match reduce {
                    ReduceSpec::Builtin(b) => add(signature_part(*b).as_bytes()),
                    ReduceSpec::Custom(source) if self.language == JAVASCRIPT => {
                        add(format!("isolated {source}").as_bytes());
                    }
                    ReduceSpec::Custom(source) => add(format!("custom {source}").as_bytes()),
                }
            }
        }
        if let Some(dialect) = &self.dialect {
            add(dialect.as_bytes());
        }
        if self.by_access {
            add(b"access 1");
        }
        md5.finalize().into()
    }

    /// The sources of all functions and modules.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        let reduces = self.views.iter().flat_map(|view| &view.reduces);
        let reduces = reduces.filter_map(|reduce| match reduce {
            ReduceSpec::Builtin(_) => None,
            ReduceSpec::Custom(source) => Some(source.as_str()),
        });
        let maps = self.views[..self.mapped()].iter();
        let maps = maps.map(|view| view.map.as_str());
        maps.chain(reduces).chain(self.lib.as_deref())
    }

    /// Returns the map functions, to be run together.
    pub fn map_group(&self, owner: Owner) -> MapGroup {
        MapGroup {
            language: self.language.clone(),
            maps: (self.views[..self.mapped()].iter())
                .map(|v| v.map.clone())
                .collect(),
            lib: self.lib.clone(),
            owner,
            records: false,
            tells: false,
            leaves_out: true,
            indexes: Indexes::No,
        }
    }
}

/// Returns the text of a built-in function in a signature.
fn signature_part(builtin: Builtin) -> Cow<'static, str> {
    match builtin {
        Builtin::Sum => "builtin Sum".into(),
        Builtin::Count => "builtin Count".into(),
        Builtin::Stats => "builtin Stats".into(),
        Builtin::ApproxCountDistinct => "builtin ApproxCountDistinct".into(),
        Builtin::First => "builtin First".into(),
        Builtin::Last => "builtin Last".into(),
        Builtin::Top(count) => format!("builtin Top({count})").into(),
        Builtin::Bottom(count) => format!("builtin Bottom({count})").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(reduces: Vec<ReduceSpec>) -> Spec {
        Spec {
            language: "javascript".into(),
            lib: Some(r#"{"a":"exports.x = 1"}"#.into()),
            views: vec![
                ViewSpec {
                    map: "function(doc) { emit(doc.a, 1) }".into(),
                    raw: false,
                    reduces,
                },
                ViewSpec {
                    map: "function(doc) { emit(doc.b) }".into(),
                    raw: true,
                    reduces: vec![],
                },
            ],
            include_design: true,
            local_seq: false,
            partitioned: true,
            dialect: None,
            by_access: false,
        }
    }

    #[test]
    fn signatures_are_those_of_indexes_that_are_stored() {
        let hex = |spec: Spec| -> String {
            let bytes = spec.signature().into_iter();
            bytes.map(|b| format!("{b:02x}")).collect()
        };
        let empty = Spec {
            language: "query".into(),
            lib: None,
            views: vec![],
            include_design: false,
            local_seq: true,
            partitioned: false,
            dialect: None,
            by_access: false,
        };
        let builtins = [
            Builtin::Sum,
            Builtin::Count,
            Builtin::Stats,
            Builtin::ApproxCountDistinct,
            Builtin::First,
            Builtin::Last,
            Builtin::Top(3),
            Builtin::Bottom(100),
        ];
        let builtins = builtins.map(ReduceSpec::Builtin).to_vec();
        let custom = ReduceSpec::Custom("function(k, v) { return v.length }".into());
        assert_eq!(hex(empty), "f386115232d094278fd7246f6f7bf7a1");
        assert_eq!(hex(spec(builtins)), "6899669b2e7ab22c00ee224e5cce7803");
        let python = Spec {
            language: "python".into(),
            ..spec(vec![custom.clone()])
        };
        let with_dialect = Spec {
            dialect: Some("spidermonkey 1".into()),
            by_access: false,
            ..spec(vec![])
        };
        assert_eq!(hex(with_dialect), "fef1590e96d4a53203088d8c542e3b3c");
        assert_eq!(hex(spec(vec![custom])), "c296a0672295bd87a01645554d824efd");
        assert_eq!(hex(python), "c48ea423770519c1d3c2a57f96428098");
        assert_eq!(hex(spec(vec![])), "f62ab843c3037e094fe11950a29f8e0c");
    }

    #[test]
    fn views_by_principal_are_of_another_index_and_have_no_functions() {
        let plain = spec(vec![ReduceSpec::Builtin(Builtin::Sum)]);
        let by_access = plain.clone().with_access();
        assert_eq!((by_access.views.len(), by_access.mapped()), (4, 2));
        assert_eq!(by_access.views[2].reduces, plain.views[0].reduces);
        assert!(by_access.views[3].raw);
        assert_eq!(
            by_access.map_group(Owner::default()).maps,
            plain.map_group(Owner::default()).maps
        );
        assert!(by_access.sources().eq(plain.sources()));
        assert_ne!(by_access.signature(), plain.signature());
    }
}
