//! Which seq a shard had reached at which time, in at most 60 bins: for `_changes?since=TIME`.
//!
//! A bin begins with the first commit of a period of 3 hours, and has the seq that the shard had before that commit. Old bins are
//! merged, so that their periods grow with their age. The bins, their merging and the answers are CouchDB's (`couch_time_seq`).
//!
//! **Bins err on the side of too many changes:** all changes since a time come after [`TimeSeq::since`], some older ones do too.
//! So it is safe to lose bins, and a replica that applies a change late may record it late.
//!
//! Bins are not a part of a shard's digest: they depend on this machine's clock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::keys::ShardNumber;
use crate::varint::{Reader, put};

const VERSION: u8 = 1;
/// The stored form with the seq from which on times are unknown, before the bins.
const VERSION_UNKNOWN: u8 = 2;

/// Length of the shortest bins, in seconds. Bins begin at multiples of it.
pub const BIN_S: u64 = 3 * HOUR_S;
/// Maximum number of bins of a shard.
pub const BINS_MAX: usize = 60;
/// Changes made before 2025-08-01 are not recorded, unless a setting allows it: the clock was wrong.
pub const MIN_TIME_UNIX_S: u64 = 1_754_006_400;

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
const MONTH_S: u64 = 30 * DAY_S;
const YEAR_S: u64 = 365 * DAY_S;

/// Two neighbouring bins are merged if neither is longer than one of these, and both began before now minus the next one.
const INTERVALS_S: [u64; 12] = [
    BIN_S,
    6 * HOUR_S,
    12 * HOUR_S,
    DAY_S,
    10 * DAY_S,
    MONTH_S,
    6 * MONTH_S,
    YEAR_S,
    2 * YEAR_S,
    4 * YEAR_S,
    8 * YEAR_S,
    16 * YEAR_S,
];

/// A period that begins at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bin {
    /// Seconds since 1970.
    start: u64,
    /// Seq of the last change before the period.
    seq: u64,
}

/// The time bins of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSeq {
    /// The oldest first. Starts and seqs ascend.
    bins: Vec<Bin>,
    /// The clock was wrong at the changes after this seq. The next bin begins with them, so that they
    /// are taken to be younger than they are, and not older.
    unknown_after: Option<u64>,
}

/// Where the changes since a time begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePlace {
    /// After this seq.
    After(u64),
    /// After all that there are now.
    Now,
}

impl TimeSeq {
    /// Records that a commit changed a shard that was at `seq`, at a time in seconds since 1970; `None`
    /// if the clock is wrong. Returns whether there is something to be stored.
    pub fn record(&mut self, now_unix_s: Option<u64>, seq: u64) -> bool {
        let last = self.bins.last().copied();
        // Times only move forward.
        let is_back = |now: &u64| last.is_none_or(|last| *now >= last.start);
        let Some(now) = now_unix_s.filter(is_back) else {
            let is_new = self.unknown_after.is_none();
            self.unknown_after.get_or_insert(seq);
            return is_new;
        };
        let start = now - now % BIN_S;
        let begins_at = self.unknown_after.unwrap_or(seq);
        if let Some(last) = last
            && (start <= last.start || begins_at <= last.seq)
        {
            return false;
        }
        self.unknown_after = None;
        if self.bins.len() >= BINS_MAX {
            self.bins = rolled_up(&self.bins, start);
        }
        let seq = begins_at;
        self.bins.push(Bin { start, seq });
        debug_assert!(self.bins.len() <= BINS_MAX);
        true
    }

    /// Returns the time until which commits need no new bin, in seconds since 1970; 0 if that is unknown.
    pub fn current_ends(&self) -> u64 {
        match (self.unknown_after, self.bins.last()) {
            (None, Some(last)) => last.start + BIN_S,
            _ => 0,
        }
    }

    /// Returns whether a commit at this time needs no new bin, if the current one ends at `ends`.
    pub fn is_within(now_unix_s: u64, ends: u64) -> bool {
        now_unix_s < ends && now_unix_s >= ends.saturating_sub(BIN_S)
    }

