//! Where the log goes.

use config::settings::{Log, LogLevel, LogWriter};
use tracing_appender::non_blocking::WorkerGuard;

use crate::Failure;

/// Logs go through a thread of their own, so that a slow terminal slows no request. It writes what is left when the guard is
/// dropped.
pub fn start(settings: &Log) -> Result<WorkerGuard, Failure> {
    let (writer, guard) = match settings.writer {
        LogWriter::File => {
            let path = &settings.file;
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|e| Failure::new(format!("[log] file {path}: {e}")))?;
            tracing_appender::non_blocking(file)
        }
        LogWriter::Stderr | LogWriter::Journald | LogWriter::Syslog => {
            tracing_appender::non_blocking(std::io::stderr())
        }
    };
    let filter = filter(settings.level);
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(writer)
        .with_ansi(false)
        .init();
    Ok(guard)
}

fn filter(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "debug,hyper=info,h2=info",
        LogLevel::Info | LogLevel::Notice => "info",
        LogLevel::Warning => "warn",
        LogLevel::Error | LogLevel::Critical | LogLevel::Alert | LogLevel::Emergency => "error",
        LogLevel::None => "off",
    }
}
