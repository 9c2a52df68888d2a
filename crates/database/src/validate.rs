//! Validation of writes: `validate_doc_update` functions and selectors, and checks of design
//! documents.

use crate::counters;
use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::Instant;

use document::attachment::write_stubs;
use document::{DocId, EditDoc, Rev, RevPath, write_json_string};
use functions::{Error as FunctionError, Place};
use parking_lot::Mutex;
use storage::Record;

use crate::Error;
use crate::database::Database;
use crate::design;
use crate::last_record::LastRecord;
use crate::long_selectors::{LongSelectors, unreadable};
use crate::read::{Read, ReadOptions, write_path};
use crate::refusals::RefusalRoom;
use crate::rows::write_members;
use crate::rules::{self, CallerContext, SystemRules};
use crate::security::SecurityObject;
use crate::turn::Turn;
use crate::update::{Caller, EditMode, Outcome};
use crate::validators::{Check, Validator, judge};

impl Database {
    /// Whether a [`Validation`] has anything to do.
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

    /// Whether the validation of these edits needs a place: functions or slow selectors must, or may
    /// have to, judge them.
    pub(crate) fn needs_place(&self, docs: &[EditDoc]) -> bool {
        let known = self.validators_found.known(self.designs_version());
        known.is_none_or(|v| v.iter().any(Validator::is_slow))
            || docs
                .iter()
                .filter_map(|d| d.id.as_ref())
                .any(DocId::is_design)
    }
}

/// Documents that functions see together, and about how many bytes of them.
const PIECE_DOCS_MAX: usize = 256;
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Longer arguments of a piece are not kept while the request waits for its next place, in bytes.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// The permit that a piece of a validation needs. It is one at a time, so that a request that waits
/// for one holds no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: what it does is short.
    Nothing,
    /// A turn among slow writes to a database with rules.
    Turn,
    /// A place for functions and slow selectors.
    Place,
}

/// The permits that a request needs for its edits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Turns: some of them are slow for the rules of the database.
    pub turns: bool,
    /// Places: functions or slow selectors may have to judge them.
    pub place: bool,
}

impl Needs {
    /// Returns what the examination of an edit before validators has to hold.
    pub fn for_edit(self, edit: &EditDoc) -> Need {
        // Functions of design documents are compiled.
        let is_design = edit.id.as_ref().is_some_and(DocId::is_design);
        match self.turns && !is_design {
            true => Need::Turn,
            false => self.for_validators(),
        }
    }

    fn for_validators(self) -> Need {
        match self.place {
            true => Need::Place,
            false => Need::Nothing,
        }
    }
}

/// The turn or the place of a piece of a validation, until it ends.
pub(crate) struct Held {
    /// The kind of the permit.
    pub what: Need,
    /// Not counted where nothing is needed.
    pub place: Place,
}

