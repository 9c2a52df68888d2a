//! The text that the start prints: the interface, the admin, the data directory, and next steps.

use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use config::Config;

/// Name of the admin that `--generate-admin` makes.
pub const GENERATED_ADMIN: &str = "admin";
/// The file in the data directory with the password that `--generate-admin` made.
pub const PASSWORD_FILE: &str = "admin-password";

const TITLE: Style = Style::new().bold();
const LABEL: Style = AnsiColor::Cyan.on_default();

/// The text, without the address, which is known last.
pub struct Welcome {
    admin: String,
    /// The user of commands, `NAME:PASSWORD@`.
    login: String,
    data: PathBuf,
    /// Output goes to systemd's journal, which more people read than the file.
    is_journal: bool,
}

impl Welcome {
    /// `generated` is the password of a new admin.
    pub fn new(config: &Config, data: &Path, generated: Option<&str>, is_dev: bool) -> Welcome {
        let is_journal = std::env::var_os("JOURNAL_STREAM").is_some();
        let generated = generated.map(|password| match is_journal {
            true => None,
            false => Some(password),
        });
        Welcome::of(config, data, generated, is_dev, is_journal)
    }

    /// `generated` is there for a new admin, and its password if that may be shown.
    fn of(
        config: &Config,
        data: &Path,
        generated: Option<Option<&str>>,
        is_dev: bool,
        is_journal: bool,
    ) -> Welcome {
        let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        let settings = config.settings();
        let names: Vec<&str> = settings.admins.all.keys().map(String::as_str).collect();
        let file = data.join(PASSWORD_FILE);
        let place = file.display();
        let is_kept = generated.is_some() || file.exists();
        let (admin, login) = match (names.as_slice(), generated) {
            _ if is_dev => ("none is needed (--dev)".to_owned(), String::new()),
            ([], None) => ("none is configured".to_owned(), String::new()),
            (_, Some(Some(password))) => (
                format!("{GENERATED_ADMIN}, password: {password} (also in {place})"),
                login_of_file(&file),
            ),
            (names, _) if is_kept => {
                let names = match names {
                    [] => GENERATED_ADMIN.to_owned(),
                    names => names.join(", "),
                };
                (
                    format!("{names}; a password is in {place}"),
                    login_of_file(&file),
                )
            }
            (names, _) => {
                let first = names.first().copied().unwrap_or("NAME");
                (names.join(", "), format!("{first}:PASSWORD@"))
            }
        };
        Welcome {
            admin,
            login,
            data,
            is_journal,
        }
    }

    /// Prints it, in colours if standard output is a terminal and `NO_COLOR` is not set.
    pub fn print(&self, http: SocketAddr) {
        anstream::println!("\n{TITLE}Settee {}{TITLE:#}\n", env!("CARGO_PKG_VERSION"));
        let mut rows = self.rows(http);
        if std::io::stdout().is_terminal() {
            rows.push(("Stop", "Ctrl-C".to_owned()));
        }
        for (label, text) in rows {
            anstream::println!("  {LABEL}{label:<12}{LABEL:#}{text}");
        }
        anstream::println!();
    }

    fn rows(&self, http: SocketAddr) -> Vec<(&'static str, String)> {
        let host = SocketAddr::new(reachable(http.ip()), http.port());
        let login = &self.login;
        let mut rows = vec![
            ("Interface", format!("http://{host}/_utils/")),
            ("Admin", self.admin.clone()),
            ("Data", self.data.display().to_string()),
        ];
        if !self.is_journal {
            let load = format!("settee load sample:shop \"http://{login}{host}/shop\"");
            let check = format!("settee doctor \"http://{login}{host}\"");
            rows.extend([("Try", load), ("Check", check)]);
        }
        rows
    }
}

fn login_of_file(file: &Path) -> String {
    format!("{GENERATED_ADMIN}:$(cat '{}')@", file.display())
}

/// The address at which this machine reaches a server that listens on this one.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use config::Layers;

    use super::*;

    fn text(
        admins: &[&str],
        has_file: bool,
        generated: Option<Option<&str>>,
        is_dev: bool,
    ) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut layers = Layers::new(folder.path().join("local.ini"));
        for name in admins {
            let admin = ("admins".into(), (*name).into(), "-pbkdf2-x".into());
            layers.overrides.push(admin);
        }
        if has_file {
            std::fs::write(folder.path().join(PASSWORD_FILE), "secret").unwrap();
        }
        let config = Config::load(layers).unwrap();
        let is_journal = generated == Some(None);
        let welcome = Welcome::of(&config, folder.path(), generated, is_dev, is_journal);
        let rows = welcome.rows("0.0.0.0:5984".parse().unwrap());
        let lines = rows.iter().map(|(label, text)| format!("{label} {text}\n"));
        lines.collect()
    }

    #[test]
    fn the_first_start_shows_the_password_and_later_ones_its_place() {
        let first = text(&["admin"], true, Some(Some("p4ss")), false);
        assert!(
            first.contains("Interface http://127.0.0.1:5984/_utils/\n"),
            "{first}"
        );
        assert!(first.contains("password: p4ss (also in "), "{first}");
        assert!(first.contains("http://admin:$(cat '"), "{first}");
        let journal = text(&["admin"], true, Some(None), false);
        assert!(journal.contains("a password is in "), "{journal}");
        assert!(!journal.contains("Try"), "{journal}");
        let later = text(&["admin"], true, None, false);
        assert!(
            later.contains("a password is in ") && !later.contains("p4ss"),
            "{later}"
        );
    }

    #[test]
    fn commands_have_a_login_only_where_one_is_needed() {
        let own = text(&["anna"], false, None, false);
        assert!(
            own.contains("\"http://anna:PASSWORD@127.0.0.1:5984/shop\""),
            "{own}"
        );
        let dev = text(&[], false, None, true);
        assert!(dev.contains("\"http://127.0.0.1:5984/shop\""), "{dev}");
        let none = text(&[], false, None, false);
        assert!(none.contains("none is configured"), "{none}");
    }
}
