//! Names, addresses and messages of `init`, `join` and `recover`.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use member::MemberInfo;

use crate::Failure;

/// Time limit to connect to another node.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

pub fn facts(name: Option<&String>, address: &str) -> Result<MemberInfo, Failure> {
    let parts = address.rsplit_once(':');
    let is_host = |host: &str| !host.is_empty() && !host.contains(is_never_in_hosts);
    let Some((host, port)) = parts
        .filter(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|port| port != 0))
    else {
        return Err(Failure::usage(format!(
            "--address must be HOST:PORT, where other nodes reach this one, not {address}"
        )));
    };
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || "/?#%".contains(c);
    if let Some(name) = name.filter(|name| name.is_empty() || name.contains(is_wrong)) {
        return Err(Failure::usage(format!(
            "--name is part of URLs: it must not be empty, and has no spaces and none of / ? # %, not {name:?}"
        )));
    }
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

/// Whether no name of a host and no IP address has a character; a URL has some of these.
fn is_never_in_hosts(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "/?#@".contains(c)
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

/// Describes an address that this machine does not have now, for people. `init` may run where the
/// address does not exist yet, as in a container that only prepares the directory.
fn address_note(address: &str) -> Option<String> {
    let e = TcpListener::bind(address).err()?;
    match e.kind() {
        ErrorKind::AddrInUse | ErrorKind::PermissionDenied => None,
        _ => Some(format!(
            "this machine cannot listen at {address} now ({e}), and the node will try that when it starts, unless [cluster] node_address names another one. If the address is wrong, remove the folder `cluster` of --data, and run this again with another --address"
        )),
    }
}

/// Prints a note about an address that this machine does not have now.
pub fn note_address(address: &str) {
    if let Some(note) = address_note(address) {
        eprintln!("settee: {note}");
    }
}

/// Whether something accepts connections at an address.
pub fn accepts(address: &str) -> bool {
    let addresses = address.to_socket_addrs().into_iter().flatten();
    let mut connected = addresses.map(|to| TcpStream::connect_timeout(&to, CONNECT_TIME_MAX));
    connected.any(|connection| connection.is_ok())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_characters_that_urls_give_a_meaning() {
        let of = |name: &str| facts(Some(&name.to_owned()), "h:1").map(|facts| facts.name);
        assert_eq!(of("one").ok().as_deref(), Some("one@h"));
        assert_eq!(of("one@other").ok().as_deref(), Some("one@other"));
        for name in ["", "a b", "a/b", "a\n", "50%"] {
            assert!(of(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_address_is_no_url() {
        for address in ["10.0.0.1:1", "db.example:1", "[::1]:1", "[fe80::1%eth0]:1"] {
            assert!(facts(None, address).is_ok(), "{address}");
        }
        for address in ["http://h:1", "a@h:1", "h/:1", "h :1", "h:0", ":1", "h"] {
            assert!(facts(None, address).is_err(), "{address}");
        }
    }

    #[test]
    fn an_address_of_another_machine_is_noted() {
        // TEST-NET-1: no machine has it.
        let note = address_note("192.0.2.1:5986").unwrap();
        assert!(note.contains("192.0.2.1:5986") && note.contains("--address"));
        assert_eq!(address_note("127.0.0.1:0"), None);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap().to_string();
        assert_eq!(address_note(&taken), None);
    }
}
