//! A naive database in memory: maps, no ranks, no logs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use document::{EditDoc, Rev, revision_id};

/// A revision of a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub parent: Option<Rev>,
    /// `None`: an ancestor of which only the id is known.
    pub body: Option<Body>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    pub deleted: bool,
    pub text: String,
    /// The change that brought it.
    pub brought_at: u64,
    /// Not compacted away.
    pub kept: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Doc {
    pub nodes: HashMap<Rev, Node>,
    /// When it changed last, counted over the whole database.
    pub changed_at: u64,
}

impl Doc {
    /// Leaves, best first.
    pub fn leaves(&self) -> Vec<Rev> {
        let parents: BTreeSet<&Rev> = self
            .nodes
            .values()
            .filter_map(|n| n.parent.as_ref())
            .collect();
        let mut leaves: Vec<Rev> = self.nodes.keys().cloned().collect();
        leaves.retain(|rev| !parents.contains(rev));
        leaves.sort_by_key(|rev| std::cmp::Reverse((!self.is_deleted_rev(rev), rev.clone())));
        leaves
    }

    pub fn is_deleted_rev(&self, rev: &Rev) -> bool {
        self.nodes[rev].body.as_ref().is_some_and(|b| b.deleted)
    }

    pub fn winner(&self) -> Rev {
        self.leaves().swap_remove(0)
    }

    pub fn is_deleted(&self) -> bool {
        self.is_deleted_rev(&self.winner())
    }

    /// A revision and its ancestors, newest first.
    pub fn lineage(&self, rev: &Rev) -> Vec<Rev> {
        let mut all = vec![rev.clone()];
        while let Some(parent) = &self.nodes[&all[all.len() - 1]].parent {
            all.push(parent.clone());
        }
        all
    }

    /// Adds a revision with its ancestors, newest first; false when all that is known.
    fn graft(&mut self, path: &[Rev], body: Body, revs_limit: usize) -> bool {
        let before = self.nodes.clone();
        for (i, rev) in path.iter().enumerate() {
            let node = self.nodes.entry(rev.clone()).or_default();
            if node.parent.is_none() {
                node.parent = path.get(i + 1).cloned();
            }
        }
        self.nodes
            .get_mut(&path[0])
            .unwrap()
            .body
            .get_or_insert(body);
        // Nothing is cut from a document to which nothing is added.
        if self.nodes == before {
            return false;
        }
        self.keep_lineages(revs_limit);
        self.nodes != before
    }

    fn keep_lineages(&mut self, revs_limit: usize) {
        let lineages = self.leaves().into_iter().flat_map(|leaf| {
            let lineage = self.lineage(&leaf);
            lineage.into_iter().take(revs_limit)
        });
        let kept: BTreeSet<Rev> = lineages.collect();
        self.nodes.retain(|rev, _| kept.contains(rev));
        for node in self.nodes.values_mut() {
            node.parent = node.parent.take().filter(|p| kept.contains(p));
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Wrote {
    Ok(String),
    Conflict,
}

#[derive(Default)]
pub struct Model {
    pub docs: BTreeMap<String, Doc>,
    pub locals: BTreeMap<String, (u64, String)>,
    pub changes: u64,
    pub revs_limit: usize,
}

impl Model {
    pub fn new() -> Model {
        Model {
            revs_limit: 1000,
            ..Model::default()
        }
    }

    pub fn edit(&mut self, edit: &EditDoc) -> Wrote {
        let id = edit.id.as_ref().unwrap().as_str();
        let parent = edit.rev.clone();
        let old = self.docs.get(id);
        let parent = match old {
            None if parent.is_some() => return Wrote::Conflict,
            None => None,
            Some(doc) if doc.is_deleted() => {
                if parent.is_some() || edit.deleted {
                    return Wrote::Conflict;
                }
                Some(doc.winner())
            }
            Some(doc) => match parent {
                Some(p) if doc.leaves().contains(&p) => Some(p),
                _ => return Wrote::Conflict,
            },
        };
        let rev = revision_id(edit.deleted, parent.as_ref(), &edit.body_term, &[]);
        let path: Vec<Rev> = [rev.clone()].into_iter().chain(parent).collect();
        self.graft(id, &path, edit);
        Wrote::Ok(rev.to_string())
    }

    /// An edit with `new_edits=false`.
    pub fn replicate(&mut self, path: &[Rev], edit: &EditDoc) -> Wrote {
        self.graft(edit.id.as_ref().unwrap().as_str(), path, edit);
        Wrote::Ok(path[0].to_string())
    }

    fn graft(&mut self, id: &str, path: &[Rev], edit: &EditDoc) {
        let text = String::from_utf8(edit.body.clone()).unwrap();
        let limit = self.revs_limit;
        let doc = self.docs.entry(id.to_owned()).or_default();
        let body = Body {
            deleted: edit.deleted,
            text,
            brought_at: self.changes + 1,
            kept: true,
        };
        if doc.graft(path, body, limit) {
            self.changes += 1;
            doc.changed_at = self.changes;
        }
    }

    /// The leaves that were there and are gone.
    pub fn purge(&mut self, id: &str, revs: &[Rev]) -> Vec<Rev> {
        let Some(doc) = self.docs.get_mut(id) else {
            return vec![];
        };
        let leaves = doc.leaves();
        let mut removed: Vec<Rev> = vec![];
        for rev in revs {
            if leaves.contains(rev) && !removed.contains(rev) {
                removed.push(rev.clone());
            }
        }
        if removed.is_empty() {
            return removed;
        }
        let staying = leaves.into_iter().filter(|l| !removed.contains(l));
        let kept: BTreeSet<Rev> = staying.flat_map(|l| doc.lineage(&l)).collect();
        doc.nodes.retain(|rev, _| kept.contains(rev));
        self.changes += 1;
        doc.changed_at = self.changes;
        if doc.nodes.is_empty() {
            self.docs.remove(id);
        }
        removed
    }

    /// Only leaves keep their bodies, and what a document's last change brought.
    pub fn compact(&mut self) {
        for doc in self.docs.values_mut() {
            let leaves = doc.leaves();
            for (rev, node) in &mut doc.nodes {
                if let Some(body) = &mut node.body {
                    body.kept &= leaves.contains(rev) || body.brought_at == doc.changed_at;
                }
            }
        }
    }

    pub fn live_ids(&self) -> Vec<&str> {
        let live = self.docs.iter().filter(|(_, d)| !d.is_deleted());
        live.map(|(id, _)| id.as_str()).collect()
    }

    /// Documents changed after `at`, in the order of their changes.
    pub fn changed_after(&self, at: u64) -> Vec<&str> {
        let mut all: Vec<_> = self
            .docs
            .iter()
            .map(|(id, d)| (d.changed_at, id.as_str()))
            .filter(|(n, _)| *n > at)
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Bytes of the bodies of all leaves.
    pub fn leaf_bytes(&self) -> u64 {
        let leaves = self.docs.values().flat_map(|d| {
            d.leaves()
                .into_iter()
                .map(|l| d.nodes[&l].body.as_ref().map_or(0, |b| b.text.len()))
        });
        leaves.sum::<usize>() as u64
    }
}
