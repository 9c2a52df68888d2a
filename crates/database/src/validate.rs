//! Who may write what: `validate_doc_update` functions, and checks of design documents.

use std::sync::Arc;

use document::attachment::write_stubs;
use document::{DocId, EditDoc, Rev, RevPath, write_json_string};
use functions::{DesignDoc, Error as FunctionError};
use parking_lot::RwLock;
use storage::Record;

use crate::Error;
use crate::database::Database;
use crate::design;
use crate::read::{Read, ReadOptions, write_path};
use crate::rows::write_members;
use crate::rules::{self, Asked, SystemRules};
use crate::update::{Caller, EditMode, Outcome};

/// The design documents that validate, and the version of all design documents that they were found at.
#[derive(Default)]
pub(crate) struct Validators(RwLock<Option<(u64, Arc<[DesignDoc]>)>>);

impl Validators {
    /// `None` when design documents have changed since, or were never looked at.
    fn known(&self, version: u64) -> Option<Arc<[DesignDoc]>> {
        let known = self.0.read();
        let (of, validators) = known.as_ref()?;
        (*of == version).then(|| validators.clone())
    }
}

impl Database {
    /// Whether [`Database::validate`] has anything to do.
    pub(crate) fn needs_validation(&self, docs: &[EditDoc]) -> bool {
        let is_plain = |id: &DocId| !id.is_design() && !id.is_local();
        let ids = || docs.iter().filter_map(|d| d.id.as_ref());
        self.rules().is_some()
            || ids().any(DocId::is_design)
            || ids().any(is_plain)
                && self
                    .validators_found
                    .known(self.designs_version())
                    .is_none_or(|v| !v.is_empty())
    }

    fn validators(&self) -> Result<Arc<[DesignDoc]>, Error> {
        // Read before the documents: what changes while they are read is found at the next write.
        let version = self.designs_version();
        if let Some(known) = self.validators_found.known(version) {
            return Ok(known);
        }
        let found: Arc<[DesignDoc]> = self.validating_design_docs()?.into();
        *self.validators_found.0.write() = Some((version, found.clone()));
        Ok(found)
    }

    /// The edits that may be made, as they are to be made, and what becomes of the others. Blocks: functions run.
    pub(crate) fn validate(
        &self,
        caller: &Caller,
        docs: Vec<EditDoc>,
        mode: EditMode,
    ) -> Result<Vec<Result<EditDoc, Outcome>>, Error> {
        let validators = self.validators()?;
        let mut call = Validation {
            db: self,
            validators: &validators,
            mode,
            user: caller.json(self.name()),
            caller,
            security: self.security(),
            args: vec![],
        };
        docs.into_iter().map(|doc| call.check(doc)).collect()
    }
}

/// The validation of one request's documents.
struct Validation<'a> {
    db: &'a Database,
    validators: &'a [DesignDoc],
    mode: EditMode,
    user: Vec<u8>,
    caller: &'a Caller,
    security: Arc<str>,
    args: Vec<u8>,
}

/// The document as it was before an edit.
enum Before {
    /// There is none.
    Nothing,
    Was(Vec<u8>),
    /// The edit will change nothing, because it is known.
    Known,
    Conflict,
}

