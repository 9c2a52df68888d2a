//! A naive model of sessions: everything that ever arrived is kept, and searched.

use std::collections::BTreeMap;

use storage::{SESSION_WINDOW, SESSIONS_MAX, Session, SlotOutcome};

#[derive(Default)]
struct Gateway {
    /// The number of its last request among the slot's.
    heard: usize,
    highest: u64,
    outcomes: BTreeMap<u64, SlotOutcome>,
}

/// A slot.
#[derive(Default)]
pub struct Model {
    requests: usize,
    gateways: BTreeMap<u64, Gateway>,
}

/// The required result of a request.
#[derive(Debug, PartialEq)]
pub enum Expected {
    Applied,
    This(SlotOutcome),
}

impl Model {
    pub fn expected(&self, session: Session) -> Expected {
        let Some(gateway) = self.gateways.get(&session.gateway) else {
            return Expected::Applied;
        };
        if session.counter + SESSION_WINDOW <= gateway.highest {
            return Expected::This(SlotOutcome::Forgotten);
        }
        match gateway.outcomes.get(&session.counter) {
            Some(outcome) => Expected::This(outcome.clone()),
            None => Expected::Applied,
        }
    }

    /// Records the result of a request.
    pub fn note(&mut self, session: Session, outcome: &SlotOutcome) {
        self.requests += 1;
        let new = !self.gateways.contains_key(&session.gateway);
        if new && self.gateways.len() as u64 == SESSIONS_MAX {
            let oldest = self.gateways.iter().min_by_key(|(_, g)| g.heard);
            let oldest = *oldest.unwrap().0;
            self.gateways.remove(&oldest);
        }
        let gateway = self.gateways.entry(session.gateway).or_default();
        gateway.heard = self.requests;
        gateway.highest = gateway.highest.max(session.counter);
        if *outcome != SlotOutcome::Forgotten {
            let outcomes = &mut gateway.outcomes;
            outcomes
                .entry(session.counter)
                .or_insert_with(|| outcome.clone());
        }
    }

    pub fn highest(&self, gateway: u64) -> Option<u64> {
        self.gateways.get(&gateway).map(|g| g.highest)
    }

    /// Returns the keys of stored outcomes that the slot must have.
    pub fn kept(&self) -> Vec<Session> {
        let mut kept = vec![];
        for (&gateway, g) in &self.gateways {
            let first = (g.highest + 1).saturating_sub(SESSION_WINDOW);
            let counters = g.outcomes.range(first..).map(|(c, _)| *c);
            kept.extend(counters.map(|counter| Session { gateway, counter }));
        }
        kept
    }
}

/// Returns the sessions whose outcomes are among the stored rows of a slot.
pub fn stored(rows: &BTreeMap<Vec<u8>, Vec<u8>>, slot: u16) -> Vec<Session> {
    let prefix = [&[b'l'][..], &slot.to_be_bytes(), b"q"].concat();
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let keys = rows.keys().filter_map(|key| key.strip_prefix(&prefix[..]));
    keys.map(|key| Session {
        gateway: number(&key[..8]),
        counter: number(&key[8..]),
    })
    .collect()
}
