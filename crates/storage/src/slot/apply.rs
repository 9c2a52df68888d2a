//! One write of a slot: its checks, then its requests in order.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use document::DocId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::pending::{Changes, Draft, Pending};
use super::rows::{self, HEAD, Head, STATE};
use super::sessions::{SessionVerdict, Sessions};
use super::{Session, SlotNumber, SlotOutcome, SlotRequest, SlotWork, SlotWrite, WorkOutcome};
use crate::Error;
use crate::batch::Batch;
use crate::commit::ShardEdit;
use crate::keys::ShardNumber;
use crate::shard::Shard;

/// The effect of a write that passed its checks.
pub(crate) struct Plan {
    fates: Vec<SessionVerdict>,
    /// Rows of the slot, except new outcomes.
    changes: Changes,
    /// Requests whose outcomes are to be kept, by their positions.
    kept: FxHashMap<Session, usize>,
    /// Shards that the slot writes to for the first time.
    new_shards: Vec<Arc<Shard>>,
}

impl Pending {
    /// Decides whether a write can be applied, and how. Nothing is done yet: a write that fails
    /// here leaves no trace in the batch. `written` returns whether earlier operations of the batch
    /// wrote something to a shard that the batch does not know.
    pub(crate) fn plan(
        &self,
        batch: &mut Batch<'_>,
        write: &SlotWrite,
        written: impl Fn(ShardNumber) -> bool,
    ) -> Result<Plan, Error> {
        let slot = write.slot;
        let draft = Draft::new(self, slot);
        let head_key = rows::key(slot, HEAD, &[]);
        let head = draft.get(&head_key)?;
        let head = head.map(|row| Head::decode(&row)).transpose()?;
        let stored = head.map(|head| head.position);
        if stored != write.from {
            return Err(Error::SlotPosition {
                slot,
                stored: stored.map(Box::new),
                from: write.from.map(Box::new),
            });
        }
        let mut sessions = Sessions::new(draft, head.unwrap_or_default());
        let requests = write.requests.iter().enumerate();
        let fates = requests.map(|(i, request)| sessions.next(i, request.session));
        let fates: Vec<SessionVerdict> = fates.collect::<Result<_, _>>()?;
        let applied = write.requests.iter().zip(&fates);
        let applied = applied.filter(|(_, fate)| matches!(fate, SessionVerdict::Apply));
        let applied: Vec<&SlotRequest> = applied.map(|(request, _)| request).collect();
        let new_shards = check(batch, applied.iter().copied(), written)?;
        refuse_missing(batch, slot, &applied)?;
        let (mut head, mut changes, kept) = sessions.finish();
        // A position that goes back would apply records twice.
        debug_assert!(
            write.from.is_none_or(|from| {
                from.generation != write.to.generation || from.next_offset <= write.to.next_offset
            }),
            "a slot's position only advances"
        );
        head.position = write.to;
        changes.insert(head_key, Some(head.encode()));
        for (key, value) in &write.state {
            changes.insert(rows::key(slot, STATE, key), value.clone());
        }
        Ok(Plan {
            fates,
            changes,
            kept,
            new_shards,
        })
    }

    /// Applies a write as it was planned, with nothing in between. An error fails the whole batch.
    pub(crate) fn apply<'e>(
        &mut self,
        batch: &mut Batch<'e>,
        write: &'e SlotWrite,
        plan: Plan,
    ) -> Result<Vec<SlotOutcome>, Error> {
        for shard in &plan.new_shards {
            batch.begin_digest(shard)?;
        }
        let mut changes = plan.changes;
        let mut outcomes: Vec<SlotOutcome> = Vec::with_capacity(plan.fates.len());
        for (place, (request, fate)) in write.requests.iter().zip(plan.fates).enumerate() {
            outcomes.push(match fate {
                SessionVerdict::Apply => {
                    let work = request.work.iter().map(|work| do_work(batch, work));
                    let done = work.collect::<Result<Vec<_>, _>>()?;
                    // It may have left the window since, or its gateway may have been forgotten.
                    if plan.kept.get(&request.session) == Some(&place) {
                        let key = rows::outcome_key(write.slot, request.session);
                        changes.insert(key, Some(rows::encode_outcome(&done)));
                    }
                    SlotOutcome::Done(done)
                }
                SessionVerdict::Known(done) => SlotOutcome::Done(done),
                SessionVerdict::Again(first) => outcomes[first].clone(),
                SessionVerdict::Forgotten => SlotOutcome::Forgotten,
            });
        }
        self.add(changes);
        Ok(outcomes)
    }
}

