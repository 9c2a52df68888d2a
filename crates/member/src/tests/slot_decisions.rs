//! A simulated cluster that places its slots by the control slot: several nodes decide at the same
//! time, from states that may be out of date. A failure prints its seed.
//!
//! The decisions and the control state are the real ones. Time passes in minutes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cluster::{NodeId, SlotNumber};
use fastrand::Rng;

use crate::control::entry::EntryOutcome;
use crate::control::placement_entry::{PlacementChange, SlotPlacement};
use crate::control::placement_state::PlacementState;
use crate::placement::{MOVES_PER_NODE, PlacementNode, PlacementNodes, REPLACED_AFTER, SlotSets};
use crate::slot_decisions::{next_decision, next_replicas, report};

const SEEDS: u64 = 100;
const SEEDS_MAX: u64 = 500;
const EVENTS: usize = 6;
const CALM_MINUTES: u64 = 2_000;
const COPY_MINUTES_MAX: u64 = 4;
/// Nodes know one of this many last states.
const STATES: usize = 4;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// A node counts whether it has learned or not.
    CountsLearner,
}

#[derive(Debug)]
struct Violation(String);

struct World {
    rng: Rng,
    mutant: Mutant,
    minute: u64,
    slots: SlotNumber,
    /// The slots that every node has.
    everywhere: BTreeSet<SlotNumber>,
    copies: u32,
    /// The zone of each node, and since when it is down.
    nodes: BTreeMap<NodeId, (u64, Option<u64>)>,
    /// The last states, the latest one last.
    states: VecDeque<Arc<PlacementState>>,
    /// The nodes that count in each slot.
    replicas: SlotSets,
    data: BTreeSet<(SlotNumber, NodeId)>,
    /// When each copy will be complete.
    copies_until: BTreeMap<(SlotNumber, NodeId), u64>,
    late: u64,
}

impl World {
    fn new(seed: u64, mutant: Mutant) -> World {
        let mut rng = Rng::with_seed(seed);
        let zones = rng.u64(1..=4);
        let nodes = (1..=rng.u64(5..=10)).map(|id| (id, (id % zones, None)));
        let nodes: BTreeMap<NodeId, (u64, Option<u64>)> = nodes.collect();
        let slots = rng.u16(2..=24);
        let all: BTreeSet<NodeId> = nodes.keys().copied().collect();
        let replicas: SlotSets = (0..slots).map(|slot| (slot, all.clone())).collect();
        let data = replicas.iter();
        let data = data.flat_map(|(slot, set)| set.iter().map(move |node| (*slot, *node)));
        World {
            rng,
            mutant,
            minute: 0,
            slots,
            everywhere: (0..slots).filter(|slot| slot % 8 == 3).collect(),
            copies: 3,
            data: data.collect(),
            nodes,
            states: [Arc::default()].into(),
            replicas,
            copies_until: BTreeMap::new(),
            late: 0,
        }
    }

    fn state(&self) -> &PlacementState {
        self.states.back().unwrap()
    }

    /// Returns a state that a node may know.
    fn known_state(&mut self) -> Arc<PlacementState> {
        let last = self.states.len() - 1;
        let back = self.rng.usize(..STATES).min(last);
        let back = if self.rng.bool() { 0 } else { back };
        self.states[last - back].clone()
    }

    fn enter(&mut self, change: PlacementChange) -> Result<(), Violation> {
        let members: Vec<NodeId> = self.nodes.keys().copied().collect();
        let mut state = self.state().clone();
        match state.change(change, &members) {
            Ok(_) => self.states.push_back(Arc::new(state)),
            Err(EntryOutcome::Exists) => self.late += 1,
            Err(other) => return Err(Violation(format!("an entry is {other:?}"))),
        }
        if self.states.len() > STATES {
            self.states.pop_front();
        }
        self.check_copies()
    }

