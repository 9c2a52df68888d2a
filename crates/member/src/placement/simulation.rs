//! A simulated cluster whose nodes die, come back, join and are drained, while slots move. A
//! failure prints its seed; `SETTEE_SEED` repeats it, `SETTEE_PLACEMENT_SEEDS` sets the number of
//! seeds.
//!
//! The decisions are the real ones. Time passes in minutes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{NodeId, SlotNumber};
use fastrand::Rng;

use super::limits::{SlotRange, slot_ranges};
use super::moves::{Learner, MOVES_PER_NODE, Move, MoveRules, SlotReplicas, next_moves};
use super::nodes::{PlacementNode, PlacementNodes};
use super::wanted::{SlotSets, wanted_sets};

/// Seeds in short runs. A hundred nodes take longer than a few.
const SMALL_SEEDS: u64 = 300;
const LARGE_SEEDS: u64 = 8;
/// A rule that is left out is noticed within this number of seeds.
const SEEDS_MAX: u64 = 100;
/// Events of a run.
const EVENTS: usize = 8;
/// Minutes within which all replicas are where they should be after an event.
const CALM_MINUTES: u64 = 3_000;
/// A copy of a slot takes at most this number of minutes.
const COPY_MINUTES_MAX: u64 = 4;
/// A node that comes back is down for at most this number of minutes.
const BREAK_MINUTES_MAX: u64 = 80;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// A node counts before it has learned.
    CountsLearner,
    /// A replica is removed before another one is added.
    RemovesFirst,
    /// Nodes copy any number of slots at a time.
    Unlimited,
    /// Zones are ignored.
    NoZones,
    /// Where replicas are does not matter for where they should be.
    FromScratch,
}

#[derive(Debug)]
struct Violation(String);

/// The parts of a new cluster.
#[derive(Clone, Copy)]
struct Size {
    slots: SlotNumber,
    nodes: u64,
    zones: u64,
    copies: usize,
    /// Every node has all slots at first, as in clusters from before placement.
    is_everywhere: bool,
}

struct World {
    rng: Rng,
    mutant: Mutant,
    size: Size,
    minute: u64,
    nodes: BTreeMap<NodeId, Node>,
    slots: BTreeMap<SlotNumber, SlotReplicas>,
    /// The nodes that have the data of each slot.
    data: BTreeSet<(SlotNumber, NodeId)>,
    /// When each copy will be complete.
    copies: BTreeMap<(SlotNumber, NodeId), u64>,
    /// Which nodes keep slots, and may get some, at the last plan.
    planned_for: Vec<(NodeId, bool, bool)>,
    next_node: NodeId,
    plans: u64,
    moves: u64,
    moves_min: u64,
}

#[derive(Clone)]
struct Node {
    zone: u64,
    is_draining: bool,
    down_since: Option<u64>,
    /// `None` for one that never comes back.
    back_at: Option<u64>,
}

impl Node {
    fn new(zone: u64) -> Node {
        Node {
            zone,
            is_draining: false,
            down_since: None,
            back_at: None,
        }
    }
}

impl World {
    fn new(seed: u64, size: Size, mutant: Mutant) -> World {
        let mut world = World {
            rng: Rng::with_seed(seed),
            mutant,
            size,
            minute: 0,
            nodes: BTreeMap::new(),
            slots: BTreeMap::new(),
            data: BTreeSet::new(),
            copies: BTreeMap::new(),
            planned_for: vec![],
            next_node: 1,
            plans: 0,
            moves: 0,
            moves_min: 0,
        };
        for node in 0..size.nodes {
            world.join(node % size.zones);
        }
        let all: BTreeSet<NodeId> = world.nodes.keys().copied().collect();
        let first = match size.is_everywhere {
            true => all,
            false => BTreeSet::new(),
        };
        let before: SlotSets = (0..size.slots).map(|slot| (slot, first.clone())).collect();
        let nodes = world.view();
        let wanted = wanted_sets(&before, &nodes, Some(size.copies));
        for (slot, wanted) in wanted {
            let replicas = match size.is_everywhere {
                true => first.clone(),
                false => wanted.clone(),
            };
            let with_data = replicas.iter().map(|node| (slot, *node));
            world.data.extend(with_data);
            let learners = BTreeMap::new();
            let of_slot = SlotReplicas {
                wanted,
                replicas,
                learners,
            };
            world.slots.insert(slot, of_slot);
        }
        world.planned_for = signature(&nodes);
        world
    }

