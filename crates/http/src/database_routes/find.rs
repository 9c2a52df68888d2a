//! Mango queries: `_find` and `_explain`, of a database or of a partition.

use std::sync::Arc;

use bytes::Bytes;
use database::{FindAnswer, FindIndexes, FindLimits};
use mango::{AggregateLimits, Defaults, Find};
use telemetry::Tick;

use crate::accounting::slow::Detail;
use crate::database_routes::texts::within_wait;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::answers::measured;
use crate::reply::stream::{CHUNK_BYTES, PieceMaker, pull, pull_apart, pull_in_turns};
use crate::request::Request;
use node::Access;

type Answer = Result<Reply, ApiError>;

/// Limits on selectors.
pub fn selector_limits(settings: &config::settings::Mango) -> mango::Limits {
    mango::Limits {
        selector_depth_max: settings.max_selector_depth.min(mango::DEPTH_MAX),
        selector_conditions_max: settings.max_selector_conditions,
        regexes_max: settings.max_selector_regexes,
        regex_bytes_max: settings.max_regex_size,
        regexes_bytes_max: mango::Limits::regexes_bytes_max_of(settings.max_regex_size),
    }
}

/// Limits on the work for an answer.
fn find_limits(settings: &config::settings::Mango, user: Option<u64>) -> FindLimits {
    FindLimits {
        scan_limit: settings.scan_limit,
        scan_warning_threshold: settings.index_scan_warning_threshold,
        aggregate: AggregateLimits {
            groups_max: settings.max_aggregate_groups,
            values_max: settings.max_aggregate_values,
            bytes_max: settings.max_aggregate_bytes,
            user,
        },
    }
}

/// A longer body is read on a thread with a lower priority: the values of `$in` are sorted. So is one with regular expressions,
/// which are compiled.
const BLOCKING_BODY_BYTES: usize = 64 << 10;

/// Reads the body, and passes the query to `use_it` with the indexes. Also returns the query's size in bytes.
async fn read<T: Send + 'static>(
    req: &mut Request,
    access: &Access,
    partition: Option<String>,
    use_it: impl FnOnce(Find, FindLimits, &Arc<FindIndexes>) -> Result<T, ApiError> + Send + 'static,
) -> Result<(T, usize), ApiError> {
    req.require_json()?;
    let bytes = req.bytes().await?;
    let defaults = Defaults {
        limit: req.settings.mango.default_limit,
        limits: selector_limits(&req.settings.mango),
    };
    let limits = find_limits(&req.settings.mango, req.answers.sharer());
    // Read before, and not counted: they are of the database, not of this query.
    let indexes = access.db.find_indexes_async().await?;
    let is_long = is_long(&bytes) || indexes.are_many();
    apart_if(req, is_long, bytes, move |bytes| {
        let (made, bytes) = measured(bytes.len(), || {
            let body = document::normalise(bytes)?;
            let mut find = Find::parse(&body, &defaults)?;
            if partition.is_some() {
                find.partition = partition;
            }
            use_it(find, limits, &indexes)
        });
        Ok((made?, bytes))
    })
    .await
}

/// Lets `work` read the body of a request; a body that may be slow is read on a thread with a lower
/// priority, in the user's turn.
pub async fn apart_if_long<T: Send + 'static>(
    req: &mut Request,
    body: Bytes,
    work: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let is_long = is_long(&body);
    apart_if(req, is_long, body, work).await
}

/// Whether a body may be slow to read. The name of an operator may be escaped.
fn is_long(body: &[u8]) -> bool {
    let has = |part: &[u8]| memchr::memmem::find(body, part).is_some();
    body.len() > BLOCKING_BODY_BYTES || has(b"$regex") || has(b"\\u00")
}

/// Lets `work` read a body, if `is_long` on a thread with a lower priority, in the user's turn; an
/// extremely long one on a thread for blocking work. The body keeps its room until it was read, also
/// when its client has gone.
async fn apart_if<T: Send + 'static>(
    req: &mut Request,
    is_long: bool,
    body: Bytes,
    work: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if !is_long {
        return work(&body);
    }
    let length = body.len();
    let parse = move || {
        let _parses = telemetry::enter(telemetry::State::Parse);
        work(&body)
    };
    req.process(length, true, parse).await?
}

