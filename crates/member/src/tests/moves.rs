//! Slots that move between nodes as the cluster decides, with their databases.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cluster::replica::Message;
use cluster::slot::StoreError;
use cluster::{BoxFuture, NodeId, SlotNumber};
use tokio::time::Instant;

use super::docs;
use super::nodes::{Node, Nodes, SLOTS, listing, until};
use super::placement::join;
use crate::control::entry::Entry;
use crate::control::placement_entry::{PlacedSlot, PlacementChange, SlotPlacement};
use crate::control::placement_state::PlacementState;
use crate::placement::{PlacementNode, PlacementNodes, SlotSets};
use crate::placing::DatabasePart;
use crate::replicas::Replica;
use crate::reseed;
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
    let has = |id: &NodeId| {
        nodes
            .node(*id)
            .gateway
            .nodes_for(name, DatabasePart::Whole)
            .is_none()
    };
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

/// Changes the replicas of a slot, at node 2.
async fn change_to(nodes: &Nodes, slot: SlotNumber, members: &[NodeId]) {
    let replica = nodes.node(2).replicas.get(slot).unwrap();
    for _ in 0..STEPS_MAX {
        let known: BTreeSet<NodeId> = replica.status().members.into_iter().collect();
        if known.iter().eq(members) {
            return;
        }
        let deadline = Instant::now() + CHANGE_TIME_MAX;
        // One that fails is tried again.
        let _ = replica.change(members.to_vec(), deadline).await;
        tokio::time::sleep(PAUSE).await;
    }
    panic!("never {members:?}: {}", nodes.describe());
}

/// Removes slot 1 from the first node, and starts it there again, where it gets no copy yet.
async fn begin_again(nodes: &Nodes) -> &Replica {
    let first = nodes.node(1);
    change_to(nodes, 1, &[2, 3]).await;
    first.replicas.end(1).await;
    let (databases, catalogue) = (&first.databases, &first.catalogue);
    remove_slot(databases, catalogue, SLOTS, 1).await.unwrap();
    nodes.net.refused_copies.store(u32::MAX, Relaxed);
    // It has to copy the slot.
    nodes.log.trim(1, usize::MAX);
    first.starter.join(1, &first.replicas);
    first.replicas.get(1).unwrap()
}

/// Nodes 1 to 3 with the database `a`, which has documents in each slot. Slots may have some of the
/// nodes only; the cluster knows that node 2 counts in slot 1.
async fn placed() -> Nodes {
    let nodes = Nodes::three().await;
    for id in 1..=3 {
        nodes.enter(1, join(id)).await;
    }
    nodes.create(1, "a", 3).await;
    nodes.write(2, "a", &docs(0, 30)).await;
    nodes.agree(&[1, 2, 3]).await;
    let change = PlacementChange::Copies { copies: Some(2) };
    nodes.enter(1, Entry::Placement { change }).await;
    let placement = SlotPlacement {
        wanted: [1, 2].into(),
        replicas: [2].into(),
        learners: vec![],
    };
    let slots = vec![PlacedSlot { slot: 1, placement }];
    let change = PlacementChange::Place { slots, decision: 1 };
    nodes.enter(1, Entry::Placement { change }).await;
    nodes
}

/// At the beginning of the cluster it was the only replica of every slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_node_is_no_replica_of_a_slot_that_it_copies_again() {
    let nodes = placed().await;
    let first = nodes.node(1);
    let replica = begin_again(&nodes).await;
    // An administrator starts new generations: not from an empty slot.
    let members = first.gateway.members.clone();
    reseed::start(first.replicas.clone(), members, Some(1)).await;
    replica.reseed();
    assert!(
        replica
            .fresh(Instant::now() + CHANGE_TIME_MAX)
            .await
            .is_err()
    );
    assert!(!replica.is_member() && !replica.is_able());
    nodes.net.refused_copies.store(0, Relaxed);
    change_to(&nodes, 1, &[1, 2, 3]).await;
    nodes.agree(&[1, 2, 3]).await;
    let info = first.databases.get("a").unwrap().info().unwrap();
    assert_eq!(info.doc_count, 30);
}

/// A node that was away may still take this one for a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_data_is_no_part_of_a_majority_and_copies_those_that_count() {
    let nodes = placed().await;
    let first = nodes.node(1);
    let replica = begin_again(&nodes).await;
    let told = &nodes.net.positions_told;
    told.lock().clear();
    replica.deliver(3, Message::AskPosition { round: 1 });
    let other = first.replicas.get(0).unwrap();
    other.deliver(3, Message::AskPosition { round: 1 });
    until("told", || told.lock().contains(&(1, 0))).await;
    assert!(!told.lock().contains(&(1, 1)));
    let then =
        || -> BoxFuture<'static, Result<(), StoreError>> { Box::pin(std::future::ready(Ok(()))) };
    let refused = first.starter.copier.clone().fetch(1, 3, Box::new(then));
    let refused = refused.await.err().map(|e| e.to_string());
    assert!(refused.is_some_and(|e| e.contains("no replica of the slot")));
    nodes.net.refused_copies.store(0, Relaxed);
    until("copied", || replica.status().position.next_offset > 0).await;
    replica.deliver(3, Message::AskPosition { round: 2 });
    until("told", || told.lock().contains(&(1, 1))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacked_a_slot_leaves_requests_to_others_until_it_counts() {
    let nodes = placed().await;
    let first = nodes.node(1);
    first.replicas.note_partial(true);
    begin_again(&nodes).await;
    // Every node is to have every slot again.
    let change = PlacementChange::Copies { copies: None };
    nodes.enter(1, Entry::Placement { change }).await;
    let asks_others = || {
        first.replicas.note_partial(first.catalogue.is_placed());
        first.gateway.lacks_slots()
    };
    assert!(asks_others() && first.gateway.nodes_for("a", DatabasePart::Whole).is_some());
    nodes.net.refused_copies.store(0, Relaxed);
    change_to(&nodes, 1, &[1, 2, 3]).await;
    nodes.agree(&[1, 2, 3]).await;
    assert!(!asks_others());
}
