//! `settee top`: live activity of a server.

mod frame;
mod screen;
mod snapshot;
mod table;
mod threads;
mod times;
mod together;

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::frame::Frame;
use self::screen::{KeyCommand, Screen};
use self::snapshot::Snapshots;
use self::table::{Row, TABS, Tab, head, rows};
use super::server::Server;
use crate::Failure;
use crate::cli::TopOptions;

/// Wait between the first two requests, so that rates are shown soon.
const FIRST_WAIT: Duration = Duration::from_millis(400);
/// A server without a response for 5 s is reported.
const PATIENCE: Duration = Duration::from_secs(5);
/// All nodes together may take longer: each has 5 s.
const PATIENCE_ALL: Duration = Duration::from_secs(10);
/// Longest wait for the screen to end.
const END_MAX: Duration = Duration::from_secs(1);
/// How often keys are looked for.
const KEYS_EVERY: Duration = Duration::from_millis(50);

pub fn run(options: &TopOptions) -> Result<(), Failure> {
    let interval = Duration::try_from_secs_f64(options.interval)
        .ok()
        .filter(|interval| *interval >= Duration::from_millis(100))
        .ok_or_else(|| Failure::usage("--interval must be at least 0.1 seconds"))?;
    let source = Source::new(&options.url, options.all)?;
    let runtime = super::runtime()?;
    let frames = Frames::ask(&runtime, source, interval);
    match (options.once, options.json) {
        (true, json) => {
            let frame = frames.next()?;
            match json {
                true => print_json(&frame),
                false => print_text(&frame),
            }
        }
        (false, true) => {
            // A server that was never there is an error; one that goes comes again.
            print_json(&frames.next()?)?;
            loop {
                match frames.next() {
                    Ok(frame) => print_json(&frame)?,
                    Err(e) => eprintln!("settee top: {}", e.message),
                }
            }
        }
        (false, false) => {
            runtime.spawn(end_when_told());
            on_screen(&frames)
        }
    }
}

/// The users who may request frames.
const NEEDS: &str = "an admin, or of a user with the role _metrics,";

/// A server that is polled.
struct Source {
    server: Server,
    /// All nodes of its cluster are shown.
    is_all: bool,
}

impl Source {
    fn new(url: &str, is_all: bool) -> Result<Source, Failure> {
        let patience = if is_all { PATIENCE_ALL } else { PATIENCE };
        let client = reqwest::Client::builder().timeout(patience);
        let server = Server::new(url, client)?;
        Ok(Source { server, is_all })
    }

    async fn ask(&self) -> Result<Snapshots, Failure> {
        let other = |_: serde_json::Error| self.server.not_settee();
        if self.is_all {
            let told = self.server.settee_json("/_settee/top?all=true", NEEDS);
            return serde_json::from_value(told.await?).map_err(other);
        }
        let told = self.server.settee_json("/_settee/top", NEEDS).await?;
        Ok(Snapshots {
            nodes: vec![serde_json::from_value(told).map_err(other)?],
            silent: vec![],
        })
    }
}

