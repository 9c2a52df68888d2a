//! The slots in the text of `settee cluster status`.

use serde_json::Value;

/// Describes the slots, for people: how many take writes, and what is wrong with the others.
pub fn lines(status: &Value) -> Vec<String> {
    let slots: Vec<&Value> = status["slots"].as_array().into_iter().flatten().collect();
    let able = slots.iter().filter(|slot| slot["takes_writes"] == true);
    let (able, all) = (able.count(), slots.len());
    let mut lines = vec![format!("slots: {able} of {all} take writes here")];
    for (reason, names) in grouped(&slots, |slot| slot["reason"].as_str().map(str::to_owned)) {
        lines.push(format!("  {}: {reason}", named(&names)));
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

    #[test]
    fn slots_with_the_same_fault_share_a_line() {
        let slot = |name: &str, reason: Option<&str>| json!({"slot": name, "takes_writes": reason.is_none(), "reason": reason});
        let status = json!({"slots": [
            slot("control", Some("cut off")), slot("0", None), slot("1", Some("lost")), slot("2", Some("cut off")),
        ]});
        assert_eq!(
            lines(&status),
            [
                "slots: 1 of 4 take writes here",
                "  slots control, 2: cut off",
                "  slot 1: lost",
            ]
        );
    }
}