/// The validation of one request's documents.
pub(crate) struct Validation {
    db: Arc<Database>,
    validators: Arc<[Validator]>,
    mode: EditMode,
    user: Vec<u8>,
    caller: Caller,
    security: Arc<SecurityObject>,
    todo: std::vec::IntoIter<EditDoc>,
    /// The permitted edits, in their final form, and the outcomes of the others.
    done: Vec<Result<EditDoc, Outcome>>,
    /// Documents of `done` that are conflicts, which their writer may learn only when everything else allows them.
    taken: Vec<usize>,
    /// Documents of `done` that functions still have to validate.
    inputs: Vec<ValidatorInput>,
    /// The current function, and the first of `inputs` that it has not validated.
    at: (usize, usize),
    refusals: RefusalRoom,
    /// Number of further edits that may be slow for the rules, and the reason for refusing more.
    slow_left: Option<(usize, &'static str)>,
    selectors: LongSelectors,
    /// Places are also needed once it takes too long to continue without one.
    needs: Needs,
    /// Alive while the caller waits for the outcome.
    caller_waits: Weak<()>,
    /// The record of the document that was checked last in this piece.
    last: Mutex<LastRecord>,
}

/// An edit for validators.
struct ValidatorInput {
    /// Where it is in `done`.
    index: usize,
    /// For functions, `[new document, old document, user, security]`; empty when no validator is one.
    args: Vec<u8>,
    /// For selectors, `{"newDoc":…,"oldDoc":…}`; empty when no validator is one.
    pair: Vec<u8>,
}

impl Validation {
    /// Blocks.
    pub fn new(
        db: Arc<Database>,
        caller: Caller,
        docs: Vec<EditDoc>,
        mode: EditMode,
        needs: Needs,
        caller_waits: Weak<()>,
    ) -> Result<Validation, Error> {
        let security = db.security_object();
        let context = CallerContext {
            db: db.name(),
            caller: &caller,
            security: &security,
        };
        let rules = db.rules();
        let slow_left = rules.and_then(|rules| rules.slow_edits_max(&context));
        Ok(Validation {
            validators: db.validators()?,
            mode,
            user: caller.json(db.name()),
            caller,
            security,
            done: Vec::with_capacity(docs.len()),
            todo: docs.into_iter(),
            taken: vec![],
            inputs: vec![],
            at: (0, 0),
            refusals: RefusalRoom::new(),
            slow_left,
            selectors: LongSelectors::default(),
            needs,
            caller_waits,
            last: Mutex::default(),
            db,
        })
    }

    /// Continues until all is done, or others wait for what it holds, or it needs something else:
    /// returns what the rest has to hold, if work is left. Blocks: functions run.
    ///
    /// # Errors
    /// Errors of the store; the caller waits no more.
    pub fn go_on(&mut self, held: &Held) -> Result<Option<Need>, Error> {
        self.remember_inputs()?;
        let mut is_wanted = false;
        loop {
            if self.is_abandoned() {
                return Err(Error::Unavailable("the client has gone".into()));
            }
            let need = self.need();
            if need.is_none() {
                return Ok(None);
            }
            if is_wanted || need != Some(held.what) {
                self.forget_inputs();
                return Ok(need);
            }
            if self.inputs.is_empty() {
                self.gather(held, Turn::begin())?;
            } else {
                self.ask(held);
            }
            is_wanted = held.place.is_wanted();
        }
    }

    /// Returns what the next piece has to hold; `None` at the end.
    fn need(&self) -> Option<Need> {
        if !self.inputs.is_empty() {
            return Some(self.needs.for_validators());
        }
        let next = self.todo.as_slice().first();
        next.map(|edit| self.needs.for_edit(edit))
    }

    fn is_abandoned(&self) -> bool {
        self.caller_waits.strong_count() == 0
    }

    /// Drops the arguments for validators while the request waits, if they are long: stored documents
    /// are among them. Only the edits themselves have memory, as the request's body.
    fn forget_inputs(&mut self) {
        let bytes = |input: &ValidatorInput| input.args.len() + input.pair.len();
        if self.inputs.iter().map(bytes).sum::<usize>() > WAITING_BYTES_MAX {
            for input in &mut self.inputs {
                (input.args, input.pair) = (vec![], vec![]);
            }
        }
    }

    /// Makes the arguments again that were dropped.
    fn remember_inputs(&mut self) -> Result<(), Error> {
        let is_forgotten = |input: &ValidatorInput| input.args.is_empty() && input.pair.is_empty();
        if !self.inputs.iter().any(is_forgotten) {
            return Ok(());
        }
        *self.last.lock() = LastRecord::default();
        let (number, first) = self.at;
        let mut asked = 0;
        for (i, input) in std::mem::take(&mut self.inputs).into_iter().enumerate() {
            let index = input.index;
            let Ok(doc) = &self.done[index] else { continue };
            match self.before(doc)?.text() {
                // An edit took its place meanwhile.
                Err(outcome) => self.done[index] = Err(outcome),
                Ok(before) => {
                    let input = self.validator_input(index, doc, &before);
                    self.inputs.push(input);
                    asked += usize::from(i < first);
                }
            }
        }
        self.at = (number, asked);
        Ok(())
    }