    fn join(&mut self, zone: u64) {
        // Numbers of nodes are random.
        let node = self.next_node.wrapping_mul(2_654_435_761) % (1 << 32);
        self.next_node += 1;
        self.nodes.insert(node, Node::new(zone));
    }

    /// Returns the nodes as a planner sees them.
    fn view(&self) -> PlacementNodes {
        let of = |node: &Node| PlacementNode {
            zone: format!("zone-{}", node.zone),
            is_draining: node.is_draining,
            down_for: (node.down_since).map(|since| Duration::from_mins(self.minute - since)),
        };
        self.nodes
            .iter()
            .map(|(id, node)| (*id, of(node)))
            .collect()
    }

    fn wanted(&self) -> SlotSets {
        let all = self.slots.iter();
        all.map(|(slot, of)| (*slot, of.wanted.clone())).collect()
    }

    fn plan(&mut self, nodes: &PlacementNodes) -> Result<(), Violation> {
        let signature = signature(nodes);
        if signature == self.planned_for {
            return Ok(());
        }
        self.planned_for = signature;
        self.plans += 1;
        let before = self.wanted();
        let mut seen = nodes.clone();
        if self.mutant == Mutant::NoZones {
            seen.values_mut().for_each(|node| node.zone.clear());
        }
        let empty = || -> SlotSets { before.keys().map(|slot| (*slot, BTreeSet::new())).collect() };
        let current = match self.mutant {
            Mutant::FromScratch => empty(),
            _ => before.clone(),
        };
        let wanted = wanted_sets(&current, &seen, Some(self.size.copies));
        self.check_wanted(nodes, &wanted)?;
        self.moves_min += moves_min(&before, nodes, self.size.copies);
        for (slot, wanted) in wanted {
            self.slots.get_mut(&slot).unwrap().wanted = wanted;
        }
        Ok(())
    }

    fn check_wanted(&self, nodes: &PlacementNodes, wanted: &SlotSets) -> Result<(), Violation> {
        let gains = |id: &&NodeId| nodes[*id].gains_slots();
        let gaining: BTreeSet<&NodeId> = nodes.keys().filter(gains).collect();
        let zones: BTreeSet<&str> = gaining.iter().map(|id| nodes[*id].zone.as_str()).collect();
        let mut loads: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (slot, set) in wanted {
            let in_zones: BTreeSet<&str> = set.iter().map(|id| nodes[id].zone.as_str()).collect();
            if zones.len() >= self.size.copies && in_zones.len() < set.len() {
                return Err(Violation(format!(
                    "slot {slot} is twice in a zone: {set:?}"
                )));
            }
            if gaining.len() >= self.size.copies && set.len() != self.size.copies {
                return Err(Violation(format!("slot {slot} should have only {set:?}")));
            }
            set.iter()
                .for_each(|id| *loads.entry(*id).or_default() += 1);
        }
        let all_gain = nodes.values().all(|n| !n.keeps_slots() || n.gains_slots());
        let is_exact = all_gain && (zones.len() == 1 || zones.len() == self.size.copies);
        let ranges = slot_ranges(nodes, wanted.len(), self.size.copies);
        for (node, range) in ranges.iter().filter(|_| is_exact) {
            let load = loads.get(node).copied().unwrap_or_default();
            if !(range.least..=range.most).contains(&load) {
                return Err(Violation(format!("{node} has {load} slots: {range:?}")));
            }
        }
        Ok(())
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.nodes[&node].down_since.is_none()
    }

