//! The report's sections of words and tables.

use super::charts;
use super::markup::{LETTERS, date, escape, percent, table};
use crate::ceilings::Ceiling;
use crate::lines::{Figure, Line, Measurement, Ratio};
use crate::machine::Busy;
use crate::numbers::{bytes, number, ratio, short};
use crate::report::Report;
use crate::stats::{FAMILY_LEVEL, MARGIN, REPEATS_MIN};

/// The title of the page.
pub(super) fn title(report: &Report) -> String {
    let product = |at: usize| report.servers.get(at).map_or("?", |server| &server.product);
    match (report.servers.len(), &report.against, &report.sweep) {
        (2, ..) if product(0) == product(1) => {
            let url = |at: usize| &report.servers[at].url;
            format!("{} at {} against {}", product(0), url(0), url(1))
        }
        (2, ..) => format!("{} against {}", product(0), product(1)),
        (_, Some(against), _) => format!("{} against {}", product(0), against.file),
        (_, _, Some(sweep)) => format!("{} by {}", product(0), sweep.what),
        _ => product(0).to_owned(),
    }
}

pub(super) fn head(report: &Report, title: &str) -> String {
    let server = |(at, server): (usize, &crate::report::Server)| {
        let nodes = match server.nodes {
            1 => String::new(),
            nodes => format!("{nodes} nodes, "),
        };
        format!(
            "<p class=\"legend\"><span class=\"key {}\">{}</span> {} <span class=\"soft\">{nodes}{}</span></p>",
            charts::side_class(at),
            LETTERS[at],
            escape(&server.product),
            escape(&server.url)
        )
    };
    let servers: String = report.servers.iter().enumerate().map(server).collect();
    format!(
        "<header><h1>{}</h1><p class=\"when\">settee bench {}, {}; measured {}</p>{servers}</header>",
        escape(title),
        escape(&report.version),
        date(report.began_s),
        repeated(report)
    )
}

/// Warnings first, then failures, servers that were not interleaved, and remarks.
pub(super) fn remarks(report: &Report) -> String {
    let list = |items: &mut dyn Iterator<Item = String>| {
        items
            .map(|item| format!("<li>{}</li>", escape(&item)))
            .collect::<String>()
    };
    let mut html = String::new();
    let note = |class: &str, heading: &str, items: String| match items.is_empty() {
        true => String::new(),
        false => {
            format!("<div class=\"note {class}\"><strong>{heading}</strong><ul>{items}</ul></div>")
        }
    };
    let failures = &mut report
        .failures
        .iter()
        .map(|failure| format!("{}: {}", failure.workload, failure.reason));
    html.push_str(&note("bad", "Failed", list(failures)));
    html.push_str(&note(
        "warn",
        "Before you believe this",
        list(&mut report.warnings.iter().cloned()),
    ));
    if let Some(against) = &report.against {
        let mut items = vec![
            "Not interleaved: the two were measured at different times, so that whatever has changed since counts as a difference.".to_owned(),
            format!("{} was measured on {}: {}", against.file, date(against.began_s), against.product),
        ];
        match against.differences.is_empty() {
            true => items.push("Machine and options are the same.".to_owned()),
            false => items.extend(against.differences.iter().cloned()),
        }
        html.push_str(&note(
            "warn",
            "Compared with a saved run",
            list(&mut items.into_iter()),
        ));
    }
    html.push_str(&note("", "Notes", list(&mut report.notes.iter().cloned())));
    html
}

