//! The record versions of a cluster.

use metrics::prometheus::Text;

use crate::app::App;

/// Appends them, if this server is a member of a cluster.
pub fn write(app: &App, text: &mut Text) {
    let Some(member) = app.node.member() else {
        return;
    };
    let in_force = f64::from(u8::from(member.record_versions().in_force));
    let name = "settee_cluster_record_version";
    let help = "version of the cluster's records that is in force";
    text.number(name, "gauge", help, in_force);
    let nodes = member.nodes().into_iter();
    let nodes = nodes.map(|node| (node.name, f64::from(u8::from(node.record_version))));
    let head = (
        "settee_cluster_node_record_version",
        "gauge",
        "latest version of records that a node reads, by node",
    );
    text.by(head, "node", nodes);
}