    pub fn into_checked(mut self) -> Vec<Result<EditDoc, Outcome>> {
        for taken in self.taken {
            if let Some(edit @ Ok(_)) = self.done.get_mut(taken) {
                *edit = Err(Outcome::Conflict);
            }
        }
        self.done
    }

    /// Examines the next documents, as far as possible without `validate_doc_update` functions. Slow ones
    /// are examined in smaller pieces, since they are read again if others have the place meanwhile.
    fn gather(&mut self, held: &Held, mut turn: Turn) -> Result<(), Error> {
        let mut bytes = 0;
        self.at = (0, 0);
        *self.last.lock() = LastRecord::default();
        while self.inputs.len() < PIECE_DOCS_MAX && bytes < PIECE_BYTES_MAX {
            if self.is_abandoned() {
                break;
            }
            let is_for_other_piece =
                |edit: &EditDoc| self.needs.turns && self.needs.for_edit(edit) != held.what;
            if self.todo.as_slice().first().is_some_and(is_for_other_piece) {
                break;
            }
            let Some(doc) = self.todo.next() else { break };
            let is_design = doc.id.as_ref().is_some_and(DocId::is_design);
            if self.is_taken(&doc)? {
                self.taken.push(self.done.len());
            }
            let rules = self.db.rules();
            let is_slow = rules.is_some_and(|rules| rules.is_slow(&doc));
            let checked = match is_slow.then(|| self.count_slow()).flatten() {
                Some(refused) => Checked::Done(Err(refused)),
                None => self.check(&held.place, doc)?,
            };
            match checked {
                Checked::Done(outcome) => {
                    let outcome = outcome.map_err(|refused| refused.kept_in(&mut self.refusals));
                    self.done.push(outcome);
                }
                Checked::Validate(doc, before) => {
                    let input = self.validator_input(self.done.len(), &doc, &before);
                    bytes += input.args.len() + input.pair.len();
                    self.inputs.push(input);
                    self.done.push(Ok(doc));
                }
            }
            if turn.is_over(true) || (is_design || is_slow) && held.place.is_wanted() {
                break;
            }
        }
        Ok(())
    }

    /// Counts a slow edit; returns its refusal if the request has too many of them.
    fn count_slow(&mut self) -> Option<Outcome> {
        let (left, reason) = self.slow_left.as_mut()?;
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                None
            }
            None => Some(Outcome::Refused("forbidden".into(), Cow::Borrowed(*reason))),
        }
    }

    /// Calls one validator for some of the edits that none has refused yet.
    fn ask(&mut self, held: &Held) {
        let (number, first) = self.at;
        let validators = self.validators.clone();
        let Some(validator) = validators.get(number) else {
            return self.inputs.clear();
        };
        let started = Instant::now();
        let judged: Vec<Result<(), FunctionError>> = match validator.check {
            _ if first >= self.inputs.len() => vec![],
            Check::Function => call(&self.db, &held.place, validator, &self.inputs[first..]),
            Check::Selector(_) | Check::LongSelector(_) | Check::Broken(_) => {
                self.judge_some(validator, held)
            }
        };
        counters::VALIDATION_TIMES.record(started.elapsed());
        let judged_count = judged.len();
        for (input, judged) in self.inputs[first..].iter().zip(judged) {
            if let Err(e) = judged {
                counters::VALIDATION_REFUSALS.count();
                let (error, reason) = self.refusals.refused(&e);
                self.done[input.index] = Err(Outcome::Refused(error, reason));
            }
        }
        self.at.1 += judged_count;
        if self.at.1 >= self.inputs.len() {
            let done = &self.done;
            self.inputs.retain(|input| done[input.index].is_ok());
            self.at = (number + 1, 0);
        }
    }
}