    fn rules(&self) -> MoveRules {
        let all = MoveRules::default();
        match self.mutant {
            Mutant::CountsLearner => MoveRules {
                learns_first: false,
                ..all
            },
            Mutant::RemovesFirst => MoveRules {
                adds_first: false,
                ..all
            },
            Mutant::Unlimited => MoveRules {
                moves_per_node: usize::MAX,
                ..all
            },
            Mutant::None | Mutant::NoZones | Mutant::FromScratch => all,
        }
    }

    /// Passes a minute.
    fn step(&mut self) -> Result<(), Violation> {
        self.minute += 1;
        for node in self.nodes.values_mut() {
            if node.back_at.is_some_and(|at| at <= self.minute) {
                (node.back_at, node.down_since) = (None, None);
            }
        }
        let nodes = self.view();
        self.plan(&nodes)?;
        for step in next_moves(&self.slots, &nodes, self.rules()) {
            self.take(step)?;
        }
        self.copy();
        Ok(())
    }

    fn take(&mut self, step: Move) -> Result<(), Violation> {
        match step {
            Move::Forget { slot, node } => {
                self.slots.get_mut(&slot).unwrap().learners.remove(&node);
                self.copies.remove(&(slot, node));
                Ok(())
            }
            Move::Learn { slot, node, from } => self.learn(slot, node, from),
            Move::Add { slot, node } => {
                let of_slot = self.slots.get_mut(&slot).unwrap();
                of_slot.learners.remove(&node);
                of_slot.replicas.insert(node);
                self.check_majority(slot, step)
            }
            Move::Remove { slot, node } => {
                let before = self.slots[&slot].clone();
                let of_slot = self.slots.get_mut(&slot).unwrap();
                of_slot.replicas.remove(&node);
                self.check_majority(slot, step)?;
                self.check_removal(slot, node, &before)
            }
        }
    }

    fn learn(&mut self, slot: SlotNumber, node: NodeId, from: NodeId) -> Result<(), Violation> {
        self.moves += 1;
        let learner = Learner {
            from,
            has_learned: false,
        };
        let of_slot = self.slots.get_mut(&slot).unwrap();
        of_slot.learners.insert(node, learner);
        let minutes = self.rng.u64(1..=COPY_MINUTES_MAX);
        self.copies.insert((slot, node), self.minute + minutes);
        for busy in [node, from] {
            let count = self.copies_of(busy);
            if count > MOVES_PER_NODE {
                return Err(Violation(format!("{busy} copies {count} at a time")));
            }
        }
        Ok(())
    }

    /// Returns the number of copies to and from a node.
    fn copies_of(&self, node: NodeId) -> usize {
        let is_of = |(slot, to): &&(SlotNumber, NodeId)| {
            let learner = self.slots[slot].learners.get(to);
            let is_source = learner.is_some_and(|learner| learner.from == node);
            self.is_up(*to) && (*to == node || is_source)
        };
        self.copies.keys().filter(is_of).count()
    }

    /// Completes copies.
    fn copy(&mut self) {
        let due = |(key, at): (&(SlotNumber, NodeId), &u64)| {
            (*at <= self.minute && self.is_up(key.1)).then_some(*key)
        };
        let due: Vec<_> = self.copies.iter().filter_map(due).collect();
        for (slot, node) in due {
            self.copies.remove(&(slot, node));
            self.data.insert((slot, node));
            let of_slot = self.slots.get_mut(&slot).unwrap();
            if let Some(learner) = of_slot.learners.get_mut(&node) {
                learner.has_learned = true;
            }
        }
    }