fn do_work<'e>(batch: &mut Batch<'e>, work: &'e SlotWork) -> Result<WorkOutcome, Error> {
    Ok(match work {
        SlotWork::Edits { edits, limits } => {
            let edits = edits.iter().map(|e| batch.edit(&e.shard, &e.edit, limits));
            WorkOutcome::Edits(edits.collect::<Result<_, _>>()?)
        }
        SlotWork::Purges { purges, limits } => {
            let purges = purges.iter().map(|p| batch.purge(p, limits));
            WorkOutcome::Purges(purges.collect::<Result<_, _>>()?)
        }
        SlotWork::Refused(code) => WorkOutcome::Refused(*code),
    })
}

/// Checks whether this machine can apply the requests. Returns the shards that no slot has written
/// to yet.
fn check<'w>(
    batch: &mut Batch<'_>,
    requests: impl Iterator<Item = &'w SlotRequest>,
    written: impl Fn(ShardNumber) -> bool,
) -> Result<Vec<Arc<Shard>>, Error> {
    let mut seen = FxHashSet::default();
    let mut new_shards = vec![];
    let mut check = |batch: &mut Batch<'_>, shard: &Arc<Shard>, id: &DocId, is_local: bool| {
        if seen.insert(shard.number) {
            if shard.dropped.load(Relaxed) {
                return Err(Error::Dropped);
            }
            if !batch.has_digest(shard)? {
                if written(shard.number) || !batch.is_empty_shard(shard)? {
                    return Err(Error::NotOfSlot(shard.number));
                }
                new_shards.push(shard.clone());
            }
        }
        if is_local {
            // Its contribution to the digest is read now, while the write can still be refused.
            return batch.local_share(shard, id).map(drop);
        }
        batch.unreadable(shard, id).map_or(Ok(()), Err)
    };
    for work in requests.flat_map(|request| &request.work) {
        match work {
            SlotWork::Edits { edits, .. } => {
                for e in edits {
                    check(batch, &e.shard, &e.edit.id, e.is_local())?;
                }
            }
            SlotWork::Purges { purges, .. } => {
                for p in purges {
                    check(batch, &p.shard, &p.id, false)?;
                }
            }
            SlotWork::Refused(_) => {}
        }
    }
    Ok(new_shards)
}

/// Refuses edits that would reference contents which are not here. Edits without effect may name
/// such contents: other replicas may have removed them since.
fn refuse_missing(
    batch: &Batch<'_>,
    slot: SlotNumber,
    requests: &[&SlotRequest],
) -> Result<(), Error> {
    let edits = || {
        let work = requests.iter().flat_map(|request| &request.work);
        work.flat_map(|work| match work {
            SlotWork::Edits { edits, .. } => &edits[..],
            SlotWork::Purges { .. } | SlotWork::Refused(_) => &[],
        })
    };
    let missing_in = |edit: &ShardEdit| {
        let mut files = edit.edit.files.iter();
        let missing = files.find(|file| file.content.is_none());
        missing.map(|file| file.attachment.content)
    };
    if edits().all(|edit| missing_in(edit).is_none()) {
        return Ok(());
    }
    let changed_again = changed_again(requests);
    for edit in edits() {
        let Some(content) = missing_in(edit) else {
            continue;
        };
        // The tree may be another one when its turn comes: an edit may add what it continues, and a
        // purge may remove what makes it a conflict or a repeat.
        let is_changed_again = changed_again.contains(&(edit.shard.number, &edit.edit.id));
        if is_changed_again || batch.may_add(&edit.shard, &edit.edit) {
            return Err(Error::MissingContent { slot, content });
        }
    }
    Ok(())
}

/// Returns the documents that more than one edit or purge of these requests is about.
fn changed_again<'w>(requests: &[&'w SlotRequest]) -> FxHashSet<(ShardNumber, &'w DocId)> {
    let (mut once, mut again) = (FxHashSet::default(), FxHashSet::default());
    let mut note = |shard: &Arc<Shard>, id: &'w DocId| {
        if !once.insert((shard.number, id)) {
            again.insert((shard.number, id));
        }
    };
    for request in requests {
        for work in &request.work {
            match work {
                SlotWork::Edits { edits, .. } => {
                    edits.iter().for_each(|e| note(&e.shard, &e.edit.id));
                }
                SlotWork::Purges { purges, .. } => {
                    purges.iter().for_each(|p| note(&p.shard, &p.id));
                }
                SlotWork::Refused(_) => {}
            }
        }
    }
    again
}
