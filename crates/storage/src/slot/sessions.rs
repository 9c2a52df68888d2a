//! Detects repeated requests: a gateway may send one again, and the log may contain it twice.
//!
//! For each gateway a slot keeps the highest counter and the outcomes of the counters in the window
//! below it. Requests may arrive in any order within the window. All decisions depend only on
//! earlier requests, in the log's order, so that they are the same everywhere. With more than
//! [`SESSIONS_MAX`] gateways, it evicts the least recently used one, in requests of the slot; if
//! that one sends again, it is a new one.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::pending::{Changes, Draft};
use super::rows::{self, Head, OUTCOME, PREFIX_LEN, SESSION, SessionHead};
use super::{SESSION_WINDOW, SESSIONS_MAX, Session, WorkOutcome};
use crate::Error;

/// The decision about a request.
pub(super) enum SessionVerdict {
    Apply,
    /// It was applied by an earlier write.
    Known(Vec<WorkOutcome>),
    /// It was applied as an earlier request of the same write, at this position.
    Again(usize),
    Forgotten,
}

/// A slot's sessions as they will be after a write.
pub(super) struct Sessions<'a> {
    draft: Draft<'a>,
    head: Head,
    /// Requests of this write that are to be applied and whose outcomes are to be kept, by their
    /// positions.
    fresh: FxHashMap<Session, usize>,
    /// All gateways by their last request, built when it is needed.
    by_heard: Option<BTreeMap<u64, u64>>,
}

impl<'a> Sessions<'a> {
    pub fn new(draft: Draft<'a>, head: Head) -> Sessions<'a> {
        Sessions {
            draft,
            head,
            fresh: FxHashMap::default(),
            by_heard: None,
        }
    }

    /// Takes the next request of the write, which is its `place`-th.
    pub fn next(&mut self, place: usize, session: Session) -> Result<SessionVerdict, Error> {
        self.head.requests += 1;
        let key = rows::session_key(self.draft.slot, session.gateway);
        let known = self.draft.get(&key)?;
        let known = known.map(|row| SessionHead::decode(&row)).transpose()?;
        let (fate, highest) = match known {
            None => {
                self.make_room()?;
                self.head.sessions += 1;
                (SessionVerdict::Apply, session.counter)
            }
            Some(known) if session.counter > known.highest => {
                self.move_window(session.gateway, known.highest, session.counter);
                (SessionVerdict::Apply, session.counter)
            }
            Some(known) => (self.repeat(session, known)?, known.highest),
        };
        if matches!(fate, SessionVerdict::Apply) {
            self.fresh.insert(session, place);
        }
        let heard = self.head.requests;
        if let Some(by_heard) = &mut self.by_heard {
            if let Some(known) = known {
                by_heard.remove(&known.heard);
            }
            by_heard.insert(heard, session.gateway);
        }
        let row = SessionHead { highest, heard }.encode();
        self.draft.changes.insert(key, Some(row));
        Ok(fate)
    }

    /// Handles a counter that is not above the highest so far.
    fn repeat(&self, session: Session, known: SessionHead) -> Result<SessionVerdict, Error> {
        if known.highest - session.counter >= SESSION_WINDOW {
            return Ok(SessionVerdict::Forgotten);
        }
        if let Some(&first) = self.fresh.get(&session) {
            return Ok(SessionVerdict::Again(first));
        }
        let row = self
            .draft
            .get(&rows::outcome_key(self.draft.slot, session))?;
        Ok(match row {
            Some(row) => SessionVerdict::Known(rows::decode_outcome(&row)?),
            None => SessionVerdict::Apply,
        })
    }

    /// Removes the outcomes that leave the window when the highest counter grows.
    fn move_window(&mut self, gateway: u64, from: u64, to: u64) {
        let Some(last) = to.checked_sub(SESSION_WINDOW) else {
            return;
        };
        let first = (from + 1).saturating_sub(SESSION_WINDOW);
        for counter in first..=last.min(from) {
            let session = Session { gateway, counter };
            let key = rows::outcome_key(self.draft.slot, session);
            self.fresh.remove(&session);
            self.draft.changes.insert(key, None);
        }
    }

    /// Evicts the least recently used session, if the maximum is reached.
    fn make_room(&mut self) -> Result<(), Error> {
        if self.head.sessions < SESSIONS_MAX {
            return Ok(());
        }
        let slot = self.draft.slot;
        if self.by_heard.is_none() {
            let mut all = BTreeMap::new();
            for (key, row) in self.draft.rows(&rows::key(slot, SESSION, &[]))? {
                let gateway = key[PREFIX_LEN..].try_into();
                let gateway = gateway.map_err(|_| Error::Corrupt("slot session"))?;
                let heard = SessionHead::decode(&row)?.heard;
                all.insert(heard, u64::from_be_bytes(gateway));
            }
            self.by_heard = Some(all);
        }
        let oldest = self.by_heard.as_mut().and_then(BTreeMap::pop_first);
        let Some((_, gateway)) = oldest else {
            return Err(Error::Corrupt("number of slot sessions"));
        };
        let outcomes = rows::key(slot, OUTCOME, &gateway.to_be_bytes());
        for (key, _) in self.draft.rows(&outcomes)? {
            self.draft.changes.insert(key, None);
        }
        let session = rows::session_key(slot, gateway);
        self.draft.changes.insert(session, None);
        self.fresh.retain(|fresh, _| fresh.gateway != gateway);
        self.head.sessions -= 1;
        Ok(())
    }

    /// Returns the slot's new counters, its rows except the outcomes of requests to be applied, and
    /// those of these that are to be kept.
    pub fn finish(self) -> (Head, Changes, FxHashMap<Session, usize>) {
        (self.head, self.draft.changes, self.fresh)
    }
}
