//! This node's part in the decisions about the nodes of slots: the first live node makes them, or
//! the next one if it does not, and the first live replica of a slot reports which replicas it has.
//! `slot_decisions.rs` has the rules.

use std::sync::Arc;
use std::time::Duration;

use cluster::{CONTROL, NodeId, SlotNumber};
use tokio::time::Instant;

use crate::Error;
use crate::control::entry::EntryOutcome;
use crate::control::placement_entry::PlacementChange;
use crate::control::placement_state::PlacementState;
use crate::gateway::Gateway;
use crate::placement::{PlacementNode, SlotSets};
use crate::planner::leads;
use crate::slot_decisions::{next_decision, report};

/// Interval at which nodes check whether something is to be decided or reported.
const EVERY: Duration = Duration::from_millis(500);
/// A node that has just started does not know which nodes are down.
const START_TIME: Duration = Duration::from_secs(10);
/// Nodes other than the first one decide only at one of this number of checks.
const CHECKS_OF_OTHERS: u64 = 20;
/// Maximum number of decisions, or reports, in a row: each changes a limited number of slots.
const ENTRIES_IN_A_ROW: usize = 8;

/// Decides and reports while slots have some of the nodes only, until the future is dropped.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    let mut decider = Decider {
        checks: 0,
        due_checks: 0,
        settled_for: None,
        differs_since: None,
        gateway,
    };
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(e) = decider.step().await {
            tracing::debug!(error = %e, "the nodes of slots were not decided on");
        }
    }
}

struct Decider {
    gateway: Arc<Gateway>,
    checks: u64,
    /// The number of consecutive checks, up to the last one, at which a decision was due.
    due_checks: usize,
    /// The facts at the last check that led to no decision.
    settled_for: Option<Facts>,
    /// Since when the replicas of a slot have differed from those that the cluster knows.
    differs_since: Option<Instant>,
}

/// The facts that a decision depends on.
#[derive(PartialEq, Eq)]
struct Facts {
    placement: PlacementState,
    databases: u64,
    /// Each node, whether it is up, and whether it keeps its slots.
    nodes: Vec<(NodeId, bool, bool)>,
}

impl Decider {
    async fn step(&mut self) -> Result<(), Error> {
        if !self.gateway.catalogue.is_placed() {
            (self.settled_for, self.differs_since) = (None, None);
            return Ok(());
        }
        self.checks += 1;
        for _ in 0..ENTRIES_IN_A_ROW {
            if !self.decide().await? {
                break;
            }
        }
        for _ in 0..ENTRIES_IN_A_ROW {
            if !self.report().await? {
                break;
            }
        }
        Ok(())
    }

    /// Makes a decision; returns whether another one may follow.
    async fn decide(&mut self) -> Result<bool, Error> {
        let members = &self.gateway.members;
        let rank = members.live_before_me();
        let is_turn = rank == 0 || self.checks.is_multiple_of(CHECKS_OF_OTHERS);
        if !is_turn || members.up_for() < START_TIME {
            return Ok(false);
        }
        let Some(placement) = members.placement() else {
            return Ok(false);
        };
        let nodes = members.placement_nodes();
        let facts = Facts {
            placement,
            databases: self.gateway.catalogue.database_changes(),
            nodes: nodes.iter().map(condition).collect(),
        };
        if self.settled_for.as_ref() == Some(&facts) {
            self.due_checks = 0;
            return Ok(false);
        }
        // The members may have changed since this node last read the state of the cluster.
        self.gateway.hold_control().await?;
        let slots = self.gateway.replicas.count();
        let everywhere = self.gateway.slots_everywhere();
        match next_decision(&facts.placement, &nodes, slots, &everywhere) {
            Some(change) if self.due_checks >= rank => {
                self.due_checks = 0;
                self.enter(change).await
            }
            Some(_) => {
                self.due_checks += 1;
                Ok(false)
            }
            None => {
                (self.settled_for, self.due_checks) = (Some(facts), 0);
                Ok(false)
            }
        }
    }

    /// Reports replicas of slots that the cluster does not know; returns whether others may follow.
    async fn report(&mut self) -> Result<bool, Error> {
        let members = &self.gateway.members;
        let Some(placement) = members.placement() else {
            return Ok(false);
        };
        let Some(change) = report(&placement, &self.replicas(&placement, None)) else {
            self.differs_since = None;
            return Ok(false);
        };
        let waited = self
            .differs_since
            .get_or_insert_with(Instant::now)
            .elapsed();
        // A replica that is behind may know earlier ones.
        self.gateway.fresh_slots(slots_of(&change)).await?;
        let led = self.replicas(&placement, Some(waited));
        match members
            .placement()
            .and_then(|placement| report(&placement, &led))
        {
            Some(change) => self.enter(change).await,
            None => Ok(false),
        }
    }

    /// Returns the replicas of the data slots that this node is a replica of, and that it leads
    /// after this time.
    fn replicas(&self, placement: &PlacementState, waited: Option<Duration>) -> SlotSets {
        let members = &self.gateway.members;
        let mut found = SlotSets::new();
        for (slot, replica) in self.gateway.replicas.all() {
            let status = replica.status();
            // The first node of the cluster was the only replica at the beginning.
            let is_empty = status.position.next_offset == 0 && placement.learns(members.me, slot);
            let is_known = slot != CONTROL && !is_empty && status.members.contains(&members.me);
            let is_led = || waited.is_none_or(|waited| leads(members, &status, waited));
            if is_known && status.proposes && is_led() {
                found.insert(slot, status.members.into_iter().collect());
            }
        }
        found
    }

    /// Enters a change; returns whether it was not late.
    async fn enter(&self, change: PlacementChange) -> Result<bool, Error> {
        let outcome = self.gateway.change_placement(change).await?;
        Ok(outcome == EntryOutcome::Done)
    }
}

fn condition((id, node): (&NodeId, &PlacementNode)) -> (NodeId, bool, bool) {
    (*id, node.is_up(), node.keeps_slots())
}

fn slots_of(change: &PlacementChange) -> Vec<SlotNumber> {
    match change {
        PlacementChange::Place { slots, .. } => slots.iter().map(|placed| placed.slot).collect(),
        _ => vec![],
    }
}
