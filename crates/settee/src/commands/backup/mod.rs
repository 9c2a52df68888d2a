//! `settee backup`: requests a backup from a server, and shows its progress. Commands for existing
//! backups are in `target.rs` and `restore.rs`.

pub mod restore;
mod target;

use command_line::{connection_loss, counted, server_url};
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use backup::{Permit, TargetName};
use document::{UuidAlgorithm, UuidGenerator};
use reqwest::{Method, StatusCode, Url};
use serde_json::{Value, json};

use super::server::Server;
use crate::Failure;
use crate::cli::{BackupCommand, BackupOptions};
use crate::data::{STORE_MARK, require_directory};
use crate::owner::work_as_owner_of;

/// Least interval between two requests for the progress of a backup.
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(1);
/// Longest time without a response from the server.
const SILENCE_MAX: Duration = Duration::from_secs(60);

pub fn run(options: &BackupOptions) -> Result<(), Failure> {
    // reqwest takes the process's provider; ring builds without a C toolchain of its own. Set already is fine too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let target = options.command.as_ref().map(BackupCommand::target);
    if let Some(directory) = target.filter(|target| !target.contains("://")) {
        require_backups(Path::new(directory))?;
        work_as_owner_of(Path::new(directory))?;
    }
    if let (None, Some(url)) = (&options.command, &options.url) {
        require_server(url)?;
    }
    // Before there are threads: they have the rights of this one.
    let permit = match (&options.command, &options.target) {
        (None, Some(target)) => permit(target),
        _ => None,
    };
    let runtime = super::runtime()?;
    match (&options.command, &options.url, &options.target) {
        (Some(BackupCommand::List(options)), ..) => runtime.block_on(target::list(options)),
        (Some(BackupCommand::Prune(options)), ..) => runtime.block_on(target::prune(options)),
        (Some(BackupCommand::Verify(options)), ..) => runtime.block_on(target::verify(options)),
        (None, Some(url), Some(target)) => {
            let server = Server::new(url, reqwest::Client::builder())?;
            let target = target_for(server.url(), target)?;
            let request = BackupRequest {
                target: &target,
                is_copy: options.copy,
                permit: permit.as_ref().map(Permit::name),
            };
            runtime.block_on(back_up(&server, &request))
        }
        _ => Err(Failure::usage(
            "settee backup requires a server and a target",
        )),
    }
}

/// Refuses the URL of a database, as a backup has all databases.
fn require_server(url: &str) -> Result<(), Failure> {
    let url = server_url(url)?;
    match url.path().trim_matches('/') {
        "" => Ok(()),
        // The rest of a password would be shown.
        path if path.contains('@') => Err(Failure::usage(
            "the URL has an @ after its first /: write / ? and # in a name or password as %2F, %3F and %23",
        )),
        path => Err(Failure::usage(format!(
            "a backup is one of the whole server: leave out /{path} in its URL, or write the documents of a database to a file with \
             settee export"
        ))),
    }
}

/// Refuses a directory of this machine without backups, with the reason.
fn require_backups(directory: &Path) -> Result<(), Failure> {
    require_directory(directory)?;
    let is_copy = directory.join(STORE_MARK).is_file();
    match is_copy && !backup::holds_backups(directory) {
        true => Err(Failure::new(format!(
            "{directory} holds no backups: it is a plain copy of a store. Restore it with: settee restore {directory} DATA",
            directory = directory.display()
        ))),
        false => Ok(()),
    }
}

