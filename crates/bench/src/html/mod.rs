//! The report as one HTML file that needs nothing else: no network, no script, no font.
//!
//! Names, errors and pictures come from servers, and are not trusted: text is escaped, pictures are
//! shown in sandboxed frames, and the page's policy forbids everything that is not part of the
//! page.

mod charts;
mod markup;
mod page;
mod plot;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use self::markup::{LETTERS, escape, figure, table};
use crate::compare::Comparison;
use crate::lines::{LATENCIES, Line, Measurement};
use crate::numbers::{bytes, ratio};
use crate::profile::Flame;
use crate::report::Report;
use crate::sweep::SweepLine;

/// More parts than this are folded, so that the page can be read from the top.
const OPEN_PARTS_MAX: usize = 6;

/// The whole page.
pub(crate) fn page(report: &Report, flames: &[&Flame]) -> String {
    let scripts = if flames.is_empty() {
        ""
    } else {
        "script-src 'unsafe-inline'; frame-src data:; "
    };
    let title = page::title(report);
    let mut html = String::new();
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; {scripts}base-uri 'none'; form-action 'none'\">\
         <title>{}</title><style>{}</style></head>\n<body><main>\n",
        escape(&title),
        include_str!("style.css")
    );
    for section in [
        page::head(report, &title),
        page::remarks(report),
        comparisons(report),
        sweep(report),
        parts(report),
        page::figures(report),
        timeline(report),
        page::ceilings(report),
        pictures(flames),
        page::settings(report),
        page::reading(report),
    ] {
        html.push_str(&section);
        html.push('\n');
    }
    html.push_str("</main></body></html>\n");
    html
}

/// The two that are compared, as sentences call them.
fn names(report: &Report) -> (&'static str, &'static str) {
    match report.against {
        Some(_) => ("this run", "the saved run"),
        None => ("A", "B"),
    }
}

fn comparisons(report: &Report) -> String {
    if report.comparisons.is_empty() {
        return String::new();
    }
    let heading = match &report.against {
        Some(against) => format!("This run over {}", escape(&against.file)),
        None => "A over B".to_owned(),
    };
    let shown = report
        .comparisons
        .iter()
        .filter(|each| each.significant)
        .count();
    let all = report.comparisons.len();
    let summary = match (shown, all) {
        (0, all) => format!("No difference is shown in any of {all} figures."),
        (shown, all) => format!("A difference is shown in {shown} of {all} figures."),
    };
    let rows: String = compared(&report.comparisons, names(report));
    format!("<h2>{heading}</h2><p>{summary}</p>{rows}")
}

fn compared(comparisons: &[Comparison], (a, b): (&str, &str)) -> String {
    let ends = comparisons
        .iter()
        .flat_map(|each| [each.ratio.low, each.ratio.high]);
    let reach = ends
        .map(|end| end.ln().abs())
        .filter(|reach| reach.is_finite());
    let reach = reach.fold(1.1_f64.ln(), f64::max).exp();
    let row = |each: &Comparison| {
        let class = match (each.significant, each.a_is_better) {
            (true, Some(true)) => "better",
            (true, Some(false)) => "worse",
            _ => "none",
        };
        format!(
            "<div class=\"compared\"><span class=\"name\">{}</span><span class=\"figure soft\">{}</span>\
             <span class=\"range\">{} <small>({}–{})</small></span><span class=\"picture\">{}</span>\
             <span class=\"verdict {class}\">{}</span></div>",
            escape(&each.name),
            escape(&each.figure),
            ratio_text(each.ratio.value),
            ratio_text(each.ratio.low),
            ratio_text(each.ratio.high),
            charts::ratio_bar(each.ratio, reach, class),
            escape(&each.verdict(a, b))
        )
    };
    comparisons.iter().map(row).collect()
}

/// With a digit more than elsewhere: here it is about small differences.
fn ratio_text(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.3}")
    } else {
        ratio(value)
    }
}

fn parts(report: &Report) -> String {
    if report.lines.is_empty() {
        return String::new();
    }
    let open = if report.lines.len() <= OPEN_PARTS_MAX {
        " open"
    } else {
        ""
    };
    let part = |line: &Line| {
        format!(
            "<section class=\"part\"><header><h3>{}</h3><span class=\"soft\">{}/s; latencies in ms</span></header>{}\
             <details{open}><summary class=\"soft\">Rounds and percentiles</summary><div class=\"charts\">{}{}</div></details></section>",
            escape(&line.name),
            escape(&line.unit),
            measured_table(line),
            figure(
                &format!("{}/s in each round", line.unit),
                &charts::rounds(line)
            ),
            figure("Latency by percentile", &charts::percentiles(line))
        )
    };
    let parts: String = report.lines.iter().map(part).collect();
    format!("<h2>Figures</h2>{}{parts}", charts::legend(report))
}

fn measured_table(line: &Line) -> String {
    let sides = line.sides.iter().enumerate();
    let rows: Vec<Vec<String>> = sides
        .filter_map(|(at, side)| {
            let side = side.as_ref()?;
            let key = format!(
                "<span class=\"key {}\">{}</span>",
                charts::side_class(at),
                LETTERS[at]
            );
            let mut row = vec![key];
            row.extend(cells(side));
            Some(row)
        })
        .collect();
    let mut html = table(&header(), &rows);
    for (at, side) in line.sides.iter().enumerate() {
        if let Some(error) = side.as_ref().and_then(|side| side.first_error.as_ref()) {
            let _ = write!(
                html,
                "<div class=\"note bad\"><p>First error on {}: <code>{}</code></p></div>",
                LETTERS[at],
                escape(&charts::shortened(error, 400))
            );
        }
    }
    html
}

