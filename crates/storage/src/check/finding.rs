//! What a check found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many alike are told one by one, the others counted.
const TOLD_MAX: u64 = 20;

/// What is damaged, by what a person would do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The engine's own files: its log, its list of files, tables.
    Files,
    /// Databases, and what belongs to which.
    Catalogue,
    /// Documents: records, changes, bodies.
    Documents,
    /// Numbers that are kept beside documents.
    Counters,
    /// Contents of attachments.
    Attachments,
    /// Rows of an index.
    Index,
    /// Files of a text index, which are not the engine's.
    TextIndex,
    /// What a cluster's slots keep.
    Slots,
    /// Room that nothing needs.
    Space,
}

impl Kind {
    /// A word for it, that does not change.
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

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// It is damage: something reads wrong, or will. Else it is worth knowing only.
    pub is_damage: bool,
    /// The document that it is about, if it is about one.
    pub document: Option<String>,
    /// What is wrong, for people.
    pub says: String,
}

/// Findings of one part of a check: of many that are alike, a few and how many more.
#[derive(Debug, Default)]
pub struct Findings {
    all: Vec<Finding>,
    /// By what they say of whichever document.
    alike: BTreeMap<(Kind, &'static str), u64>,
}

impl Findings {
    /// Notes damage. `topic` is what all findings that are alike have in common, `more` what this one is about.
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

    /// Notes what is no damage.
    pub fn note(&mut self, kind: Kind, says: String) {
        self.all.push(Finding {
            kind,
            is_damage: false,
            document: None,
            says,
        });
    }

    /// Whether there is damage.
    pub fn has_damage(&self) -> bool {
        self.all.iter().any(|finding| finding.is_damage)
    }

    /// All of them, with how many more there are of each sort.
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

/// How far a check is: others may look at it meanwhile.
#[derive(Debug, Default)]
pub struct Watch {
    /// Rows that were looked at.
    pub rows: AtomicU64,
    /// Documents that were looked at.
    pub documents: AtomicU64,
    /// Bytes of attachments that were looked at.
    pub attachment_bytes: AtomicU64,
    what: parking_lot::Mutex<String>,
}

impl Watch {
    /// Says what is looked at now.
    pub fn begin(&self, what: String) {
        *self.what.lock() = what;
    }

    /// What is looked at now.
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
