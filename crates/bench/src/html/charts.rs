//! The report's charts.

use super::markup::{LETTERS, escape};
use super::plot::{Plot, Scale};
use crate::lines::{Line, Measurement};
use crate::numbers::{bytes, milliseconds, number, ratio, short};
use crate::report::Report;
use crate::stats::{Interval, MARGIN};
use crate::sweep::SweepLine;
use crate::timeline::{Sample, Timeline};

/// Points of a curve of percentiles for each factor of ten of rarity.
const POINTS_A_DECADE: i32 = 12;
/// Marks of faults that have a text.
const FLAGS_MAX: usize = 6;
/// Begins of workloads that are drawn: with more of them there would be nothing but lines.
const BEGINS_MAX: usize = 40;

fn sides(line: &Line) -> impl Iterator<Item = (usize, &Measurement)> {
    line.sides
        .iter()
        .enumerate()
        .filter_map(|(at, side)| Some((at, side.as_ref()?)))
}

/// Every round as a dot, in the order in which they were measured, with the intervals behind them.
pub(super) fn rounds(line: &Line) -> String {
    let rates = sides(line).flat_map(|(_, side)| side.round_rates.iter().copied());
    let count = sides(line)
        .map(|(_, side)| side.round_rates.len())
        .max()
        .unwrap_or(1);
    let x = Scale::Linear {
        from: 0.0,
        to: count as f64 + 1.0,
    };
    let name = format!("{}: rate of each round", line.name);
    let mut plot = Plot::new(&name, x, Scale::around(rates), short);
    for (at, side) in sides(line) {
        if let Some(interval) = side.rate_interval {
            plot.band(interval.low, interval.high, side_class(at));
        }
    }
    for (at, side) in sides(line) {
        let mut number_of = 0;
        for (repeat, rounds) in side.rounds.0.iter().enumerate() {
            if at == 0 && repeat > 0 && number_of > 0 {
                plot.upright(f64::from(number_of) + 0.5, "repeat", "the next repeat");
            }
            for round in rounds {
                number_of += 1;
                let title = format!(
                    "{}, repeat {}: {} {}/s",
                    LETTERS[at],
                    repeat + 1,
                    number(round.rate()),
                    line.unit
                );
                // Both sides of a round were measured together.
                let beside = if line.sides.len() > 1 {
                    at as f64 * 0.3 - 0.15
                } else {
                    0.0
                };
                plot.dot(
                    f64::from(number_of) + beside,
                    round.rate(),
                    side_class(at),
                    &title,
                );
            }
        }
    }
    plot.x_label("rounds, in the order measured");
    plot.end()
}

/// Latency over how rare it is.
pub(super) fn percentiles(line: &Line) -> String {
    let curves: Vec<(usize, Vec<(f64, f64)>)> =
        sides(line).map(|(at, side)| (at, curve(side))).collect();
    let rarest = curves
        .iter()
        .flat_map(|(_, curve)| curve)
        .map(|point| point.0);
    let x = Scale::Log {
        from: 1.0,
        to: rarest.fold(100.0, f64::max),
    };
    let latencies = curves
        .iter()
        .flat_map(|(_, curve)| curve)
        .map(|point| point.1);
    let name = format!("{}: latency by percentile", line.name);
    let mut plot = Plot::new(&name, x, Scale::decades(latencies), short);
    for (at, curve) in &curves {
        plot.line(curve, side_class(*at));
    }
    let Scale::Log { to, .. } = x else {
        return plot.end();
    };
    let marks = [
        (2.0, "p50"),
        (10.0, "p90"),
        (100.0, "p99"),
        (1e3, "99.9"),
        (1e4, "99.99"),
        (1e5, "99.999"),
    ];
    let marks = marks.into_iter().filter(|(rarity, _)| *rarity <= to * 1.01);
    let marks: Vec<(f64, String)> = marks.map(|(at, text)| (at, text.to_owned())).collect();
    plot.x_marks(&marks);
    plot.x_label("percentile; latency in ms");
    plot.end()
}

