//! The findings of a check.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of similar findings that are reported one by one; the rest is counted.
const TOLD_MAX: u64 = 20;

/// The kind of damage, by the repair that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The engine's own files: its log, its list of files, tables.
    Files,
    /// Databases, and what belongs to them.
    Catalogue,
    /// Documents: records, changes, bodies.
    Documents,
    /// Counters of documents.
    Counters,
    /// Contents of attachments.
    Attachments,
    /// Rows of an index.
    Index,
    /// Files of a full-text index, which are not the engine's.
    TextIndex,
    /// State of a cluster's slots.
    Slots,
    /// Space that is not needed.
    Space,
}

impl Kind {
    /// Returns a stable identifier.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Files => "files",
            Kind::Catalogue => "catalogue",
            Kind::Documents => "documents",
            Kind::Counters => "counters",
            Kind::Attachments => "attachments",
            Kind::Index => "index",
            Kind::TextIndex => "text_index",
            Kind::Slots => "slots",
            Kind::Space => "space",
        }
    }
}

/// A problem or a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Whether it is damage: something reads wrong, or will. Otherwise it is only a note.
    pub is_damage: bool,
    /// The document concerned, if any.
    pub document: Option<String>,
    /// A description for people.
    pub says: String,
}

/// The findings of one part of a check: of similar ones a few, and the number of the rest.
#[derive(Debug, Default)]
pub struct Findings {
    all: Vec<Finding>,
    /// Numbers of similar findings by kind and topic.
    alike: BTreeMap<(Kind, &'static str), u64>,
}

impl Findings {
    /// Reports damage. `topic` is what similar findings have in common, `more` the details of this
    /// one.
    pub fn damage(
        &mut self,
        kind: Kind,
        document: Option<&str>,
        topic: &'static str,
        more: impl AsRef<str>,
    ) {
        let told = self.alike.entry((kind, topic)).or_default();
        *told += 1;
        if *told <= TOLD_MAX {
            self.all.push(Finding {
                kind,
                is_damage: true,
                document: document.map(str::to_owned),
                says: match more.as_ref() {
                    "" => topic.to_owned(),
                    more => format!("{topic}: {more}"),
                },
            });
        }
    }

    /// Reports a note.
    pub fn note(&mut self, kind: Kind, says: String) {
        self.all.push(Finding {
            kind,
            is_damage: false,
            document: None,
            says,
        });
    }

    /// Returns whether there is damage.
    pub fn has_damage(&self) -> bool {
        self.all.iter().any(|finding| finding.is_damage)
    }

    /// Returns all findings, with the number of further similar ones.
    pub fn into_all(mut self) -> Vec<Finding> {
        for ((kind, topic), told) in self.alike {
            if let Some(more) = told.checked_sub(TOLD_MAX).filter(|more| *more > 0) {
                self.all.push(Finding {
                    kind,
                    is_damage: true,
                    document: None,
                    says: format!("{topic}: {more} more"),
                });
            }
        }
        self.all
    }
}

/// Progress of a check, which other threads may read.
#[derive(Debug, Default)]
pub struct Watch {
    /// Rows checked.
    pub rows: AtomicU64,
    /// Documents checked.
    pub documents: AtomicU64,
    /// Bytes of attachments checked.
    pub attachment_bytes: AtomicU64,
    what: parking_lot::Mutex<String>,
}

impl Watch {
    /// Sets the current step.
    pub fn begin(&self, what: String) {
        *self.what.lock() = what;
    }

    /// Returns the current step.
    pub fn what(&self) -> String {
        self.what.lock().clone()
    }

    pub(crate) fn row(&self) {
        self.rows.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_findings_that_are_alike_some_are_told_and_the_rest_counted() {
        let mut findings = Findings::default();
        for n in 0..25 {
            findings.damage(Kind::Documents, Some("a"), "no body", format!("{n}"));
        }
        findings.damage(Kind::Counters, None, "a counter is wrong", "");
        let all = findings.into_all();
        assert_eq!(all.len(), 22);
        assert_eq!(all[3].says, "no body: 3");
        assert_eq!(all[20].says, "a counter is wrong");
        assert_eq!(all[21].says, "no body: 5 more");
    }
}
