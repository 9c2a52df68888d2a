//! The result of a run, as tables for people.

use std::io::{self, Write};

use command_line::Grid;

use crate::compare::Comparison;
use crate::couchdb::CouchDbFigure;
use crate::lines::{Figure, LATENCIES, Line, Measurement, Ratio, Spread};
use crate::numbers::{bytes, milliseconds, number, ratio as ratio_text};
use crate::report::{Report, Server};
use crate::sweep::{Sweep, SweepLine};

const LETTERS: [&str; 2] = ["A", "B"];

/// Prints servers, lines, figures, ratios, errors and notes. Tables fit `width` characters, if it is known.
pub(crate) fn print(report: &Report, out: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
    for (server, letter) in report.servers.iter().zip(LETTERS) {
        writeln!(out, "{letter}: {}", described(server))?;
    }
    let load = report.load_average;
    let load = load.map(|load| format!("; this machine's load average was {load:.2} before"));
    writeln!(
        out,
        "scale {}, {}, {} connections for reads{}{}; latencies in ms, memory in MiB{}\n",
        report.scale,
        lengths(report),
        report.connections,
        match report.new_connections {
            true => ", a new one for each request",
            false => "",
        },
        report.rate.map_or_else(String::new, |rate| format!(
            ", {rate} requests/s (open loop: latency from when a request was due)"
        )),
        load.unwrap_or_default()
    )?;
    for warning in &report.warnings {
        writeln!(out, "warning: {warning}\n")?;
    }
    if !report.lines.is_empty() {
        let table = match report.servers.len() {
            2 => comparison(&report.lines),
            _ => single(&report.lines),
        };
        writeln!(out, "{}\n", table.text(width))?;
    }
    if !report.figures.is_empty() {
        writeln!(
            out,
            "{}\n",
            figures(&report.figures, report.servers.len()).text(width)
        )?;
    }
    if let Some(sweep) = &report.sweep {
        print_sweep(sweep, out, width)?;
    }
    compared(report, out, width)?;
    ceilings(report, out)?;
    for ratio in &report.ratios {
        writeln!(out, "{}", ratio_line(ratio))?;
    }
    remarks(report, out)
}

fn described(server: &Server) -> String {
    let nodes = match server.nodes {
        1 => String::new(),
        nodes => format!("{nodes} nodes of a cluster, "),
    };
    let pids: Vec<String> = server.pids.iter().map(u32::to_string).collect();
    let processes = match pids.len() {
        0 => String::new(),
        1 => format!(", process {}", pids[0]),
        _ => format!(", processes {}", pids.join(" ")),
    };
    format!("{nodes}{} ({}{processes})", server.url, server.product)
}

fn lengths(report: &Report) -> String {
    let length = match report.requests {
        Some(requests) => format!("{requests} requests of each connection of a timed part"),
        None => format!("{} s a timed part", report.seconds),
    };
    match report.repeats {
        1 => length,
        repeats => format!("{repeats} repeats of {length}"),
    }
}

/// Whether A and B, or this run and a saved one, differ.
fn compared(report: &Report, out: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
    let (a, b) = match &report.against {
        None => ("A", "B"),
        Some(against) => {
            writeln!(
                out,
                "compared with {} ({}), which was not interleaved with this run",
                against.file, against.product
            )?;
            for difference in &against.differences {
                writeln!(out, "  {difference}")?;
            }
            ("this run", "the saved run")
        }
    };
    if !report.comparisons.is_empty() {
        let table = comparisons(&report.comparisons, (a, b), &format!("{a} over {b}"));
        writeln!(out, "{}\n", table.text(width))?;
    }
    Ok(())
}

fn comparisons(comparisons: &[Comparison], (a, b): (&str, &str), header: &str) -> Grid {
    let mut table = Grid::new(
        &[header, "figure", "ratio", "95 % interval", "verdict"],
        &[0, 1, 4],
    );
    for each in comparisons {
        table.add_row([
            each.name.clone(),
            each.figure.clone(),
            format!("{:.3}", each.ratio.value),
            format!("{:.3}..{:.3}", each.ratio.low, each.ratio.high),
            each.verdict(a, b),
        ]);
    }
    table
}