/// The target as the server takes it: a path means the same there as here, if the server is on this machine.
fn target_for(server: &Url, target: &str) -> Result<String, Failure> {
    if target.contains("://") {
        return Ok(target.to_owned());
    }
    let host = server.host_str().unwrap_or_default();
    if !Path::new(target).is_absolute() && !is_this_machine(host) {
        return Err(Failure::usage(format!(
            "{target} is relative to a directory of this machine, but the server writes the backup, on {host}: give the absolute \
             path of a directory there, or s3://BUCKET/PREFIX"
        )));
    }
    let path = std::path::absolute(target).map_err(Failure::new)?;
    if is_this_machine(host) && path.is_file() {
        return Err(Failure::new(format!(
            "{target}: this is a file, not a directory"
        )));
    }
    let path = path.into_os_string().into_string();
    path.map_err(|_| Failure::usage("the target's path is not UTF-8"))
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Proves to a server on this machine that this process may write to the backup's directory. `None`
/// where it may not, and for buckets: then the server's settings decide.
fn permit(target: &str) -> Option<Permit> {
    let Ok(TargetName::Directory(directory)) = TargetName::parse(target) else {
        return None;
    };
    // Root's rights are not shown to who owns the directory.
    work_as_owner_of(&directory).ok()?;
    let random = UuidGenerator::new(UuidAlgorithm::Random).next();
    Permit::create(&directory, &random).ok()
}

/// The body of a request for a backup.
struct BackupRequest<'a> {
    /// A URL, or the absolute path of a directory.
    target: &'a str,
    /// The target becomes a plain copy of the store.
    is_copy: bool,
    /// See [`permit`].
    permit: Option<&'a str>,
}

async fn back_up(server: &Server, request: &BackupRequest<'_>) -> Result<(), Failure> {
    let (status, answer) = begin(server, request).await?;
    if status != StatusCode::ACCEPTED {
        say!("copied to {}", request.target);
        return Ok(());
    }
    let id = answer["id"].as_str().unwrap_or_default();
    let ended = wait(server, id).await?;
    if let Some(reason) = ended["reason"].as_str() {
        return Err(Failure::new(format!("the backup failed: {reason}")));
    }
    let number = |name: &str| ended[name].as_u64().unwrap_or(0);
    say!(
        "backed up to {} as {}: {} files, {}; copied: {} files, {}, in {:.1} s",
        ended["target"].as_str().unwrap_or_default(),
        ended["name"].as_str().unwrap_or_default(),
        number("files"),
        size(number("bytes")),
        number("copied_files"),
        size(number("copied_bytes")),
        ended["seconds"].as_f64().unwrap_or(0.0),
    );
    Ok(())
}

/// The state of backups, at a server.
const PATH: &str = "/_settee/backup";
/// The users who may request one.
const NEEDS: &str = "an admin";

/// Requests a backup. Returns the status and the answer.
async fn begin(
    server: &Server,
    request: &BackupRequest<'_>,
) -> Result<(StatusCode, Value), Failure> {
    let mut body = match request.is_copy {
        true => json!({"directory": request.target}),
        false => json!({"target": request.target}),
    };
    if let Some(permit) = request.permit {
        body["permit"] = permit.into();
    }
    let request = server.request(Method::POST, PATH).json(&body);
    let response = server.send(request).await?;
    let status = response.status();
    let body = response.json::<Value>().await.unwrap_or_default();
    if status.is_success() && body.is_object() {
        return Ok((status, body));
    }
    match (status.as_u16(), body["reason"].as_str()) {
        // CouchDB takes the path for a database's.
        (404 | 405, Some(_)) => Err(server.not_settee()),
        // A login that is right: the target is refused.
        (400 | 403, Some(reason)) => Err(Failure::new(reason)),
        (status, _) => Err(server.refusal(status, &body, NEEDS)),
    }
}

/// Waits for the end of a backup, and returns its report.
async fn wait(server: &Server, id: &str) -> Result<Value, Failure> {
    let (mut pause, mut heard) = (POLL_MIN, Instant::now());
    let mut line = Line::new();
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
        let request = server.request(Method::GET, PATH).timeout(SILENCE_MAX);
        let known = match request.send().await {
            Ok(response) => answered(server, response).await?,
            Err(_) if heard.elapsed() < SILENCE_MAX => continue,
            Err(error) => return Err(Failure::new(connection_loss(server.url(), &error))),
        };
        heard = Instant::now();
        let ended = known["ended"].as_array().into_iter().flatten();
        if let Some(ended) = ended.clone().find(|ended| ended["id"] == id) {
            line.end();
            return Ok(ended.clone());
        }
        if known["running"]["id"] != id {
            line.end();
            return Err(Failure::new(
                "the server has lost the backup: it was restarted. Files that were copied are not copied again: run \
                 this once more",
            ));
        }
        line.show(&known["running"]);
    }
}

