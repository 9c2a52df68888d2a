//! Design documents of a store that is not served.

use std::collections::HashMap;
use std::sync::Arc;

use document::StoredBody;
use index::Spec;
use serde_json::Value;
use storage::{Body, IdIter, Keyspace, Record, Row, ShardNumber, Signature, Snapshot, seq_key};

use crate::expiry;
use crate::views::Design;

/// The definition of the indexes of a signature, and the design documents that have it.
pub struct IndexDefinition {
    /// Design documents with these views.
    pub ids: Vec<String>,
    /// The views.
    pub spec: Arc<Spec>,
}

/// The properties of a database that its views depend on.
pub(crate) struct DesignsOf<'a> {
    /// The database is partitioned.
    pub partitioned: bool,
    /// The database has access by document.
    pub has_access: bool,
    /// Of dates in JavaScript.
    pub time_zone: &'a str,
}

/// The design documents of a database that can be read.
#[derive(Default)]
pub(crate) struct Designs {
    views: HashMap<Signature, IndexDefinition>,
    /// Text indexes, by one of their names.
    text_indexes: HashMap<Signature, String>,
}

impl Designs {
    /// Reads the design documents of shards.
    pub fn read(snapshot: &Snapshot, shards: &[ShardNumber], of: &DesignsOf<'_>) -> Designs {
        let mut designs = Designs::default();
        for &shard in shards {
            let mut it = IdIter::new(snapshot, shard);
            it.seek(b"_design/");
            while let Some((id, value)) = it.entry().filter(|(id, _)| id.starts_with(b"_design/")) {
                // Unreadable documents are reported by the check of documents.
                if let Some(design) = read(snapshot, shard, (id, value), of) {
                    designs.add(design);
                }
                it.next();
            }
        }
        designs
    }

    fn add(&mut self, design: Design) {
        for text in design.text_indexes() {
            let name = format!("{}/{}", design.id, text.name);
            self.text_indexes.entry(text.signature()).or_insert(name);
        }
        if design.has_views() {
            let of = self.views.entry(design.signature);
            let of = of.or_insert_with(|| IndexDefinition {
                ids: vec![],
                spec: design.spec.clone(),
            });
            of.ids.push(design.id);
        }
    }

    /// Adds the index of expiry times, which no design document defines.
    pub fn add_expiry(&mut self, member: &str) {
        let spec = Arc::new(expiry::spec(member));
        let ids = vec![expiry::NAME.to_owned()];
        self.views
            .insert(spec.signature(), IndexDefinition { ids, spec });
    }

    pub fn of(&self, signature: &Signature) -> Option<&IndexDefinition> {
        self.views.get(signature)
    }

    /// The name of a text index, which has no rows in the store.
    pub fn text(&self, signature: &Signature) -> Option<&str> {
        self.text_indexes.get(signature).map(String::as_str)
    }
}

fn read(
    snapshot: &Snapshot,
    shard: ShardNumber,
    (id, record): (&[u8], &[u8]),
    of: &DesignsOf<'_>,
) -> Option<Design> {
    let id = std::str::from_utf8(id).ok()?;
    let record = Record::decode(record).ok()?;
    let winner = record.tree.winner().filter(|w| !w.revision.deleted)?;
    let seq = winner.revision.seq;
    let key = seq_key(shard, seq);
    let stored = snapshot.get(Keyspace::BySeq, &key).ok()??;
    let body = match Row::decode(seq, &stored).ok()?.body {
        Body::Inline(body) => body.to_vec(),
        Body::External { .. } => snapshot.get(Keyspace::Bodies, &key).ok()??.to_vec(),
        Body::None => return None,
    };
    let doc: Value = serde_json::from_slice(StoredBody::split(&body).json).ok()?;
    let rev = winner.rev.to_rev();
    let design = Design::read(id, rev, &doc, of.partitioned, of.time_zone);
    Some(design.for_access(of.has_access))
}