/// Points of rarity (one of this number of requests is slower) and milliseconds.
fn curve(side: &Measurement) -> Vec<(f64, f64)> {
    let latencies_us = side.rounds.latencies_us();
    let requests = latencies_us.len() as f64;
    let rarities = (0..).map(|at| 10_f64.powf(f64::from(at) / f64::from(POINTS_A_DECADE)));
    let known = rarities.take_while(|rarity| *rarity <= requests);
    known
        .map(|rarity| {
            let us = latencies_us.value_at_quantile(1.0 - 1.0 / rarity);
            (rarity, us.max(1) as f64 / 1_000.0)
        })
        .collect()
}

/// A ratio with its interval, on a logarithmic scale that reaches as far as `reach`, a ratio above 1.
pub(super) fn ratio_bar(interval: Interval, reach: f64, class: &str) -> String {
    const WIDTH: f64 = 240.0;
    let place =
        |ratio: f64| WIDTH / 2.0 + (ratio.ln() / reach.ln()).clamp(-1.0, 1.0) * (WIDTH / 2.0 - 6.0);
    let (low, high, value) = (
        place(interval.low),
        place(interval.high),
        place(interval.value),
    );
    let (left, right) = (place(1.0 / (1.0 + MARGIN)), place(1.0 + MARGIN));
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 {WIDTH} 22\" role=\"img\" aria-label=\"{} to {}\">\
         <rect class=\"margin\" x=\"{left:.1}\" y=\"1\" width=\"{:.1}\" height=\"20\"/>\
         <path class=\"one\" d=\"M{:.1} 1V21\"/>\
         <path class=\"reach {class}\" d=\"M{low:.1} 11H{high:.1}M{low:.1} 7V15M{high:.1} 7V15\"/>\
         <circle class=\"dot {class}\" cx=\"{value:.1}\" cy=\"11\" r=\"3.6\"/></svg>",
        ratio(interval.low),
        ratio(interval.high),
        right - left,
        WIDTH / 2.0
    )
}

/// A figure at each value of a sweep, and the first value again.
pub(super) fn sweep(
    line: &SweepLine,
    values: &[String],
    what: &str,
    name: &str,
    figure: fn(&Measurement) -> (f64, Option<Interval>),
) -> String {
    let points: Vec<(usize, f64, Option<Interval>)> = line
        .points
        .iter()
        .enumerate()
        .filter_map(|(at, point)| {
            let (value, interval) = figure(point.as_ref()?);
            Some((at, value, interval))
        })
        .collect();
    let again = line.again.as_ref().map(figure);
    let highs = points
        .iter()
        .map(|(_, value, interval)| interval.map_or(*value, |i| i.high));
    let highs = highs.chain(again.map(|(value, interval)| interval.map_or(value, |i| i.high)));
    let x = Scale::Linear {
        from: -0.5,
        to: values.len() as f64 - 0.5,
    };
    let mut plot = Plot::new(
        &format!("{}: {name} by {what}", line.name),
        x,
        Scale::from_zero(highs),
        short,
    );
    let path: Vec<(f64, f64)> = points
        .iter()
        .map(|(at, value, _)| (*at as f64, *value))
        .collect();
    plot.line(&path, "a");
    for (at, value, interval) in points {
        if let Some(interval) = interval {
            plot.whisker(at as f64, interval.low, interval.high, "a");
        }
        plot.dot(
            at as f64,
            value,
            "a",
            &format!("{what}={}: {}", values[at], short(value)),
        );
    }
    if let Some((value, _)) = again {
        plot.dot(
            0.12,
            value,
            "again",
            &format!("{what}={} again, at the end: {}", values[0], short(value)),
        );
    }
    let marks = values
        .iter()
        .enumerate()
        .map(|(at, value)| (at as f64, shortened(value, 12)));
    plot.x_marks(&marks.collect::<Vec<_>>());
    plot.x_label(what);
    plot.end()
}

