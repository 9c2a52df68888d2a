//! What an index is made of, and the signature that tells it from others.

use functions::{MapGroup, Owner};
use md5::{Digest, Md5};

use crate::reduce::Builtin;
use storage::Signature;

/// A view of an index: a map function, and the reduce functions of all views that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewSpec {
    pub map: String,
    /// Rows in the order of Erlang's terms instead of the collation's (`"collation": "raw"`).
    pub raw: bool,
    pub reduces: Vec<ReduceSpec>,
}

/// A reduce function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReduceSpec {
    Builtin(Builtin),
    /// Source in the design document's language.
    Custom(String),
}

/// The views of one design document, built together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub language: String,
    /// `views.lib` as JSON text.
    pub lib: Option<String>,
    pub views: Vec<ViewSpec>,
    /// Design documents are mapped too.
    pub include_design: bool,
    /// Documents have `_local_seq`.
    pub local_seq: bool,
    /// Rows are ordered by partition first.
    pub partitioned: bool,
}

impl Spec {
    /// Equal for specifications that give the same rows and reductions; names do not matter.
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
                    ReduceSpec::Builtin(b) => add(format!("builtin {b:?}").as_bytes()),
                    ReduceSpec::Custom(source) => add(format!("custom {source}").as_bytes()),
                }
            }
        }
        md5.finalize().into()
    }

    pub fn map_group(&self, owner: Owner) -> MapGroup {
        MapGroup {
            language: self.language.clone(),
            maps: self.views.iter().map(|v| v.map.clone()).collect(),
            lib: self.lib.clone(),
            owner,
            records: false,
        }
    }
}