/// `_explain`; `partition` of one below `_partition`.
pub async fn explain(req: &mut Request, access: &Access, partition: Option<String>) -> Answer {
    let db = access.db.clone();
    let explained = read(req, access, partition, move |find, _, indexes| {
        Ok((db.explain(find, indexes)?, indexes.clone()))
    });
    let ((mut explanation, indexes), bytes) = explained.await?;
    req.keep(bytes).await?;
    req.keep_indexes(&indexes).await?;
    let mut is_ended = false;
    let next = move |out: &mut Vec<u8>| {
        if !is_ended && !explanation.next_chunk(out, CHUNK_BYTES)? {
            out.push(b'\n');
            is_ended = true;
        }
        Ok::<_, ApiError>(!is_ended)
    };
    match indexes.are_many() {
        true => pull_apart(&req.answers, "application/json", next).await,
        false => pull(&req.answers, "application/json", next).await,
    }
}

/// `_find`; `partition` of one below `_partition`.
pub async fn find(req: &mut Request, access: &Access, partition: Option<String>) -> Answer {
    let started = std::time::Instant::now();
    let db = access.db.clone();
    let plan = read(req, access, partition, move |find, limits, indexes| {
        Ok((db.plan_find(find, &limits, indexes)?, limits))
    });
    let ((plan, limits), bytes) = plan.await?;
    req.keep(bytes).await?;
    let parse_us = (started.elapsed().as_micros() as u64).saturating_sub(req.body_us);
    let detail = Arc::new(Detail {
        find: Some(plan.report()),
        ..Detail::default()
    });
    req.detail = Some(detail.clone());
    let waiting = Tick::now();
    let answer = access.db.find(plan, limits).await?;
    let turns = match answer.turns() {
        Some((turns, threads)) if answer.searches_text() => {
            Some((within_wait(turns()).await?, turns, threads))
        }
        // A request that waits for a scan has no thread, and would only scan again.
        Some((turns, threads)) => Some((turns().await?, turns, threads)),
        None => None,
    };
    let wait_us = waiting.elapsed_us();
    let client = answer.client();
    let mut body = FindBody {
        answer,
        detail,
        state: State::Head,
    };
    let mut reply = if let Some((turn, turns, threads)) = turns {
        let next = move |out: &mut Vec<u8>| body.next_chunk(out);
        pull_in_turns(
            &req.answers,
            "application/json",
            client,
            (turn, turns, threads),
            next,
        )
        .await?
    } else {
        let pulled = Pulled {
            body,
            _client: client,
        };
        pull(&req.answers, "application/json", pulled).await?
    };
    reply.timing.parse_us = parse_us;
    reply.timing.wait_us = wait_us;
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
    detail: Arc<Detail>,
    state: State,
}

/// A body that the client takes piece by piece. A client that does not request the next piece has
/// gone.
struct Pulled<C> {
    body: FindBody,
    _client: C,
}

impl<C: Send + 'static> PieceMaker for Pulled<C> {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        self.body.next_chunk(out)
    }

    fn is_long(&self) -> bool {
        self.body.answer.is_long()
    }
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
        let (documents, keys, rows) = self.answer.examined();
        self.detail.done.note_examined(documents, keys);
        self.detail.done.note_rows(rows);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_with_regular_expressions_may_be_slow_however_they_are_written() {
        assert!(!is_long(br#"{"selector":{"a":1}}"#));
        for operator in ["$regex", r"\u0024regex", r"$r\u0065gex", r"$rege\u0078"] {
            let body = format!(r#"{{"selector":{{"a":{{"{operator}":"x"}}}}}}"#);
            assert!(is_long(body.as_bytes()), "{operator}");
        }
        assert!(is_long(&vec![b' '; BLOCKING_BODY_BYTES + 1]));
    }
}
