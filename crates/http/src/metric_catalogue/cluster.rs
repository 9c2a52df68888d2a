//! Metrics of a server that is a node of a cluster; others do not have them.

use cluster::counters as of_slots;
use member::{ClusterFigures, LogFigures, PeerFigures, SlotFigures, counters};
use metrics::List;
use metrics::prometheus::Text;
use peers::Traffic;
use telemetry::Durations;

/// Adds the metrics of one number.
pub(super) fn list(list: &mut List, figures: &ClusterFigures) {
    list.gauges([
        (
            "settee/cluster/log_up",
            "1 while this node reaches the log of the cluster; otherwise 0",
            u64::from(figures.is_log_up),
        ),
        (
            "settee/cluster/fit",
            "0 while other nodes serve clients better than this one; otherwise 1",
            u64::from(figures.is_fit),
        ),
        (
            "settee/cluster/members",
            "nodes of the cluster",
            figures.members as u64,
        ),
        (
            "settee/cluster/members_down",
            "nodes of the cluster that have sent nothing to this one for 3 s",
            figures.members.saturating_sub(figures.live) as u64,
        ),
    ]);
    slots(list, &figures.slots);
    if let Some(own) = &figures.own_log {
        own_log(list, own);
    }
    forwards(list);
    contents(list);
}

fn slots(list: &mut List, slots: &SlotFigures) {
    list.gauges([
        (
            "settee/cluster/slots/all",
            "slots of this node, with the control slot",
            slots.all as u64,
        ),
        (
            "settee/cluster/slots/led",
            "slots whose replicas this node changes when that is necessary",
            slots.led as u64,
        ),
        (
            "settee/cluster/slots/under_replicated",
            "slots with fewer live replicas than they should have",
            slots.under_replicated as u64,
        ),
        (
            "settee/cluster/slots/halted",
            "slots that apply no records on this node",
            slots.halted as u64,
        ),
        (
            "settee/cluster/slots/refusing",
            "slots that accept no writes on this node",
            slots.refusing as u64,
        ),
        (
            "settee/cluster/lag/records",
            "records of the log that this node has seen and has not applied",
            slots.lag_records,
        ),
        (
            "settee/cluster/lag/seconds",
            "time since this node first saw the oldest record that it has not applied; 0 without one",
            slots.lag.as_secs(),
        ),
        (
            "settee/cluster/unstable_records",
            "records that this node has applied and that a majority is not known to have",
            slots.unstable_records,
        ),
        (
            "settee/cluster/waiting/writes",
            "writes that wait for the log or for other nodes",
            slots.writes_waiting as u64,
        ),
        (
            "settee/cluster/waiting/reads",
            "reads that wait for other nodes",
            slots.reads_waiting as u64,
        ),
    ]);
}

/// The log that the nodes keep; absent with Kafka.
fn own_log(list: &mut List, log: &LogFigures) {
    list.gauges([
        (
            "settee/cluster/log/nodes",
            "nodes that keep the log of the cluster",
            log.log_nodes.len() as u64,
        ),
        (
            "settee/cluster/log/led",
            "slots whose log this node leads",
            log.led.len() as u64,
        ),
        (
            "settee/cluster/log/unsettled",
            "slots whose log this node leads, and which other nodes keep than those of the table",
            log.unsettled.len() as u64,
        ),
        (
            "settee/cluster/log/leaderless",
            "slots whose log is on this node and has no leader that it knows",
            log.leaderless.len() as u64,
        ),
        (
            "settee/cluster/log/halted",
            "slots whose log is damaged on this node, which takes no part in it",
            log.halted.len() as u64,
        ),
        (
            "settee/cluster/log/bytes",
            "bytes of the log on the disk of this node",
            log.bytes,
        ),
    ]);
}

fn forwards(list: &mut List) {
    list.counters([
        (
            "settee/cluster/forwarded/writes",
            "number of writes that were forwarded to another node",
            counters::FORWARDED_WRITES.get(),
        ),
        (
            "settee/cluster/forwarded/requests",
            "number of clients' requests that were forwarded to another node",
            counters::FORWARDED_REQUESTS.get(),
        ),
        (
            "settee/cluster/forwarded/gathered",
            "number of requests to other nodes for their parts of a response",
            counters::GATHERED_REQUESTS.get(),
        ),
        (
            "settee/cluster/forwarded/failures",
            "number of all these that the other node did not answer or could not execute",
            counters::FORWARD_FAILURES.get(),
        ),
        (
            "settee/cluster/copies/installed",
            "number of slots that were copied from other nodes",
            counters::COPIES_INSTALLED.get(),
        ),
        (
            "settee/cluster/copies/failures",
            "number of copies of slots that were not completed",
            counters::COPY_FAILURES.get(),
        ),
        (
            "settee/cluster/copies/received_bytes",
            "bytes of slots that were received from other nodes",
            counters::COPY_BYTES.get(),
        ),
        (
            "settee/cluster/copies/sent",
            "number of copies of slots that this node began to send",
            counters::COPIES_SENT.get(),
        ),
    ]);
}