async fn answered(server: &Server, response: reqwest::Response) -> Result<Value, Failure> {
    let status = response.status();
    let body = response.json::<Value>().await.unwrap_or_default();
    match status.is_success() {
        true => Ok(body),
        false => Err(server.refusal(status.as_u16(), &body, NEEDS)),
    }
}

/// The progress line, for a person at a terminal.
struct Line {
    is_terminal: bool,
    is_shown: bool,
}

impl Line {
    fn new() -> Line {
        Line {
            is_terminal: std::io::stderr().is_terminal(),
            is_shown: false,
        }
    }

    fn show(&mut self, running: &Value) {
        if !self.is_terminal {
            return;
        }
        let bytes = |name: &str| size(running[name].as_u64().unwrap_or(0));
        eprint!(
            "\r\x1b[K{}: {} of {}, copied {}",
            running["phase"].as_str().unwrap_or_default(),
            bytes("done_bytes"),
            bytes("bytes"),
            bytes("copied_bytes")
        );
        // Without it the line comes late, which is all.
        let _ = std::io::stderr().flush();
        self.is_shown = true;
    }

    fn end(&mut self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// Bytes for people: three digits and a unit of 1,000.
fn size(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut value, mut unit) = (bytes as f64, "bytes");
    for next in units {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1_000.0, next);
    }
    match unit {
        "bytes" => counted(bytes, "bytes"),
        _ if value < 9.995 => format!("{value:.2} {unit}"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, wanted) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1.00 kB"),
            (999_600, "1.00 MB"),
            (12_345_678, "12.3 MB"),
            (123_456_789_012, "123 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(size(bytes), wanted);
        }
    }

    #[test]
    fn paths_are_made_absolute_and_urls_are_not() {
        let of = |server: &str, target: &str| target_for(&Url::parse(server).unwrap(), target);
        for server in [
            "http://127.0.0.1:5984",
            "http://localhost",
            "https://[::1]:6984",
        ] {
            assert_eq!(of(server, "s3://a/b").unwrap(), "s3://a/b");
            assert_eq!(of(server, "/a").unwrap(), "/a");
            let relative = of(server, "./a").unwrap();
            assert!(
                relative.starts_with('/') && relative.ends_with("/a"),
                "{relative}"
            );
        }
        let elsewhere = "http://db.example:5984";
        assert_eq!(of(elsewhere, "/a").unwrap(), "/a");
        assert_eq!(of(elsewhere, "s3://a/b").unwrap(), "s3://a/b");
        let refused = of(elsewhere, "./a").unwrap_err();
        assert!(
            refused.message.contains("on db.example"),
            "{}",
            refused.message
        );
    }

    #[test]
    fn a_plain_copy_is_named_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, mark) in [
            ("copy", "CURRENT"),
            ("backups", "settee-backups.json"),
            ("other", "x"),
        ] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join(mark), "x").unwrap();
        }
        std::fs::write(at("file"), "x").unwrap();
        for (name, wanted) in [
            ("copy", Some("a plain copy of a store")),
            ("file", Some("a file")),
            ("none", Some("does not exist")),
            ("backups", None),
            ("other", None),
        ] {
            let refused = require_backups(&at(name)).err().map(|e| e.message);
            assert_eq!(refused.is_some(), wanted.is_some(), "{name}: {refused:?}");
            let text = refused.unwrap_or_default();
            assert!(text.contains(wanted.unwrap_or_default()), "{text}");
        }
    }
}
