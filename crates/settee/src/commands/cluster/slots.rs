//! The slots in the text of `settee cluster status`.

use std::collections::BTreeMap;

use serde_json::Value;

/// Maximum number of slots that are listed because they lack records.
const BEHIND_MAX: usize = 10;

/// Describes the slots, for people: how many take writes, faults, replicas and progress.
pub fn lines(status: &Value) -> Vec<String> {
    let slots = status["slots"].as_array().into_iter().flatten();
    let slots: Vec<&Value> = slots.filter(|slot| !is_left(status, slot)).collect();
    let able = slots.iter().filter(|slot| slot["takes_writes"] == true);
    let (able, all) = (able.count(), slots.len());
    let mut lines = vec![format!("slots: {able} of {all} take writes here")];
    for (reason, names) in grouped(&slots, |slot| slot["reason"].as_str().map(str::to_owned)) {
        lines.push(format!("  {}: {reason}", named(&names)));
    }
    if slots.is_empty() {
        return lines;
    }
    lines.push(replicas(status, &slots));
    let generations = grouped(&slots, |slot| Some(slot["generation"].to_string()));
    let counted = |(generation, names): &(String, Vec<&str>)| {
        let count = names.len();
        format!("{generation} in {count}")
    };
    let generations: Vec<String> = generations.iter().map(counted).collect();
    lines.push(format!("  generation: {}", generations.join(", ")));
    lines.extend(progress(&slots));
    lines
}

/// Returns whether this node has left a slot: it keeps the data for a while.
fn is_left(status: &Value, slot: &Value) -> bool {
    let lacks = |list: &str| {
        let nodes = slot[list].as_array();
        nodes.is_some_and(|nodes| !nodes.contains(&status["node"]))
    };
    is_placed(status) && ["members", "wanted", "learners"].into_iter().all(lacks)
}

/// Returns whether slots have some of the nodes only.
fn is_placed(status: &Value) -> bool {
    let placed = status["placement"].as_array();
    placed.is_some_and(|slots| !slots.is_empty())
}

/// Counts the slots of each node. A node that was removed counts until others have its slots.
fn replicas(status: &Value, slots: &[&Value]) -> String {
    let nodes: Vec<&Value> = status["nodes"].as_array().into_iter().flatten().collect();
    let numbers = nodes.iter().filter_map(|node| node["node"].as_str());
    let mut counts: BTreeMap<&str, usize> = numbers.map(|number| (number, 0)).collect();
    // Of the other slots this node may not have all.
    let here = slots
        .iter()
        .filter(|slot| !is_placed(status) || slot["slot"] == "control");
    let placed = status["placement"].as_array().into_iter().flatten();
    let placed = placed.map(|slot| &slot["replicas"]);
    for nodes in here.map(|slot| &slot["members"]).chain(placed) {
        let holders = nodes.as_array().into_iter().flatten();
        for number in holders.filter_map(Value::as_str) {
            *counts.entry(number).or_default() += 1;
        }
    }
    let name = |number: &str| {
        let node = nodes.iter().find(|node| node["node"] == number);
        let name = node.and_then(|node| node["name"].as_str());
        name.map_or_else(|| format!("{number} (not a member)"), str::to_owned)
    };
    let each = counts
        .iter()
        .map(|(&number, count)| format!("{count} on {}", name(number)));
    let each: Vec<String> = each.collect();
    format!("  replicas: {}", each.join(", "))
}

/// Compares the records that this node has applied with the end of the log.
fn progress(slots: &[&Value]) -> Vec<String> {
    let lack = |slot: &&Value| {
        let (next, end) = (slot["next_offset"].as_u64()?, slot["log_end"].as_u64()?);
        let name = slot["slot"].as_str().unwrap_or_default();
        (next < end).then(|| format!("  slot {name}: {next} of {end} records"))
    };
    let behind: Vec<String> = slots.iter().filter_map(lack).collect();
    let unknown = slots.iter().filter(|slot| slot["log_end"].is_null());
    let (unknown, all) = (unknown.count(), slots.len());
    let done = all - behind.len() - unknown;
    let more = match unknown {
        0 => String::new(),
        count => format!("; the end is unknown for {count}"),
    };
    let mut lines = vec![format!(
        "  records: {done} of {all} slots have all of the log here{more}"
    )];
    let hidden = behind.len().saturating_sub(BEHIND_MAX);
    lines.extend(behind.into_iter().take(BEHIND_MAX));
    if hidden > 0 {
        lines.push(format!("  and {hidden} more slots lack records"));
    }
    lines
}