    fn check_majority(&self, slot: SlotNumber, step: Move) -> Result<(), Violation> {
        let replicas = &self.slots[&slot].replicas;
        let has_data = |id: &&NodeId| self.is_up(**id) && self.data.contains(&(slot, **id));
        let with_data = replicas.iter().filter(has_data).count();
        match 2 * with_data > replicas.len() {
            true => Ok(()),
            false => Err(Violation(format!("no majority has the data: {step:?}"))),
        }
    }

    fn check_removal(
        &self,
        slot: SlotNumber,
        node: NodeId,
        before: &SlotReplicas,
    ) -> Result<(), Violation> {
        let after = &self.slots[&slot];
        let live = |of: &SlotReplicas| -> Vec<NodeId> {
            let up = of.replicas.iter().filter(|id| self.is_up(**id));
            up.copied().collect()
        };
        let zones = |of: &[NodeId]| -> usize {
            let zones: BTreeSet<u64> = of.iter().map(|id| self.nodes[id].zone).collect();
            zones.len()
        };
        let (live_before, live_after) = (live(before), live(after));
        let count = match self.is_up(node) {
            true => live_after.len(),
            false => after.replicas.len(),
        };
        let copies = self.size.copies.min(after.wanted.len());
        if count < copies {
            return Err(Violation(format!("slot {slot} has {count} of {copies}")));
        }
        let wanted: Vec<NodeId> = after.wanted.iter().copied().collect();
        let zones_min = zones(&live_before).min(zones(&wanted));
        if self.is_up(node) && zones(&live_after) < zones_min {
            return Err(Violation(format!("slot {slot} is in fewer zones")));
        }
        Ok(())
    }

    fn is_calm(&self) -> bool {
        let is_back = |node: &Node| node.back_at.is_none();
        self.slots.values().all(SlotReplicas::is_settled) && self.nodes.values().all(is_back)
    }

    /// Waits until the dead are replaced, and all replicas are where they should be.
    fn settle(&mut self, may_break: bool) -> Result<(), Violation> {
        let end = self.minute + CALM_MINUTES;
        // A death counts half an hour later.
        let least = self.minute + 32;
        let mut breaks = 0;
        while self.minute < end {
            self.step()?;
            if may_break && breaks < 3 && self.rng.u32(..20) == 0 {
                breaks += 1;
                self.take_break();
            }
            if self.minute > least && self.is_calm() {
                return Ok(());
            }
        }
        let odd = self.slots.iter().find(|(_, of)| !of.is_settled());
        Err(Violation(format!("no progress: {odd:?}")))
    }

    /// A node goes down for a while. Slots may lack a majority until it is back.
    fn take_break(&mut self) {
        let up: Vec<NodeId> = self
            .nodes
            .keys()
            .copied()
            .filter(|id| self.is_up(*id))
            .collect();
        let minutes = self.rng.u64(1..=BREAK_MINUTES_MAX);
        if let Some(id) = self.rng.choice(up) {
            self.stop(id, Some(self.minute + minutes));
        }
    }

    fn stop(&mut self, id: NodeId, back_at: Option<u64>) {
        let node = self.nodes.get_mut(&id).unwrap();
        (node.down_since, node.back_at) = (Some(self.minute), back_at);
    }

    /// Returns the nodes that keep slots and are up: without one of them, enough are left.
    fn dispensable(&self) -> Option<Vec<NodeId>> {
        let keeps = |(_, node): &(&NodeId, &Node)| !node.is_draining && node.down_since.is_none();
        let all = self.nodes.iter().filter(keeps);
        let all: Vec<NodeId> = all.map(|(id, _)| *id).collect();
        (all.len() > self.size.copies).then_some(all)
    }

    fn event(&mut self) {
        match (self.rng.u32(..10), self.dispensable()) {
            (0..4, Some(all)) => {
                let id = self.rng.choice(all).unwrap();
                self.stop(id, None);
            }
            (4 | 5, Some(all)) => {
                let id = self.rng.choice(all).unwrap();
                self.nodes.get_mut(&id).unwrap().is_draining = true;
            }
            (6, _) => {
                for node in self.nodes.values_mut() {
                    node.is_draining = false;
                }
            }
            (7, _) if self.size.zones > 2 => self.stop_zone(),
            _ => {
                let zone = self.rng.u64(..self.size.zones);
                self.join(zone);
            }
        }
    }