    /// Checks that no node copies too many slots from others.
    fn check_copies(&self) -> Result<(), Violation> {
        let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (slot, of) in &self.state().slots {
            let replicas = &self.replicas[slot];
            let copies = of.learners.iter().filter(|learner| {
                !self.data.contains(&(*slot, learner.node))
                    && !replicas.contains(&learner.node)
                    && self.is_up(learner.node)
            });
            for learner in copies {
                *counts.entry(learner.node).or_default() += 1;
            }
        }
        match counts.iter().find(|(_, count)| **count > MOVES_PER_NODE) {
            Some((node, count)) => Err(Violation(format!("{node} copies {count} slots"))),
            None => Ok(()),
        }
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.nodes[&node].1.is_none()
    }

    fn view(&self) -> PlacementNodes {
        let state = self.state();
        let of = |(id, (zone, down)): (&NodeId, &(u64, Option<u64>))| {
            let down_for = down.map(|since| Duration::from_mins(self.minute - since));
            let node = PlacementNode {
                zone: zone.to_string(),
                is_draining: state.is_draining(*id),
                down_for,
            };
            (*id, node)
        };
        self.nodes.iter().map(of).collect()
    }

    /// Passes a minute.
    fn step(&mut self) -> Result<(), Violation> {
        self.minute += 1;
        let nodes = self.view();
        // For a moment two nodes may take themselves for the first one.
        for _ in 0..self.rng.u32(1..=2) {
            let known = self.known_state();
            if let Some(change) = next_decision(&known, &nodes, self.slots, &self.everywhere) {
                self.enter(change)?;
            }
        }
        for slot in 0..self.slots {
            self.change_replicas(slot, &nodes)?;
        }
        // Each of some nodes reports the slots that it knows.
        for _ in 0..self.rng.u32(1..=3) {
            let known = self.known_state();
            let mut some = self.replicas.clone();
            some.retain(|_, _| self.rng.bool());
            if let Some(change) = report(&known, &some) {
                self.enter(change)?;
            }
        }
        self.copy();
        Ok(())
    }

    fn change_replicas(
        &mut self,
        slot: SlotNumber,
        nodes: &PlacementNodes,
    ) -> Result<(), Violation> {
        let known = self.known_state();
        let before = self.replicas[&slot].clone();
        let has_learned = |node| match self.mutant {
            Mutant::CountsLearner => true,
            _ => self.data.contains(&(slot, node)),
        };
        let Some(next) = next_replicas(&known, nodes, slot, &before, has_learned) else {
            return Ok(());
        };
        let with_data = next
            .iter()
            .filter(|id| self.is_up(**id) && self.data.contains(&(slot, **id)));
        if 2 * with_data.count() <= next.len() {
            return Err(Violation(format!(
                "no majority has the data: {before:?} to {next:?}"
            )));
        }
        if next.len() < self.copies as usize {
            return Err(Violation(format!("slot {slot} has only {next:?}")));
        }
        if before.len().abs_diff(next.len()) != 1 {
            return Err(Violation(format!("not one node: {before:?} to {next:?}")));
        }
        self.replicas.insert(slot, next);
        Ok(())
    }

    fn copy(&mut self) {
        let mut learning = BTreeSet::new();
        for (slot, of) in &self.state().slots {
            learning.extend(of.learners.iter().map(|learner| (*slot, learner.node)));
        }
        self.copies_until.retain(|copy, _| learning.contains(copy));
        for (slot, node) in learning {
            let minutes = self.rng.u64(1..=COPY_MINUTES_MAX);
            let until = self.minute + minutes;
            let until = *self.copies_until.entry((slot, node)).or_insert(until);
            if until <= self.minute && self.is_up(node) {
                self.data.insert((slot, node));
            }
        }
    }

    fn is_calm(&self) -> bool {
        let is_done = |(slot, of): (&SlotNumber, &SlotPlacement)| {
            let replicas = &self.replicas[slot];
            of.wanted == *replicas && of.replicas == *replicas && of.learners.is_empty()
        };
        let slots = &self.state().slots;
        slots.len() == usize::from(self.slots) && slots.iter().all(is_done)
    }