/// Groups the names of slots by a property, in the order of the first slot of each group.
fn grouped<'a>(
    slots: &[&'a Value],
    property: impl Fn(&Value) -> Option<String>,
) -> Vec<(String, Vec<&'a str>)> {
    let mut groups: Vec<(String, Vec<&str>)> = vec![];
    for &slot in slots {
        let name = slot["slot"].as_str().unwrap_or_default();
        let Some(property) = property(slot) else {
            continue;
        };
        match groups.iter_mut().find(|(of, _)| *of == property) {
            Some((_, names)) => names.push(name),
            None => groups.push((property, vec![name])),
        }
    }
    groups
}

fn named(names: &[&str]) -> String {
    let slots = if names.len() == 1 { "slot" } else { "slots" };
    format!("{slots} {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slot(name: &str, reason: Option<&str>) -> Value {
        json!({"slot": name, "takes_writes": reason.is_none(), "reason": reason, "generation": 1,
            "members": ["a1", "b2"], "next_offset": 7, "log_end": 7})
    }

    fn status(slots: &[Value]) -> Value {
        let nodes = [("a1", "one@h"), ("c3", "three@h")];
        let nodes = nodes.map(|(number, name)| json!({"node": number, "name": name}));
        json!({"nodes": nodes, "slots": slots})
    }

    #[test]
    fn slots_with_the_same_fault_share_a_line() {
        let slots = [
            slot("control", Some("cut off")),
            slot("0", None),
            slot("1", Some("lost")),
            slot("2", Some("cut off")),
        ];
        assert_eq!(
            lines(&status(&slots))[..3],
            [
                "slots: 1 of 4 take writes here",
                "  slots control, 2: cut off",
                "  slot 1: lost",
            ]
        );
    }

    #[test]
    fn replicas_generations_and_missing_records_are_shown() {
        let mut slots = [slot("control", None), slot("0", None), slot("1", None)];
        slots[1]["generation"] = 2.into();
        slots[1]["log_end"] = 9.into();
        slots[2]["log_end"] = Value::Null;
        assert_eq!(
            lines(&status(&slots))[1..],
            [
                "  replicas: 3 on one@h, 3 on b2 (not a member), 0 on three@h",
                "  generation: 1 in 2, 2 in 1",
                "  records: 1 of 3 slots have all of the log here; the end is unknown for 1",
                "  slot 0: 7 of 9 records",
            ]
        );
    }

    #[test]
    fn slots_of_other_nodes_count_and_those_that_this_node_left_have_no_faults() {
        let mut slots = [
            slot("control", None),
            slot("0", None),
            slot("1", Some("left")),
        ];
        for slot in &mut slots {
            slot["wanted"] = slot["members"].clone();
            slot["learners"] = json!([]);
        }
        slots[2]["members"] = json!(["b2", "c3"]);
        slots[2]["wanted"] = json!(["b2", "c3"]);
        let mut status = status(&slots);
        status["node"] = json!("a1");
        let placed = |slot: u16, replicas: [&str; 2]| json!({"slot": slot, "replicas": replicas});
        status["placement"] = json!([placed(0, ["a1", "b2"]), placed(1, ["b2", "c3"])]);
        let lines = lines(&status);
        assert_eq!(
            lines[..2],
            [
                "slots: 2 of 2 take writes here",
                "  replicas: 2 on one@h, 3 on b2 (not a member), 1 on three@h",
            ]
        );
        status["placement"] = json!([]);
        assert!(super::lines(&status)[0].starts_with("slots: 2 of 3"));
    }

    #[test]
    fn a_node_that_starts_has_no_slots() {
        assert_eq!(lines(&status(&[])), ["slots: 0 of 0 take writes here"]);
    }
}