/// A text of at most `max` characters.
pub(super) fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A chart of the processes: heading, value, format.
type Watched = (&'static str, fn(&Sample) -> f64, fn(f64) -> String);

const WATCHED: [Watched; 5] = [
    ("Processors used", |sample| sample.cpu, short),
    ("Resident memory", |sample| sample.resident_bytes, bytes),
    (
        "Written to disk a second",
        |sample| sample.written_bytes_s,
        bytes,
    ),
    (
        "Read from disk a second",
        |sample| sample.read_bytes_s,
        bytes,
    ),
    ("Threads", |sample| sample.threads, short),
];

/// Figures with their headings: the servers' processes and the machine over time.
pub(super) fn timeline(report: &Report) -> Vec<(&'static str, String)> {
    let timeline = &report.timeline;
    let mut charts = Vec::new();
    if timeline.servers.iter().any(|samples| !samples.is_empty()) {
        for (heading, value, text) in WATCHED {
            let curves = timeline.servers.iter().enumerate().map(|(at, samples)| {
                let points = samples.iter().map(|sample| (sample.at_s, value(sample)));
                (side_class(at), points.collect())
            });
            charts.push((heading, over_time(report, heading, curves.collect(), text)));
        }
    }
    if !timeline.machine.is_empty() {
        let heading = "Processors that others used";
        let others = timeline
            .machine
            .iter()
            .map(|sample| (sample.at_s, sample.others_cpu));
        charts.push((
            heading,
            over_time(report, heading, vec![("other", others.collect())], short),
        ));
        let heading = "Time waited for disks, and kept back by the hypervisor, in %";
        let wait = timeline
            .machine
            .iter()
            .map(|sample| (sample.at_s, sample.wait_share * 100.0));
        let steal = timeline
            .machine
            .iter()
            .map(|sample| (sample.at_s, sample.steal_share * 100.0));
        let curves = vec![("other", wait.collect()), ("fault", steal.collect())];
        charts.push((heading, over_time(report, heading, curves, short)));
    }
    charts
}

fn over_time(
    report: &Report,
    heading: &str,
    curves: Vec<(&'static str, Vec<(f64, f64)>)>,
    text: fn(f64) -> String,
) -> String {
    let x = Scale::Linear {
        from: 0.0,
        to: end_s(&report.timeline),
    };
    let values = curves
        .iter()
        .flat_map(|(_, points)| points)
        .map(|point| point.1);
    let mut plot = Plot::new(heading, x, Scale::from_zero(values), text);
    let (faults, begins): (Vec<_>, Vec<_>) = report.events.iter().partition(|event| event.is_fault);
    for event in begins.iter().filter(|_| begins.len() <= BEGINS_MAX) {
        plot.upright(event.at_s, "begin", &event.text);
    }
    for (class, points) in &curves {
        plot.line(points, class);
    }
    for (row, event) in faults.iter().enumerate() {
        plot.upright(event.at_s, "fault", &event.text);
        if row < FLAGS_MAX {
            plot.flag(event.at_s, row, "fault", &shortened(&event.text, 28));
        }
    }
    plot.x_ticks();
    plot.x_label("seconds");
    plot.end()
}

fn end_s(timeline: &Timeline) -> f64 {
    let servers = timeline.servers.iter().flatten().map(|sample| sample.at_s);
    let machine = timeline.machine.iter().map(|sample| sample.at_s);
    servers.chain(machine).fold(0.1, f64::max)
}

/// The class of a side's colour.
pub(super) fn side_class(at: usize) -> &'static str {
    ["a", "b"].get(at).copied().unwrap_or("other")
}

/// The meaning of the colours.
pub(super) fn legend(report: &Report) -> String {
    let entry = |(at, server): (usize, &crate::report::Server)| {
        format!(
            "<span class=\"key {}\">{}</span> {}",
            side_class(at),
            LETTERS[at],
            escape(&server.url)
        )
    };
    let entries: Vec<String> = report.servers.iter().enumerate().map(entry).collect();
    format!("<p class=\"legend\">{}</p>", entries.join(" &nbsp; "))
}

/// A latency with its interval, in milliseconds.
pub(super) fn latency(value: f64, interval: Option<Interval>) -> String {
    match interval {
        Some(interval) => format!(
            "{} <small>({}–{})</small>",
            milliseconds(value),
            milliseconds(interval.low),
            milliseconds(interval.high)
        ),
        None => milliseconds(value),
    }
}

/// A rate with its interval.
pub(super) fn rate(side: &Measurement) -> String {
    match side.rate_interval {
        Some(interval) => format!(
            "{} <small>({}–{})</small>",
            number(side.rate.value),
            number(interval.low),
            number(interval.high)
        ),
        None => format!(
            "{} <small>[{}..{}]</small>",
            number(side.rate.value),
            number(side.rate.min),
            number(side.rate.max)
        ),
    }
}
