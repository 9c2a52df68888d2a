//! `settee cluster place`, `drain` and `undrain`: the nodes of slots.

use reqwest::Method;
use serde_json::{Value, json};

use super::request::{ask, node_at};
use crate::Failure;
use crate::cli::{ClusterDrain, ClusterPlace};

pub async fn place(options: &ClusterPlace) -> Result<(), Failure> {
    let is_set = options.copies.is_some() || options.everywhere;
    let mut body = json!({"dry_run": options.dry_run || !is_set});
    if is_set {
        body["copies"] = json!(options.copies);
    }
    let path = "/_settee/cluster/place";
    let plan = ask(&options.url, Method::POST, path, Some(body)).await?;
    match options.json {
        true => say!("{plan:#}"),
        false => plan_lines(&plan).iter().for_each(|line| say!("{line}")),
    }
    Ok(())
}

pub async fn drain(options: &ClusterDrain, is_draining: bool) -> Result<(), Failure> {
    let node = node_at(&options.url, options.node.as_ref()).await?;
    let path = format!("/_settee/cluster/nodes/{node}");
    let body = json!({"draining": is_draining});
    ask(&options.url, Method::PUT, &path, Some(body)).await?;
    match is_draining {
        true => say!(
            "the slots of {node} move to other nodes; `settee cluster status` shows how many are left on it"
        ),
        false => say!("{node} gets slots again"),
    }
    Ok(())
}

/// Returns a head, and a line for each node.
fn plan_lines(plan: &Value) -> Vec<String> {
    let copies = match plan["copies"].as_u64() {
        Some(copies) => format!("each slot has {copies} nodes"),
        None => "each slot has all nodes".to_owned(),
    };
    let copies = match plan["everywhere"].as_u64() {
        Some(count) if count > 0 && !plan["copies"].is_null() => {
            format!("{copies} (slots that all nodes keep: {count})")
        }
        _ => copies,
    };
    let head = format!("{copies}; slots to copy: {}", plan["moves"]);
    let line = |cells: [&str; 5]| {
        let [name, zone, slots, planned, moves] = cells;
        format!("{name:<28} {zone:<16} {slots:>6} {planned:>8} {moves:>8}")
    };
    let mut lines = vec![head, line(["node", "zone", "slots", "planned", "to copy"])];
    for node in plan["nodes"].as_array().into_iter().flatten() {
        let text = |member: &str| node[member].as_str().unwrap_or_default();
        let number = |member: &str| node[member].to_string();
        let [slots, planned, moves] = ["slots", "planned_slots", "moves"].map(number);
        let mut cells = line([text("name"), text("zone"), &slots, &planned, &moves]);
        if node["is_draining"] == true {
            cells.push_str("  draining");
        }
        lines.push(cells);
    }
    lines
}

/// Returns the end of a node's line in the status of a cluster: its zone, its number of slots if slots
/// have only some of the nodes, and whether it is being drained.
pub fn of_node(status: &Value, node: &Value) -> String {
    let zone = node["zone"].as_str();
    let mut text = zone.map_or(String::new(), |zone| format!(", zone {zone}"));
    let placed = placed_slots(status);
    if !placed.is_empty() {
        let is_here =
            |slot: &&Value| nodes_in(&slot["replicas"]).contains(&node["node"].to_string());
        let count = placed.iter().filter(is_here).count();
        text.push_str(&format!(", slots: {count}"));
    }
    if node["is_draining"] == true {
        text.push_str(", draining");
    }
    text
}

/// Returns the line of the status of a cluster with the number of nodes of each slot, and of slots
/// whose nodes change.
pub fn of_slots(status: &Value) -> String {
    let copies = match status["copies"].as_u64() {
        Some(copies) => format!("{copies} of each slot"),
        None => "every node has every slot".to_owned(),
    };
    let (slots, actual) = match placed_slots(status) {
        [] => (array(&status["slots"]), "members"),
        placed => (placed, "replicas"),
    };
    // A server of an earlier version does not report what is wanted.
    let slots = slots.iter().filter(|slot| slot["wanted"].is_array());
    let differs = |slot: &&Value| nodes_in(&slot["wanted"]) != nodes_in(&slot[actual]);
    match slots.filter(differs).count() {
        0 => format!("copies: {copies}"),
        moving => format!("copies: {copies}; slots whose nodes change: {moving}"),
    }
}

/// Returns the slots that have only some of the nodes.
fn placed_slots(status: &Value) -> &[Value] {
    array(&status["placement"])
}

fn array(list: &Value) -> &[Value] {
    list.as_array().map_or(&[][..], Vec::as_slice)
}

fn nodes_in(list: &Value) -> Vec<String> {
    let mut nodes: Vec<String> = array(list).iter().map(Value::to_string).collect();
    nodes.sort();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_a_line_for_each_node() {
        let node = |name: &str, zone: &str, slots: u64, planned: u64, is_draining: bool| {
            json!({"name": name, "zone": zone, "slots": slots, "planned_slots": planned,
                   "moves": planned.saturating_sub(slots), "is_draining": is_draining})
        };
        let nodes = [
            node("a@h", "east", 16, 10, true),
            node("b@h", "", 0, 9, false),
        ];
        let lines = plan_lines(&json!({"copies": 3, "moves": 9, "nodes": nodes}));
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let cells: Vec<Vec<String>> = lines.iter().map(|line| cells(line)).collect();
        assert_eq!(lines[0], "each slot has 3 nodes; slots to copy: 9");
        let lines = plan_lines(&json!({"copies": 3, "everywhere": 2, "moves": 0, "nodes": []}));
        assert_eq!(
            lines[0],
            "each slot has 3 nodes (slots that all nodes keep: 2); slots to copy: 0"
        );
        assert_eq!(cells[2], ["a@h", "east", "16", "10", "0", "draining"]);
        assert_eq!(cells[3], ["b@h", "0", "9", "9"]);
    }

    #[test]
    fn a_status_tells_wanted_and_actual_nodes_apart() {
        let slot = |members: [&str; 2]| json!({"members": members, "wanted": ["1", "2"]});
        let slots = json!([slot(["2", "1"]), slot(["1", "3"])]);
        let status = of_slots(&json!({"copies": 2, "slots": slots}));
        assert_eq!(
            status,
            "copies: 2 of each slot; slots whose nodes change: 1"
        );
        let all = of_slots(&json!({"copies": null, "slots": [slot(["2", "1"])]}));
        assert_eq!(all, "copies: every node has every slot");
        let node = json!({"zone": "east", "is_draining": true});
        assert_eq!(of_node(&json!({}), &node), ", zone east, draining");
        let other = json!({"node": "a", "zone": null, "is_draining": false});
        assert_eq!(of_node(&json!({}), &other), "");
        let slot = |replicas: [&str; 2]| json!({"replicas": replicas, "wanted": ["a", "b"]});
        let placement = json!([slot(["a", "b"]), slot(["b", "c"])]);
        let status = json!({"copies": 2, "placement": placement, "slots": []});
        assert_eq!(of_node(&status, &other), ", slots: 1");
        assert_eq!(
            of_slots(&status),
            "copies: 2 of each slot; slots whose nodes change: 1"
        );
    }
}