/// Whether the process has to end, and the terminal must be restored.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Waits for a signal that ends the process, and notifies the screen.
async fn end_when_told() {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = signal(SignalKind::terminate()).and_then(|terminate| {
        let hang_up = signal(SignalKind::hangup())?;
        Ok((terminate, hang_up))
    });
    // Without them the process ends immediately, as any other.
    let Ok((mut terminate, mut hang_up)) = signals else {
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    IS_OVER.store(true, Relaxed);
    // The thread that waits for keys of a closed terminal may not notice the end.
    tokio::time::sleep(END_MAX).await;
    // It fails for a terminal that is gone.
    let _ = ratatui::try_restore();
    std::process::exit(0);
}

/// Frames as they come.
struct Frames(Receiver<Result<Frame, Failure>>);

impl Frames {
    /// Starts a task that polls the server.
    fn ask(runtime: &tokio::runtime::Runtime, source: Source, interval: Duration) -> Frames {
        let (sender, receiver) = channel();
        runtime.spawn(go_on_asking(source, interval, sender));
        Frames(receiver)
    }

    /// The next one, waited for.
    fn next(&self) -> Result<Frame, Failure> {
        let ended = |_| Failure::new("the program is ending");
        self.0.recv().map_err(ended)?
    }
}

async fn go_on_asking(source: Source, interval: Duration, frames: Sender<Result<Frame, Failure>>) {
    let (mut before, mut shown): (Option<Snapshots>, Option<Frame>) = (None, None);
    loop {
        let asked = Instant::now();
        let told = match (source.ask().await, before.take()) {
            (Err(e), was) => {
                before = was;
                Some(Err(e))
            }
            (Ok(now), was) => {
                let frame = was.and_then(|was| Frame::of_all(&was, &now, shown.as_ref()));
                before = Some(now);
                frame.map(Ok)
            }
        };
        let wait = if told.is_none() {
            FIRST_WAIT.min(interval)
        } else {
            interval
        };
        if let Some(told) = told {
            if let Ok(frame) = &told {
                shown = Some(frame.clone());
            }
            if frames.send(told).is_err() {
                return;
            }
        }
        tokio::time::sleep(wait.saturating_sub(asked.elapsed())).await;
    }
}

fn print_json(frame: &Frame) -> Result<(), Failure> {
    say!("{}", serde_json::to_string(frame).map_err(Failure::new)?);
    Ok(())
}

/// Everything, as plain text.
fn print_text(frame: &Frame) -> Result<(), Failure> {
    for line in head(frame) {
        say!("{line}");
    }
    for tab in TABS {
        let sort = usize::from(tab != Tab::Memory);
        print_table(tab, &rows(tab, frame, sort, ""));
    }
    Ok(())
}

fn print_table(tab: Tab, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let columns = tab.columns();
    let width = |i: usize| {
        let longest = rows
            .iter()
            .filter_map(|row| row.cells.get(i))
            .map(|c| c.chars().count());
        longest.max().unwrap_or(0).max(columns[i].len())
    };
    let line = |cells: &[&str]| -> String {
        let cells = cells.iter().enumerate().map(|(i, text)| match i {
            0 => format!("{text:<0$}", width(0)),
            i => format!("{text:>0$}", width(i)),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    say!("");
    say!("{}", line(columns).trim_end());
    for row in rows {
        let cells: Vec<&str> = row.cells.iter().map(String::as_str).collect();
        say!("{}", line(&cells).trim_end());
    }
}

fn on_screen(frames: &Frames) -> Result<(), Failure> {
    // A refusal is printed at the shell's prompt, not on a screen that disappears.
    let first = frames.next()?;
    let none = |why: String| {
        Failure::new(format!(
            "no terminal ({why}): --once and --json do without one"
        ))
    };
    if !std::io::stdout().is_terminal() {
        return Err(none("standard output is not a terminal".to_owned()));
    }
    let mut terminal = ratatui::try_init().map_err(|e| {
        // Half of it may be done.
        let _ = ratatui::try_restore();
        none(e.to_string())
    })?;
    let mut screen = Screen::new();
    screen.frame = Some(first);
    let result = show(frames, &mut screen, &mut terminal);
    let restored = ratatui::try_restore().map_err(Failure::new);
    match IS_OVER.load(Relaxed) {
        // After any failure the output is not read any more.
        true => Ok(()),
        false => result.and(restored),
    }
}

fn show(
    frames: &Frames,
    screen: &mut Screen,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), Failure> {
    let mut is_changed = true;
    loop {
        if is_changed {
            terminal
                .draw(|canvas| screen.draw(canvas))
                .map_err(Failure::new)?;
        }
        if IS_OVER.load(Relaxed) {
            return Ok(());
        }
        is_changed = false;
        match frames.0.recv_timeout(KEYS_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Ok(_)) if screen.is_paused => {}
            Ok(Ok(frame)) => {
                (screen.frame, screen.error) = (Some(frame), None);
                is_changed = true;
            }
            Ok(Err(e)) => {
                screen.error = Some(e.message);
                is_changed = true;
            }
        }
        while event::poll(Duration::ZERO).map_err(Failure::new)? {
            is_changed = true;
            let event = event::read().map_err(Failure::new)?;
            let key = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => key,
                _ => continue,
            };
            if screen.key(key) == KeyCommand::Quit {
                return Ok(());
            }
        }
    }
}
