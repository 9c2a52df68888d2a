//! The other nodes.

use serde_json::json;

use crate::check::{Area, Check};
use crate::facts::{Cluster, Facts, Slot};
use crate::finding::{Finding, Severity, quoted};

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
                    "# start the nodes that are down; if the log is in Kafka, check that it is available",
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

pub const LOG: Check = Check {
    id: "log",
    area: Area::Cluster,
    title: "the log of the cluster",
    looks_at: "whether this node reaches the log, and, if the nodes keep it, whether its own part is damaged",
    finds: || "error when it does not, or when it is".to_owned(),
    why: "a node without the log proposes no writes and falls behind; without the log of all nodes nothing can be written",
    look: |facts| {
        let cluster = cluster(facts)?;
        let lost = cluster.is_log_lost.then(|| lost_log(cluster));
        let damaged = (!cluster.halted_logs.is_empty()).then(|| damaged_log(cluster));
        Ok(lost.into_iter().chain(damaged).collect())
    },
};

fn lost_log(cluster: &Cluster) -> Finding {
    let (says, act) = match cluster.is_log_own {
        true => (
            "this node does not reach more than half of the nodes that keep the log of the cluster",
            "# check the network between this node and the others",
        ),
        false => (
            "this node does not reach the log of the cluster (Kafka)",
            "# check the brokers of [cluster] log, and the network between them and this node",
        ),
    };
    Finding::new(Severity::Error, cluster.me.clone(), says)
        .act("settee cluster status $S")
        .act(act)
}

fn damaged_log(cluster: &Cluster) -> Finding {
    let slots = &cluster.halted_logs;
    let says = format!(
        "the log of {} of {} slots is damaged on this node, which takes no part in it",
        slots.len(),
        cluster.slots.len()
    );
    Finding::new(Severity::Error, cluster.me.clone(), says)
        .evidence(json!({"slots": cluster.slots.len(), "which": slots}))
        .act("settee cluster status $S   # the reasons")
        .act("# stop this node, remove the folder `cluster/log` of its data directory, and start it; never on two nodes at a time")
}

/// A lag of this time is reported, in seconds.
const LAG_S_MIN: u64 = 30;

pub const LAG: Check = Check {
    id: "lag",
    area: Area::Cluster,
    title: "records that are not applied",
    looks_at: "records of the log that this node has seen and not applied",
    finds: || format!("warning when it saw the oldest one {LAG_S_MIN} s ago or earlier"),
    why: "other nodes answer the reads of a node that is behind, and it counts for nothing in a majority",
    look: |facts| {
        let cluster = cluster(facts)?;
        let (records, seconds) = cluster.lag;
        if seconds < LAG_S_MIN {
            return Ok(vec![]);
        }
        let says = format!("{records} records are not applied, the oldest one for {seconds} s");
        Ok(vec![
            Finding::new(Severity::Warning, cluster.me.clone(), says)
                .evidence(json!({"records": records, "seconds": seconds}))
                .act("settee cluster status $S   # the reasons of slots that are halted")
                .act("settee top $S   # whether its disk or its processor is the limit"),
        ])
    },
};

pub const CONNECTIONS: Check = Check {
    id: "node-connections",
    area: Area::Cluster,
    title: "connections to other nodes",
    looks_at: "live nodes to which this one has no connection",
    finds: || "warning of each".to_owned(),
    why: "this node receives from them and cannot send to them: their addresses are wrong, or a firewall lets only one direction pass",
    look: |facts| {
        let cluster = cluster(facts)?;
        if cluster.not_connected.is_empty() {
            return Ok(vec![]);
        }
        let names = cluster.not_connected.join(", ");
        let says = format!("no connection to nodes that are alive: {names}");
        Ok(vec![
            Finding::new(Severity::Warning, cluster.me.clone(), says)
                .evidence(json!({"nodes": cluster.not_connected}))
                .act("settee cluster status $S   # their addresses")
                .act("# check that this machine reaches the ports of these addresses"),
        ])
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::planted::severities;

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
            ..Cluster::default()
        }
    }

    #[test]
    fn a_server_alone_has_no_nodes() {
        for check in [NODES, SLOTS, MARGIN, LOG, LAG, CONNECTIONS] {
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
    #[test]
    fn a_node_that_is_cut_off_is_found() {
        let all = |cluster: &Cluster| {
            [LOG, LAG, CONNECTIONS].map(|check| severities(&check, cluster.clone()))
        };
        let healthy = Cluster {
            lag: (5_000, LAG_S_MIN - 1),
            ..cluster(&[true, true, true], true)
        };
        assert_eq!(all(&healthy), [vec![], vec![], vec![]]);
        let cut = Cluster {
            is_log_lost: true,
            lag: (1, LAG_S_MIN),
            not_connected: vec!["node2".into()],
            ..healthy
        };
        assert_eq!(
            all(&cut),
            [
                vec![Severity::Error],
                vec![Severity::Warning],
                vec![Severity::Warning]
            ]
        );
        let damaged = Cluster {
            is_log_own: true,
            halted_logs: vec!["0".into()],
            ..cut
        };
        let errors = vec![Severity::Error, Severity::Error];
        assert_eq!(severities(&LOG, damaged), errors);
    }
}
