//! One database on its way into the merged one.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::edit::{earlier, merged, next_rev, replaced};
use super::owner::Owner;
use crate::Error;
use crate::progress::Progress;
use crate::server::Server;

/// Changes that are read at a time.
const PAGE: usize = 100;
/// Documents whose leaves are read at a time, with the contents of their attachments.
const DOCS_A_READ: usize = 20;
/// Differences and failures of one database that are named.
const NAMED_MAX: usize = 20;

/// A database whose documents are merged.
pub struct Merge<'a> {
    pub source: &'a Server,
    pub target: &'a Server,
    pub db: &'a str,
    pub into: &'a str,
    pub owner: &'a Owner,
    /// Precedes the ids of documents.
    pub prefix: &'a str,
    pub progress: &'a Progress,
}

/// The result for one database.
#[derive(Debug, Default)]
pub struct Merged {
    /// Documents of the source, without design documents.
    pub documents: u64,
    /// Design documents, which are not merged.
    pub designs: u64,
    /// Documents that could not be merged, and why.
    pub failures: Vec<String>,
    /// Leaves that the target lacks.
    pub differences: Vec<String>,
}

impl Merged {
    fn fail(&mut self, what: String) {
        if self.failures.len() < NAMED_MAX {
            self.failures.push(what);
        }
    }
}

/// The leaves of a document: its id here, and each revision there by that here.
struct Leaves {
    id: String,
    new_id: String,
    revs: BTreeMap<String, String>,
}