/// Single values, and parts over others.
pub(super) fn figures(report: &Report) -> String {
    let dash = || "–".to_owned();
    let letters = &LETTERS[..report.servers.len().clamp(1, 2)];
    let mut html = String::new();
    if !report.figures.is_empty() {
        let row = |figure: &Figure| {
            let values =
                figure
                    .sides
                    .iter()
                    .zip(&figure.intervals)
                    .map(|(value, interval)| match (value, interval) {
                        (Some(value), Some(interval)) => format!(
                            "{} <small>({}–{})</small>",
                            number(*value),
                            number(interval.low),
                            number(interval.high)
                        ),
                        (Some(value), None) => number(*value),
                        (None, _) => dash(),
                    });
            [escape(&figure.name), escape(&figure.unit)]
                .into_iter()
                .chain(values)
                .collect()
        };
        let rows: Vec<Vec<String>> = report.figures.iter().map(row).collect();
        let header: Vec<&str> = ["value", "unit"].iter().chain(letters).copied().collect();
        html.push_str(&format!("<h2>Single values</h2>{}", table(&header, &rows)));
    }
    if !report.ratios.is_empty() {
        let row = |of: &Ratio| {
            let sides = of.sides.iter().map(|side| {
                side.map_or_else(dash, |side| {
                    format!(
                        "{} <small>[{}..{}]</small>",
                        ratio(side.value),
                        ratio(side.min),
                        ratio(side.max)
                    )
                })
            });
            std::iter::once(format!("{} / {}", escape(&of.over), escape(&of.under)))
                .chain(sides)
                .collect()
        };
        let rows: Vec<Vec<String>> = report.ratios.iter().map(row).collect();
        let header: Vec<&str> = std::iter::once(&"one over the other, same server")
            .chain(letters)
            .copied()
            .collect();
        html.push_str(&format!("<h2>Ratios</h2>{}", table(&header, &rows)));
    }
    html
}

/// Upper bounds of the figures, and how near each is.
pub(super) fn ceilings(report: &Report) -> String {
    if report.ceilings.is_empty() {
        return String::new();
    }
    let in_unit = |ceiling: &Ceiling, value: f64| match ceiling.unit.strip_suffix("/s") {
        Some("bytes") => format!("{}/s", bytes(value)),
        Some(unit) => format!("{} {}/s", number(value), escape(unit)),
        None => format!("{} {}", number(value), escape(&ceiling.unit)),
    };
    let row = |ceiling: &Ceiling| {
        let dash = || "–".to_owned();
        vec![
            escape(&ceiling.name),
            in_unit(ceiling, ceiling.before),
            ceiling
                .after
                .map_or_else(dash, |after| in_unit(ceiling, after)),
            ceiling
                .client_cpu
                .map_or_else(dash, |cpu| format!("{cpu:.2}")),
        ]
    };
    let rows: Vec<Vec<String>> = report.ceilings.iter().map(row).collect();
    let near: Vec<Vec<String>> = report
        .lines
        .iter()
        .flat_map(|line| near(report, line))
        .collect();
    let near = match near.is_empty() {
        true => String::new(),
        false => table(
            &[
                "",
                "of a constant reply",
                "of loopback",
                "client's thread busy",
                "waited for a processor",
            ],
            &near,
        ),
    };
    format!(
        "<h2>Ceilings</h2><p class=\"soft\">What a figure cannot exceed on this machine, before the workloads and after them. Where the client's thread is busy all the time, \
         the client is the limit and not the server.</p>{}{near}",
        table(&["", "before", "after", "client CPU"], &rows)
    )
}

fn near(report: &Report, line: &Line) -> Vec<Vec<String>> {
    let ceiling = |unit: &str, skip: usize| {
        let mut of_unit = report
            .ceilings
            .iter()
            .filter(|ceiling| ceiling.unit == unit);
        of_unit.nth(skip).map(|ceiling| ceiling.before)
    };
    let dash = || "–".to_owned();
    let share = |value: f64, of: Option<f64>| of.map_or_else(dash, |of| percent(value, of));
    let busy = |value: Option<f64>| value.map_or_else(dash, |value| percent(value, 1.0));
    let sides = line.sides.iter().enumerate();
    sides
        .filter_map(|(at, side)| {
            let side: &Measurement = side.as_ref().filter(|side| side.client_cpu.is_some())?;
            let requests = side.rounds.latencies_us().len() as f64 / side.seconds;
            Some(vec![
                format!(
                    "<span class=\"key {}\">{}</span> {}",
                    charts::side_class(at),
                    LETTERS[at],
                    escape(&line.name)
                ),
                share(requests, ceiling("req/s", at)),
                share(side.bytes as f64 / side.seconds, ceiling("bytes/s", 0)),
                busy(side.client_cpu),
                busy(side.client_waited),
            ])
        })
        .collect()
}

