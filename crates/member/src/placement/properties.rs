//! Properties of placement over random clusters. A failure prints its seed.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::NodeId;
use fastrand::Rng;

use super::limits::slot_ranges;
use super::moves::{Learner, Move, MoveRules, SlotReplicas, next_moves};
use super::nodes::{PlacementNode, PlacementNodes, REPLACED_AFTER};
use super::wanted::{SlotSets, wanted_sets};

const SEEDS: u64 = 2_000;

fn node(zone: &str) -> PlacementNode {
    PlacementNode {
        zone: zone.into(),
        ..PlacementNode::default()
    }
}

fn cluster(zones: &[&str]) -> PlacementNodes {
    let nodes = zones.iter().map(|zone| node(zone));
    (1..).zip(nodes).collect()
}

fn same_sets(slots: u16, set: &[NodeId]) -> SlotSets {
    let set: BTreeSet<NodeId> = set.iter().copied().collect();
    (0..slots).map(|slot| (slot, set.clone())).collect()
}

fn loads(sets: &SlotSets) -> BTreeMap<NodeId, usize> {
    let mut loads: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in sets.values().flatten() {
        *loads.entry(*id).or_default() += 1;
    }
    loads
}

/// Returns a cluster with nodes in all conditions, and sets of any of them.
fn random(rng: &mut Rng) -> (PlacementNodes, SlotSets, usize) {
    let zones = rng.u64(1..=5);
    let count = rng.u64(1..=20);
    let down = [Duration::from_mins(1), REPLACED_AFTER];
    let random_node = |rng: &mut Rng| PlacementNode {
        zone: rng.u64(..zones).to_string(),
        is_draining: rng.u32(..8) == 0,
        down_for: (rng.u32(..6) == 0).then(|| down[rng.usize(..2)]),
    };
    let nodes: PlacementNodes = (1..=count).map(|id| (id, random_node(rng))).collect();
    let sets = (0..rng.u16(1..=64)).map(|slot| {
        // Some nodes are not members any more.
        let set = (0..rng.usize(..=6)).map(|_| rng.u64(1..=count + 2));
        (slot, set.collect())
    });
    let sets = sets.collect();
    (nodes, sets, rng.usize(1..=5))
}

#[test]
fn five_nodes_share_all_slots_equally() {
    let nodes = cluster(&[""; 5]);
    for slots in [1, 2, 16, 128] {
        let everywhere = same_sets(slots, &[1, 2, 3, 4, 5]);
        for before in [
            everywhere,
            same_sets(slots, &[1, 2, 3]),
            same_sets(slots, &[]),
        ] {
            let wanted = wanted_sets(&before, &nodes, Some(3));
            assert!(wanted.values().all(|set| set.len() == 3), "{wanted:?}");
            let most = (3 * usize::from(slots)).div_ceil(5) + 1;
            let loads = loads(&wanted);
            assert!(loads.values().all(|load| *load <= most), "{loads:?}");
        }
    }
}

#[test]
fn a_sixth_node_gets_its_share_and_a_dead_one_is_replaced_by_all() {
    let mut nodes = cluster(&[""; 5]);
    let five = wanted_sets(&same_sets(128, &[]), &nodes, Some(3));
    nodes.insert(6, node(""));
    let six = wanted_sets(&five, &nodes, Some(3));
    assert!((63..=66).contains(&loads(&six)[&6]), "{:?}", loads(&six));
    let moved = six.iter().filter(|(slot, set)| five[*slot] != **set);
    assert!(moved.count() <= 66);
    nodes.get_mut(&2).unwrap().down_for = Some(REPLACED_AFTER - Duration::from_secs(1));
    assert_eq!(wanted_sets(&six, &nodes, Some(3)), six, "it may come back");
    nodes.get_mut(&2).unwrap().down_for = Some(REPLACED_AFTER);
    let without = wanted_sets(&six, &nodes, Some(3));
    for (slot, set) in &without {
        assert!(set.len() == 3 && !set.contains(&2));
        let stays = set.intersection(&six[slot]).count();
        assert!(stays >= 1, "slot {slot}: {set:?}");
    }
    let loads = loads(&without);
    assert!(
        loads.values().all(|load| (75..=78).contains(load)),
        "{loads:?}"
    );
}

#[test]
fn zones_have_one_replica_each_even_if_one_of_them_is_small() {
    let nodes = cluster(&["a", "a", "a", "a", "b", "b", "c"]);
    let wanted = wanted_sets(&same_sets(60, &[1, 2, 3]), &nodes, Some(3));
    for set in wanted.values() {
        let zones: BTreeSet<&str> = set.iter().map(|id| nodes[id].zone.as_str()).collect();
        assert_eq!(zones.len(), 3, "{set:?}");
    }
    let loads = loads(&wanted);
    assert_eq!(loads[&7], 60);
    assert!((29..=31).contains(&loads[&5]), "{loads:?}");
    assert!((1..=4).all(|id| loads[&id] >= 14), "{loads:?}");
}

#[test]
fn two_zones_share_three_replicas() {
    let nodes = cluster(&["a", "a", "a", "b", "b"]);
    let wanted = wanted_sets(&same_sets(32, &[1, 2, 3]), &nodes, Some(3));
    for set in wanted.values() {
        let in_a = set.iter().filter(|id| **id <= 3).count();
        assert!(set.len() == 3 && (1..=2).contains(&in_a), "{set:?}");
    }
}

