//! The text that the start prints: the interface, the admin, the data directory, and next steps.

use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anstyle::{AnsiColor, Style};
use auth::PasswordHash;
use config::Config;

/// Name of the admin that `--generate-admin` makes.
pub const GENERATED_ADMIN: &str = "admin";
/// The file in the data directory with the password that `--generate-admin` made.
pub const PASSWORD_FILE: &str = "admin-password";

/// Hashes with more iterations are not checked: the start would wait for them.
const ITERATIONS_MAX: u32 = 10_000_000;

const TITLE: Style = Style::new().bold();
const LABEL: Style = AnsiColor::Cyan.on_default();

/// Whether the file has the password of the generated admin, which may have been changed since. The check takes a tenth of a second,
/// and runs concurrently with the start.
pub enum FileCheck {
    /// The result is known.
    Done(bool),
    /// The result of a thread.
    Running(JoinHandle<bool>),
}

impl FileCheck {
    /// `is_new` is set if the file was just written. Without a terminal nothing is printed: the
    /// start of a service does not wait for this.
    pub fn start(config: &Config, data: &Path, is_new: bool) -> FileCheck {
        FileCheck::of(config, data, is_new, std::io::stdout().is_terminal())
    }

    fn of(config: &Config, data: &Path, is_new: bool, is_terminal: bool) -> FileCheck {
        if is_new || !is_terminal {
            return FileCheck::Done(is_new);
        }
        let stored = config.settings().admins.all.get(GENERATED_ADMIN).cloned();
        let password = std::fs::read_to_string(data.join(PASSWORD_FILE));
        let (Some(stored), Ok(password)) = (stored, password) else {
            return FileCheck::Done(false);
        };
        let check = move || is_password(&stored, password.trim_end());
        let thread = std::thread::Builder::new().name("password-file".to_owned());
        match thread.spawn(check) {
            Ok(thread) => FileCheck::Running(thread),
            Err(_) => FileCheck::Done(false),
        }
    }

    fn finish(self) -> bool {
        match self {
            FileCheck::Done(is_right) => is_right,
            FileCheck::Running(thread) => thread.join().unwrap_or(false),
        }
    }
}

/// Returns whether this is the password of a value in `[admins]`.
fn is_password(stored: &str, password: &str) -> bool {
    let Some(hash) = PasswordHash::parse(stored) else {
        return stored == password;
    };
    let iterations = hash.pbkdf2().map_or(1, |(_, iterations)| iterations);
    iterations <= ITERATIONS_MAX && hash.verify(password.as_bytes())
}

/// The text, without the address, which is known last.
pub struct Welcome {
    admin: String,
    /// The user of commands, `NAME:PASSWORD@`.
    login: String,
    data: PathBuf,
    /// Lines about a new admin.
    new_admin: Vec<String>,
    /// Output goes to systemd's journal, which more people read than the file.
    is_journal: bool,
}

impl Welcome {
    /// `generated` is the password of a new admin.
    pub fn new(
        config: &Config,
        data: &Path,
        generated: Option<&str>,
        file: FileCheck,
        is_dev: bool,
    ) -> Welcome {
        let is_journal = std::env::var_os("JOURNAL_STREAM").is_some();
        let generated = generated.map(|password| match is_journal {
            true => None,
            false => Some(password),
        });
        Welcome::of(config, data, generated, file.finish(), is_dev, is_journal)
    }

    /// `generated` is there for a new admin, and its password if that may be shown. `is_kept`: the file has the admin's password.
    fn of(
        config: &Config,
        data: &Path,
        generated: Option<Option<&str>>,
        is_kept: bool,
        is_dev: bool,
        is_journal: bool,
    ) -> Welcome {
        let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        let settings = config.settings();
        let names: Vec<&str> = settings.admins.all.keys().map(String::as_str).collect();
        let file = data.join(PASSWORD_FILE);
        let place = file.display();
        let new_admin = match generated {
            Some(Some(password)) => vec![
                format!("Admin: {GENERATED_ADMIN}, password: {password}"),
                format!("(also in {place})"),
            ],
            Some(None) => vec![format!(
                "Admin: {GENERATED_ADMIN}, with the password in {place}"
            )],
            None => vec![],
        };
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
            new_admin,
            is_journal,
        }
    }

    /// Prints it on a terminal, in colours unless `NO_COLOR` is set. Programs that read the output get a
    /// new admin only, and then the addresses.
    pub fn print(&self, http: SocketAddr) {
        if !std::io::stdout().is_terminal() {
            for line in &self.new_admin {
                say(line);
            }
            return;
        }
        let mut text = format!("\n{TITLE}Settee {}{TITLE:#}\n\n", env!("CARGO_PKG_VERSION"));
        for (label, value) in self.rows(http) {
            text += &format!("  {LABEL}{label:<12}{LABEL:#}{value}\n");
        }
        say(&text);
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
        rows.push(("Stop", "Ctrl-C".to_owned()));
        rows
    }
}