/// Machine and options.
pub(super) fn settings(report: &Report) -> String {
    let machine = &report.machine;
    let optional = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let mut entries = vec![
        (
            "processors",
            format!("{} of {}", machine.processors, machine.processor),
        ),
        ("memory", bytes(machine.memory_bytes as f64)),
        ("system", format!("{}, {}", machine.system, machine.kernel)),
    ];
    entries.extend(
        machine
            .governor
            .clone()
            .map(|governor| ("clock governor", governor)),
    );
    entries.extend(
        report
            .busy_before
            .map(|busy| ("others before the run", described(busy))),
    );
    entries.extend(
        report
            .busy_during
            .map(|busy| ("others during the run", described(busy))),
    );
    let time = match report.requests {
        Some(requests) => format!("{requests} requests of each connection"),
        None => format!("{} s of each timed part and repeat", report.seconds),
    };
    entries.extend([
        ("measured", time),
        ("connections of reads", report.connections.to_string()),
        (
            "a new connection for each request",
            if report.new_connections { "yes" } else { "no" }.to_owned(),
        ),
        (
            "rate",
            optional(
                report
                    .rate
                    .map(|rate| format!("{rate} requests/s, open loop")),
            ),
        ),
        ("scale", report.scale.to_string()),
        ("repeats", report.repeats.to_string()),
    ]);
    let entry =
        |(name, value): &(&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", escape(value));
    format!(
        "<h2>Machine and settings</h2><dl>{}</dl>",
        entries.iter().map(entry).collect::<String>()
    )
}

fn described(busy: Busy) -> String {
    format!(
        "{} processors used by other processes, {} % kept back by the hypervisor, {} % waiting for disks, load average {:.2}",
        short(busy.others_cpu),
        short(busy.steal_share * 100.0),
        short(busy.wait_share * 100.0),
        busy.load
    )
}

/// The meaning of the signs.
pub(super) fn reading(report: &Report) -> String {
    let open = match report.rate {
        Some(_) => {
            "<p>Requests were sent at a rate, whatever the server did. Latency counts from when a request was due, so that the wait behind a slow one is counted.</p>"
        }
        None => "",
    };
    let comparing = match report.comparisons.is_empty() {
        true => format!(
            "<p>Without at least {REPEATS_MIN} repeats there are no confidence intervals and no tests of differences: measure with <code>--repeats 10</code>.</p>"
        ),
        false => format!(
            "<p>A range in parentheses is a 95 % confidence interval over the repeats: a bootstrap of the geometric mean, in pairs where the measurements of two servers were interleaved. \
             Figures with a range are those of the usual repeat, the geometric mean over all; the other percentiles are of the requests of all repeats together. So p95 is above p99 where one of the repeats was slow. \
             A difference is called one when a smaller true difference than {:.0} % is unlikely to look like it (Student’s t over the repeats, Holm’s correction for all figures of this page together, level {:.0} %). \
             So of many figures some intervals leave out 1 by chance, and are not called different. The shaded strip of a bar is that {:.0} %.</p>",
            MARGIN * 100.0,
            FAMILY_LEVEL * 100.0,
            MARGIN * 100.0
        ),
    };
    format!(
        "<h2>How to read this</h2>{comparing}{open}<p>p99 is the latency that 1 request in 100 exceeds. CPU is in processors: 1.5 is one and a half of them all the time. \
         Point at a dot to see its value.</p>"
    )
}

/// How often, for people.
fn repeated(report: &Report) -> String {
    match report.repeats as usize {
        1 => "once; a range in square brackets is of the rounds".to_owned(),
        repeats if repeats < REPEATS_MIN => {
            format!("{repeats} times; intervals need {REPEATS_MIN}")
        }
        repeats => format!(
            "{} times; a range in parentheses is a 95 % confidence interval",
            number(repeats as f64).trim_end_matches(".0")
        ),
    }
}
