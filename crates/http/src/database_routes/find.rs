//! Mango queries: `_find` and `_explain`, of a database or of a partition.

use bytes::Bytes;
use database::{FindAnswer, FindLimits};
use mango::{AggregateLimits, Defaults, Find};

use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::stream::{CHUNK_BYTES, pull, pull_blocking_for};
use crate::request::Request;
use crate::request::body::BodyClass;
use crate::router::require_method;
use node::Access;

type Answer = Result<Reply, ApiError>;

/// The settings of `[mango]`.
#[derive(Clone, Copy, Debug)]
pub struct MangoSettings {
    pub defaults: Defaults,
    pub find: FindLimits,
}

impl MangoSettings {
    pub fn read(c: &config::Config) -> Result<MangoSettings, config::ConfigError> {
        let number = |name: &str| {
            let n = c.get_u64("mango", name)?;
            Ok(usize::try_from(n).unwrap_or(usize::MAX))
        };
        Ok(MangoSettings {
            defaults: Defaults {
                limit: c.get_u64("mango", "default_limit")?,
                limits: mango::Limits {
                    selector_depth_max: number("max_selector_depth")?.min(mango::DEPTH_MAX),
                    selector_conditions_max: number("max_selector_conditions")?,
                    regexes_max: number("max_selector_regexes")?,
                    regex_bytes_max: number("max_regex_size")?,
                },
            },
            find: FindLimits {
                scan_limit: c.get_u64("mango", "scan_limit")?,
                scan_warning_threshold: c.get_u64("mango", "index_scan_warning_threshold")?,
                aggregate: AggregateLimits {
                    groups_max: number("max_aggregate_groups")?,
                    values_max: number("max_aggregate_values")?,
                    bytes_max: number("max_aggregate_bytes")?,
                },
            },
        })
    }
}

/// A longer body is read on a thread for blocking work: the values of `$in` are sorted. So is one with regular expressions,
/// which are compiled.
const BLOCKING_BODY_BYTES: usize = 64 << 10;

/// Reads the body, and has `use_it` make something of the query.
async fn read<T: Send + 'static>(
    app: &App,
    req: &mut Request,
    partition: Option<String>,
    use_it: impl FnOnce(Find, &MangoSettings) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    require_method(req, "POST")?;
    req.require_json()?;
    let bytes = req.bytes(BodyClass::Document).await?;
    let settings = app.limits().mango;
    apart_if_long(bytes, move |bytes| {
        let body = document::normalise(bytes)?;
        let mut find = Find::parse(&body, &settings.defaults)?;
        if partition.is_some() {
            find.partition = partition;
        }
        use_it(find, &settings)
    })
    .await
}

/// Has `work` read a body: one that may take long on a thread for blocking work.
pub async fn apart_if_long<T: Send + 'static>(
    body: Bytes,
    work: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if body.len() <= BLOCKING_BODY_BYTES && memchr::memmem::find(&body, b"$regex").is_none() {
        return work(&body);
    }
    tokio::task::spawn_blocking(move || work(&body))
        .await
        .map_err(|_| ApiError::worker_failed())?
}

/// `_explain`; `partition` of one below `_partition`.
pub async fn explain(
    app: &App,
    req: &mut Request,
    access: &Access,
    partition: Option<String>,
) -> Answer {
    let db = access.db.clone();
    let answer = read(app, req, partition, move |find, _| Ok(db.explain(&find)?)).await?;
    Ok(Reply::json_bytes(200, [&answer[..], b"\n"].concat()))
}

/// `_find`; `partition` of one below `_partition`.
pub async fn find(
    app: &App,
    req: &mut Request,
    access: &Access,
    partition: Option<String>,
) -> Answer {
    let started = std::time::Instant::now();
    let db = access.db.clone();
    let plan = read(app, req, partition, move |find, settings| {
        Ok((db.plan_find(find, &settings.find)?, settings.find))
    });
    let (plan, limits) = plan.await?;
    let parse_us = started.elapsed().as_micros() as u64;
    let answer = access.db.find(plan, limits).await?;
    let (blocks, client) = (answer.may_block(), answer.client());
    let mut body = FindBody {
        answer,
        state: State::Head,
    };
    let mut reply = if blocks {
        let next = move |out: &mut Vec<u8>| body.next_chunk(out);
        pull_blocking_for("application/json", client, next).await?
    } else {
        // Who does not ask for the next piece has gone.
        let next = move |out: &mut Vec<u8>| {
            let _held = &client;
            body.next_chunk(out)
        };
        pull("application/json", next)?
    };
    reply.timing.parse_us = parse_us;
    Ok(reply)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Rows,
    Done,
}

struct FindBody {
    answer: FindAnswer,
    state: State,
}

impl FindBody {
    fn next_chunk(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        if self.state == State::Done {
            return Ok(false);
        }
        if self.state == State::Head {
            let head: &[u8] = match self.answer.is_aggregate() {
                true => b"{\"groups\":[\r\n",
                false => b"{\"docs\":[\r\n",
            };
            out.extend_from_slice(head);
            self.state = State::Rows;
        }
        let more = match self.answer.is_aggregate() {
            true => self.answer.next_groups(out, CHUNK_BYTES)?,
            false => self.answer.next_chunk(out, CHUNK_BYTES)?,
        };
        if !more {
            self.write_tail(out);
        }
        Ok(true)
    }

    fn write_tail(&mut self, out: &mut Vec<u8>) {
        self.state = State::Done;
        out.extend_from_slice(b"\r\n]");
        let answer = &self.answer;
        if answer.is_nothing() && !answer.is_aggregate() {
            out.extend_from_slice(b"}\r\n");
            return;
        }
        if !answer.is_aggregate() {
            member("bookmark", &answer.bookmark().into(), out);
        }
        if let Some(stats) = answer.execution_stats() {
            member("execution_stats", &stats, out);
        }
        if let Some(warning) = answer.warning() {
            member("warning", &warning.into(), out);
        }
        out.extend_from_slice(b"}\r\n");
    }
}

fn member(name: &str, value: &serde_json::Value, out: &mut Vec<u8>) {
    out.extend_from_slice(format!(",\r\n\"{name}\": {value}").as_bytes());
}

/// Of the whole database.
pub async fn route(app: &App, req: &mut Request, access: &Access, name: &str) -> Answer {
    if req.segments.len() > 2 && name != "_index" {
        require_method(req, "POST")?;
        return Err(ApiError::missing());
    }
    match name {
        "_find" => find(app, req, access, None).await,
        "_explain" => explain(app, req, access, None).await,
        _ => crate::database_routes::indexes::route(app, req, access).await,
    }
}