fn print_sweep(sweep: &Sweep, out: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
    for line in &sweep.lines {
        let table = swept(sweep, line);
        writeln!(
            out,
            "{} ({}/s) by {}\n{}\n",
            line.name,
            line.unit,
            sweep.what,
            table.text(width)
        )?;
        if let Some(drift) = line.drift {
            writeln!(
                out,
                "drift: the first value's rate at the end was {drift:.3} times its rate at the beginning\n"
            )?;
        }
        if !line.against_first.is_empty() {
            let header = format!("over {}={}", sweep.what, sweep.values[0]);
            let table = comparisons(
                &line.against_first,
                ("this value", "the first value"),
                &header,
            );
            writeln!(out, "{}\n", table.text(width))?;
        }
    }
    Ok(())
}

fn swept(sweep: &Sweep, line: &SweepLine) -> Grid {
    let mut table = Grid::new(
        &[
            sweep.what.as_str(),
            "rate",
            "95 % interval",
            "p50",
            "p95",
            "p99",
            "max",
            "errors",
            "cpu s",
            "",
        ],
        &[0, 9],
    );
    let most = line
        .points
        .iter()
        .flatten()
        .map(|point| point.rate.value)
        .fold(0.0, f64::max);
    let again = sweep
        .values
        .first()
        .map(|value| (format!("{value} again"), &line.again));
    let points = sweep.values.iter().cloned().zip(&line.points);
    for (value, point) in points.chain(again) {
        let Some(point) = point else {
            continue;
        };
        table.add_row([
            value,
            number(point.rate.value),
            interval(point),
            milliseconds(point.latency_ms_p50),
            milliseconds(point.latency_ms_p95),
            milliseconds(point.latency_ms_p99),
            milliseconds(point.latency_ms_max),
            point.errors.to_string(),
            cpu(point),
            "█".repeat((point.rate.value / most * 30.0).round() as usize),
        ]);
    }
    table
}

/// The rate's interval, or the rounds' extremes if it has no interval.
fn interval(side: &Measurement) -> String {
    match side.rate_interval {
        Some(interval) => format!("{}–{}", number(interval.low), number(interval.high)),
        None => range(side.rate),
    }
}

fn ceilings(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for ceiling in &report.ceilings {
        let in_unit = |value: f64| match ceiling.unit == "bytes/s" {
            true => format!("{}/s", bytes(value)),
            false => format!("{} {}", number(value), ceiling.unit),
        };
        let after = ceiling.after.map_or_else(String::new, |after| {
            format!(" before, {} after", in_unit(after))
        });
        writeln!(
            out,
            "ceiling: {}: {}{after}",
            ceiling.name,
            in_unit(ceiling.before)
        )?;
    }
    if !report.ceilings.is_empty() {
        writeln!(out)?;
    }
    Ok(())
}

