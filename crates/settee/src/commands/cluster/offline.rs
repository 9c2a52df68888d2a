//! Commands for the data directory of a server that is stopped: a single server that becomes a
//! cluster's first node, and a node whose cluster is lost.

use std::path::Path;
use std::time::Instant;

use command_line::counted;
use member::{AdoptedData, IdleStore, LeftData, MemberInfo, Membership, NewCluster};

use super::setup::{accepts, check_cluster_name, facts, next_steps, note_address};
use crate::Failure;
use crate::cli::{ClusterInit, ClusterRecover};
use crate::data::STORE;
use crate::record_version;

/// Maximum number of databases that are named.
const NAMED_MAX: usize = 10;

/// `settee cluster init --adopt`.
pub fn adopt(options: &ClusterInit, member: MemberInfo) -> Result<(), Failure> {
    let began = Instant::now();
    let store = open(&options.data)?;
    let new = NewCluster {
        name: options.cluster.clone(),
        slots: options.slots,
        member,
    };
    if options.dry_run {
        let data = store.data().map_err(Failure::new)?;
        say!(
            "{} would become the first node of the cluster {}, with {}.\n\
             {} Nothing was changed.",
            options.data.display(),
            new.name,
            described(&data),
            kept(&data)
        );
        note_address(&new.member.address);
        return Ok(());
    }
    let (home, data) = store.adopt(&new).map_err(Failure::new)?;
    say!(
        "{} was a single server. It is the first node of the cluster {} now: {}, number {:x}, {} slots.\n\
         It took over {}, in {:.1} s; nothing was copied.\n{}\n{}",
        options.data.display(),
        home.cluster.name,
        home.member.name,
        home.node,
        home.cluster.slots,
        described(&data),
        began.elapsed().as_secs_f64(),
        kept(&data),
        next_steps(&options.data)
    );
    note_address(&home.member.address);
    Ok(())
}

/// `settee cluster recover`.
pub fn recover(options: &ClusterRecover) -> Result<(), Failure> {
    check_cluster_name(&options.cluster)?;
    let store = open(&options.data)?;
    let known = record_version::latest()?;
    let left = store.left(known).map_err(Failure::new)?;
    left.check_name(&options.cluster).map_err(Failure::new)?;
    say!("{}", losses(&options.data, &left));
    let new = new_cluster(options, &left.former)?;
    if let Some(running) = running(&left) {
        return Err(Failure::new(running));
    }
    if options.dry_run {
        say!("Nothing was changed. With --accept-loss instead of --dry-run, this is done.");
        return Ok(());
    }
    let (home, data) = store.recover(&new, known).map_err(Failure::new)?;
    say!(
        "{} is the first node of the new cluster {} now: {}, number {:x}, {} slots, with {}.\n\
         Every other node of the cluster {} has to join again, with an empty --data.\n{}",
        options.data.display(),
        home.cluster.name,
        home.member.name,
        home.node,
        home.cluster.slots,
        described(&data),
        left.former.cluster.name,
        next_steps(&options.data)
    );
    Ok(())
}

fn open(data: &Path) -> Result<IdleStore, Failure> {
    IdleStore::open(data, &data.join(STORE)).map_err(Failure::new)
}

/// The new cluster is like the former one, unless the options say otherwise.
fn new_cluster(options: &ClusterRecover, former: &Membership) -> Result<NewCluster, Failure> {
    let address = options.address.as_ref().unwrap_or(&former.member.address);
    Ok(NewCluster {
        name: options.cluster.clone(),
        slots: options.slots.unwrap_or(former.cluster.slots),
        member: MemberInfo {
            name: former.member.name.clone(),
            ..facts(None, address)?
        },
    })
}

/// Describes the other nodes that run, for people; `None` if none does. Those of a cluster that is
/// not lost would continue as that cluster, and this node as another one.
fn running(left: &LeftData) -> Option<String> {
    let running = left.others.iter();
    let running = running.filter(|member| accepts(&member.address));
    let named = running.map(|member| format!("{} at {}", member.name, member.address));
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| {
        format!(
            "other nodes of the cluster {} run: {}. If more than half of its nodes are left, start this one again: nothing is lost. Otherwise stop them first, and never start them again",
            left.former.cluster.name,
            named.join(", ")
        )
    })
}

/// Describes what an adoption leaves as it is, for people.
fn kept(data: &AdoptedData) -> &'static str {
    match (data.was_nodes, data.was_prepared) {
        (false, false) => "Update sequences and indexes stay as they are.",
        (false, true) => {
            "An earlier run was interrupted: update sequences stay as they are since that one, and indexes as they are."
        }
        (true, _) => {
            "The store was that of a node: writes that it had not applied are missing, and feeds and replications start from the beginning. Indexes stay as they are."
        }
    }
}

fn described(data: &AdoptedData) -> String {
    let count = data.databases.len();
    let named = data.databases[..count.min(NAMED_MAX)].join(", ");
    let more = if count > NAMED_MAX { ", …" } else { "" };
    let names = match count {
        0 => String::new(),
        _ => format!(" ({named}{more})"),
    };
    format!(
        "{}{names} and {}",
        counted(count, "databases"),
        counted(data.documents, "documents")
    )
}

/// Describes the losses of a recovery, for people.
fn losses(data: &Path, left: &LeftData) -> String {
    let former = &left.former;
    let slots: Vec<String> = left
        .slots
        .iter()
        .map(|(slot, at)| {
            let at = format!("{}/{}", at.generation.number, at.next_offset);
            match usize::from(*slot) {
                number if number < usize::from(former.cluster.slots) => format!("{number}: {at}"),
                _ => format!("control: {at}"),
            }
        })
        .collect();
    let deleted = match &left.deleted[..] {
        [] => String::new(),
        names => format!(
            "\nNOT KEPT: databases that were deleted, or were being deleted, and whose data is still here: {}.",
            names.join(", ")
        ),
    };
    let elsewhere = match left.elsewhere.len() {
        0 => String::new(),
        count => {
            let named = left.elsewhere[..count.min(NAMED_MAX)].join(", ");
            let more = if count > NAMED_MAX { ", …" } else { "" };
            format!("\nLOST: {count} databases that only other nodes had: {named}{more}.")
        }
    };
    format!(
        "{} has the data of {}, a node of the cluster {}: {}.\n\
         Position of each slot, as generation/record: the first record that this node lacks: {}\n\
         LOST: the writes that this node has not applied, even if they were acknowledged. A node applies all\n\
         records that the log has: if the log is in Kafka, and works, start the node first, and let\n\
         `settee cluster status` show that all slots have all of the log. If several nodes are left, compare their positions by --dry-run, and\n\
         take the one with the highest; a later generation is higher. Never start the others again: they would\n\
         be a cluster with other data.\n\
         LOST: join tokens, continuous replications of _replicate, and the meaning of all update sequences:\n\
         feeds, replications and clients start from the beginning. Documents that a replication's target has\n\
         are not sent again.\n\
         KEPT: documents with all their revisions, attachments, security objects, users, indexes, local documents.{deleted}{elsewhere}",
        data.display(),
        former.member.name,
        former.cluster.name,
        described(&left.data),
        slots.join(", ")
    )
}
