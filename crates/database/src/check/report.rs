//! The report of a check, for people and for programs.

use serde_json::{Value, json};
use storage::check::{Finding, Kind};

/// A finding, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedFinding {
    /// In which database.
    pub database: Option<String>,
    /// In which range of it, as `00000000-7fffffff`.
    pub shard: Option<String>,
    /// In the index of which design documents.
    pub index: Option<String>,
    /// The finding.
    pub finding: Finding,
}

impl LocatedFinding {
    /// Its subject, in words.
    pub fn subject(&self) -> String {
        let mut parts = vec![];
        if let Some(database) = &self.database {
            parts.push(format!("database '{database}'"));
        }
        if let Some(shard) = &self.shard {
            parts.push(format!("shard {shard}"));
        }
        if let Some(index) = &self.index {
            parts.push(format!("index {index}"));
        }
        if let Some(document) = &self.finding.document {
            parts.push(format!("document '{document}'"));
        }
        if parts.is_empty() {
            parts.push("the store".to_owned());
        }
        parts.join(", ")
    }

    /// The suggested action; `None` for findings that are not damage.
    pub fn act(&self) -> Option<&'static str> {
        if !self.finding.is_damage {
            return None;
        }
        Some(match self.finding.kind {
            Kind::Index => {
                "delete the design document, POST /{db}/_view_cleanup, and write it again: the index is rebuilt"
            }
            Kind::TextIndex => "delete that folder: the next search rebuilds the index",
            Kind::Counters => {
                "settee repair DATA NEW counts again, or restore a backup (settee restore)"
            }
            Kind::Slots => {
                "take the node out of its cluster and add a new one: it copies the data of the others"
            }
            Kind::Files | Kind::Catalogue | Kind::Documents | Kind::Attachments | Kind::Space => {
                "restore a backup (settee restore), or settee repair DATA NEW saves the readable data"
            }
        })
    }

    fn json(&self) -> Value {
        let finding = &self.finding;
        json!({
            "kind": finding.kind.name(),
            "damage": finding.is_damage,
            "database": self.database,
            "shard": self.shard,
            "index": self.index,
            "document": finding.document,
            "says": finding.says,
            "do": self.act(),
        })
    }
}

/// Amounts of checked data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Table files, and their bytes.
    pub files: u64,
    /// Bytes of those.
    pub file_bytes: u64,
    /// Databases.
    pub databases: u64,
    /// Documents that are not deleted.
    pub documents: u64,
    /// Number of deleted documents.
    pub deleted_documents: u64,
    /// Indexes, one for each shard.
    pub indexes: u64,
    /// Rows of all views.
    pub index_rows: u64,
    /// Contents of attachments.
    pub attachments: u64,
    /// Bytes of those.
    pub attachment_bytes: u64,
    /// Stored rows that were checked, counted each time.
    pub rows: u64,
    /// How long it took.
    pub seconds: f64,
}

/// The results of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which it was found.
    pub found: Vec<LocatedFinding>,
    /// Amounts of checked data.
    pub totals: Totals,
}

impl Report {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damage().next().is_none()
    }

    /// The damage.
    pub fn damage(&self) -> impl Iterator<Item = &LocatedFinding> {
        self.found.iter().filter(|found| found.finding.is_damage)
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let t = &self.totals;
        json!({
            "sound": self.is_sound(),
            "findings": self.found.iter().map(LocatedFinding::json).collect::<Vec<_>>(),
            "looked_at": {
                "files": t.files,
                "file_bytes": t.file_bytes,
                "databases": t.databases,
                "documents": t.documents,
                "deleted_documents": t.deleted_documents,
                "indexes": t.indexes,
                "index_rows": t.index_rows,
                "attachments": t.attachments,
                "attachment_bytes": t.attachment_bytes,
                "rows": t.rows,
                "seconds": t.seconds,
            },
        })
    }
}