#[test]
fn without_a_number_of_copies_every_node_has_every_slot() {
    let mut nodes = cluster(&["a", "b", ""]);
    nodes.get_mut(&2).unwrap().down_for = Some(REPLACED_AFTER);
    let wanted = wanted_sets(&same_sets(4, &[1]), &nodes, None);
    assert_eq!(wanted, same_sets(4, &[1, 2, 3]));
}

#[test]
fn the_last_replicas_stay_on_nodes_that_leave() {
    let mut nodes = cluster(&[""; 3]);
    nodes.get_mut(&1).unwrap().is_draining = true;
    nodes.get_mut(&2).unwrap().down_for = Some(REPLACED_AFTER);
    let before = same_sets(4, &[1, 2, 3]);
    assert_eq!(wanted_sets(&before, &nodes, Some(3)), before);
    assert_eq!(wanted_sets(&before, &nodes, Some(2)), same_sets(4, &[1, 3]));
}

#[test]
fn wanted_sets_are_complete_and_stay_as_they_are() {
    for seed in 0..SEEDS {
        let (nodes, before, copies) = random(&mut Rng::with_seed(seed));
        let wanted = wanted_sets(&before, &nodes, Some(copies));
        let again = wanted_sets(&wanted, &nodes, Some(copies));
        assert_eq!(again, wanted, "seed {seed}");
        let gaining = nodes.values().filter(|node| node.gains_slots()).count();
        assert!(wanted.keys().eq(before.keys()), "seed {seed}");
        for (slot, set) in &wanted {
            assert!(set.len() <= copies, "seed {seed}: {set:?}");
            assert!(set.len() >= copies.min(gaining), "seed {seed}: {set:?}");
            let is_new = |id: &&NodeId| !before[slot].contains(*id);
            let gains = |id: &NodeId| nodes[id].gains_slots();
            assert!(set.iter().filter(is_new).all(gains), "seed {seed}: {set:?}");
            assert!(set.iter().all(|id| nodes.contains_key(id)), "seed {seed}");
        }
    }
}

#[test]
fn ranges_have_room_for_all_replicas() {
    for seed in 0..SEEDS {
        let (nodes, sets, copies) = random(&mut Rng::with_seed(seed));
        let ranges = slot_ranges(&nodes, sets.len(), copies);
        let replicas = sets.len() * copies.min(ranges.len());
        let least: usize = ranges.values().map(|range| range.least).sum();
        let most: usize = ranges.values().map(|range| range.most).sum();
        assert!(
            least <= replicas && replicas <= most,
            "seed {seed}: {ranges:?}"
        );
    }
}

/// Returns a slot on nodes 1 to 3, one of which is replaced by node 4.
fn replacing(learners: &[(NodeId, bool)]) -> BTreeMap<u16, SlotReplicas> {
    let learner = |(id, has_learned): &(NodeId, bool)| {
        let (from, has_learned) = (2, *has_learned);
        (*id, Learner { from, has_learned })
    };
    let slot = SlotReplicas {
        wanted: [2, 3, 4].into(),
        replicas: [1, 2, 3].into(),
        learners: learners.iter().map(learner).collect(),
    };
    [(0, slot)].into()
}

#[test]
fn a_node_learns_then_counts_then_another_one_leaves() {
    let nodes = cluster(&[""; 4]);
    let next =
        |slots: &BTreeMap<u16, SlotReplicas>| next_moves(slots, &nodes, MoveRules::default());
    let mut slots = replacing(&[]);
    let first = next(&slots);
    assert!(
        matches!(first[..], [Move::Learn { slot: 0, node: 4, from }] if (1..4).contains(&from)),
        "{first:?}"
    );
    slots = replacing(&[(4, false)]);
    assert!(next(&slots).is_empty());
    slots = replacing(&[(4, true)]);
    assert_eq!(next(&slots), [Move::Add { slot: 0, node: 4 }]);
    let slot = slots.get_mut(&0).unwrap();
    slot.learners.clear();
    slot.replicas.insert(4);
    assert_eq!(next(&slots), [Move::Remove { slot: 0, node: 1 }]);
    slots.get_mut(&0).unwrap().replicas.remove(&1);
    assert!(next(&slots).is_empty());
}

#[test]
fn a_live_replica_stays_while_another_one_is_down() {
    let mut nodes = cluster(&[""; 4]);
    nodes.get_mut(&3).unwrap().down_for = Some(Duration::from_mins(1));
    let mut slots = replacing(&[]);
    slots.get_mut(&0).unwrap().replicas.insert(4);
    let next = next_moves(&slots, &nodes, MoveRules::default());
    assert!(next.is_empty(), "node 1 has what node 3 may have lost");
    nodes.get_mut(&1).unwrap().down_for = Some(Duration::from_mins(1));
    let next = next_moves(&slots, &nodes, MoveRules::default());
    assert!(next.is_empty(), "two of four are no majority");
    nodes.get_mut(&3).unwrap().down_for = None;
    let next = next_moves(&slots, &nodes, MoveRules::default());
    assert_eq!(next, [Move::Remove { slot: 0, node: 1 }]);
}

#[test]
fn a_learner_that_is_not_wanted_any_more_forgets_the_slot() {
    let nodes = cluster(&[""; 5]);
    let slots = replacing(&[(5, true)]);
    let next = next_moves(&slots, &nodes, MoveRules::default());
    assert!(
        next.contains(&Move::Forget { slot: 0, node: 5 }),
        "{next:?}"
    );
    assert!(!next.contains(&Move::Add { slot: 0, node: 5 }), "{next:?}");
}
