//! A server process of the bench's own.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::launch::Launch;
use crate::client::{Connection, Discard};
use crate::error::BenchError;
use crate::target::Target;

const READY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);
/// Longest part of a server's output that is shown when it ended unexpectedly.
const LOG_CHARS_MAX: usize = 2_000;

/// A server, which is killed when this is dropped.
pub(crate) struct Process {
    launch: Launch,
    data: PathBuf,
    log: PathBuf,
    port: u16,
    target: Rc<Target>,
    child: Option<Child>,
}

impl Process {
    /// Starts a server with its data below `dir`, and waits until it answers.
    pub(crate) async fn start(launch: &Launch, dir: &Path) -> Result<Self, BenchError> {
        // The port must stay the same when the server is started again, so it is chosen here.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let url = url(launch, port);
        let mut process = Self {
            launch: launch.clone(),
            data: dir.join("data"),
            log: dir.join("log"),
            port,
            target: Rc::new(Target::resolve(&url).await?),
            child: None,
        };
        process.spawn()?;
        process.ready().await?;
        Ok(process)
    }

    pub(super) fn target(&self) -> &Rc<Target> {
        &self.target
    }

    /// The server's URL, with the name and password of its admin.
    pub(crate) fn url(&self) -> String {
        url(&self.launch, self.port)
    }

    /// The number of the running process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the program on the same data and port. It must not run.
    pub(super) fn spawn(&mut self) -> Result<(), BenchError> {
        let (data, port) = (self.data.to_string_lossy(), self.port.to_string());
        let place = |arg: &String| arg.replace("{data}", &data).replace("{port}", &port);
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.launch.program)
            .args(self.launch.args.iter().map(place))
            .env_remove(command_line::PROGRAM)
            .envs(self.launch.envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        let program = self.launch.program.display();
        let child = child.map_err(|error| BenchError::Options(format!("{program}: {error}")))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits for the first response with any status.
    pub(super) async fn ready(&mut self) -> Result<(), BenchError> {
        let request = self.target.request("GET", "/", None);
        let start = Instant::now();
        while start.elapsed() < READY_MAX {
            self.must_run()?;
            if let Ok(mut connection) = Connection::open(&self.target).await
                && connection.exchange(&request, &mut Discard).await.is_ok()
            {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        Err(self.failed("gave no answer within a minute"))
    }

    /// Returns an error when the process has ended.
    pub(super) fn must_run(&mut self) -> Result<(), BenchError> {
        let ended = match &mut self.child {
            Some(child) => child.try_wait()?,
            None => None,
        };
        match ended {
            Some(status) => Err(self.failed(&format!("ended ({status})"))),
            None => Ok(()),
        }
    }

    fn failed(&self, what: &str) -> BenchError {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let from = log
            .char_indices()
            .rev()
            .nth(LOG_CHARS_MAX)
            .map_or(0, |(at, _)| at);
        let program = self.launch.program.display();
        BenchError::Options(format!(
            "the server {program} {what}: {}",
            log[from..].trim()
        ))
    }

    /// kill -9, and waits until the process is gone.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already; the wait collects its exit in any case.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), BenchError> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        match pid {
            Some(pid) => kill_process(pid, signal).map_err(|error| BenchError::Io(error.into())),
            None => Err(self.failed("does not run")),
        }
    }
}

fn url(launch: &Launch, port: u16) -> String {
    format!("http://{}@127.0.0.1:{port}", launch.credentials)
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process too.
        self.kill();
    }
}