/// Calls a function about the first of these edits, one at least. A language that nothing runs refuses nothing: one design
/// document of another server must not end all writes.
fn call(
    db: &Database,
    place: &Place,
    validator: &Validator,
    inputs: &[ValidatorInput],
) -> Vec<Result<(), FunctionError>> {
    let args: Vec<&[u8]> = inputs.iter().map(|a| &*a.args).collect();
    let function = match db.validating_design(validator) {
        Ok(Some(function)) => function,
        // It was deleted since the request began.
        Ok(None) => return vec![Ok(()); args.len()],
        Err(e) => return vec![Err(unreadable(&e)); args.len()],
    };
    let designs = db.languages().designs(place, &function.language);
    let replies = match designs {
        Ok(mut designs) => designs.call_some(&function, &["validate_doc_update"], &args),
        Err(FunctionError::UnknownLanguage(_)) => {
            validator.log_skipped(db.name());
            return vec![Ok(()); args.len()];
        }
        Err(e) => return vec![Err(e); args.len()],
    };
    replies.into_iter().map(allowed).collect()
}

impl Validation {
    /// Judges the first of the edits that the current validator has not judged by its selector. None
    /// if they need a place.
    fn judge_some(&mut self, validator: &Validator, held: &Held) -> Vec<Result<(), FunctionError>> {
        let inputs = &self.inputs[self.at.1..];
        let all = |judged: Result<(), FunctionError>| vec![judged; inputs.len()];
        let selector = match self
            .selectors
            .of(validator, || self.db.validating_design(validator))
        {
            Ok(Some(selector)) => selector,
            Ok(None) => return all(Ok(())),
            Err(e) => return all(Err(e)),
        };
        let is_free = held.what == Need::Nothing;
        let mut turn = Turn::begin();
        let mut judged = vec![];
        for input in inputs {
            let is_long = !selector.is_light_for(input.pair.len());
            self.needs.place |= is_free && (is_long || turn.is_over(true));
            let is_wanted = !judged.is_empty() && (held.place.is_wanted() || self.is_abandoned());
            if is_free && self.needs.place || is_wanted {
                break;
            }
            judged.push(judge(&selector, &input.pair));
        }
        judged
    }
}

/// The state of a document before validators run.
enum Checked {
    Done(Result<EditDoc, Outcome>),
    /// Validators have to run; with the old document as JSON text.
    Validate(EditDoc, Vec<u8>),
}

/// The document before an edit.
enum PriorState {
    /// It does not exist.
    Nothing,
    Was(Vec<u8>),
    /// The revision is in the tree already. As in CouchDB it is left unchanged where edits are
    /// validated: no validator decides whether an ancestor's body may be added.
    Known(Rev),
    Conflict,
}

impl PriorState {
    /// Returns the old document for validators.
    ///
    /// # Errors
    /// The outcome of an edit that they do not see. It is decided here: were it left to the commit, a
    /// revision that appears meanwhile would let the edit pass unseen.
    fn text(self) -> Result<Vec<u8>, Outcome> {
        match self {
            PriorState::Conflict => Err(Outcome::Conflict),
            PriorState::Known(rev) => Err(Outcome::Ok { rev }),
            PriorState::Nothing => Ok(b"null".to_vec()),
            PriorState::Was(json) => Ok(json),
        }
    }
}

impl Validation {
    /// The document before an edit, as far as rules or validators have to know it.
    fn before(&self, doc: &EditDoc) -> Result<PriorState, Error> {
        let Some(id) = &doc.id else {
            return Ok(PriorState::Nothing);
        };
        let has_rules = self.db.rules().is_some();
        let plain = !id.is_local() && !id.is_design();
        let nothing_matters = !has_rules && (!plain || self.validators.is_empty());
        if id.is_local() || nothing_matters || !self.may_know(id) {
            return Ok(PriorState::Nothing);
        }
        match self.mode {
            EditMode::Interactive => self.before_edit(id, doc.rev_path()),
            EditMode::Replicated => match self.before_replicated(id, doc.rev_path())? {
                // A branch without an ancestor here: for the rules it changes the document that there is.
                PriorState::Nothing if has_rules => self.winner(id),
                before => Ok(before),
            },
        }
    }

