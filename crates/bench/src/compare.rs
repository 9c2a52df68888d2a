//! Differences between two servers of a run, or between a run and a saved one, and whether they are shown.

use serde::Serialize;

use crate::lines::{Figure, Line};
use crate::rounds::{FigureOf, RepeatFigures, Rounds, comparable};
use crate::stats::{self, Difference, Interval};

/// One figure of A over the same of B, or of this run over a saved one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The line, or the single value.
    pub name: String,
    /// rate, p50, p99 or value.
    pub figure: String,
    /// A over B with its 95 % interval.
    pub ratio: Interval,
    /// The probability of such a difference, or a larger one, if the true one is at most 3 %.
    pub p: f64,
    /// Whether the difference is significant: with 98 % probability none of all comparisons of a
    /// report is called so by mistake.
    pub significant: bool,
    /// When it is: whether A is the better one. None for values of which neither more nor less is better.
    pub a_is_better: Option<bool>,
}

/// The saved run that a report compares with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baseline {
    /// The file's name.
    pub file: String,
    /// The text of its first server's `GET /`.
    pub product: String,
    /// When it began: seconds since 1970.
    pub began_s: u64,
    /// How machine and options differ from this run's.
    pub differences: Vec<String>,
}

/// A and B of each line and value; all together are one family of decisions.
pub(crate) fn sides(lines: &[Line], figures: &[Figure]) -> Vec<Comparison> {
    let mut found = Vec::new();
    for line in lines {
        if let [Some(a), Some(b)] = line.sides.as_slice() {
            found.extend(rounds(
                &line.name,
                &a.rounds,
                &b.rounds,
                PairingMode::InTurns,
            ));
        }
    }
    for figure in figures {
        if let [a, b] = figure.repeats.as_slice()
            && a.len() == b.len()
            && let Some(difference) = stats::paired(a, b)
        {
            found.push(comparison(&figure.name, "value", difference));
        }
    }
    decided(found)
}

/// This run's first server against that of a saved one.
pub(crate) fn saved<'a>(
    lines: &[Line],
    saved: impl Fn(&Line) -> Option<&'a Rounds>,
) -> Vec<Comparison> {
    let mut found = Vec::new();
    for line in lines {
        if let (Some(Some(now)), Some(then)) = (line.sides.first(), saved(line)) {
            found.extend(rounds(&line.name, &now.rounds, then, PairingMode::Apart));
        }
    }
    decided(found)
}

/// How two sides were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairingMode {
    /// Their repeats are pairs.
    InTurns,
    /// At different times.
    Apart,
}

/// Each figure of a part on two sides. Pairs are of the same repeat; where one has failed, its pair is left out.
pub(crate) fn rounds(name: &str, a: &Rounds, b: &Rounds, how: PairingMode) -> Vec<Comparison> {
    let (mut a, mut b) = (a.figures(), b.figures());
    if how == PairingMode::InTurns {
        (a, b) = a
            .into_iter()
            .zip(b)
            .filter(|(a, b)| a.is_some() && b.is_some())
            .unzip();
    }
    let values = |side: &[Option<RepeatFigures>], of: FigureOf| -> Vec<f64> {
        side.iter().flatten().map(of).collect()
    };
    comparable(&[&a, &b])
        .into_iter()
        .filter_map(|(figure, of)| {
            let (a, b) = (values(&a, of), values(&b, of));
            let difference = match how {
                PairingMode::InTurns => stats::paired(&a, &b),
                PairingMode::Apart => stats::unpaired(&a, &b),
            }?;
            Some(comparison(name, figure, difference))
        })
        .collect()
}

fn comparison(name: &str, figure: &str, difference: Difference) -> Comparison {
    let is_higher = difference.ratio.value > 1.0;
    Comparison {
        name: name.to_owned(),
        figure: figure.to_owned(),
        ratio: difference.ratio,
        p: difference.p,
        significant: false,
        a_is_better: match figure {
            "rate" => Some(is_higher),
            "value" => None,
            _latency => Some(!is_higher),
        },
    }
}

/// Decides all comparisons of a family.
pub(crate) fn decided(mut comparisons: Vec<Comparison>) -> Vec<Comparison> {
    let probabilities: Vec<f64> = comparisons.iter().map(|each| each.p).collect();
    for (comparison, shown) in comparisons.iter_mut().zip(stats::shown(&probabilities)) {
        comparison.significant = shown;
    }
    comparisons
}

impl Comparison {
    /// The conclusion, for people: `a` and `b` are the names of the two.
    pub(crate) fn verdict(&self, a: &str, b: &str) -> String {
        if !self.significant {
            return "no difference shown".to_owned();
        }
        let percent = (self.ratio.value - 1.0).abs() * 100.0;
        let percent = if percent < 10.0 {
            format!("{percent:.1}")
        } else {
            format!("{percent:.0}")
        };
        let direction = if self.ratio.value > 1.0 {
            "higher"
        } else {
            "lower"
        };
        match self.a_is_better {
            Some(true) => format!("{a} is better: {percent} % {direction}"),
            Some(false) => format!("{b} is better: {a} is {percent} % {direction}"),
            None => format!("{a} is {percent} % {direction}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::Round;

    fn rounds_of(rates: &[u64], us: u64) -> Rounds {
        let round = |rate: &u64| Round {
            at_s: 0.0,
            count: *rate,
            seconds: 1.0,
            latencies_us: vec![(us, *rate)],
            ..Round::default()
        };
        Rounds(rates.iter().map(|rate| vec![round(rate)]).collect())
    }

    #[test]
    fn a_faster_server_is_better_by_rate_and_by_latency() {
        let a = rounds_of(&[1_200, 1_210, 1_190, 1_205, 1_195, 1_200], 800);
        let b = rounds_of(&[1_000, 1_005, 995, 1_010, 990, 1_000], 1_000);
        let found = decided(rounds("get", &a, &b, PairingMode::InTurns));
        let names: Vec<&str> = found.iter().map(|each| &*each.figure).collect();
        assert_eq!(names, ["rate", "p50", "p99"]);
        for comparison in &found {
            assert!(comparison.significant, "{comparison:?}");
            assert_eq!(comparison.a_is_better, Some(true));
        }
        assert_eq!(found[0].verdict("A", "B"), "A is better: 20 % higher");
        let turned = decided(rounds("get", &b, &a, PairingMode::InTurns));
        assert_eq!(turned[0].verdict("A", "B"), "B is better: A is 17 % lower");
    }

    #[test]
    fn pairs_of_failed_repeats_are_left_out() {
        let a = rounds_of(&[100, 101, 102, 103, 104, 105], 5);
        let mut b = rounds_of(&[50, 9_999, 51, 51, 52, 52], 5);
        b.0[1].clear();
        let found = rounds("get", &a, &b, PairingMode::InTurns);
        assert!((found[0].ratio.value - 2.0).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn few_repeats_say_nothing() {
        let few = rounds_of(&[100, 100], 5);
        assert!(rounds("get", &few, &few, PairingMode::InTurns).is_empty());
        assert!(rounds("get", &few, &few, PairingMode::Apart).is_empty());
    }
}