    fn settle(&mut self) -> Result<(), Violation> {
        let end = self.minute + CALM_MINUTES;
        // After a death the nodes have some minutes to notice it.
        let least = self.minute + REPLACED_AFTER.as_secs() / 60 + 30;
        while self.minute < end {
            self.step()?;
            if self.minute > least && self.is_calm() {
                // Nodes drop the slots that they left an hour later.
                let replicas = &self.replicas;
                self.data
                    .retain(|(slot, node)| replicas[slot].contains(node));
                return Ok(());
            }
        }
        Err(Violation(format!("no progress: {:?}", self.state())))
    }

    fn event(&mut self) -> Result<(), Violation> {
        let state = self.state();
        let keeps = |id: &NodeId| self.is_up(*id) && !state.is_draining(*id);
        let keeping: Vec<NodeId> = self.nodes.keys().copied().filter(keeps).collect();
        let may_lose = keeping.len() > self.copies as usize;
        let node = self.rng.choice(keeping).unwrap();
        match self.rng.u32(..4) {
            0 if may_lose => {
                let minute = self.minute;
                self.nodes.get_mut(&node).unwrap().1 = Some(minute);
                Ok(())
            }
            1 if may_lose => self.enter(PlacementChange::Drain { node }),
            2 => {
                // All that died come back, with the data that they had.
                self.nodes.values_mut().for_each(|of| of.1 = None);
                Ok(())
            }
            _ => {
                let id = self.nodes.keys().max().unwrap() + 1;
                let zone = self.rng.u64(..4);
                self.nodes.insert(id, (zone, None));
                Ok(())
            }
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        let copies = Some(self.copies);
        self.enter(PlacementChange::Copies { copies })?;
        self.settle()?;
        for _ in 0..EVENTS {
            self.event()?;
            self.settle()?;
        }
        Ok(())
    }
}

fn run(seed: u64, mutant: Mutant) -> Result<World, Violation> {
    let mut world = World::new(seed, mutant);
    world.run().map(|()| world)
}

#[test]
fn slots_move_safely_whatever_state_a_node_knows() {
    let mut late = 0;
    for seed in 0..SEEDS {
        match run(seed, Mutant::None) {
            Ok(world) => late += world.late,
            Err(Violation(what)) => panic!("seed {seed}: {what}"),
        }
    }
    println!("{SEEDS} seeds: {late} decisions were late");
    assert!(late > SEEDS, "{late} decisions were late");
}

#[test]
fn counting_a_node_before_it_has_learned_is_noticed() {
    let is_noticed = |seed: &u64| {
        let broken = run(*seed, Mutant::CountsLearner).err();
        broken.is_some_and(|Violation(what)| what.contains("no majority has the data"))
    };
    let seed = (0..SEEDS_MAX).find(is_noticed);
    println!("counts a learner: noticed by seed {seed:?}");
    assert!(seed.is_some(), "it is not noticed");
}

#[test]
fn nothing_is_decided_while_every_node_has_every_slot() {
    let node = PlacementNode::default();
    let nodes: PlacementNodes = (1..=5).map(|id| (id, node.clone())).collect();
    let mut state = PlacementState::default();
    let everywhere = BTreeSet::from([3, 4]);
    assert_eq!(next_decision(&state, &nodes, 16, &everywhere), None);
    let copies = PlacementChange::Copies { copies: Some(3) };
    assert!(state.change(copies, &[1, 2, 3, 4, 5]).is_ok());
    let first = next_decision(&state, &nodes, 16, &everywhere);
    let Some(PlacementChange::Place { slots, decision }) = first else {
        panic!("nothing is decided");
    };
    assert_eq!((slots.len(), decision), (16, 1));
    for slot in slots {
        let copies = match everywhere.contains(&slot.slot) {
            true => 5,
            false => 3,
        };
        assert_eq!(slot.placement.wanted.len(), copies);
        assert_eq!(slot.placement.replicas.len(), 5);
        assert!(slot.placement.learners.is_empty());
    }
}