fn remarks(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for line in &report.lines {
        for (side, letter) in line.sides.iter().zip(LETTERS) {
            if let Some(error) = side.as_ref().and_then(|side| side.first_error.as_ref()) {
                writeln!(out, "first error of {} on {letter}: {error}", line.name)?;
            }
        }
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for failure in &report.failures {
        writeln!(out, "failed: {}: {}", failure.workload, failure.reason)?;
    }
    let is_quoted = report.lines.iter().any(|line| line.couchdb.is_some());
    if is_quoted {
        writeln!(
            out,
            "\"CouchDB 3.5\": quoted from the manual (CouchDB 3.5.0 on a 2-core machine), not measured in this run"
        )?;
    }
    Ok(())
}

fn single(lines: &[Line]) -> Grid {
    let has_intervals = lines
        .iter()
        .flat_map(|line| line.sides.iter().flatten())
        .any(|side| side.rate_interval.is_some());
    let spread = match has_intervals {
        true => "95 % interval",
        false => "rounds",
    };
    let mut header = vec!["workload", "rate", "unit/s", spread];
    header.extend(LATENCIES);
    header.extend([
        "errors",
        "cpu s",
        "peak",
        "CouchDB 3.5 (quoted)",
        "x quoted",
    ]);
    let mut table = Grid::new(&header, &[0, 2, 14]);
    for line in lines {
        let Some(Some(side)) = line.sides.first() else {
            continue;
        };
        let mut row = vec![
            line.name.clone(),
            number(side.rate.value),
            line.unit.clone(),
            interval(side),
        ];
        row.extend(side.latencies_ms().map(milliseconds));
        row.extend([
            side.errors.to_string(),
            cpu(side),
            peak(side),
            couchdb(line.couchdb),
            times(side.rate.value, line.couchdb),
        ]);
        table.add_row(row);
    }
    table
}

fn comparison(lines: &[Line]) -> Grid {
    let mut table = Grid::new(
        &[
            "workload",
            "A",
            "B",
            "unit/s",
            "A/B",
            "min..max",
            "mean/p50/p90/p95/p99/p99.9/max A",
            "mean/p50/p90/p95/p99/p99.9/max B",
            "errors A/B",
            "cpu s A/B",
            "peak A/B",
            "CouchDB 3.5 (quoted)",
        ],
        &[0, 3, 11],
    );
    for line in lines {
        let side = |at: usize| line.sides.get(at).and_then(Option::as_ref);
        let both = |show: &dyn Fn(&Measurement) -> String| {
            format!(
                "{}/{}",
                show_or_dash(side(0), show),
                show_or_dash(side(1), show)
            )
        };
        table.add_row([
            line.name.clone(),
            show_or_dash(side(0), &|side| number(side.rate.value)),
            show_or_dash(side(1), &|side| number(side.rate.value)),
            line.unit.clone(),
            line.a_over_b
                .map_or_else(dash, |ratio| ratio_text(ratio.value)),
            line.a_over_b.map_or_else(dash, |ratio| {
                format!("{}..{}", ratio_text(ratio.min), ratio_text(ratio.max))
            }),
            show_or_dash(side(0), &latencies),
            show_or_dash(side(1), &latencies),
            both(&|side| side.errors.to_string()),
            both(&cpu),
            both(&peak),
            couchdb(line.couchdb),
        ]);
    }
    table
}

fn figures(figures: &[Figure], servers: usize) -> Grid {
    let mut header = vec!["figure", "unit"];
    header.extend(&LETTERS[..servers]);
    header.push("CouchDB 3.5 (quoted)");
    let mut table = Grid::new(&header, &[0, 1, servers + 2]);
    for figure in figures {
        let mut row = vec![figure.name.clone(), figure.unit.clone()];
        row.extend(
            figure
                .sides
                .iter()
                .map(|side| side.map_or_else(dash, number)),
        );
        row.push(couchdb(figure.couchdb));
        table.add_row(row);
    }
    table
}

fn ratio_line(ratio: &Ratio) -> String {
    let sides: Vec<String> = ratio
        .sides
        .iter()
        .zip(LETTERS)
        .filter_map(|(side, letter)| side.map(|side| (side, letter)))
        .map(|(side, letter)| {
            format!(
                "{letter} {} ({}..{})",
                ratio_text(side.value),
                ratio_text(side.min),
                ratio_text(side.max)
            )
        })
        .collect();
    format!("{} / {}: {}", ratio.over, ratio.under, sides.join(", "))
}

fn dash() -> String {
    "-".to_owned()
}

fn show_or_dash(side: Option<&Measurement>, show: &dyn Fn(&Measurement) -> String) -> String {
    side.map_or_else(dash, show)
}

fn latencies(side: &Measurement) -> String {
    side.latencies_ms().map(milliseconds).join("/")
}

fn cpu(side: &Measurement) -> String {
    side.cpu_seconds
        .map_or_else(dash, |seconds| format!("{seconds:.1}"))
}

fn peak(side: &Measurement) -> String {
    side.peak_resident_bytes
        .map_or_else(dash, |bytes| format!("{}", bytes >> 20))
}

fn range(spread: Spread) -> String {
    format!("{}..{}", number(spread.min), number(spread.max))
}

fn couchdb(figure: Option<CouchDbFigure>) -> String {
    match figure {
        None => dash(),
        Some(CouchDbFigure {
            value, remark: "", ..
        }) => number(value),
        Some(CouchDbFigure { value, remark, .. }) => format!("{} ({remark})", number(value)),
    }
}

fn times(rate: f64, figure: Option<CouchDbFigure>) -> String {
    figure
        .filter(|figure| figure.comparable)
        .map_or_else(dash, |figure| ratio_text(rate / figure.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_figure_keeps_its_remark() {
        let figure = CouchDbFigure {
            value: 345.0,
            remark: "p50 2.7 ms",
            comparable: true,
        };
        assert_eq!(couchdb(Some(figure)), "345 (p50 2.7 ms)");
        assert_eq!(times(3_450.0, Some(figure)), "10.0");
        assert_eq!(times(3_450.0, None), "-");
    }
}