    /// Where the changes since a time begin, at the latest.
    pub fn since(&self, unix_s: u64) -> TimePlace {
        match self.bins.last() {
            Some(last) if unix_s > last.start + BIN_S => match self.unknown_after {
                Some(seq) => TimePlace::After(seq),
                None => TimePlace::Now,
            },
            _ => {
                let before = self.bins.iter().rev().find(|bin| bin.start <= unix_s);
                TimePlace::After(before.map_or(0, |bin| bin.seq))
            }
        }
    }

    /// When each bin begins, in seconds since 1970, and how many seqs were given out in it. The oldest comes first; changes from before
    /// all bins are under 0.
    pub fn histogram(&self, update_seq: u64) -> Vec<(u64, u64)> {
        let mut starts = vec![];
        if self.bins.first().is_some_and(|oldest| oldest.seq > 0) {
            starts.push(Bin { start: 0, seq: 0 });
        }
        starts.extend_from_slice(&self.bins);
        let ends = starts.iter().skip(1).map(|bin| bin.seq);
        let counts = starts.iter().zip(ends.chain([update_seq]));
        counts
            .map(|(bin, end)| (bin.start, end.saturating_sub(bin.seq)))
            .collect()
    }

    /// Reads the stored bins of a shard. Damaged ones are lost: changes since a time then begin earlier.
    pub fn of_stored(shard: ShardNumber, value: Option<&[u8]>) -> TimeSeq {
        let decoded = value.map(TimeSeq::decode).transpose();
        let bins = decoded.unwrap_or_else(|error| {
            tracing::warn!(shard, %error, "time bins are rebuilt");
            None
        });
        bins.unwrap_or_default()
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        if let Some(seq) = self.unknown_after {
            out[0] = VERSION_UNKNOWN;
            put(seq, &mut out);
        }
        let mut before = Bin { start: 0, seq: 0 };
        for bin in &self.bins {
            put((bin.start - before.start) / BIN_S, &mut out);
            put(bin.seq - before.seq, &mut out);
            before = *bin;
        }
        out
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn decode(value: &[u8]) -> Result<TimeSeq, Error> {
        let mut r = Reader::new(value, "time bins");
        let unknown_after = match r.byte()? {
            VERSION => None,
            VERSION_UNKNOWN => Some(r.varint()?),
            _ => return Err(r.corrupt()),
        };
        let mut bins: Vec<Bin> = vec![];
        while !r.rest.is_empty() {
            let (start, seq) = (r.varint()?, r.varint()?);
            let last = bins.last();
            if last.is_some() && (start == 0 || seq == 0) || bins.len() == BINS_MAX {
                return Err(r.corrupt());
            }
            let start = start.checked_mul(BIN_S);
            let start = start.and_then(|s| s.checked_add(last.map_or(0, |bin| bin.start)));
            let seq = seq.checked_add(last.map_or(0, |bin| bin.seq));
            let bin = start.zip(seq).map(|(start, seq)| Bin { start, seq });
            bins.push(bin.ok_or_else(|| r.corrupt())?);
        }
        Ok(TimeSeq {
            bins,
            unknown_after,
        })
    }
}

/// A bin with its length.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Period {
    bin: Bin,
    length_s: u64,
}

/// Merges bins, so that there is room for one more that begins at `now`.
fn rolled_up(bins: &[Bin], now: u64) -> Vec<Bin> {
    let ends = bins.iter().skip(1).map(|bin| bin.start).chain([now]);
    let periods: Vec<Period> = bins
        .iter()
        .zip(ends)
        .map(|(&bin, end)| Period {
            bin,
            length_s: end - bin.start,
        })
        .collect();
    let merged = INTERVALS_S.windows(2).find_map(|interval| {
        let threshold = now.saturating_sub(interval[1]);
        let old = periods.partition_point(|period| period.bin.start <= threshold);
        merged_before(&periods, old, interval[0])
    });
    let merged = merged.or_else(|| {
        let half = periods.len() / 2;
        let longest = periods[..half].iter().map(|period| period.length_s).max();
        merged_before(&periods, half, longest.unwrap_or(u64::MAX))
    });
    let merged = merged.unwrap_or(periods);
    merged.into_iter().map(|period| period.bin).collect()
}