    fn check(&self, place: &Place, doc: EditDoc) -> Result<Checked, Error> {
        let Some(id) = doc.id.clone() else {
            return Ok(Checked::Done(Ok(doc)));
        };
        let rules = self.db.rules().cloned();
        let before = self.before(&doc)?;
        if let PriorState::Known(rev) = before {
            return Ok(Checked::Done(Err(Outcome::Ok { rev })));
        }
        let doc = match rules {
            None => doc,
            Some(rules) => match self.by_rules(rules.as_ref(), &before, doc) {
                Ok(doc) => doc,
                Err(refusal) => return Ok(Checked::Done(Err(refusal))),
            },
        };
        if id.is_design() {
            let checked = design::check(
                (self.db.languages().as_ref(), place),
                self.db.is_partitioned(),
                &doc.body,
            );
            return Ok(Checked::Done(match checked {
                Ok(()) => Ok(doc),
                Err((error, reason)) => Err(Outcome::Refused(error, reason.into())),
            }));
        }
        if id.is_local() || self.validators.is_empty() {
            return Ok(Checked::Done(Ok(doc)));
        }
        Ok(match before.text() {
            Ok(before) => Checked::Validate(doc, before),
            Err(outcome) => Checked::Done(Err(outcome)),
        })
    }

    /// Whether the writer may learn if there is a document of this id.
    fn may_know(&self, id: &DocId) -> bool {
        let context = self.caller_context();
        let rules = self.db.rules();
        rules.is_none_or(|rules| id.is_local() || rules.may_know(&context, id.as_str()))
    }

    /// Whether there is a document of this id, of which its writer may not learn, or the edit would be a conflict anyway.
    fn is_taken(&self, doc: &EditDoc) -> Result<bool, Error> {
        let Some(id) = doc.id.as_ref().filter(|id| !self.may_know(id)) else {
            return Ok(false);
        };
        let record = self.record(id)?;
        let winner = record.tree.winner();
        let exists = winner.is_some_and(|winner| !winner.revision.deleted);
        Ok(exists || doc.rev_path().is_some() && self.mode == EditMode::Interactive)
    }