    /// All nodes of a zone go down for a while. The slots keep majorities in the others.
    fn stop_zone(&mut self) {
        let zone = self.rng.u64(..self.size.zones);
        let back_at = self.minute + self.rng.u64(10..=BREAK_MINUTES_MAX);
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in all {
            if self.nodes[&id].zone == zone && self.is_up(id) {
                self.stop(id, Some(back_at));
            }
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        self.settle(false)?;
        for _ in 0..EVENTS {
            self.event();
            let may_break = self.rng.bool();
            self.settle(may_break)?;
        }
        self.check_moves()
    }

    fn check_moves(&self) -> Result<(), Violation> {
        // A few nodes leave little choice: a slot may lack a node that has room and is not its own.
        let spare = match self.size.nodes {
            100.. => 0,
            _ => 10 * 4 * self.plans,
        };
        match 10 * self.moves <= 12 * self.moves_min + spare {
            true => Ok(()),
            false => {
                let (moves, least) = (self.moves, self.moves_min);
                Err(Violation(format!("{moves} moves instead of {least}")))
            }
        }
    }
}

fn signature(nodes: &PlacementNodes) -> Vec<(NodeId, bool, bool)> {
    let of = |(id, node): (&NodeId, &PlacementNode)| (*id, node.keeps_slots(), node.gains_slots());
    nodes.iter().map(of).collect()
}

/// Returns a number of moves that every plan needs, from the sets before it.
fn moves_min(before: &SlotSets, nodes: &PlacementNodes, copies: usize) -> u64 {
    let ranges = slot_ranges(nodes, before.len(), copies);
    let copies = copies.min(ranges.len());
    let mut loads: BTreeMap<NodeId, usize> = BTreeMap::new();
    let (mut missing, mut uneven, mut is_larger) = (0, 0, false);
    for set in before.values() {
        let kept: Vec<NodeId> = set
            .iter()
            .copied()
            .filter(|id| ranges.contains_key(id))
            .collect();
        missing += copies.saturating_sub(kept.len());
        is_larger |= kept.len() > copies;
        uneven += usize::from(is_uneven(&kept, nodes, copies));
        kept.iter()
            .for_each(|id| *loads.entry(*id).or_default() += 1);
    }
    let load = |id: &NodeId| loads.get(id).copied().unwrap_or_default();
    let too_many = ranges
        .iter()
        .map(|(id, range)| load(id).saturating_sub(range.most));
    let gains = |(id, _): &(&NodeId, &SlotRange)| nodes[*id].gains_slots();
    let gaining = ranges.iter().filter(gains);
    let too_few = gaining.map(|(id, range)| range.least.saturating_sub(load(id)));
    let removed = match is_larger {
        true => 0,
        false => too_many.sum::<usize>().max(uneven),
    };
    (missing + removed).max(too_few.sum()) as u64
}

/// Returns whether a slot has too many replicas in a zone, even after those that it lacks come to
/// the best zones.
fn is_uneven(kept: &[NodeId], nodes: &PlacementNodes, copies: usize) -> bool {
    let mut zones: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (id, node) in nodes {
        let (replicas, free) = zones.entry(node.zone.as_str()).or_default();
        match kept.contains(id) {
            true => *replicas += 1,
            false => *free += usize::from(node.gains_slots()),
        }
    }
    for _ in kept.len()..copies {
        let free = zones.values_mut().filter(|(_, free)| *free > 0);
        if let Some((replicas, free)) = free.min_by_key(|(replicas, _)| *replicas) {
            (*replicas, *free) = (*replicas + 1, *free - 1);
        }
    }
    let most = zones.values().map(|(replicas, _)| *replicas).max();
    let free = zones.values().filter(|(_, free)| *free > 0);
    let least = free.map(|(replicas, _)| *replicas).min();
    most.zip(least)
        .is_some_and(|(most, least)| most >= least + 2)
}

/// A cluster of a few nodes.
fn small(seed: u64) -> Size {
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    let zones = rng.u64(1..=4);
    let copies = if rng.u32(..4) == 0 { 5 } else { 3 };
    Size {
        slots: rng.u16(4..=64),
        nodes: rng.u64(copies as u64..=16).max(zones),
        zones,
        copies,
        is_everywhere: rng.bool(),
    }
}

const LARGE: Size = Size {
    slots: 1_024,
    nodes: 100,
    zones: 3,
    copies: 3,
    is_everywhere: false,
};

fn run(seed: u64, size: Size, mutant: Mutant) -> Result<World, Violation> {
    let mut world = World::new(seed, size, mutant);
    world.run().map(|()| world)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds on all processors.
fn run_all(seeds: u64, size: impl Fn(u64) -> Size + Sync) {
    if let Some(seed) = number("SETTEE_SEED") {
        let done = run(seed, size(seed), Mutant::None);
        panic!("seed {seed}: {:?}", done.map(|world| world.moves));
    }
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()) as u64;
    let size = &size;
    let totals: Vec<[u64; 3]> = std::thread::scope(|scope| {
        let shares = (0..threads).map(|share| {
            scope.spawn(move || {
                let mut total = [0; 3];
                for seed in (0..seeds).filter(|seed| seed % threads == share) {
                    match run(seed, size(seed), Mutant::None) {
                        Ok(world) => {
                            total[0] += world.plans;
                            total[1] += world.moves;
                            total[2] += world.moves_min;
                        }
                        Err(Violation(what)) => panic!("seed {seed}: {what}"),
                    }
                }
                total
            })
        });
        let shares: Vec<_> = shares.collect();
        shares
            .into_iter()
            .map(|share| share.join().unwrap())
            .collect()
    });
    let sum = |at: usize| totals.iter().map(|total| total[at]).sum::<u64>();
    let (plans, moves, least) = (sum(0), sum(1), sum(2));
    println!("{seeds} seeds: {plans} plans, {moves} moves, at least {least} were necessary");
    assert!(plans > seeds * 3, "little happened");
    assert!(moves > seeds, "little moved");
}

#[test]
fn slots_of_a_few_nodes_keep_their_majorities_and_move_little() {
    let seeds = number("SETTEE_PLACEMENT_SEEDS").unwrap_or(SMALL_SEEDS);
    run_all(seeds, small);
}

#[test]
fn slots_of_a_hundred_nodes_keep_their_majorities_and_move_little() {
    let seeds = number("SETTEE_PLACEMENT_SEEDS").unwrap_or(LARGE_SEEDS);
    run_all(seeds, |_| LARGE);
}

#[test]
fn leaving_out_a_rule_of_placement_is_noticed() {
    let nine = Size {
        nodes: 9,
        slots: 48,
        ..LARGE
    };
    for (mutant, size, expected) in [
        (Mutant::CountsLearner, nine, "no majority has the data"),
        (Mutant::RemovesFirst, nine, "of 3"),
        (Mutant::Unlimited, nine, "at a time"),
        (Mutant::NoZones, nine, "twice in a zone"),
        (Mutant::FromScratch, LARGE, "moves instead of"),
    ] {
        let is_noticed = |seed: &u64| {
            let broken = run(*seed, size, mutant).err();
            broken.is_some_and(|Violation(what)| what.contains(expected))
        };
        let seed = (0..SEEDS_MAX).find(is_noticed);
        println!("{mutant:?}: noticed by seed {seed:?}");
        assert!(seed.is_some(), "{mutant:?} is not noticed");
    }
}
