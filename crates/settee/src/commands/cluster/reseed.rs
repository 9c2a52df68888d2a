//! `settee cluster reseed`.

use reqwest::Method;
use serde_json::Value;

use super::request::ask;
use crate::Failure;
use crate::cli::ClusterReseed;

/// The path of the request.
const PATH: &str = "/_settee/cluster/reseed";

pub async fn run(options: &ClusterReseed) -> Result<(), Failure> {
    if options.dry_run {
        let status = ask(&options.url, Method::GET, "/_settee/cluster", None).await?;
        for line in plan(&status, options.slot.as_deref())? {
            say!("{line}");
        }
        return Ok(());
    }
    let slot = options.slot.as_ref();
    let path = slot.map_or(PATH.to_owned(), |slot| format!("{PATH}?slot={slot}"));
    ask(&options.url, Method::POST, &path, None).await?;
    say!(
        "a new generation begins; `settee cluster status` shows the generation of the slots, and when they take writes again"
    );
    Ok(())
}

/// Describes what a new generation would change, for people.
fn plan(status: &Value, only: Option<&str>) -> Result<Vec<String>, Failure> {
    let all = status["slots"].as_array().into_iter().flatten();
    let name = only.map(slot_name);
    let slots: Vec<&Value> = all
        .filter(|slot| name.as_deref().is_none_or(|name| slot["slot"] == name))
        .collect();
    if slots.is_empty() {
        return Err(Failure::usage(format!(
            "--slot {}: the cluster has no such slot, or the node at the URL does not have it",
            only.unwrap_or_default()
        )));
    }
    let nodes: Vec<&Value> = status["nodes"].as_array().into_iter().flatten().collect();
    let live = nodes
        .iter()
        .filter(|node| node["is_live"] == true || node["is_me"] == true)
        .count();
    let mut lines = vec![format!(
        "{live} of {} nodes answer; more than half have to.",
        nodes.len()
    )];
    lines.extend(leaderless(&status["log"]));
    for slot in slots {
        let state = match (slot["reason"].as_str(), slot["takes_writes"] == true) {
            (Some(reason), _) => reason,
            (None, true) => "it works, and needs no new generation",
            (None, false) => "it takes no writes here",
        };
        lines.push(format!(
            "slot {}: generation {} follows {}; this node has everything before offset {}, a majority before {}: {state}",
            slot["slot"].as_str().unwrap_or_default(),
            slot["generation"].as_u64().unwrap_or_default() + 1,
            slot["generation"],
            slot["next_offset"],
            slot["stable"],
        ));
    }
    if only.is_some() {
        let why = "It is refused if the log is gone, or is to move: then leave out --slot.";
        lines.push(why.to_owned());
    }
    lines.extend([
        "KEPT: all writes that were answered with 201. Each slot continues from the most advanced node that answers.".to_owned(),
        "LOST: records that only the log has. Writes that were answered with 202 or 503, or not at all, may be among them.".to_owned(),
        "Writes wait, or get a 503, for about 20 s. Nothing was changed.".to_owned(),
    ]);
    Ok(lines)
}

/// Describes what to do with slots without a leader: their log is lost, or its nodes are down.
fn leaderless(log: &Value) -> Option<String> {
    let count = log["leaderless"].as_u64().filter(|count| *count > 0)?;
    Some(format!(
        "The logs of {count} slots have no leader. If more than half of the nodes that keep the log still have it, start these: nothing else is needed. Otherwise the log is lost, and this creates another one."
    ))
}

/// Returns the name of a slot as the status has it: the server reads `03` as a number, too.
fn slot_name(given: &str) -> String {
    let number = given.parse::<u16>();
    number.map_or_else(|_| given.to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> Value {
        let slot = |name: &str, reason: Option<&str>| json!({"slot": name, "generation": 1, "next_offset": 7, "stable": 6, "takes_writes": reason.is_none(), "reason": reason});
        json!({
            "nodes": [{"is_live": false, "is_me": true}, {"is_live": true}, {"is_live": false}],
            "slots": [slot("0", None), slot("1", Some("it is lost")), slot("control", None)],
        })
    }

    #[test]
    fn a_plan_names_the_slots_and_what_is_lost() {
        let lines = plan(&status(), None).unwrap();
        assert!(lines[0].starts_with("2 of 3 nodes"), "{lines:?}");
        assert_eq!(lines.iter().filter(|l| l.starts_with("slot ")).count(), 3);
        assert!(
            lines[2].starts_with("slot 1: generation 2 follows 1")
                && lines[2].ends_with("it is lost")
        );
        assert!(lines.iter().any(|line| line.starts_with("LOST: ")));
    }

    #[test]
    fn a_slot_works_only_if_it_takes_writes() {
        let works = |status: &Value| {
            let lines = plan(status, Some("0")).unwrap();
            lines.iter().any(|line| line.contains("it works"))
        };
        let mut status = status();
        assert!(works(&status));
        status["slots"][0]["takes_writes"] = false.into();
        assert!(!works(&status));
        status["log"] = json!({"leaderless": 3});
        let lines = plan(&status, None).unwrap();
        assert!(lines[1].contains("3 slots have no leader"), "{lines:?}");
    }

    #[test]
    fn a_plan_for_one_slot_has_no_other() {
        let lines = plan(&status(), Some("control")).unwrap();
        assert_eq!(lines.iter().filter(|l| l.starts_with("slot ")).count(), 1);
        assert!(plan(&status(), Some("2")).is_err());
        let lines = plan(&status(), Some("01")).unwrap();
        assert!(lines[1].starts_with("slot 1: "), "{lines:?}");
        let warns = |lines: &[String]| lines.iter().any(|line| line.contains("the log is gone"));
        assert!(warns(&lines) && !warns(&plan(&status(), None).unwrap()));
    }
}
