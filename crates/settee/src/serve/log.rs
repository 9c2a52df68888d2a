//! The outputs of the log.

use std::path::Path;
use std::sync::Arc;

use config::Config;
use config::settings::{Log, LogLevel, LogWriter};
use http_api::App;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, reload};

use super::line_format::{LineFormat, time_text};
use super::lines::{LineThread, Lines};
use super::repeats::RepeatCounter;
use super::rotated::{RotatedFile, Rotation};
use crate::Failure;

/// Log lines are written while this is held.
pub struct Logging {
    /// The output for slow requests, if it is a separate one.
    slow: Option<Lines>,
    /// Dropped before the writer that it writes to.
    _counting: RepeatCounter,
    _flush: Vec<LineThread>,
}

impl Logging {
    /// Sets the output for slow requests.
    pub fn tell_slow(&mut self, app: &App) {
        if let Some(slow) = self.slow.take() {
            app.stats.log_slow_to(Box::new(slow));
        }
    }
}

/// Logs go through a thread of their own, so that a slow terminal slows no request. It writes what is left when the guard is
/// dropped. The level and the sizes of files follow the configuration.
pub fn start(config: &Config) -> Result<Logging, Failure> {
    let settings = config.settings();
    let settings = &settings.log;
    let rotation = Arc::new(Rotation::default());
    rotation.set(settings.max_file_size, settings.max_old_files);
    let (writer, guard) = match settings.writer {
        LogWriter::File => Lines::start(open(&rotation, "file", &settings.file)?),
        LogWriter::Stderr | LogWriter::Journald | LogWriter::Syslog => {
            Lines::start(std::io::stderr())
        }
    }
    .map_err(Failure::new)?;
    let mut guards = vec![guard];
    let mut slow = None;
    if !settings.slow_file.is_empty() {
        let file = open(&rotation, "slow_file", &settings.slow_file)?;
        let (writer, guard) = Lines::start(file).map_err(Failure::new)?;
        slow = Some(writer);
        guards.push(guard);
    }
    let counting = RepeatCounter::start(writer.clone(), time_text).map_err(Failure::new)?;
    let (level, handle) = reload::Layer::new(EnvFilter::new(filter(settings.level)));
    tracing_subscriber::registry()
        .with(level)
        .with(
            fmt::layer()
                .with_writer(writer)
                .with_ansi(false)
                .event_format(LineFormat::without(counting.repeats())),
        )
        .with(Levels)
        .init();
    follow(config, move |settings| {
        rotation.set(settings.max_file_size, settings.max_old_files);
        // Fails only after the subscriber has ended, and with it the log.
        let _ = handle.reload(EnvFilter::new(filter(settings.level)));
    });
    Ok(Logging {
        slow,
        _counting: counting,
        _flush: guards,
    })
}

/// Calls `apply` whenever a setting of the log has changed.
fn follow(config: &Config, apply: impl Fn(&Log) + Send + Sync + 'static) {
    // The configuration then holds itself: it lives as long as the process.
    let running = config.clone();
    config.subscribe(move |change| {
        if change.section == "log" {
            apply(&running.settings().log);
        }
    });
}

fn open(rotation: &Arc<Rotation>, key: &str, path: &str) -> Result<RotatedFile, Failure> {
    let file = RotatedFile::open(Path::new(path), rotation.clone());
    file.map_err(|e| Failure::new(format!("[log] {key} {path}: {e}")))
}

/// Counts lines by level, but for those of requests: they are counted already, and too many for one number.
struct Levels;

impl<S: Subscriber> Layer<S> for Levels {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about = event.metadata();
        if *about.level() == Level::INFO && about.target() == "request" {
            return;
        }
        let name = match *about.level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG | Level::TRACE => "debug",
        };
        if let Some((_, counter)) = telemetry::LOGGED.iter().find(|(known, _)| *known == name) {
            counter.count();
        }
    }
}

/// Of tantivy only errors are logged: each small commit has lines at `info`, and a merge that ends
/// with its index is a warning there. Failures of a text index are logged where it is updated.
fn filter(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "debug,hyper=info,h2=info,tantivy=info",
        LogLevel::Info | LogLevel::Notice => "info,tantivy=error",
        LogLevel::Warning => "warn,tantivy=error",
        LogLevel::Error | LogLevel::Critical | LogLevel::Alert | LogLevel::Emergency => "error",
        LogLevel::None => "off",
    }
}
