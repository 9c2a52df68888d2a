//! The figures of a sweep: one parameter changed between measurements.

use serde::Serialize;

use crate::compare::{self, Comparison, PairingMode};
use crate::gather::Gatherer;
use crate::lines::{Line, Measurement};
use crate::rounds::Rounds;
use crate::stats::{self, Interval};

/// Figures at several values of one parameter. Each repeat goes through all values, and then
/// measures the first one again, which shows other changes meanwhile.
#[derive(Debug, Clone, Serialize)]
pub struct Sweep {
    /// `connections`, `q`, `document_bytes`, `bulk_docs`, or the setting as SECTION/KEY.
    pub what: String,
    /// The values in the order in which they were measured.
    pub values: Vec<String>,
    /// One a measured part.
    pub lines: Vec<SweepLine>,
}

/// A part of a workload at all values.
#[derive(Debug, Clone, Serialize)]
pub struct SweepLine {
    /// The workload that the part belongs to.
    pub workload: String,
    /// The part's name.
    pub name: String,
    /// The unit of the rate.
    pub unit: String,
    /// One entry a value.
    pub points: Vec<Option<Measurement>>,
    /// The first value, measured again after the last one.
    pub again: Option<Measurement>,
    /// The first value's rate at the end over that at the beginning: 1 without other changes.
    pub drift: Option<f64>,
    /// The drift's interval over the repeats.
    pub drift_interval: Option<Interval>,
    /// Each other value against the first one, from before and after: `name` is the value.
    pub against_first: Vec<Comparison>,
}

/// The lines of a workload at all values: one gathering a value, and one of the first value again.
pub(crate) fn lines(
    workload: &str,
    values: &[String],
    gatherings: Vec<Gatherer>,
) -> Vec<SweepLine> {
    let mut measured: Vec<Vec<Line>> = gatherings
        .into_iter()
        .map(|one| one.into_lines(workload))
        .collect();
    let again = measured.pop().unwrap_or_default();
    let mut found: Vec<SweepLine> = Vec::new();
    for (at, lines) in measured.into_iter().enumerate() {
        for line in lines {
            let known = found.iter().position(|known| known.name == line.name);
            let known = known.unwrap_or_else(|| {
                found.push(SweepLine {
                    workload: line.workload.clone(),
                    name: line.name.clone(),
                    unit: line.unit.clone(),
                    points: vec![None; values.len()],
                    again: None,
                    drift: None,
                    drift_interval: None,
                    against_first: Vec::new(),
                });
                found.len() - 1
            });
            found[known].points[at] = line.sides.into_iter().next().flatten();
        }
    }
    for line in again {
        if let Some(known) = found.iter_mut().find(|known| known.name == line.name) {
            known.again = line.sides.into_iter().next().flatten();
        }
    }
    found.iter_mut().for_each(|line| line.compare(values));
    found
}

impl SweepLine {
    fn compare(&mut self, values: &[String]) {
        let (Some(Some(first)), Some(again)) = (self.points.first(), &self.again) else {
            return;
        };
        let drift = compare::rounds("", &again.rounds, &first.rounds, PairingMode::InTurns);
        self.drift_interval = drift.first().map(|drift| drift.ratio);
        let whole = again.rate.value / first.rate.value;
        self.drift =
            Some(stats::value(self.drift_interval, whole)).filter(|drift| drift.is_finite());
        let mut both = first.rounds.clone();
        for (rounds, more) in both.0.iter_mut().zip(&again.rounds.0) {
            rounds.extend_from_slice(more);
        }
        let compared = |(value, point): (&String, &Option<Measurement>)| -> Vec<Comparison> {
            let rounds: Option<&Rounds> = point.as_ref().map(|point| &point.rounds);
            rounds.map_or_else(Vec::new, |rounds| {
                compare::rounds(value, rounds, &both, PairingMode::InTurns)
            })
        };
        self.against_first = values
            .iter()
            .zip(&self.points)
            .skip(1)
            .flat_map(compared)
            .collect();
    }
}

/// Decides all comparisons of a sweep as one family.
pub(crate) fn decide(lines: &mut [SweepLine]) {
    let all = lines.iter().flat_map(|line| &line.against_first);
    let probabilities: Vec<f64> = all.map(|comparison| comparison.p).collect();
    let all = lines.iter_mut().flat_map(|line| &mut line.against_first);
    for (comparison, shown) in all.zip(stats::shown(&probabilities)) {
        comparison.significant = shown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::Slice;
    use crate::system::WorkloadPart;

    fn gathering(rates: &[u64]) -> Gatherer {
        let mut gathering = Gatherer::new(1);
        for (repeat, rate) in rates.iter().enumerate() {
            let mut slice = Slice::new();
            (slice.count, slice.seconds) = (*rate, 1.0);
            let part = WorkloadPart {
                name: "get",
                unit: "req",
                slice,
                cpu_seconds: None,
                peak_resident_bytes: None,
            };
            gathering.add(0, repeat as u32, 0.0, part);
        }
        gathering
    }

    #[test]
    fn what_drifts_is_not_taken_for_the_settings_doing() {
        // The machine gets faster by a tenth from one measurement to the next, and the setting does nothing.
        let values = ["a".to_owned(), "b".to_owned()];
        let (first, middle, last): (Vec<u64>, Vec<u64>, Vec<u64>) = (
            vec![1_000, 1_010, 1_020, 990, 1_005, 995],
            vec![1_100, 1_111, 1_122, 1_089, 1_105, 1_095],
            vec![1_200, 1_212, 1_224, 1_188, 1_205, 1_195],
        );
        let gatherings = [&first, &middle, &last].map(|rates| gathering(rates));
        let mut lines = lines("get", &values, gatherings.into());
        decide(&mut lines);
        let line = &lines[0];
        assert!((line.drift.unwrap() - 1.2).abs() < 0.01);
        assert!(line.drift_interval.unwrap().low > 1.1);
        let against = &line.against_first[0];
        assert!(against.name == "b" && !against.significant, "{against:?}");
        assert!((against.ratio.value - 1.0).abs() < 0.01, "{against:?}");
    }

    #[test]
    fn what_the_setting_does_is_shown() {
        let values = ["a".to_owned(), "b".to_owned()];
        let (one, other): (Vec<u64>, Vec<u64>) = (
            vec![1_000, 1_010, 1_020, 990, 1_005, 995],
            vec![1_300, 1_310, 1_320, 1_290, 1_305, 1_295],
        );
        let gatherings = [&one, &other, &one].map(|rates| gathering(rates));
        let mut lines = lines("get", &values, gatherings.into());
        decide(&mut lines);
        assert!(lines[0].against_first[0].significant);
        assert_eq!(lines[0].points.len(), 2);
        assert!((lines[0].drift.unwrap() - 1.0).abs() < 0.01);
    }
}
