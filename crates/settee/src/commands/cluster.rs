//! `settee cluster`: creating, joining, showing and leaving a cluster.

mod offline;
mod placement;
mod request;
mod reseed;
mod setup;
mod slots;

use std::path::Path;

use config::{Config, Layers};
use member::{LogKeeper, Membership};
use reqwest::Method;
use serde_json::{Value, json};

use self::request::ask;
use self::setup::{accepts, check_cluster_name, facts, is_there, next_steps, note_address};
use crate::Failure;
use crate::cli::{ClusterCommand, ClusterInit, ClusterJoin, ClusterRecover};
use crate::data::STORE;
use crate::owner::work_as_owner_of;
use crate::record_version;

/// Validity of a token that is used immediately.
const JOINS_WITHIN_S: u64 = 60;

pub fn run(command: &ClusterCommand) -> Result<(), Failure> {
    // reqwest takes the process's provider; ring builds without a C toolchain of its own. Set already is fine too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match command {
        ClusterCommand::Init(ClusterInit { data, .. })
        | ClusterCommand::Join(ClusterJoin { data, .. })
        | ClusterCommand::Recover(ClusterRecover { data, .. }) => work_as_owner_of(data)?,
        _ => {}
    }
    let runtime = super::runtime()?;
    match command {
        ClusterCommand::Init(options) => init(options),
        ClusterCommand::Join(options) => runtime.block_on(join(options)),
        ClusterCommand::Token { url, seconds } => runtime.block_on(async {
            say!("{}", token(url, *seconds).await?);
            Ok(())
        }),
        ClusterCommand::Status { url, json } => runtime.block_on(async {
            let answer = ask(url, Method::GET, "/_settee/cluster", None).await?;
            match json {
                true => say!("{answer:#}"),
                false => show(&answer),
            }
            Ok(())
        }),
        ClusterCommand::BenchNetwork { url, seconds, json } => runtime.block_on(async {
            let body = json!({"seconds": seconds});
            let path = "/_settee/cluster/bench-network";
            let answer = ask(url, Method::POST, path, Some(body)).await?;
            match json {
                true => say!("{answer:#}"),
                false => show_network(&answer),
            }
            Ok(())
        }),
        ClusterCommand::Place(options) => runtime.block_on(placement::place(options)),
        ClusterCommand::Drain(options) => runtime.block_on(placement::drain(options, true)),
        ClusterCommand::Undrain(options) => runtime.block_on(placement::drain(options, false)),
        ClusterCommand::Leave { url, node } => runtime.block_on(leave(url, node.as_deref())),
        ClusterCommand::Recover(options) => offline::recover(options),
        ClusterCommand::Reseed(options) => runtime.block_on(reseed::run(options)),
    }
}

fn init(options: &ClusterInit) -> Result<(), Failure> {
    check_cluster_name(&options.cluster)?;
    let facts = facts(options.name.as_ref(), &options.address)?;
    if options.if_absent && is_there(&options.data) {
        return Ok(());
    }
    if let Some(node) = options.unless.iter().find(|address| accepts(address)) {
        return Err(Failure::new(format!(
            "a node listens at {node}: the cluster exists already, and the data of this node was lost. Have this node leave (`settee cluster leave URL --node NAME`), and join again"
        )));
    }
    if options.adopt {
        return offline::adopt(options, facts);
    }
    require_unused(&options.data)?;
    make(&options.data)?;
    let home = member::init(&options.data, &options.cluster, options.slots, facts);
    let home = home.map_err(Failure::new)?;
    let (data, member) = (options.data.display(), &home.member);
    say!(
        "{data} is the first node of the cluster {}: {}, number {:x}, {} slots.\n{}",
        home.cluster.name,
        member.name,
        home.node,
        home.cluster.slots,
        next_steps(&options.data)
    );
    note_address(&member.address);
    Ok(())
}