/// Merges pairs among the first `old` periods that are both at most `length_max_s` long; `None` without such a pair.
fn merged_before(periods: &[Period], old: usize, length_max_s: u64) -> Option<Vec<Period>> {
    let mut merged: Vec<Period> = Vec::with_capacity(periods.len());
    let mut rest = &periods[..old];
    while let [first, others @ ..] = rest {
        let mut period = *first;
        rest = others;
        if let [second, others @ ..] = others
            && first.length_s.max(second.length_s) <= length_max_s
        {
            period.length_s += second.length_s;
            rest = others;
        }
        merged.push(period);
    }
    (merged.len() < old).then(|| {
        merged.extend_from_slice(&periods[old..]);
        merged
    })
}

/// The clock that changes are recorded by.
pub struct RecordingClock {
    now_unix_s: fn() -> u64,
    min_unix_s: AtomicU64,
}

impl RecordingClock {
    /// A clock that reads the time by this function.
    pub fn new(now_unix_s: fn() -> u64) -> RecordingClock {
        RecordingClock {
            now_unix_s,
            min_unix_s: AtomicU64::new(MIN_TIME_UNIX_S),
        }
    }

    /// Changes made before this time are not recorded from now on.
    pub fn set_min(&self, unix_s: u64) {
        self.min_unix_s.store(unix_s, Relaxed);
    }

    /// The time, unless it cannot be right.
    pub fn now(&self) -> Option<u64> {
        let now = (self.now_unix_s)();
        (now >= self.min_unix_s.load(Relaxed)).then_some(now)
    }
}

