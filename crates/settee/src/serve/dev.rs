//! `--dev`: a server without logins, for the programs of a developer's machine.

use std::net::IpAddr;

use config::Config;
use http_api::Dev;

use super::welcome::say;
use crate::Failure;
use crate::cli::ServeOptions;

/// Returns the rules of a server without logins, if it is to be one.
///
/// # Errors
/// It would be reachable from other machines, or is a node of a cluster, whose other nodes have logins.
pub fn rules(
    options: &ServeOptions,
    config: &Config,
    is_member: bool,
) -> Result<Option<Dev>, Failure> {
    if !options.dev {
        return Ok(None);
    }
    if is_member {
        return Err(Failure::usage(
            "--dev never runs a node of a cluster: without logins, every program could change the data of all nodes. Start it without --dev, or use another --data",
        ));
    }
    let settings = config.settings();
    let mut addresses = vec![("chttpd", settings.chttpd.bind_address)];
    if settings.prometheus.additional_port {
        addresses.push(("prometheus", settings.prometheus.bind_address));
    }
    let is_open = |(_, address): &&(&str, IpAddr)| !address.to_canonical().is_loopback();
    if let Some((section, address)) = addresses.iter().find(is_open) {
        return Err(Failure::usage(format!(
            "--dev serves without logins, so it listens on loopback addresses only, and [{section}] bind_address is {address}. \
             Use --set {section}/bind_address=127.0.0.1, or start it without --dev"
        )));
    }
    let rules = Dev::new(&options.dev_origin).map_err(|origin| {
        Failure::usage(format!(
            "--dev-origin {origin}: it must be an origin of this machine, http://localhost:PORT or http://127.0.0.1:PORT"
        ))
    })?;
    Ok(Some(rules))
}

/// Warns on standard output and in the log that there are no logins, if that is so.
pub fn announce(options: &ServeOptions) {
    if !options.dev {
        return;
    }
    let pages = match options.dev_origin.as_slice() {
        [] => "none (see --dev-origin)".to_owned(),
        origins => origins.join(", "),
    };
    say(&format!(
        "\n  ****************************************************************\n  \
         DEVELOPMENT MODE (--dev): NO LOGIN. Every program and every user\n  \
         of this machine is a server admin. Never use it for real data.\n  \
         Pages of other origins that may use it: {pages}\n  \
         ****************************************************************\n"
    ));
    tracing::warn!(
        "--dev: there is no login; every program and every user of this machine is a server admin. Pages of other origins that may use the server: {pages}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error of `--dev` for a configuration.
    fn refusal(set: &[(&str, &str, &str)], is_member: bool, origins: &[&str]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let mut layers = config::Layers::new(folder.path().join("local.ini"));
        for (section, key, value) in set {
            let value = ((*section).into(), (*key).into(), (*value).into());
            layers.overrides.push(value);
        }
        let config = Config::load(layers).unwrap();
        let options = ServeOptions {
            dev: true,
            dev_origin: origins.iter().map(|o| (*o).to_owned()).collect(),
            ..ServeOptions::default()
        };
        let refused = rules(&options, &config, is_member).err();
        refused.map(|failure| failure.message)
    }

    #[test]
    fn only_loopback_addresses_are_served_without_logins() {
        let chttpd = |address| refusal(&[("chttpd", "bind_address", address)], false, &[]);
        for address in ["127.0.0.1", "127.0.0.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(chttpd(address), None, "{address}");
        }
        for address in ["0.0.0.0", "::", "192.168.0.1", "::ffff:10.0.0.1", "any"] {
            let said = chttpd(address);
            assert!(said.is_some_and(|s| s.contains("loopback")), "{address}");
        }
        let metrics = ("prometheus", "bind_address", "0.0.0.0");
        assert_eq!(refusal(&[metrics], false, &[]), None, "no such port");
        let port = ("prometheus", "additional_port", "true");
        let said = refusal(&[metrics, port], false, &[]);
        assert!(said.is_some_and(|s| s.contains("[prometheus]")));
    }

    #[test]
    fn nodes_of_clusters_and_origins_elsewhere_are_refused() {
        let said = refusal(&[], true, &[]);
        assert!(said.is_some_and(|s| s.contains("cluster")));
        let said = refusal(&[], false, &["http://app.example"]);
        assert!(said.is_some_and(|s| s.contains("--dev-origin http://app.example")));
        assert_eq!(refusal(&[], false, &["http://localhost:5173"]), None);
    }
}
