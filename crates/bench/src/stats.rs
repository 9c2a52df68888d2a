//! Statistics of a figure that was measured several times: its interval, and whether two figures
//! differ.
//!
//! Figures are rates, latencies and sizes: noise multiplies them, so that all is done with their logarithms. A value is
//! then a geometric mean, and a difference a ratio.
//!
//! Intervals are of the percentile bootstrap, expanded for small samples (T. Hesterberg, "What
//! Teachers Should Know About the Bootstrap", The American Statistician 69 (2015), section 3.4.2):
//! without that, ten repeats would give intervals that hold the truth 9 times in 10 instead of 19
//! in 20. Whether a difference is shown is decided by Student's t over the repeats, as the
//! bootstrap of ten values cannot give the small probabilities that many simultaneous figures
//! require.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Least number of repeats for intervals.
pub(crate) const REPEATS_MIN: usize = 5;
/// A smaller difference is never called one, as a share: two starts of one program seem to differ by
/// about 1 to 2 % with 64 connections and by 3 % with 4 (standard deviations over a few pairs, two cores).
pub(crate) const MARGIN: f64 = 0.03;
/// Probability that any figure of a comparison is called different by mistake.
pub(crate) const FAMILY_LEVEL: f64 = 0.02;

const RESAMPLES: usize = 10_000;
/// Outside of an interval, on both sides together.
const OUTSIDE: f64 = 0.05;
/// Spread of a figure from one repeat to the next, as a share, that is taken for granted: latencies are whole microseconds,
/// and values that are equal by that are not infinitely certain.
const SPREAD_MIN: f64 = 0.005;
/// Seed of the resampling: the same values always give the same interval.
const SEED: u64 = 0x5e77ee;

/// A value and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The geometric mean over the repeats.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One figure over another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Difference {
    pub(crate) ratio: Interval,
    /// How likely a difference like this is, or a larger one, where the true one is not above [`MARGIN`].
    pub(crate) p: f64,
}

/// The interval of a figure from its values in each repeat. None when there are fewer than [`REPEATS_MIN`], or one of
/// them is not above 0.
pub(crate) fn interval(values: &[f64]) -> Option<Interval> {
    let sample = Sample::of(logarithms(values)?);
    let mut means = sample.resampled_means();
    let tail = tail(sample.freedom(), sample.values.len());
    Some(sample.interval(&mut means, tail))
}

/// The figure that all reports show: that of its interval if it has one, or else `all`, that of all
/// repeats together. Decided here, so that no two reports of a run show different figures.
pub(crate) fn value(interval: Option<Interval>, all: f64) -> f64 {
    interval.map_or(all, |interval| interval.value)
}

/// A over B, interleaved: the repeats are pairs.
pub(crate) fn paired(a: &[f64], b: &[f64]) -> Option<Difference> {
    let logs: Vec<f64> = logarithms(a)?
        .iter()
        .zip(logarithms(b)?)
        .map(|(a, b)| a - b)
        .collect();
    let sample = Sample::of(logs);
    if sample.values.len() < REPEATS_MIN {
        return None;
    }
    let mut means = sample.resampled_means();
    let tail = tail(sample.freedom(), sample.values.len());
    Some(Difference {
        ratio: sample.interval(&mut means, tail),
        p: probability(sample.mean, sample.error(), sample.freedom()),
    })
}

/// A over B, not interleaved (Welch's test; each sample is resampled separately).
pub(crate) fn unpaired(a: &[f64], b: &[f64]) -> Option<Difference> {
    let (a, b) = (Sample::of(logarithms(a)?), Sample::of(logarithms(b)?));
    let (of_a, of_b) = (a.error().powi(2), b.error().powi(2));
    let freedom = (of_a + of_b).powi(2) / (of_a.powi(2) / a.freedom() + of_b.powi(2) / b.freedom());
    let smaller = a.values.len().min(b.values.len());
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| a.resampled_mean(&mut random) - b.resampled_mean(&mut random))
        .collect();
    let mean = a.mean - b.mean;
    Some(Difference {
        ratio: between(mean, &mut means, tail(freedom, smaller)),
        p: probability(mean, (of_a + of_b).sqrt(), freedom),
    })
}

/// Which of several differences are shown, so that with the probability [`FAMILY_LEVEL`] at most any of them is a mistake
/// (S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6 (1979)).
pub(crate) fn shown(probabilities: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut shown = vec![false; probabilities.len()];
    for (rank, at) in order.into_iter().enumerate() {
        if probabilities[at] > FAMILY_LEVEL / (probabilities.len() - rank) as f64 {
            break;
        }
        shown[at] = true;
    }
    shown
}

fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    let is_positive = |value: &&f64| value.is_finite() && **value > 0.0;
    let logs: Vec<f64> = values.iter().filter(is_positive).map(|v| v.ln()).collect();
    (logs.len() == values.len() && logs.len() >= REPEATS_MIN).then_some(logs)
}

/// How likely a mean so far from 0 is where the truth is within the margin.
fn probability(mean: f64, error: f64, freedom: f64) -> f64 {
    let Ok(student) = StudentsT::new(0.0, 1.0, freedom) else {
        return 1.0;
    };
    let margin = (1.0 + MARGIN).ln();
    let beyond = |distance: f64| student.sf(distance / error);
    (beyond(mean.abs() - margin) + beyond(mean.abs() + margin)).min(1.0)
}

/// The share of resampled means that is outside at each end. The expansion compensates for a
/// sample's spread being below the population's, and for its uncertainty.
fn tail(freedom: f64, size: usize) -> f64 {
    let (Ok(student), normal) = (StudentsT::new(0.0, 1.0, freedom), Normal::standard()) else {
        return 0.0;
    };
    let size = size as f64;
    let quantile = student.inverse_cdf(1.0 - OUTSIDE / 2.0);
    normal.cdf(-quantile * (size / (size - 1.0)).sqrt())
}

struct Sample {
    values: Vec<f64>,
    mean: f64,
}

impl Sample {
    fn of(values: Vec<f64>) -> Self {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Self { values, mean }
    }

    fn freedom(&self) -> f64 {
        self.values.len() as f64 - 1.0
    }

    /// Standard error of the mean.
    fn error(&self) -> f64 {
        let squares: f64 = self.values.iter().map(|v| (v - self.mean).powi(2)).sum();
        let spread = (squares / self.freedom()).sqrt().max(SPREAD_MIN);
        spread / (self.values.len() as f64).sqrt()
    }

    fn resampled_means(&self) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(SEED);
        (0..RESAMPLES)
            .map(|_| self.resampled_mean(&mut random))
            .collect()
    }

    fn resampled_mean(&self, random: &mut fastrand::Rng) -> f64 {
        let size = self.values.len();
        let drawn: f64 = (0..size).map(|_| self.values[random.usize(..size)]).sum();
        drawn / size as f64
    }

    fn interval(&self, means: &mut [f64], tail: f64) -> Interval {
        between(self.mean, means, tail)
    }
}

fn between(mean: f64, means: &mut [f64], tail: f64) -> Interval {
    means.sort_by(f64::total_cmp);
    let outside = ((means.len() as f64 * tail) as usize).min(means.len() / 2);
    Interval {
        value: mean.exp(),
        low: means[outside].min(mean).exp(),
        high: means[means.len() - 1 - outside].max(mean).exp(),
    }
}

#[cfg(test)]
mod tests;