/// Seconds since 1970, by the system's clock.
pub fn system_time_unix_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 1_767_225_600; // 2026-01-01T00:00:00Z

    /// One commit an interval, each of one change.
    fn recorded(times: impl Iterator<Item = u64>) -> (TimeSeq, Vec<u64>) {
        let (mut of, mut all) = (TimeSeq::default(), vec![]);
        for (seq, time) in times.enumerate() {
            of.record(Some(time), seq as u64);
            all.push(time);
        }
        (of, all)
    }

    fn after(place: TimePlace, update_seq: u64) -> u64 {
        match place {
            TimePlace::After(seq) => seq,
            TimePlace::Now => update_seq,
        }
    }

    #[test]
    fn without_bins_all_changes_are_since_any_time() {
        let empty = TimeSeq::default();
        assert_eq!(empty.since(0), TimePlace::After(0));
        assert_eq!(empty.since(u64::MAX), TimePlace::After(0));
        assert!(empty.histogram(7).is_empty());
    }

    #[test]
    fn a_bin_is_of_three_hours_and_begins_with_the_seq_before_its_first_commit() {
        let mut of = TimeSeq::default();
        assert!(of.record(Some(START + 5), 0));
        assert!(!of.record(Some(START + BIN_S - 1), 4));
        assert_eq!(of.current_ends(), START + BIN_S);
        assert!(of.record(Some(START + BIN_S), 9));
        assert!(!of.record(Some(START + BIN_S), 11));
        assert_eq!(of.histogram(12), [(START, 9), (START + BIN_S, 3)]);
        assert_eq!(of.since(START - 1), TimePlace::After(0));
        assert_eq!(of.since(START + BIN_S - 1), TimePlace::After(0));
        assert_eq!(of.since(START + BIN_S), TimePlace::After(9));
        assert_eq!(of.since(START + 2 * BIN_S), TimePlace::After(9));
        assert_eq!(of.since(START + 2 * BIN_S + 1), TimePlace::Now);
    }

    #[test]
    fn changes_by_a_wrong_clock_are_dated_into_the_next_bin() {
        let later = START + 1000 * BIN_S;
        for wrong in [None, Some(START - 1)] {
            let mut of = TimeSeq::default();
            assert!(of.record(Some(START), 3));
            assert!(of.record(wrong, 5));
            assert!(!of.record(wrong, 6));
            assert_eq!(of.current_ends(), 0);
            assert_eq!(TimeSeq::decode(&of.encode()).unwrap(), of);
            // They may be of any time since the newest bin.
            assert_eq!(of.since(later), TimePlace::After(5));
            assert!(!of.record(Some(START + 1), 7));
            assert!(of.record(Some(later), 8));
            assert_eq!(of.since(later), TimePlace::After(5));
            assert_eq!(of.since(later + 2 * BIN_S), TimePlace::Now);
            assert_eq!(TimeSeq::decode(&of.encode()).unwrap(), of);
        }
        let mut of = TimeSeq::default();
        assert!(of.record(None, 0));
        assert!(of.record(Some(START), 9));
        assert_eq!(of.since(START), TimePlace::After(0));
    }

    #[test]
    fn changes_from_before_all_bins_are_counted_under_1970() {
        let mut of = TimeSeq::default();
        of.record(Some(START), 100);
        assert_eq!(of.histogram(103), [(0, 100), (START, 3)]);
        assert_eq!(of.since(START - 1), TimePlace::After(0));
    }

    #[test]
    fn after_a_century_of_hourly_changes_recent_days_and_months_are_told_apart() {
        let hours = 100 * 365 * 24;
        let (of, _) = recorded((0..hours).map(|hour| START + hour * HOUR_S));
        assert!(of.bins.len() <= BINS_MAX);
        let now = START + hours * HOUR_S;
        let within = |age_s: u64| {
            of.bins
                .iter()
                .filter(|bin| now - bin.start <= age_s)
                .count()
        };
        assert!(within(10 * DAY_S) >= 10, "{}", within(10 * DAY_S));
        assert!(within(7 * MONTH_S) >= 16, "{}", within(7 * MONTH_S));
        let spans = of.bins.windows(2).map(|pair| pair[1].start - pair[0].start);
        assert!(spans.max().unwrap() < 20 * YEAR_S);
    }

    /// Computed by CouchDB's algorithm: a commit every 3 hours, one more than there are bins.
    #[test]
    fn the_oldest_bins_are_merged_in_pairs_first() {
        let count = BINS_MAX as u64 + 1;
        let (of, _) = recorded((0..count).map(|n| START + n * BIN_S));
        // Those older than 6 hours: 59 of 60, of which the last one stays alone.
        let expected: Vec<u64> = (0..58).step_by(2).chain([58, 59, 60]).collect();
        let starts: Vec<u64> = of
            .bins
            .iter()
            .map(|bin| (bin.start - START) / BIN_S)
            .collect();
        assert_eq!(starts, expected);
    }

    #[test]
    fn stored_bins_have_these_bytes() {
        let mut of = TimeSeq::default();
        assert_eq!(of.encode(), [VERSION]);
        of.record(Some(START), 0);
        of.record(Some(START + BIN_S), 300);
        assert_eq!(TimeSeq::decode(&of.encode()).unwrap(), of);
        let hex: String = of.encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "01b0fe090001ac02");
    }

    #[test]
    fn what_is_no_bins_is_corrupt() {
        let mut many = vec![VERSION];
        (0..=BINS_MAX).for_each(|_| many.extend([1, 1]));
        for bad in [
            &[][..],
            &[2],
            &[1, 1],
            &[1, 1, 1, 0, 1],
            &[1, 1, 1, 1, 0],
            &many,
        ] {
            assert!(TimeSeq::decode(bad).is_err(), "{bad:?}");
        }
        let mut long = vec![VERSION];
        put(u64::MAX, &mut long);
        put(1, &mut long);
        assert!(TimeSeq::decode(&long).is_err());
    }

    proptest! {
        /// Commits at any times, clocks set back among them: what is since a time is never left out.
        #[test]
        fn no_change_since_a_time_is_left_out(
            steps in prop::collection::vec(-(40 * HOUR_S as i64)..400 * HOUR_S as i64, 1..400),
            asked in 0u64..400 * 400 * HOUR_S,
        ) {
            let mut now = START;
            let times = steps.into_iter().map(|step| {
                now = now.saturating_add_signed(step).max(START);
                now
            });
            let (of, times) = recorded(times);
            prop_assert!(of.bins.len() <= BINS_MAX);
            prop_assert!(of.bins.is_sorted_by(|a, b| a.start < b.start && a.seq < b.seq));
            prop_assert_eq!(TimeSeq::decode(&of.encode()).unwrap(), of.clone());
            let total: u64 = of.histogram(times.len() as u64).iter().map(|(_, n)| n).sum();
            prop_assert_eq!(total, times.len() as u64);
            let asked = START + asked;
            let from = after(of.since(asked), times.len() as u64);
            // The change with the seq n + 1 was made at times[n].
            for time in &times[..from as usize] {
                prop_assert!(*time <= asked, "the change at {time} is since {asked}");
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(of) = TimeSeq::decode(&bytes) {
                let _ = (of.since(5), of.histogram(9), of.current_ends());
            }
        }
    }
}
