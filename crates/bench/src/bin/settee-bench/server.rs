//! A server of this installation, for a measurement without `--url`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use command_line::Failure;

use crate::settee;

/// Query servers that Settee bundles: languages to be measured on a server that is started for the run.
const BUILT_IN: [&str; 2] = ["nodejs=builtin", "erlang=builtin"];

/// The arguments with the settings of a server that is measured: the bench's own, and others that take precedence.
pub fn settings(query_servers: &[String], others: &[String]) -> Vec<String> {
    let servers = query_servers.iter().map(String::as_str);
    let servers = BUILT_IN.into_iter().chain(servers);
    let servers = servers.map(|server| format!("query_servers/{server}"));
    // A build of an index is slow, and is measured.
    let log = ["log/level=warning", "log/slow_time=0"].map(str::to_owned);
    let all = log.into_iter().chain(servers).chain(others.iter().cloned());
    all.flat_map(|setting| ["--set".to_owned(), setting])
        .collect()
}

/// A server that ends with this value.
pub struct OwnServer {
    child: Child,
    /// Its URL, with the name and password of its admin.
    pub url: String,
}

impl OwnServer {
    /// Starts a server with its data in `dir` and arguments of [`settings`], and waits until it listens.
    pub fn start(dir: &Path, settings: &[String]) -> Result<OwnServer, Failure> {
        let password = settee::random_password()?;
        let child = Command::new(settee::find()?)
            .args(["serve", "--port", "0", "--bind", "127.0.0.1", "--data"])
            .arg(dir)
            .env_remove(command_line::PROGRAM)
            // All users of the machine can read a command line.
            .env("SETTEE__admins__bench", &password)
            .args(settings)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::new)?;
        let mut server = OwnServer {
            child,
            url: String::new(),
        };
        let address = server.listening_address()?;
        server.url = format!("http://bench:{password}@{address}");
        Ok(server)
    }

    /// Reads lines that the server prints. Whatever fails, the server is ended.
    fn listening_address(&mut self) -> Result<String, Failure> {
        let out = self.child.stdout.take();
        let out = out.ok_or_else(|| Failure::new("the server has no output"))?;
        for line in BufReader::new(out).lines() {
            let line = line.map_err(Failure::new)?;
            if let Some(address) = line.strip_prefix("Settee is listening on http://") {
                return Ok(address.to_owned());
            }
        }
        Err(Failure::new("the server to be measured did not start"))
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        drop(self.child.wait());
    }
}