impl Merge<'_> {
    /// Copies what is missing, from the last checkpoint on.
    ///
    /// # Errors
    /// Errors of the servers.
    pub async fn copy(&self, done: &mut Merged) -> Result<(), Error> {
        let mark = format!("_local/merge-{}", self.db);
        let stored = match self.target.get(&[self.into, &mark], &[]).await {
            Err(e) if e.is_status(404) => json!({}),
            stored => stored?,
        };
        let mut since = stored["since"].as_str().unwrap_or("0").to_owned();
        let mut mark_rev = stored["_rev"].as_str().map(str::to_owned);
        loop {
            let page = self.page(&since).await?;
            let all = self.leaves(&page, done);
            if page.rows.is_empty() {
                return Ok(());
            }
            self.merge_all(&all, done).await?;
            since = page.last;
            if let Some(pending) = page.pending {
                self.progress.pending(self.db, pending);
                self.progress.show();
            }
            // A failed document is tried again by the next run.
            if !done.failures.is_empty() {
                continue;
            }
            let mut body = json!({"since": since});
            if let Some(rev) = &mark_rev {
                body["_rev"] = rev.as_str().into();
            }
            let put = self.target.put(&[self.into, &mark], &[], &body).await?;
            mark_rev = put["rev"].as_str().map(str::to_owned);
        }
    }

    /// Lists the leaves that the target lacks.
    ///
    /// # Errors
    /// Errors of the servers.
    pub async fn compare(&self, done: &mut Merged) -> Result<(), Error> {
        let mut since = "0".to_owned();
        (done.documents, done.designs) = (0, 0);
        loop {
            let page = self.page(&since).await?;
            let all = self.leaves(&page, done);
            if page.rows.is_empty() {
                return Ok(());
            }
            for leaves in self.missing(&all).await? {
                if done.differences.len() < NAMED_MAX {
                    done.differences
                        .push(format!("{} is missing in {}", leaves.id, self.into));
                }
            }
            since = page.last;
        }
    }

    /// Reads the changes after a seq.
    async fn page(&self, since: &str) -> Result<Page, Error> {
        let limit = PAGE.to_string();
        let query = [("style", "all_docs"), ("since", since), ("limit", &*limit)];
        let answer = self.source.get(&[self.db, "_changes"], &query).await?;
        let rows = answer["results"].as_array().cloned();
        let last = match &answer["last_seq"] {
            Value::String(seq) => seq.clone(),
            seq => seq.to_string(),
        };
        Ok(Page {
            rows: rows.unwrap_or_default(),
            last,
            pending: answer["pending"].as_u64(),
        })
    }

    /// Returns the leaves of a page's documents.
    fn leaves(&self, page: &Page, done: &mut Merged) -> Vec<Leaves> {
        let mut all = vec![];
        for row in &page.rows {
            let Some(id) = row["id"].as_str() else {
                continue;
            };
            if id.starts_with("_design/") {
                done.designs += 1;
                continue;
            }
            done.documents += 1;
            let new_id = format!("{}{id}", self.prefix);
            let changes = row["changes"].as_array().into_iter().flatten();
            let revs = changes.filter_map(|change| {
                let rev = change["rev"].as_str()?;
                Some((next_rev(&new_id, rev)?, rev.to_owned()))
            });
            all.push(Leaves {
                revs: revs.collect(),
                id: id.to_owned(),
                new_id,
            });
        }
        all
    }

    /// Returns those whose next revisions the target lacks, with these.
    async fn missing(&self, all: &[Leaves]) -> Result<Vec<Leaves>, Error> {
        let body: Map<String, Value> = all
            .iter()
            .map(|leaves| {
                let revs: Vec<&String> = leaves.revs.keys().collect();
                (leaves.new_id.clone(), json!(revs))
            })
            .collect();
        let path = [self.into, "_revs_diff"];
        let diff = self.target.post(&path, &body.into()).await?;
        let mut found = vec![];
        for leaves in all {
            let missing = diff[&leaves.new_id]["missing"].as_array();
            let missing = missing.into_iter().flatten().filter_map(Value::as_str);
            let revs: BTreeMap<String, String> = missing
                .filter_map(|rev| Some((rev.to_owned(), leaves.revs.get(rev)?.clone())))
                .collect();
            if !revs.is_empty() {
                found.push(Leaves {
                    id: leaves.id.clone(),
                    new_id: leaves.new_id.clone(),
                    revs,
                });
            }
        }
        Ok(found)
    }

    async fn merge_all(&self, all: &[Leaves], done: &mut Merged) -> Result<(), Error> {
        let mut missing = self.missing(all).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let foreign = self.foreign(&missing).await?;
        missing.retain(|leaves| {
            let is_foreign = foreign.contains(&leaves.new_id);
            if is_foreign {
                done.fail(format!(
                    "{}: {} has a document of another user with this id; merge with --prefix-ids",
                    leaves.id, self.into
                ));
            }
            !is_foreign
        });
        for some in missing.chunks(DOCS_A_READ) {
            match self.merge_some(some, done).await {
                // Long attachments: one document at a time.
                Err(Error::TooLong { .. }) if some.len() > 1 => {
                    for one in some {
                        self.merge_some(std::slice::from_ref(one), done).await?;
                    }
                }
                merged => merged?,
            }
        }
        Ok(())
    }

    /// Returns the ids of documents that the target has and that do not name the owner.
    async fn foreign(&self, all: &[Leaves]) -> Result<Vec<String>, Error> {
        let keys: Vec<&String> = all.iter().map(|leaves| &leaves.new_id).collect();
        let path = [self.into, "_all_docs"];
        let query = [("include_docs", "true")];
        let listed = self
            .target
            .post_with(&path, &query, &json!({"keys": keys}))
            .await?;
        let rows = listed["rows"].as_array().into_iter().flatten();
        let docs = rows.map(|row| &row["doc"]).filter(|doc| doc.is_object());
        let foreign = docs.filter(|doc| !self.owner.is_named_in(&doc["_access"]));
        let ids = foreign.filter_map(|doc| doc["_id"].as_str());
        Ok(ids.map(str::to_owned).collect())
    }

    /// Reads the leaves of documents, and writes their next revisions.
    async fn merge_some(&self, some: &[Leaves], done: &mut Merged) -> Result<(), Error> {
        let wanted = some.iter().flat_map(|leaves| {
            let revs = leaves.revs.values();
            revs.map(|rev| json!({"id": leaves.id, "rev": rev}))
        });
        let wanted: Vec<Value> = wanted.collect();
        let path = [self.db, "_bulk_get"];
        let query = [("revs", "true"), ("attachments", "true")];
        let found = self
            .source
            .post_with(&path, &query, &json!({"docs": wanted}))
            .await?;
        let access = self.owner.access();
        let (mut docs, mut older) = (vec![], Map::new());
        for result in found["results"].as_array().into_iter().flatten() {
            for doc in result["docs"].as_array().into_iter().flatten() {
                let Some(doc) = doc["ok"].as_object() else {
                    done.fail(format!("{}: {}", result["id"], doc["error"]["reason"]));
                    continue;
                };
                let id = doc.get("_id").and_then(Value::as_str).unwrap_or_default();
                let new_id = format!("{}{id}", self.prefix);
                if let Some(all) = older
                    .entry(new_id.clone())
                    .or_insert_with(|| json!([]))
                    .as_array_mut()
                {
                    all.extend(earlier(&new_id, doc).into_iter().map(Value::from));
                }
                docs.extend(merged(&new_id, doc.clone(), &access));
            }
        }
        self.replace_older(&older, &access, &mut docs).await?;
        let body = json!({"new_edits": false, "docs": docs});
        let refused = self.target.post(&[self.into, "_bulk_docs"], &body).await?;
        for row in refused.as_array().into_iter().flatten() {
            if row.get("error").is_some() {
                done.fail(format!("{}: {}", row["id"], row["reason"]));
            }
        }
        Ok(())
    }

    /// Adds tombstones for the revisions that an earlier run has written, of leaves edited since.
    async fn replace_older(
        &self,
        older: &Map<String, Value>,
        access: &Value,
        docs: &mut Vec<Value>,
    ) -> Result<(), Error> {
        if older.is_empty() {
            return Ok(());
        }
        let path = [self.into, "_revs_diff"];
        let body = Value::Object(older.clone());
        let diff = self.target.post(&path, &body).await?;
        for (id, revs) in older {
            let missing = diff[id]["missing"].as_array();
            let is_missing = |rev: &Value| missing.is_some_and(|all| all.contains(rev));
            let known = revs.as_array().into_iter().flatten();
            let known = known
                .filter(|rev| !is_missing(rev))
                .filter_map(Value::as_str);
            docs.extend(known.filter_map(|rev| replaced(id, rev, access)));
        }
        Ok(())
    }
}

/// A page of changes.
struct Page {
    rows: Vec<Value>,
    last: String,
    pending: Option<u64>,
}
