//! Map functions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use document::DocError;

use super::{add_fun, add_lib, prepare};
use crate::answer::{Answer, Unreadable, add_emits};
use crate::language::{
    Doc, EMITS_BYTES_MAX, Emits, Error, MapFailure, MapGroup, Mapper, SLICE, one_line,
};
use crate::pool::{Lease, Pool};
use crate::process::{Process, Taught};

/// Documents that are sent ahead of the answers.
const AHEAD_DOCS: usize = 100;
/// Bytes of such documents.
const AHEAD_BYTES: usize = 1 << 20;
/// The answers to documents that were sent ahead are taken up to this multiple of the enough rows;
/// the process is ended rather than taking more.
const TAKEN_TIMES_MAX: usize = 4;
/// Documents that are mapped before others may have their turn.
const AT_ONCE_MAX: usize = 256;
/// Number of bytes that are sent together when answers are already available.
const SEND_BYTES: usize = 16 << 10;

pub(crate) struct ExternalMapper {
    pool: Arc<Pool>,
    language: String,
    group: Arc<MapGroup>,
    /// Number of documents that [`Mapper::map_some`] takes: few while each is slow or has many rows.
    at_once: usize,
}

impl ExternalMapper {
    pub fn new(pool: Arc<Pool>, language: String, group: &MapGroup) -> Self {
        Self {
            pool,
            language,
            group: Arc::new(group.clone()),
            at_once: AT_ONCE_MAX,
        }
    }

    fn lease(&self) -> Result<Lease, Error> {
        let rank = |taught: &Taught| match taught {
            Taught::Maps(group) if is_same(group, &self.group) => 2,
            _ => 0,
        };
        prepare(&self.pool, &self.language, rank, |process| {
            add_lib(process, self.group.lib.as_deref())?;
            for source in &self.group.maps {
                add_fun(process, source)?;
            }
            process.taught = Taught::Maps(self.group.clone());
            Ok(())
        })
    }

    /// Adds the rows of one answer; errors of single documents are logged, or returned.
    fn take(
        &self,
        process: &Process,
        answer: Result<Answer, Unreadable>,
        doc: (usize, &Doc<'_>),
        out: &mut Emits,
    ) -> Result<(), Error> {
        let (index, doc) = doc;
        let problem = match answer {
            Ok(Answer::Value(value)) => {
                let index = u32::try_from(index)
                    .map_err(|_| Error::Process("too many documents in one call".to_owned()))?;
                return add_emits(&value, index, self.group.maps.len(), out);
            }
            Ok(Answer::Fatal { .. } | Answer::Log(_)) | Err(Unreadable::NotJson) => {
                return Err(match answer {
                    Ok(answer) => process.error_of(answer),
                    Err(_) => Error::Process(format!(
                        "the query server for {} answered no JSON to map_doc",
                        self.language
                    )),
                });
            }
            Ok(
                answer @ (Answer::Failed { .. } | Answer::Forbidden(_) | Answer::Unauthorized(_)),
            ) => process.error_of(answer),
            Err(Unreadable::Unusable(error @ DocError::TooDeep)) => {
                Error::BadArgument(error.to_string())
            }
            Err(Unreadable::Unusable(error)) => Error::Process(error.to_string()),
        };
        if self.group.leaves_out && !self.group.tells && problem.is_of_document() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            for view in 0..self.group.maps.len() {
                let failure = MapFailure::new(index, view as u32, problem.clone(), None);
                out.thrown.push(failure);
            }
            return Ok(());
        }
        if self.group.tells {
            // Which of the functions it was, the protocol does not say.
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            out.thrown.push(MapFailure::new(index, 0, problem, None));
            return Ok(());
        }
        let problem = problem.to_string();
        let members = String::from_utf8_lossy(&doc.members[..doc.members.len().min(300)]);
        let (members, problem) = (one_line(&members), one_line(&problem));
        tracing::warn!(views = %self.group.owner, %members, %problem, "a map function failed for a document");
        Ok(())
    }
}

/// Returns whether two groups are of one database and have the same functions.
fn is_same(a: &Arc<MapGroup>, b: &Arc<MapGroup>) -> bool {
    Arc::ptr_eq(a, b)
        || (a.owner.database == b.owner.database && a.maps == b.maps && a.lib == b.lib)
}

impl ExternalMapper {
    /// Maps documents until their rows take this number of bytes; returns their number.
    fn map_until(
        &mut self,
        docs: &[Doc<'_>],
        out: &mut Emits,
        bytes_max: usize,
    ) -> Result<usize, Error> {
        if docs.is_empty() || self.group.maps.is_empty() {
            return Ok(docs.len());
        }
        let mut lease = self.lease()?;
        let process = lease.process();
        let start = out.size();
        let mut ahead = VecDeque::with_capacity(AHEAD_DOCS);
        let mut ahead_bytes = 0;
        let mut unsent = docs.iter();
        let mut done = 0;
        for (index, doc) in docs.iter().enumerate() {
            let emitted = out.size() - start;
            let is_enough = index > 0 && emitted >= bytes_max;
            if is_enough && ahead.is_empty() {
                break;
            }
            if is_enough && emitted >= bytes_max.saturating_mul(TAKEN_TIMES_MAX) {
                // The lease is not done: the process ends, with its other answers.
                return Ok(index);
            }
            while !is_enough
                && (ahead.is_empty() || (ahead.len() < AHEAD_DOCS && ahead_bytes < AHEAD_BYTES))
            {
                let Some(doc) = unsent.next() else { break };
                write_doc(process, doc);
                let bytes = doc.members.len() + doc.body.len();
                ahead.push_back(bytes);
                ahead_bytes += bytes;
            }
            if process.unsent_bytes() >= SEND_BYTES {
                process.send();
            }
            let answer = process.readable_answer()?;
            ahead_bytes -= ahead.pop_front().unwrap_or(0);
            self.take(process, answer, (index, doc), out)?;
            done = index + 1;
        }
        process.expect_silence()?;
        lease.done();
        Ok(done)
    }
}

impl Mapper for ExternalMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        self.map_until(docs, out, usize::MAX).map(drop)
    }

    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        let (started, start) = (Instant::now(), out.size());
        let some = docs.len().min(self.at_once);
        let done = self.map_until(&docs[..some], out, EMITS_BYTES_MAX)?;
        let is_much = started.elapsed() > SLICE || out.size() - start >= EMITS_BYTES_MAX;
        self.at_once = match is_much {
            true => (done / 4).max(1),
            false => (self.at_once * 2).min(AT_ONCE_MAX),
        };
        Ok(done)
    }
}

fn write_doc(process: &mut Process, doc: &Doc<'_>) {
    process.write(b"[\"map_doc\",{");
    process.write(doc.members);
    let rest = doc.body.strip_prefix(b"{").unwrap_or(doc.body);
    if rest != b"}" && !doc.members.is_empty() {
        process.write(b",");
    }
    process.write(rest);
    process.write(b"]");
    process.end_line();
}