async fn join(options: &ClusterJoin) -> Result<(), Failure> {
    let facts = facts(options.name.as_ref(), &options.address)?;
    if options.if_absent && is_there(&options.data) {
        return Ok(());
    }
    // Before the token is used up.
    require_unused(&options.data)?;
    let token = match (&options.token, &options.through) {
        (Some(token), _) => token.clone(),
        (None, Some(url)) => token(url, JOINS_WITHIN_S).await?,
        (None, None) => return Err(Failure::usage("join wants --token or --through")),
    };
    make(&options.data)?;
    let listen = options.listen.as_ref().unwrap_or(&options.address);
    let version = record_version::latest()?;
    let home = member::join(&options.data, &token, facts, listen, version).await;
    let (home, settings) = home.map_err(Failure::new)?;
    take_over(&options.data, settings)?;
    let data = options.data.display();
    say!(
        "{data} is a node of the cluster {}: {}, number {:x}.\n\
         Start it:  settee serve --data {data}{}",
        home.cluster.name,
        home.member.name,
        home.node,
        kafka_setting(&home)
    );
    Ok(())
}

/// The option that a node of a cluster on Kafka starts with.
fn kafka_setting(home: &Membership) -> &'static str {
    match home.keeper() {
        LogKeeper::Kafka { .. } => " --set cluster/log=kafka://HOST:PORT",
        LogKeeper::Undecided | LogKeeper::Nodes(_) => "",
    }
}

/// A token that lets one node join within this number of seconds.
async fn token(url: &str, seconds: u64) -> Result<String, Failure> {
    let body = json!({"seconds": seconds});
    let answer = ask(url, Method::POST, "/_settee/cluster/tokens", Some(body)).await?;
    let token = answer["token"].as_str().unwrap_or_default();
    Ok(token.to_owned())
}

/// Keeps the settings that all nodes have alike in the new node's `local.ini`.
fn take_over(data: &Path, settings: Vec<(String, String, String)>) -> Result<(), Failure> {
    let config = Config::load(Layers::new(data.join("local.ini"))).map_err(Failure::new)?;
    let mine = |(section, key, _): &(String, String, String)| node::may_be_taken_over(section, key);
    // Another node cannot name files, commands or hosts of this machine.
    for (section, key, value) in settings.into_iter().filter(mine) {
        let set = config.set(&section, &key, &value, true);
        set.map_err(Failure::new)?;
    }
    Ok(())
}

/// Removes a node, by default the one at the URL.
async fn leave(url: &str, node: Option<&str>) -> Result<(), Failure> {
    let status = ask(url, Method::GET, "/_settee/cluster", None).await?;
    let node = node.unwrap_or_else(|| status["node"].as_str().unwrap_or_default());
    let path = format!("/_settee/cluster/nodes/{node}");
    ask(url, Method::DELETE, &path, None).await?;
    say!(
        "{} is no longer a member; stop it once `settee cluster status` of another node lists no replicas on it",
        described(&status, node)
    );
    Ok(())
}

/// Returns the name and the number of a node, which either of them names.
fn described(status: &Value, node: &str) -> String {
    let mut nodes = status["nodes"].as_array().into_iter().flatten();
    let known = nodes.find(|known| known["name"] == node || known["node"] == node);
    let text = |name: &str| known.and_then(|known| known[name].as_str());
    match (text("name"), text("node")) {
        (Some(name), Some(number)) => format!("{name}, number {number},"),
        _ => node.to_owned(),
    }
}

fn require_unused(data: &Path) -> Result<(), Failure> {
    member::require_unused(data, &data.join(STORE)).map_err(Failure::new)
}

fn make(data: &Path) -> Result<(), Failure> {
    let made = std::fs::create_dir_all(data);
    made.map_err(|e| Failure::new(format!("{}: {e}", data.display())))
}

/// Describes a cluster without this node among its members, for people.
fn outside(status: &Value) -> Option<&'static str> {
    let nodes = status["nodes"].as_array()?;
    match nodes.iter().any(|node| node["is_me"] == true) {
        true => None,
        false if nodes.is_empty() => Some("this node has not read the state of the cluster yet"),
        false => Some(
            "this node is not a member: it was removed, or has not read the state of the cluster yet",
        ),
    }
}

