//! Feeds since a time, and how many changes were made when: each shard's time bins ([`storage::TimeSeq`]).

use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, SecondsFormat};
use storage::TimePlace;

use crate::Error;
use crate::database::Database;
use crate::ranges::ShardRange;

/// The form of a time in `since`: with seconds, in UTC. As in CouchDB, other forms of RFC 3339 are not accepted.
const FORMAT: &str = "%Y-%m-%dT%H:%M:%SZ";

/// How many changes were made in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeBin {
    /// When the period began, as `2026-11-28T12:00:00Z`.
    pub start: String,
    /// Changes in the period.
    pub changes: u64,
}

impl Database {
    /// Returns the time bins of each shard, the oldest first. On a node of a cluster these are the node's own.
    ///
    /// # Errors
    /// Those of the store.
    pub fn time_seq(&self) -> Result<Vec<(ShardRange, Vec<TimeBin>)>, Error> {
        let of_shard = |shard: &Arc<storage::Shard>| {
            let bins = shard.time_seq()?.histogram(shard.meta().update_seq);
            let bins = bins.into_iter().map(|(start, changes)| TimeBin {
                start: text(start),
                changes,
            });
            Ok(bins.collect())
        };
        let all: Result<Vec<_>, Error> = self.all_shards().iter().map(of_shard).collect();
        Ok(self.shards().into_iter().zip(self.if_live(all)?).collect())
    }

    /// Removes the time bins of all shards; durable when this returns. Feeds since any time then begin at the start, until changes
    /// are recorded again.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], and those of the store.
    pub async fn reset_time_seq(&self) -> Result<(), Error> {
        self.live()?;
        let committer = &self.store().committer;
        let shards = self.all_shards().iter();
        let queued: Vec<_> = shards
            .map(|shard| committer.reset_time_seq(shard.clone()))
            .collect();
        for reset in queued {
            let done = reset.await.map_err(|_| Error::ShuttingDown)?;
            done.or_else(|e| self.if_live(Err(e.into())))?;
        }
        Ok(())
    }

    /// Where each shard's changes since a time begin, at the latest; `ends` is where each one ends.
    pub(crate) fn seqs_since(&self, unix_s: u64, ends: &[u64]) -> Result<Vec<u64>, Error> {
        let shards = self.all_shards().iter().zip(ends);
        let found = shards.map(|(shard, &end)| match shard.time_seq()?.since(unix_s) {
            // Bins are read after the snapshot that ends there.
            TimePlace::After(seq) => Ok(seq.min(end)),
            TimePlace::Now => Ok(end),
        });
        self.if_live(found.collect())
    }
}

fn text(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok();
    let time = time.and_then(|time| DateTime::from_timestamp(time, 0));
    time.unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Reads a `since` that is a time, in seconds since 1970; `None` for one that is not written like a time.
///
/// # Errors
/// [`Error::BadRequest`] for a time that does not exist.
pub(crate) fn time_of(since: &str) -> Option<Result<u64, Error>> {
    let bytes = since.as_bytes();
    let has_form = bytes.len() == 20
        && [
            (4, b'-'),
            (7, b'-'),
            (10, b'T'),
            (13, b':'),
            (16, b':'),
            (19, b'Z'),
        ]
        .iter()
        .all(|(at, separator)| bytes[*at] == *separator);
    has_form.then(|| {
        let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
        let time = NaiveDateTime::parse_from_str(since, FORMAT).ok();
        let time = time.filter(|_| digits == 14);
        let time = time.ok_or_else(|| Error::BadRequest("invalid_time_format".into()))?;
        Ok(u64::try_from(time.and_utc().timestamp()).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_seqs() {
        let time = |since| time_of(since).map(Result::ok);
        assert_eq!(time("1970-01-01T00:00:00Z"), Some(Some(0)));
        assert_eq!(time("2025-08-01T00:00:00Z"), Some(Some(1_754_006_400)));
        assert_eq!(time("1969-12-31T23:59:59Z"), Some(Some(0)));
        assert_eq!(time("9999-12-31T23:59:59Z"), Some(Some(253_402_300_799)));
        for bad in [
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "xxxx-xx-xxTxx:xx:xxZ",
            "+026-01-01T00:00:00Z",
            "2026- 1- 1T 0: 0: 0Z",
        ] {
            assert_eq!(time(bad), Some(None), "{bad}");
        }
        for other in [
            "",
            "0",
            "3-AAAAAAAD",
            "2026-11-28",
            "2026-11-28T13:00:00z",
            "2026-11-28T13:00:00.5Z",
            "\"2026-11-28T13:00:00Z\"",
            "2026-11-28 13:00:00Z",
        ] {
            assert_eq!(time(other), None, "{other}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for time in ["1970-01-01T00:00:00Z", "2026-11-28T12:00:00Z"] {
            let unix_s = time_of(time).and_then(Result::ok);
            assert_eq!(unix_s.map(text).as_deref(), Some(time));
        }
    }
}
