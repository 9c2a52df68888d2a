//! `settee backup`: requests a backup from a server, and shows its progress. Commands for existing
//! backups are in `target.rs` and `restore.rs`.

pub mod restore;
mod target;

use command_line::counted;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use backup::{Permit, TargetName};
use document::{UuidAlgorithm, UuidGenerator};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::Failure;
use crate::cli::{BackupCommand, BackupOptions, with_credentials};
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
        work_as_owner_of(Path::new(directory))?;
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
            let target = absolute(target)?;
            let permit = permit.as_ref().map(Permit::name);
            runtime.block_on(back_up(&with_credentials(url), &target, permit))
        }
        _ => Err(Failure::usage(
            "settee backup requires a server and a target",
        )),
    }
}

/// A path means the same to the server as here.
fn absolute(target: &str) -> Result<String, Failure> {
    if target.contains("://") {
        return Ok(target.to_owned());
    }
    let path = std::path::absolute(target).map_err(Failure::new)?;
    let path = path.into_os_string().into_string();
    path.map_err(|_| Failure::usage("the target's path is not UTF-8"))
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

async fn back_up(url: &str, target: &str, permit: Option<&str>) -> Result<(), Failure> {
    let server = Server::new(url)?;
    let (status, answer) = server.begin(target, permit).await?;
    if status != StatusCode::ACCEPTED {
        say!("backed up to {target}");
        return Ok(());
    }
    let id = answer["id"].as_str().unwrap_or_default();
    let ended = server.wait(id).await?;
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

struct Server {
    url: reqwest::Url,
    name: String,
    password: Option<String>,
    client: reqwest::Client,
}

impl Server {
    fn new(url: &str) -> Result<Server, Failure> {
        // The URL may hold a password, so that the message does not repeat it.
        let parsed = reqwest::Url::parse(url);
        let mut url = parsed.map_err(|e| Failure::usage(format!("the server's URL: {e}")))?;
        let (name, password) = super::take_credentials(&mut url);
        url.set_path("/_settee/backup");
        Ok(Server {
            url,
            name,
            password,
            client: reqwest::Client::new(),
        })
    }

    async fn begin(
        &self,
        target: &str,
        permit: Option<&str>,
    ) -> Result<(StatusCode, Value), Failure> {
        let request = self.client.post(self.url.clone());
        let mut body = json!({"target": target});
        if let Some(permit) = permit {
            body["permit"] = permit.into();
        }
        let request = request.json(&body);
        self.send(request).await.map_err(Refusal::failure)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<(StatusCode, Value), Refusal> {
        let request = request.basic_auth(&self.name, self.password.as_ref());
        let silent = |e: reqwest::Error| Refusal::Silent(format!("{}: {e}", self.url));
        let response = request.send().await.map_err(silent)?;
        let status = response.status();
        let body: Value = response.json().await.unwrap_or_default();
        if status.is_success() {
            return Ok((status, body));
        }
        let reason = body["reason"].as_str().unwrap_or("no reason was given");
        Err(Refusal::Said(format!(
            "the server refused ({status}): {reason}"
        )))
    }

    /// Waits for the end of a backup, and returns its report.
    async fn wait(&self, id: &str) -> Result<Value, Failure> {
        let (mut pause, mut heard) = (POLL_MIN, Instant::now());
        let mut line = Line::new();
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
            let request = self.client.get(self.url.clone()).timeout(SILENCE_MAX);
            let known = match self.send(request).await {
                Ok((_, known)) => known,
                Err(Refusal::Silent(_)) if heard.elapsed() < SILENCE_MAX => continue,
                Err(refusal) => return Err(refusal.failure()),
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
}

enum Refusal {
    /// No answer came.
    Silent(String),
    Said(String),
}

impl Refusal {
    fn failure(self) -> Failure {
        match self {
            Refusal::Silent(why) | Refusal::Said(why) => Failure::new(why),
        }
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
        assert_eq!(absolute("s3://a/b").unwrap(), "s3://a/b");
        assert_eq!(absolute("/a").unwrap(), "/a");
        assert!(absolute("a").unwrap().starts_with('/'));
    }
}