/// Returns the header: a column for the name of a side or value, and those of [`cells`].
fn header() -> Vec<&'static str> {
    let mut header = vec!["", "rate"];
    header.extend(LATENCIES);
    header.extend(["errors", "server CPU", "client CPU", "peak memory"]);
    header
}

fn cells(side: &Measurement) -> Vec<String> {
    let dash = || "–".to_owned();
    let processors = |seconds: f64| format!("{:.2}", seconds / side.seconds);
    vec![
        charts::rate(side),
        crate::numbers::milliseconds(side.latency_ms_mean),
        charts::latency(side.latency_ms_p50, side.latency_ms_p50_interval),
        crate::numbers::milliseconds(side.latency_ms_p90),
        crate::numbers::milliseconds(side.latency_ms_p95),
        charts::latency(side.latency_ms_p99, side.latency_ms_p99_interval),
        crate::numbers::milliseconds(side.latency_ms_p999),
        crate::numbers::milliseconds(side.latency_ms_max),
        side.errors.to_string(),
        side.cpu_seconds.map_or_else(dash, processors),
        side.client_cpu.map_or_else(dash, |cpu| format!("{cpu:.2}")),
        side.peak_resident_bytes
            .map_or_else(dash, |peak| bytes(peak as f64)),
    ]
}

fn sweep(report: &Report) -> String {
    let Some(sweep) = &report.sweep else {
        return String::new();
    };
    let part = |line: &SweepLine| {
        let rows: Vec<Vec<String>> = sweep_rows(line, &sweep.values);
        let rate = charts::sweep(line, &sweep.values, &sweep.what, "rate", |side| {
            (side.rate.value, side.rate_interval)
        });
        let p99 = charts::sweep(line, &sweep.values, &sweep.what, "p99", |side| {
            (side.latency_ms_p99, side.latency_ms_p99_interval)
        });
        let against = match line.against_first.is_empty() {
            true => String::new(),
            false => format!(
                "<h4>Against {}, as it was before and after</h4>{}",
                escape(&sweep.values[0]),
                compared(&line.against_first, ("this value", "the first value"))
            ),
        };
        format!(
            "<section class=\"part\"><header><h3>{}</h3><span class=\"soft\">{}/s; latencies in ms</span></header>{}{}{against}\
             <div class=\"charts\">{}{}</div></section>",
            escape(&line.name),
            escape(&line.unit),
            table(&header(), &rows),
            drift(line),
            figure(
                &format!("{}/s; the ring is the first value again", line.unit),
                &rate
            ),
            figure("p99 in ms", &p99)
        )
    };
    let parts: String = sweep.lines.iter().map(part).collect();
    format!("<h2>{} swept</h2>{parts}", escape(&sweep.what))
}

fn sweep_rows(line: &SweepLine, values: &[String]) -> Vec<Vec<String>> {
    let points = values
        .iter()
        .zip(&line.points)
        .map(|(value, point)| (escape(value), point));
    let again = values
        .first()
        .map(|value| (format!("{} again", escape(value)), &line.again));
    points
        .chain(again)
        .filter_map(|(value, point)| {
            let mut row = vec![value];
            row.extend(cells(point.as_ref()?));
            Some(row)
        })
        .collect()
}

fn drift(line: &SweepLine) -> String {
    let interval = line
        .drift_interval
        .map(|drift| format!(" ({}–{})", ratio_text(drift.low), ratio_text(drift.high)));
    line.drift.map_or_else(String::new, |drift| {
        format!(
            "<p class=\"soft\">Drift: the first value's rate at the end was {}{} times its rate at the beginning.</p>",
            ratio_text(drift),
            interval.unwrap_or_default()
        )
    })
}

fn timeline(report: &Report) -> String {
    let charts = charts::timeline(report);
    if charts.is_empty() {
        return String::new();
    }
    let figures: String = charts
        .iter()
        .map(|(heading, svg)| figure(heading, svg))
        .collect();
    format!(
        "<h2>Resources during the run</h2>{}<p class=\"soft\">Servers include the processes that they started; dashed vertical lines mark the start of a workload.</p>\
         <div class=\"charts\">{figures}</div>{}",
        charts::legend(report),
        events(report)
    )
}

fn events(report: &Report) -> String {
    if report.events.is_empty() {
        return String::new();
    }
    let row = |event: &crate::timeline::Event| {
        let class = if event.is_fault { "worse" } else { "" };
        vec![
            format!("{:.1} s", event.at_s),
            format!(
                "<span class=\"text {class}\">{}</span>",
                escape(&event.text)
            ),
        ]
    };
    let rows: Vec<Vec<String>> = report.events.iter().map(row).collect();
    format!(
        "<details><summary class=\"soft\">What began when</summary>{}</details>",
        table(&["at", "what"], &rows)
    )
}

/// Pictures may hold scripts, for zooming. Theirs run in a frame that has no origin and inherits the page's policy: no network.
fn pictures(flames: &[&Flame]) -> String {
    if flames.is_empty() {
        return String::new();
    }
    let frame = |flame: &&Flame| {
        format!(
            "<h4>{0}</h4><iframe class=\"flame\" sandbox=\"allow-scripts\" loading=\"lazy\" title=\"Flame graph of {0}\" src=\"data:image/svg+xml;base64,{1}\"></iframe>",
            escape(&flame.title),
            STANDARD.encode(&flame.svg)
        )
    };
    format!(
        "<h2>Flame graphs</h2>{}",
        flames.iter().map(frame).collect::<String>()
    )
}

#[cfg(test)]
mod tests;
