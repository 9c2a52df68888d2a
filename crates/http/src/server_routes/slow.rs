//! `/_settee/slow`: the most recent lines of the slow log.

use serde_json::{Value, json};

use crate::app::App;
use crate::reply::Reply;
use crate::request::Request;

/// Answers server admins with the limit, the file, and the lines since the start, the latest first.
pub fn route(app: &App, req: &Request) -> Reply {
    let log = &req.settings.log;
    let limit_ms = u64::try_from(log.slow_time.as_millis()).unwrap_or(u64::MAX);
    let lines = app.stats.recent_slow();
    let lines = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let requests: Vec<Value> = lines.collect();
    Reply::json(
        200,
        &json!({"slow_time": limit_ms, "slow_file": log.slow_file, "requests": requests}),
    )
}