impl Validation<'_> {
    fn check(&mut self, doc: EditDoc) -> Result<Result<EditDoc, Outcome>, Error> {
        let Some(id) = doc.id.clone() else {
            return Ok(Ok(doc));
        };
        let rules = self.db.rules().cloned();
        let plain = !id.is_local() && !id.is_design();
        let before = if id.is_local() || rules.is_none() && (!plain || self.validators.is_empty()) {
            Before::Nothing
        } else {
            match self.mode {
                EditMode::Interactive => self.before_edit(&id, doc.rev_path())?,
                EditMode::Replicated => self.before_replicated(&id, doc.rev_path())?,
            }
        };
        let before = match (before, &rules) {
            // A branch without an ancestor here: for the rules it changes the document that there is.
            (Before::Nothing, Some(_)) if self.mode == EditMode::Replicated => self.winner(&id)?,
            (before, _) => before,
        };
        if matches!(before, Before::Known) {
            return Ok(Ok(doc));
        }
        let doc = match rules {
            None => doc,
            Some(rules) => match self.by_rules(rules.as_ref(), &before, doc) {
                Ok(doc) => doc,
                Err(refusal) => return Ok(Err(refusal)),
            },
        };
        if id.is_design() {
            let checked = design::check(
                self.db.languages().as_ref(),
                self.db.is_partitioned(),
                &doc.body,
            );
            return Ok(match checked {
                Ok(()) => Ok(doc),
                Err((error, reason)) => Err(Outcome::Refused(error, reason)),
            });
        }
        if id.is_local() || self.validators.is_empty() {
            return Ok(Ok(doc));
        }
        let before = match before {
            // Decided here: were it left to the commit, a revision that appears meanwhile would let the edit pass unseen.
            Before::Conflict => return Ok(Err(Outcome::Conflict)),
            Before::Nothing | Before::Known => b"null".to_vec(),
            Before::Was(json) => json,
        };
        self.write_args(&id, &doc, &before);
        for validator in self.validators {
            if let Err(e) = self.call(validator) {
                return Ok(Err(refused(e)));
            }
        }
        Ok(Ok(doc))
    }

    fn by_rules(
        &self,
        rules: &dyn SystemRules,
        before: &Before,
        doc: EditDoc,
    ) -> Result<EditDoc, Outcome> {
        let asked = Asked {
            db: self.db.name(),
            caller: self.caller,
            security: &self.security,
        };
        let before = match before {
            Before::Nothing | Before::Known => rules::Before::Nothing,
            Before::Was(json) => rules::Before::Was(json),
            Before::Conflict => rules::Before::Conflict,
        };
        let doc = rules
            .before_write(&asked, before, doc)
            .map_err(|refusal| Outcome::Refused(refusal.error, refusal.reason))?;
        match before {
            // As below: what was not checked is not left to the commit.
            rules::Before::Conflict => Err(Outcome::Conflict),
            _ => Ok(doc),
        }
    }

    fn call(&self, validator: &DesignDoc) -> Result<(), FunctionError> {
        let mut designs = self.db.languages().designs(&validator.language)?;
        let reply = designs.call(validator, &["validate_doc_update"], &self.args)?;
        match reply.as_slice() {
            b"1" | b"true" | b"\"ok\"" => Ok(()),
            other => Err(FunctionError::Thrown {
                name: "unknown_error".to_owned(),
                reason: String::from_utf8_lossy(other).into_owned(),
            }),
        }
    }

    /// `[new document, old document, user, security]`
    fn write_args(&mut self, id: &DocId, doc: &EditDoc, before: &[u8]) {
        let out = &mut self.args;
        out.clear();
        out.push(b'[');
        match doc.rev_path() {
            Some(path) => {
                if let Some(rev) = path.newest() {
                    write_members(id.as_str(), &rev, doc.deleted, &doc.body, out);
                }
                write_path(&path, None, out);
            }
            None => {
                out.extend_from_slice(b"{\"_id\":");
                write_json_string(id.as_str(), out);
                let body = doc.body.strip_prefix(b"{");
                let members = body.and_then(|b| b.strip_suffix(b"}")).unwrap_or_default();
                if !members.is_empty() {
                    out.push(b',');
                    out.extend_from_slice(members);
                }
                if doc.deleted {
                    out.extend_from_slice(b",\"_deleted\":true");
                }
            }
        }
        write_stubs(&doc.files, out);
        out.extend_from_slice(b"},");
        out.extend_from_slice(before);
        out.push(b',');
        out.extend_from_slice(&self.user);
        out.push(b',');
        out.extend_from_slice(self.security.as_bytes());
        out.push(b']');
    }

    fn before_edit(&self, id: &DocId, path: Option<RevPath>) -> Result<Before, Error> {
        let record = self.record(id)?;
        match path.and_then(|p| p.newest()) {
            Some(parent) if record.tree.is_leaf(&parent) => self.read(id, parent),
            Some(_) => Ok(Before::Conflict),
            None if record.tree.winner().is_some_and(|w| !w.revision.deleted) => {
                Ok(Before::Conflict)
            }
            None => Ok(Before::Nothing),
        }
    }

    /// A replicated revision is compared with its nearest ancestor that is here.
    fn before_replicated(&self, id: &DocId, path: Option<RevPath>) -> Result<Before, Error> {
        let Some((path, rev)) = path.and_then(|p| p.newest().map(|rev| (p, rev))) else {
            return Ok(Before::Nothing);
        };
        let tree = self.record(id)?.tree;
        if tree.get(&rev).is_some() {
            return Ok(Before::Known);
        }
        let generations = (0..=path.start).rev().skip(1);
        let ancestors = path.ids.iter().skip(1).zip(generations);
        for (hash, generation) in ancestors {
            let ancestor = Rev {
                generation,
                hash: hash.clone(),
            };
            let Some(known) = tree.path_revisions(&ancestor) else {
                continue;
            };
            for (rev, _) in known.into_iter().filter(|(_, revision)| revision.is_some()) {
                if let found @ Before::Was(_) = self.read(id, rev)? {
                    return Ok(found);
                }
            }
            break;
        }
        Ok(Before::Nothing)
    }

    fn winner(&self, id: &DocId) -> Result<Before, Error> {
        Ok(match self.db.read(id, &ReadOptions::default())? {
            Read::Found(doc) if !id.is_local() => Before::Was(doc.json),
            Read::Found(_) | Read::Missing | Read::Deleted => Before::Nothing,
        })
    }

    fn record(&self, id: &DocId) -> Result<Record, Error> {
        let shard = self.db.shard_for(id.as_str());
        Ok(shard.record(id.as_str())?.unwrap_or_default())
    }

    fn read(&self, id: &DocId, rev: Rev) -> Result<Before, Error> {
        let options = ReadOptions {
            rev: Some(rev),
            conflicts: false,
            ..ReadOptions::for_functions()
        };
        Ok(match self.db.read(id, &options)? {
            Read::Found(doc) => Before::Was(doc.json),
            // An edit took its place meanwhile.
            Read::Missing | Read::Deleted => Before::Conflict,
        })
    }
}

fn refused(e: FunctionError) -> Outcome {
    Outcome::Refused(e.name().to_owned().into(), e.reason())
}
