//! How many slots a node should have.

use std::collections::BTreeMap;

use cluster::NodeId;

use super::nodes::PlacementNodes;

/// Larger than the errors of the calculation, smaller than the distance of a fraction of slots and
/// nodes from a whole number.
const ROUNDING: f64 = 1e-6;
/// Steps after which a bisection has the precision of its numbers.
const BISECTIONS: usize = 100;

/// The number of slots that a node should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotRange {
    /// It gets slots of others below this number.
    pub least: usize,
    /// Others get its slots above this number.
    pub most: usize,
}

/// Returns the ranges of all nodes that keep slots. With `N` of them in zones of equal size, a node
/// has at most `⌈copies · slots / N⌉ + 1` slots. Nodes in a small zone have more if
/// that is the only way to keep the copies of a slot in different zones.
pub fn slot_ranges(
    nodes: &PlacementNodes,
    slots: usize,
    copies: usize,
) -> BTreeMap<NodeId, SlotRange> {
    let mut zones: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for (id, node) in nodes.iter().filter(|(_, node)| node.keeps_slots()) {
        zones.entry(node.zone.as_str()).or_default().push(*id);
    }
    let sizes: Vec<usize> = zones.values().map(Vec::len).collect();
    let all: usize = sizes.iter().sum();
    let copies = copies.min(all);
    let even = (slots * copies).div_ceil(all.max(1)) + 1;
    let mut ranges = BTreeMap::new();
    for (members, share) in zones.values().zip(shares(&sizes, slots, copies)) {
        let range = SlotRange {
            least: ((share + ROUNDING).floor() as usize).saturating_sub(1),
            most: even.max((share - ROUNDING).ceil() as usize),
        };
        ranges.extend(members.iter().map(|node| (*node, range)));
    }
    ranges
}

/// Returns the number of slots of a node in each zone: the same in all zones, unless a slot would
/// then have more copies in a zone than necessary.
fn shares(sizes: &[usize], slots: usize, copies: usize) -> Vec<f64> {
    if copies == 0 {
        return vec![0.0; sizes.len()];
    }
    let places = |level: usize| sizes.iter().map(|size| level.min(*size)).sum::<usize>();
    // No zone has more copies of a slot than this, and none less than one copy below it, except
    // zones with fewer nodes.
    let level = (1..copies).find(|level| places(*level) >= copies);
    let level = level.unwrap_or(copies);
    let of_zone = |per_node: f64, size: usize| {
        let (least, most) = (slots * size.min(level - 1), slots * size.min(level));
        (per_node * size as f64).clamp(least as f64, most as f64)
    };
    let total = (slots * copies) as f64;
    let (mut low, mut high) = (0.0, total);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        let sum: f64 = sizes.iter().map(|size| of_zone(middle, *size)).sum();
        match sum < total {
            true => low = middle,
            false => high = middle,
        }
    }
    let per_node = |size: &usize| of_zone(high, *size) / (*size as f64);
    sizes.iter().map(per_node).collect()
}