/// For people.
fn show(status: &Value) {
    let empty = vec![];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    say!("nodes:");
    for node in status["nodes"].as_array().unwrap_or(&empty) {
        let state = match (node["is_me"].as_bool(), node["is_live"].as_bool()) {
            (Some(true), _) => "this node",
            (_, Some(true)) => "alive",
            _ => "does not answer",
        };
        let (number, name, address) = (&node["node"], &node["name"], &node["address"]);
        say!(
            "  {:<10} {:<28} {:<22} record version {:<4} {state}{}",
            text(number),
            text(name),
            text(address),
            node["record_version"],
            placement::of_node(status, node)
        );
    }
    if let Some(outside) = outside(status) {
        say!("  {outside}");
    }
    say!("{}", record_versions(status));
    for line in log_lines(&status["log"]) {
        say!("{line}");
    }
    say!("{}", placement::of_slots(status));
    for line in slots::lines(status) {
        say!("{line}");
    }
}

/// The nodes that keep the log, and faults of it on this node.
fn log_lines(log: &Value) -> Vec<String> {
    if log["kept_by"] != "nodes" {
        return vec![];
    }
    let names = log["nodes"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    let mib = log["bytes"].as_u64().unwrap_or_default() >> 20;
    let (led, names) = (&log["led"], names.join(", "));
    let mut lines = vec![format!(
        "log: kept by {names}; {mib} MiB here, {led} slots led by this node"
    )];
    for (count, what) in [
        (&log["leaderless"], "have no leader that this node knows"),
        (&log["unsettled"], "are being moved to these nodes"),
    ] {
        if count.as_u64().is_some_and(|count| count > 0) {
            lines.push(format!("  the logs of {count} slots {what}"));
        }
    }
    for halted in log["halted"].as_array().into_iter().flatten() {
        let text = |name: &str| halted[name].as_str().unwrap_or_default();
        let (slot, reason) = (text("slot"), text("reason"));
        lines.push(format!("  the log of slot {slot} is halted here: {reason}"));
    }
    lines
}

/// The version in force, and what keeps the cluster from a later one.
fn record_versions(status: &Value) -> String {
    let in_force = &status["record_version"]["in_force"];
    let empty = vec![];
    let nodes = status["nodes"].as_array().unwrap_or(&empty);
    let version = |node: &Value| node["record_version"].as_u64().unwrap_or_default();
    let latest = nodes.iter().map(version).max().unwrap_or_default();
    let older = nodes.iter().filter(|node| version(node) < latest);
    let older: Vec<&str> = older.filter_map(|node| node["name"].as_str()).collect();
    match older.is_empty() {
        true => format!("record version: {in_force} is in force"),
        false => format!(
            "record version: {in_force} is in force; {latest} follows when these nodes run a newer program: {}",
            older.join(", ")
        ),
    }
}

fn show_network(answer: &Value) {
    for line in network_lines(answer) {
        say!("{line}");
    }
}

/// A line for each node that was measured, below a head.
fn network_lines(answer: &Value) -> Vec<String> {
    let from = answer["node"].as_str().unwrap_or_default();
    let head = ["p50 ms", "p99 ms", "sent MB/s", "received MB/s"];
    let line = |name: &str, [p50, p99, sent, received]: [&str; 4]| {
        format!("{name:<28} {p50:>9} {p99:>9} {sent:>10} {received:>14}")
    };
    let mut lines = vec![line(&format!("from {from} to"), head)];
    for node in answer["nodes"].as_array().into_iter().flatten() {
        let name = node["node"].as_str().unwrap_or_default();
        if let Some(error) = node["error"].as_str() {
            lines.push(format!("{name:<28} {error}"));
            continue;
        }
        let number = |member: &str, digits: usize, unit: f64| {
            let n = node[member].as_f64().unwrap_or_default() / unit;
            format!("{n:.digits$}")
        };
        let cells = [
            number("p50_us", 3, 1e3),
            number("p99_us", 3, 1e3),
            number("sent_bytes_per_s", 1, 1e6),
            number("received_bytes_per_s", 1, 1e6),
        ];
        lines.push(line(name, cells.each_ref().map(String::as_str)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_that_are_to_be_updated_are_named() {
        let status = |versions: [u8; 3]| {
            let nodes = versions.iter().zip(["a", "b", "c"]);
            let nodes = nodes.map(|(n, name)| json!({"name": name, "record_version": n}));
            let nodes: Vec<Value> = nodes.collect();
            json!({"record_version": {"in_force": 1}, "nodes": nodes})
        };
        let done = record_versions(&status([2, 2, 2]));
        assert_eq!(done, "record version: 1 is in force");
        let left = record_versions(&status([2, 1, 1]));
        assert!(left.ends_with("2 follows when these nodes run a newer program: b, c"));
    }

    #[test]
    fn a_node_that_was_removed_is_described_as_no_member() {
        let of = |nodes: Value| outside(&json!({"nodes": nodes})).unwrap_or_default();
        assert_eq!(of(json!([{"is_me": false}, {"is_me": true}])), "");
        assert!(of(json!([{"is_me": false}])).contains("is not a member"));
        assert!(of(json!([])).contains("not read"));
    }

    #[test]
    fn a_node_is_described_by_name_and_number() {
        let status = json!({"nodes": [{"name": "a@h", "node": "1f"}]});
        for node in ["a@h", "1f"] {
            assert_eq!(described(&status, node), "a@h, number 1f,");
        }
        assert_eq!(described(&status, "b@h"), "b@h");
    }

    #[test]
    fn the_nodes_that_keep_the_log_are_named() {
        assert!(log_lines(&json!({"kept_by": "kafka", "number": 0})).is_empty());
        let mut log = json!({"kept_by": "nodes", "nodes": ["a@h", "b@h"], "led": 3, "bytes": 5 << 20,
            "unsettled": 0, "leaderless": 0, "halted": []});
        let line = "log: kept by a@h, b@h; 5 MiB here, 3 slots led by this node";
        assert_eq!(log_lines(&log), [line]);
        log["leaderless"] = 2.into();
        log["halted"] = json!([{"slot": "control", "reason": "it is damaged"}]);
        let lines = log_lines(&log);
        assert_eq!(
            lines[1],
            "  the logs of 2 slots have no leader that this node knows"
        );
        assert_eq!(
            lines[2],
            "  the log of slot control is halted here: it is damaged"
        );
    }

    #[test]
    fn another_node_sets_only_what_nodes_share() {
        let dir = tempfile::tempdir().unwrap();
        let sent = [
            ("admins", "anna", "-pbkdf2-x"),
            ("query_servers", "evil", "/bin/sh"),
            ("log", "file", "/tmp/x"),
            ("chttpd", "port", "1"),
        ];
        let sent = sent
            .map(|(section, key, value)| (section.to_owned(), key.to_owned(), value.to_owned()));
        take_over(dir.path(), sent.to_vec()).unwrap();
        let ini = std::fs::read_to_string(dir.path().join("local.ini")).unwrap();
        assert!(ini.contains("anna"), "{ini}");
        for other in ["evil", "/tmp/x", "port"] {
            assert!(!ini.contains(other), "{ini}");
        }
    }
    #[test]
    fn measured_nodes_are_lines_of_a_table() {
        let answer = json!({"node": "a@h", "nodes": [
            {"node": "b@h", "p50_us": 120, "p99_us": 4500, "sent_bytes_per_s": 812_345_678,
             "received_bytes_per_s": 99_000_000},
            {"node": "c@h", "error": "it does not answer"},
        ]});
        let lines = network_lines(&answer);
        let cells: Vec<Vec<&str>> = lines
            .iter()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(cells[0][..3], ["from", "a@h", "to"]);
        assert_eq!(cells[1], ["b@h", "0.120", "4.500", "812.3", "99.0"]);
        assert_eq!(cells[2][1..].join(" "), "it does not answer");
    }
}
