//! Slots that move between nodes as the cluster decides, with their databases.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::{NodeId, SlotNumber};
use tokio::time::Instant;

use super::docs;
use super::nodes::{Node, Nodes, SLOTS, listing, until};
use super::placement::join;
use crate::control::entry::Entry;
use crate::control::placement_entry::PlacementChange;
use crate::control::placement_state::PlacementState;
use crate::placement::{PlacementNode, PlacementNodes, SlotSets};
use crate::replicas::Replica;
use crate::slot_decisions::{next_decision, next_replicas, report};
use crate::slot_removal::remove_slot;

const NODES: [NodeId; 4] = [1, 2, 3, 4];
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const PAUSE: Duration = Duration::from_millis(20);
const STEPS_MAX: usize = 3_000;
const CHANGE_TIME_MAX: Duration = Duration::from_secs(5);

fn placement(nodes: &Nodes) -> PlacementState {
    let catalogue = &nodes.node(1).catalogue;
    catalogue.with(|state| state.placement.clone())
}

/// Returns the nodes, all of them up.
fn view(state: &PlacementState) -> PlacementNodes {
    let node = |id: NodeId| PlacementNode {
        is_draining: state.is_draining(id),
        ..PlacementNode::default()
    };
    NODES.into_iter().map(|id| (id, node(id))).collect()
}

/// Returns the replica that changes the replicas of a slot.
fn leader(nodes: &Nodes, slot: SlotNumber) -> &Replica {
    let all = NODES.into_iter();
    let mut all = all.filter_map(|id| nodes.node(id).replicas.get(slot));
    all.find(|replica| replica.is_member()).unwrap()
}

/// Takes a step that nodes take; returns whether there was none to take.
async fn step(nodes: &Nodes) -> bool {
    let state = placement(nodes);
    let view = view(&state);
    if let Some(change) = next_decision(&state, &view, SLOTS, &BTreeSet::new()) {
        nodes.enter(1, Entry::Placement { change }).await;
        return false;
    }
    for (slot, of) in &state.slots {
        for learner in &of.learners {
            let node = nodes.node(learner.node);
            if node.replicas.get(*slot).is_none() {
                node.starter.join(*slot, &node.replicas);
            }
        }
    }
    let mut sets = SlotSets::new();
    for slot in 0..SLOTS {
        let leader = leader(nodes, slot);
        let status = leader.status();
        let replicas: BTreeSet<NodeId> = status.members.iter().copied().collect();
        let has_learned = |id: NodeId| {
            let replica = nodes.node(id).replicas.get(slot);
            let chain = replica.map(|replica| replica.status().position.chain);
            chain == Some(status.position.chain)
        };
        if let Some(next) = next_replicas(&state, &view, slot, &replicas, has_learned) {
            let deadline = Instant::now() + CHANGE_TIME_MAX;
            // One that fails is tried again.
            let _ = leader.change(next.into_iter().collect(), deadline).await;
            return false;
        }
        sets.insert(slot, replicas);
    }
    if let Some(change) = report(&state, &sets) {
        nodes.enter(1, Entry::Placement { change }).await;
        return false;
    }
    let mut all = state.slots.values();
    all.all(|of| of.wanted == of.replicas && of.learners.is_empty())
}

/// Takes steps until all slots have the nodes that they should have.
async fn settle(nodes: &Nodes) {
    for _ in 0..STEPS_MAX {
        if step(nodes).await {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("slots move on: {:?} {}", placement(nodes), nodes.describe());
}

async fn change(nodes: &Nodes, change: PlacementChange) {
    nodes.enter(1, Entry::Placement { change }).await;
    settle(nodes).await;
}

/// Returns the nodes that answer for a database.
fn holders(nodes: &Nodes, name: &str) -> Vec<NodeId> {
    let has = |id: &NodeId| nodes.node(*id).gateway.nodes_for(name).is_none();
    NODES.into_iter().filter(has).collect()
}

fn list(node: &Node, name: &str) -> String {
    listing(&node.databases.get(name).unwrap())
}

/// Waits until all nodes that answer for the databases have equal contents, and returns the nodes.
async fn agree(nodes: &Nodes) -> Vec<Vec<NodeId>> {
    let mut all = vec![];
    for name in NAMES {
        let holders = holders(nodes, name);
        let is_equal = || {
            let lists = holders.iter().map(|id| list(nodes.node(*id), name));
            let different: BTreeSet<String> = lists.collect();
            different.len() == 1
        };
        until("equal", is_equal).await;
        for id in NODES {
            let acts = nodes.node(id).gateway.acts_for(name);
            // No node hears from another one here.
            assert_eq!(acts, Some(holders.contains(&id)), "{name} at {id}");
        }
        all.push(holders);
    }
    all
}

async fn write(nodes: &Nodes, from: u32) {
    for (name, holders) in NAMES.iter().zip(agree(nodes).await) {
        assert_eq!(holders.len(), 3, "{name}: {holders:?}");
        let at = holders[from as usize % 3];
        nodes.write(at, name, &docs(from, 20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_and_their_databases_move_to_the_nodes_that_they_should_have() {
    let mut nodes = Nodes::three().await;
    nodes.start(4).await;
    nodes.replicate_on(4).await;
    for id in NODES {
        nodes.enter(1, join(id)).await;
    }
    change(&nodes, PlacementChange::Copies { copies: Some(3) }).await;
    for name in NAMES {
        nodes.create(1, name, 2).await;
        let is_there = |id: &NodeId| nodes.node(*id).databases.get(name).is_ok();
        until("created", || NODES.iter().all(is_there)).await;
        let db = nodes.node(1).databases.get(name).unwrap();
        assert_eq!(nodes.node(1).gateway.slots(&db).len(), 1);
    }
    write(&nodes, 0).await;
    // Whoever gets a slot has to copy it.
    nodes.trim();
    change(&nodes, PlacementChange::Drain { node: 3 }).await;
    assert!(agree(&nodes).await.iter().all(|of| *of == [1, 2, 4]));
    let third = nodes.node(3);
    for slot in 0..SLOTS {
        third.replicas.end(slot).await;
        let (databases, catalogue) = (&third.databases, &third.catalogue);
        let removed = remove_slot(databases, catalogue, SLOTS, slot).await;
        removed.unwrap();
    }
    write(&nodes, 100).await;
    for name in NAMES {
        let info = third.databases.get(name).unwrap().info().unwrap();
        assert_eq!(info.doc_count, 0, "{name}");
        assert!(list(nodes.node(1), name).contains("doc-100"), "{name}");
    }
    nodes.trim();
    change(&nodes, PlacementChange::Undrain { node: 3 }).await;
    let placed = placement(&nodes);
    let mut sets = placed.slots.values().map(|of| &of.replicas);
    assert!(sets.any(|set| set.contains(&3)), "{placed:?}");
    write(&nodes, 200).await;
    agree(&nodes).await;
}
