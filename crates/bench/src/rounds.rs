//! The measured rounds of a part on one server, and the resulting figures.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::pace::{ClientTime, OpenLoop};
use crate::slice::{Slice, new_histogram};

/// Fewer requests than this in a repeat have no percentile worth comparing: for the median, and for the 99th.
const REQUESTS_FOR_P50: u64 = 20;

const REQUESTS_FOR_P99: u64 = 200;

/// One measured round of a part on one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// When it ended, in seconds from the beginning of the run.
    pub(crate) at_s: f64,
    /// Units that succeeded.
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    /// The histogram of latencies: microseconds, and how many requests.
    pub(crate) latencies_us: Vec<(u64, u64)>,
    /// Bytes that the load client sent and received.
    pub(crate) bytes: u64,
    pub(crate) client: Option<ClientTime>,
    pub(crate) open: Option<OpenLoop>,
}

impl Round {
    pub(crate) fn of(slice: &Slice, at_s: f64) -> Self {
        let recorded = slice.latencies_us.iter_recorded();
        let counts = recorded.map(|each| (each.value_iterated_to(), each.count_at_value()));
        Self {
            at_s,
            count: slice.count,
            seconds: slice.seconds,
            latencies_us: counts.collect(),
            bytes: slice.bytes,
            client: slice.client,
            open: slice.open,
        }
    }

    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.count as f64 / self.seconds
        } else {
            0.0
        }
    }
}

/// The rounds of each repeat of a part on one server. A failed repeat has none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rounds(pub(crate) Vec<Vec<Round>>);

/// Figures of one repeat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RepeatFigures {
    /// Units a second.
    pub(crate) rate: f64,
    pub(crate) requests: u64,
    pub(crate) latency_ms_p50: f64,
    pub(crate) latency_ms_p99: f64,
}

impl Rounds {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Round> {
        self.0.iter().flatten()
    }

    /// All latencies in microseconds.
    pub(crate) fn latencies_us(&self) -> Histogram<u64> {
        histogram(self.all())
    }

    /// The figures of each repeat; `None` for one that was not measured.
    pub(crate) fn figures(&self) -> Vec<Option<RepeatFigures>> {
        self.0.iter().map(|rounds| of_repeat(rounds)).collect()
    }

    /// Time that sending took; `None` where the load client did not measure.
    pub(crate) fn client(&self) -> Option<ClientTime> {
        self.all()
            .filter_map(|round| round.client)
            .reduce(ClientTime::and)
    }

    pub(crate) fn open(&self) -> Option<OpenLoop> {
        self.all()
            .filter_map(|round| round.open)
            .reduce(OpenLoop::and)
    }

    pub(crate) fn add(&mut self, repeat: usize, round: Round) {
        if self.0.len() <= repeat {
            self.0.resize_with(repeat + 1, Vec::new);
        }
        self.0[repeat].push(round);
    }
}

fn histogram<'a>(rounds: impl Iterator<Item = &'a Round>) -> Histogram<u64> {
    let mut latencies_us = new_histogram();
    for (us, count) in rounds.flat_map(|round| &round.latencies_us) {
        latencies_us.saturating_record_n(*us, *count);
    }
    latencies_us
}

fn of_repeat(rounds: &[Round]) -> Option<RepeatFigures> {
    let seconds: f64 = rounds.iter().map(|round| round.seconds).sum();
    if seconds <= 0.0 {
        return None;
    }
    let latencies_us = histogram(rounds.iter());
    let at = |quantile| latencies_us.value_at_quantile(quantile) as f64 / 1_000.0;
    Some(RepeatFigures {
        rate: rounds.iter().map(|round| round.count).sum::<u64>() as f64 / seconds,
        requests: latencies_us.len(),
        latency_ms_p50: at(0.5),
        latency_ms_p99: at(0.99),
    })
}

/// Figures that are worth a comparison, by name.
pub(crate) type FigureOf = fn(&RepeatFigures) -> f64;

/// The figures of a part that both sides have requests enough for.
pub(crate) fn comparable(repeats: &[&[Option<RepeatFigures>]]) -> Vec<(&'static str, FigureOf)> {
    let all = repeats.iter().flat_map(|side| side.iter().flatten());
    let fewest = all.map(|repeat| repeat.requests).min().unwrap_or(0);
    let mut figures: Vec<(&'static str, FigureOf)> = vec![("rate", |repeat| repeat.rate)];
    if fewest >= REQUESTS_FOR_P50 {
        figures.push(("p50", |repeat| repeat.latency_ms_p50));
    }
    if fewest >= REQUESTS_FOR_P99 {
        figures.push(("p99", |repeat| repeat.latency_ms_p99));
    }
    figures
}
