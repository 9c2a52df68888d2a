//! Distributions of times: pairs of microseconds and the number of events that took this time.

use std::collections::HashMap;

use serde::Serialize;

/// A wait before requests are read, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Wait {
    /// Number of measurements.
    pub samples: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Microseconds, and the number of events that took this time.
    #[serde(skip)]
    pub times: Vec<(u64, u64)>,
}

impl Wait {
    /// The wait with these times.
    pub fn of(times: Vec<(u64, u64)>) -> Wait {
        Wait {
            samples: times.iter().map(|(_, n)| n).sum(),
            p50_ms: quantile(&times, 0.5),
            p99_ms: quantile(&times, 0.99),
            max_ms: longest(&times),
            times,
        }
    }
}

/// The growth of a distribution: pairs of a value and its count, by value.
pub fn grown(before: &[(u64, u64)], now: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let before: HashMap<u64, u64> = before.iter().copied().collect();
    let new = now.iter().map(|(us, n)| {
        let was = before.get(us).copied().unwrap_or(0);
        (*us, n.saturating_sub(was))
    });
    new.filter(|(_, n)| *n > 0).collect()
}

/// The value in milliseconds that a share of all values do not exceed; 0 without values.
pub fn quantile(times: &[(u64, u64)], share: f64) -> f64 {
    let all: u64 = times.iter().map(|(_, n)| n).sum();
    let wanted = (all as f64 * share).ceil() as u64;
    let mut seen = 0;
    for (us, n) in times {
        seen += n;
        if seen >= wanted {
            return *us as f64 / 1000.0;
        }
    }
    0.0
}

/// The longest time, in milliseconds; 0 without values.
pub fn longest(times: &[(u64, u64)]) -> f64 {
    times.last().map_or(0.0, |(us, _)| *us as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_came_to_it() {
        let before = [(100, 5), (900_000, 7)];
        let now = [(100, 103), (200, 1), (5_000, 1), (900_000, 7)];
        let times = grown(&before, &now);
        assert_eq!(times, [(100, 98), (200, 1), (5_000, 1)]);
        assert_eq!(quantile(&times, 0.5), 0.1);
        assert_eq!(quantile(&times, 0.99), 0.2);
        assert_eq!(quantile(&[], 0.99), 0.0);
    }
}