/// Prints a line on standard output. A reader that has gone does not end the server.
pub fn say(line: &str) {
    // Nobody reads it then.
    drop(writeln!(anstream::stdout(), "{line}"));
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
        file: Option<&str>,
        generated: Option<Option<&str>>,
        is_dev: bool,
    ) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut layers = Layers::new(folder.path().join("local.ini"));
        for name in admins {
            let hash = PasswordHash::new("secret", auth::Hash::Sha256, 10).to_string();
            let admin = ("admins".into(), (*name).into(), hash);
            layers.overrides.push(admin);
        }
        if let Some(password) = file {
            let path = folder.path().join(PASSWORD_FILE);
            std::fs::write(path, format!("{password}\n")).unwrap();
        }
        let config = Config::load(layers).unwrap();
        let is_journal = generated == Some(None);
        let check = FileCheck::of(&config, folder.path(), generated.is_some(), true);
        let is_kept = check.finish();
        let welcome = Welcome::of(
            &config,
            folder.path(),
            generated,
            is_kept,
            is_dev,
            is_journal,
        );
        let rows = welcome.rows("0.0.0.0:5984".parse().unwrap());
        let lines = rows.iter().map(|(label, text)| format!("{label} {text}\n"));
        lines.collect()
    }

    #[test]
    fn the_password_is_checked_for_terminals_only() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(PASSWORD_FILE), "secret").unwrap();
        let mut layers = Layers::new(folder.path().join("local.ini"));
        let hash = PasswordHash::new("secret", auth::Hash::Sha256, 10).to_string();
        let admin = ("admins".into(), GENERATED_ADMIN.into(), hash);
        layers.overrides.push(admin);
        let config = Config::load(layers).unwrap();
        let check = |is_terminal| FileCheck::of(&config, folder.path(), false, is_terminal);
        assert!(matches!(check(false), FileCheck::Done(false)));
        assert!(matches!(check(true), FileCheck::Running(_)));
        assert!(check(true).finish());
    }

    #[test]
    fn the_first_start_shows_the_password_and_later_ones_its_place() {
        let first = text(&["admin"], Some("secret"), Some(Some("p4ss")), false);
        assert!(
            first.contains("Interface http://127.0.0.1:5984/_utils/\n"),
            "{first}"
        );
        assert!(first.contains("password: p4ss (also in "), "{first}");
        assert!(first.contains("http://admin:$(cat '"), "{first}");
        let journal = text(&["admin"], Some("secret"), Some(None), false);
        assert!(journal.contains("a password is in "), "{journal}");
        assert!(!journal.contains("Try"), "{journal}");
        let later = text(&["admin"], Some("secret"), None, false);
        assert!(
            later.contains("a password is in ") && !later.contains("p4ss"),
            "{later}"
        );
    }

    #[test]
    fn a_password_that_was_changed_is_not_shown() {
        for (admin, file) in [("admin", "old"), ("anna", "secret")] {
            let text = text(&[admin], Some(file), None, false);
            assert!(
                text.contains(&format!("Admin {admin}\n")) && !text.contains("$(cat"),
                "{text}"
            );
            assert!(
                text.contains(&format!("http://{admin}:PASSWORD@")),
                "{text}"
            );
        }
    }

    #[test]
    fn commands_have_a_login_only_where_one_is_needed() {
        let own = text(&["anna"], None, None, false);
        assert!(
            own.contains("\"http://anna:PASSWORD@127.0.0.1:5984/shop\""),
            "{own}"
        );
        let dev = text(&[], None, None, true);
        assert!(dev.contains("\"http://127.0.0.1:5984/shop\""), "{dev}");
        let none = text(&[], None, None, false);
        assert!(none.contains("none is configured"), "{none}");
    }
}
