//! Who runs users' functions, as configured.

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use database::ReduceLimit;
use functions::js::{Isolation, Options};
use functions::query_server::Settings;
use functions::{Functions, Languages};

use crate::Failure;

/// Sections that query servers are configured in.
const QUERY_SERVER_SECTIONS: [&str; 4] = [
    "couchdb",
    "query_servers",
    "native_query_servers",
    "query_server_config",
];

/// Query servers follow changes of the configuration, the JavaScript engine is what it was at the start.
pub fn functions(config: &Config) -> Result<Arc<dyn Languages>, Failure> {
    let functions =
        Functions::new(javascript(config)?, query_servers(config)).map_err(Failure::new)?;
    let configured = Arc::downgrade(&functions);
    let settings = config.clone();
    config.subscribe(move |change| {
        if QUERY_SERVER_SECTIONS.contains(&change.section.as_str())
            && let Some(functions) = configured.upgrade()
        {
            functions.configure(query_servers(&settings));
        }
    });
    Ok(functions)
}

fn javascript(config: &Config) -> Result<Options, Failure> {
    let number = |key| {
        let n = config.get_u64("functions", key).map_err(Failure::usage)?;
        usize::try_from(n).map_err(Failure::usage)
    };
    let isolation = config
        .get_str("functions", "isolation")
        .map_err(Failure::usage)?;
    Ok(Options {
        time: Duration::from_millis(number("time_limit_ms")? as u64),
        memory_bytes: number("memory_limit_bytes")?,
        stack_bytes: number("stack_limit_bytes")?,
        emit_rows_max: number("emit_rows_limit")?,
        emit_bytes_max: number("emit_bytes_limit")?,
        isolation: match isolation.as_str() {
            "thread" => Isolation::Thread,
            _ => Isolation::Process,
        },
        workers_max: match number("workers_limit")? {
            0 => Options::default().workers_max,
            n => n,
        },
        queue_max: number("queue_limit")?,
        ..Options::default()
    })
}

fn query_servers(config: &Config) -> Settings {
    let mut commands: Vec<(String, String)> =
        Settings::commands_of_environment(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }));
    // The configuration has the last word.
    commands.extend(config.section("query_servers"));
    Settings::read(|section, key| config.find(section, key), commands)
}

/// When a reduction is too large, as configured at the start; `None` for never.
pub fn reduce_limit(config: &Config) -> Result<Option<ReduceLimit>, Failure> {
    let section = "query_server_config";
    let text = |key| config.get_str(section, key).map_err(Failure::usage);
    if text("reduce_limit")? != "true" {
        return Ok(None);
    }
    let ratio = text("reduce_limit_ratio")?;
    let threshold = config
        .get_u64(section, "reduce_limit_threshold")
        .map_err(Failure::usage)?;
    Ok(Some(ReduceLimit {
        threshold: usize::try_from(threshold).map_err(Failure::usage)?,
        ratio: ratio.parse().map_err(|_| {
            Failure::usage(format!(
                "[{section}] reduce_limit_ratio: '{ratio}' is no number"
            ))
        })?,
    }))
}