fn contents(list: &mut List) {
    list.counters([
        (
            "settee/cluster/contents/staged",
            "number of attachments that were copied to a majority of the nodes before a write named them",
            counters::CONTENTS_STAGED.get(),
        ),
        (
            "settee/cluster/contents/fetched",
            "number of attachments that this node lacked for a write and fetched from another node",
            counters::CONTENTS_FETCHED.get(),
        ),
        (
            "settee/cluster/contents/failures",
            "number of failed attempts to copy an attachment to another node or to fetch it from others",
            counters::CONTENT_FAILURES.get(),
        ),
        (
            "settee/cluster/contents/sent_bytes",
            "bytes of attachments that were sent to other nodes",
            counters::CONTENT_BYTES_SENT.get(),
        ),
        (
            "settee/cluster/contents/received_bytes",
            "bytes of attachments that were received from other nodes",
            counters::CONTENT_BYTES_RECEIVED.get(),
        ),
    ]);
}

/// Appends the metrics with labels.
pub(super) fn write(figures: &ClusterFigures, text: &mut Text) {
    steps(text);
    if figures.own_log.is_some() {
        let name = "settee_cluster_log_sync_seconds";
        let help = "time of writes to the disk of the log, with their syncs";
        text.head(name, "histogram", help);
        text.durations(name, &[], &counters::LOG_SYNCED);
    }
    let peers = &figures.peers;
    let live = |peer: &PeerFigures| u64::from(peer.is_live);
    let head = (
        "settee_cluster_node_live",
        "gauge",
        "1 while this node receives from another one, by its name; otherwise 0",
    );
    by_node(text, head, peers, live);
    for (name, kind, help, of) in MESSAGES {
        by_node(text, (name, kind, help), peers, |peer| of(&peer.traffic));
    }
}

/// The steps of a write.
fn steps(text: &mut Text) {
    let name = "settee_cluster_write_seconds";
    let help = "time of writes that this node proposed by step: waiting, in the log, until this node applied it, until enough nodes had it";
    text.head(name, "histogram", help);
    let steps: [(&str, &Durations); 4] = [
        ("queue", &of_slots::QUEUED),
        ("log", &of_slots::LOGGED),
        ("apply", &of_slots::APPLIED),
        ("acknowledge", &of_slots::ACKNOWLEDGED),
    ];
    for (step, times) in steps {
        text.durations(name, &[("step", step)], times);
    }
}

fn by_node(
    text: &mut Text,
    head: (&str, &str, &str),
    peers: &[PeerFigures],
    of: impl Fn(&PeerFigures) -> u64,
) {
    let values = peers.iter().map(|peer| (&peer.name, of(peer) as f64));
    text.by(head, "node", values);
}

type OfTraffic = fn(&Traffic) -> u64;

/// Messages between this node and each other one: names, kinds, descriptions and values.
const MESSAGES: [(&str, &str, &str, OfTraffic); 7] = [
    (
        "settee_cluster_messages_waiting",
        "gauge",
        "messages that wait to be sent, by the node that they are for",
        |of| of.waiting,
    ),
    (
        "settee_cluster_messages_waiting_bytes",
        "gauge",
        "bytes of messages that wait to be sent, by the node that they are for",
        |of| of.waiting_bytes,
    ),
    (
        "settee_cluster_messages_sent_total",
        "counter",
        "messages that were sent, by the node that they were for",
        |of| of.sent,
    ),
    (
        "settee_cluster_messages_sent_bytes_total",
        "counter",
        "bytes of messages that were sent, by the node that they were for",
        |of| of.sent_bytes,
    ),
    (
        "settee_cluster_messages_dropped_total",
        "counter",
        "messages that were dropped because too many waited, by the node that they were for",
        |of| of.dropped,
    ),
    (
        "settee_cluster_messages_received_total",
        "counter",
        "messages that were received, by the node that sent them",
        |of| of.received,
    ),
    (
        "settee_cluster_messages_received_bytes_total",
        "counter",
        "bytes of messages that were received, by the node that sent them",
        |of| of.received_bytes,
    ),
];
