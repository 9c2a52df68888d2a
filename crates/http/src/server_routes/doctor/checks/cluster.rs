//! The other nodes.

use serde_json::json;

use super::{Area, Check};
use crate::server_routes::doctor::facts::{Cluster, Facts, Slot};
use crate::server_routes::doctor::finding::{Finding, Severity, quoted};

fn cluster(facts: &Facts) -> Result<&Cluster, String> {
    facts
        .cluster
        .as_ref()
        .ok_or_else(|| "the server is not a member of a cluster".to_owned())
}

pub const NODES: Check = Check {
    id: "nodes",
    area: Area::Cluster,
    title: "nodes that are down",
    looks_at: "members of the cluster, and the time of their last contact",
    finds: || {
        "warning of a node without contact for 3 s; error when half of the nodes are".to_owned()
    },
    why: "while a node is down, its data has fewer copies; without a majority nothing can be written",
    look: |facts| {
        let cluster = cluster(facts)?;
        let all = cluster.nodes.len();
        let down: Vec<&str> = cluster
            .nodes
            .iter()
            .filter(|(.., live)| !live)
            .map(|(name, ..)| &**name)
            .collect();
        if down.is_empty() {
            return Ok(vec![]);
        }
        let severity = if down.len() * 2 >= all {
            Severity::Error
        } else {
            Severity::Warning
        };
        let says = format!(
            "{} of {all} nodes are down, as seen by this one: {}",
            down.len(),
            down.join(", ")
        );
        Ok(vec![
            Finding::new(severity, "the cluster", says)
                .evidence(json!({"nodes": all, "down": down}))
                .act("settee cluster status $S")
                .act(format!(
                    "settee cluster leave $S --node {}   # only if it is lost permanently",
                    quoted(down[0])
                )),
        ])
    },
};

impl Cluster {
    /// How many of the nodes that have a slot live.
    fn live(&self, slot: &Slot) -> usize {
        let is_live = |number: &&String| {
            self.nodes
                .iter()
                .any(|(_, of, live)| of == *number && *live)
        };
        slot.members.iter().filter(is_live).count()
    }
}

fn majority(slot: &Slot) -> usize {
    slot.members.len() / 2 + 1
}

pub const SLOTS: Check = Check {
    id: "slots",
    area: Area::Cluster,
    title: "slots with too few copies",
    looks_at: "the slots of this node, and the state of their nodes",
    finds: || {
        "error of slots that accept no writes, or whose majority is down; warning when some of their nodes are down".to_owned()
    },
    why: "a slot is a part of all databases' documents: without a majority it accepts no writes, and with fewer copies it tolerates fewer failures",
    look: |facts| {
        let cluster = cluster(facts)?;
        let names = |of: &dyn Fn(&Slot) -> bool| -> Vec<&str> {
            cluster
                .slots
                .iter()
                .filter(|slot| of(slot))
                .map(|slot| &*slot.name)
                .collect()
        };
        let stopped = names(&|slot| !slot.takes_writes || cluster.live(slot) < majority(slot));
        let few = names(&|slot| cluster.live(slot) < slot.members.len());
        let (severity, which, what) = match (stopped.is_empty(), few.is_empty()) {
            (false, _) => (Severity::Error, &stopped, "take no writes here"),
            (true, false) => (Severity::Warning, &few, "have nodes that are down"),
            (true, true) => return Ok(vec![]),
        };
        let reason = cluster
            .slots
            .iter()
            .find_map(|slot| slot.reason.as_deref())
            .unwrap_or_default();
        let says = format!(
            "{} of {} slots {what}{}{reason}",
            which.len(),
            cluster.slots.len(),
            if reason.is_empty() { "" } else { ": " }
        );
        Ok(vec![
            Finding::new(severity, "the cluster", says)
                .evidence(json!({"slots": cluster.slots.len(), "which": which}))
                .act("settee cluster status $S")
                .act(
                    "# start the nodes that are down, and check that the log (Kafka) is available",
                ),
        ])
    },
};

/// A cluster of one node is intended.
const NODES_MIN: usize = 2;

pub const MARGIN: Check = Check {
    id: "safe-to-stop",
    area: Area::Cluster,
    title: "nodes that may be stopped",
    looks_at: "whether all slots would keep a majority without one more of their nodes",
    finds: || "note when a slot of several nodes has just its majority".to_owned(),
    why: "stopping a node for an upgrade would stop writes",
    look: |facts| {
        let cluster = cluster(facts)?;
        let just = cluster
            .slots
            .iter()
            .filter(|slot| slot.members.len() >= NODES_MIN && cluster.live(slot) == majority(slot));
        let just: Vec<&str> = just.map(|slot| &*slot.name).collect();
        if just.is_empty() {
            return Ok(vec![]);
        }
        let says = format!(
            "{} of {} slots have no more nodes than they need",
            just.len(),
            cluster.slots.len()
        );
        Ok(vec![
            Finding::new(Severity::Note, cluster.me.clone(), says)
                .evidence(json!({"slots": cluster.slots.len(), "which": just}))
                .act("# wait until the others are back before you stop this one; use at least 3 nodes"),
        ])
    },
};

#[cfg(test)]
mod tests {
    use super::super::planted::severities;
    use super::*;

    fn cluster(live: &[bool], takes_writes: bool) -> Cluster {
        let nodes = live
            .iter()
            .enumerate()
            .map(|(n, live)| (format!("node{n}"), n.to_string(), *live));
        let slot = Slot {
            name: "0".into(),
            members: (0..live.len()).map(|n| n.to_string()).collect(),
            takes_writes,
            reason: None,
        };
        Cluster {
            nodes: nodes.collect(),
            me: "0".into(),
            slots: vec![slot],
            certificate_left_s: 1 << 30,
        }
    }

    #[test]
    fn a_server_alone_has_no_nodes() {
        for check in [NODES, SLOTS, MARGIN] {
            assert!(check.run(&Facts::default()).is_err());
        }
    }

    #[test]
    fn nodes_that_are_down_are_found() {
        let all = |live: &[bool], takes_writes| {
            [NODES, SLOTS, MARGIN].map(|check| severities(&check, cluster(live, takes_writes)))
        };
        assert_eq!(all(&[true, true, true], true), [vec![], vec![], vec![]]);
        assert_eq!(
            all(&[true, true, false], true),
            [
                vec![Severity::Warning],
                vec![Severity::Warning],
                vec![Severity::Note]
            ]
        );
        assert_eq!(
            all(&[true, false, false], false),
            [vec![Severity::Error], vec![Severity::Error], vec![]]
        );
        assert_eq!(
            severities(&SLOTS, cluster(&[true, true, true], false)),
            [Severity::Error]
        );
        assert_eq!(all(&[true], true), [vec![], vec![], vec![]]);
    }
}