    fn caller_context(&self) -> CallerContext<'_> {
        CallerContext {
            db: self.db.name(),
            caller: &self.caller,
            security: &self.security,
        }
    }

    fn by_rules(
        &self,
        rules: &dyn SystemRules,
        before: &PriorState,
        doc: EditDoc,
    ) -> Result<EditDoc, Outcome> {
        let context = self.caller_context();
        let before = match before {
            PriorState::Nothing | PriorState::Known(_) => rules::PriorDocument::Nothing,
            PriorState::Was(json) => rules::PriorDocument::Was(json),
            PriorState::Conflict => rules::PriorDocument::Conflict,
        };
        let doc = rules
            .before_write(&context, before, doc)
            .map_err(|refusal| Outcome::Refused(refusal.error, refusal.reason.into()))?;
        match before {
            // As below: edits that were not checked are not left to the commit.
            rules::PriorDocument::Conflict => Err(Outcome::Conflict),
            _ => Ok(doc),
        }
    }

    /// Arguments for validators of the edit of this number; `before` is the old document.
    fn validator_input(&self, index: usize, doc: &EditDoc, before: &[u8]) -> ValidatorInput {
        let room = doc.body.len() + before.len() + 256;
        let mut input = ValidatorInput {
            index,
            args: vec![],
            pair: vec![],
        };
        if self.validators.iter().any(Validator::is_function) {
            let out = &mut input.args;
            out.reserve_exact(room + self.user.len() + self.security.json().len());
            out.push(b'[');
            write_new(doc, out);
            for part in [before, &self.user, self.security.json().as_bytes()] {
                out.push(b',');
                out.extend_from_slice(part);
            }
            out.push(b']');
        }
        if !self.validators.iter().all(Validator::is_function) {
            let out = &mut input.pair;
            out.reserve_exact(room);
            out.extend_from_slice(b"{\"newDoc\":");
            write_new(doc, out);
            out.extend_from_slice(b",\"oldDoc\":");
            out.extend_from_slice(before);
            out.push(b'}');
        }
        input
    }

    fn before_edit(&self, id: &DocId, path: Option<RevPath>) -> Result<PriorState, Error> {
        let record = self.record(id)?;
        match path.and_then(|p| p.newest()) {
            Some(parent) if record.tree.is_leaf(&parent) => self.read(id, parent),
            Some(_) => Ok(PriorState::Conflict),
            None if record.tree.winner().is_some_and(|w| !w.revision.deleted) => {
                Ok(PriorState::Conflict)
            }
            None => Ok(PriorState::Nothing),
        }
    }

    /// A replicated revision is compared with its nearest ancestor that is here.
    fn before_replicated(&self, id: &DocId, path: Option<RevPath>) -> Result<PriorState, Error> {
        let Some((path, rev)) = path.and_then(|p| p.newest().map(|rev| (p, rev))) else {
            return Ok(PriorState::Nothing);
        };
        let record = self.record(id)?;
        let tree = &record.tree;
        if tree.get(&rev).is_some() {
            return Ok(PriorState::Known(rev));
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
                if let found @ PriorState::Was(_) = self.read(id, rev)? {
                    return Ok(found);
                }
            }
            break;
        }
        Ok(PriorState::Nothing)
    }

    fn winner(&self, id: &DocId) -> Result<PriorState, Error> {
        Ok(match self.db.read(id, &ReadOptions::default())? {
            Read::Found(doc) if !id.is_local() => PriorState::Was(doc.json),
            Read::Found(_) | Read::Missing | Read::Deleted => PriorState::Nothing,
        })
    }

    /// Many edits of one document in a row read its record once: nothing of the request is written meanwhile.
    fn record(&self, id: &DocId) -> Result<Arc<Record>, Error> {
        let shard = self.db.shard_for(id.as_str());
        Ok(self.last.lock().of(shard, id)?)
    }

    fn read(&self, id: &DocId, rev: Rev) -> Result<PriorState, Error> {
        let options = ReadOptions {
            rev: Some(rev),
            conflicts: false,
            ..ReadOptions::for_functions()
        };
        Ok(match self.db.read(id, &options)? {
            Read::Found(doc) => PriorState::Was(doc.json),
            // An edit took its place meanwhile.
            Read::Missing | Read::Deleted => PriorState::Conflict,
        })
    }
}

/// Writes the new document as validators see it, with the revision that it follows.
fn write_new(doc: &EditDoc, out: &mut Vec<u8>) {
    let id = doc.id.as_ref().map_or("", DocId::as_str);
    match doc.rev_path() {
        Some(path) => {
            if let Some(rev) = path.newest() {
                write_members(id, &rev, doc.deleted, &doc.body, out);
            }
            write_path(&path, None, out);
        }
        None => {
            out.extend_from_slice(b"{\"_id\":");
            write_json_string(id, out);
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
    out.push(b'}');
}

/// Returns the verdict of a function's reply.
pub(crate) fn allowed(reply: Result<Vec<u8>, FunctionError>) -> Result<(), FunctionError> {
    match reply?.as_slice() {
        b"1" | b"true" | b"\"ok\"" => Ok(()),
        other => Err(FunctionError::unknown_verdict(other)),
    }
}

#[cfg(test)]
mod tests;
