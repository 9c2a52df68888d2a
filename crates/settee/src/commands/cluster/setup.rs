//! Names, addresses and messages of `init`, `join` and `recover`.

use std::path::Path;

use member::MemberInfo;

use crate::Failure;

pub fn facts(name: Option<&String>, address: &str) -> Result<MemberInfo, Failure> {
    let parts = address.rsplit_once(':');
    let Some((host, port)) = parts
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0))
    else {
        return Err(Failure::usage(format!(
            "--address must be HOST:PORT, where other nodes reach this one, not {address}"
        )));
    };
    let name = match name {
        Some(name) if name.contains('@') => name.clone(),
        Some(name) => format!("{name}@{host}"),
        None => format!("settee{port}@{host}"),
    };
    Ok(MemberInfo {
        name,
        address: address.to_owned(),
    })
}

pub fn check_cluster_name(name: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        true => Err(Failure::usage(
            "--cluster must consist of at most 64 letters, digits, - and _: on Kafka it is part of the names of topics",
        )),
        false => Ok(()),
    }
}

/// The commands that follow the creation of a cluster.
pub fn next_steps(data: &Path) -> String {
    format!(
        "Start it:         settee serve --data {}\n\
         Let others join:  settee cluster token http://ADMIN:PASSWORD@127.0.0.1:5984",
        data.display()
    )
}

/// Whether the directory belongs to a node already; prints that.
pub fn is_there(data: &Path) -> bool {
    let is_member = member::is_member(data);
    if is_member {
        say!("{} is a node of a cluster already", data.display());
    }
    is_member
}
