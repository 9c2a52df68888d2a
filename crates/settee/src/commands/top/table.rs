//! A frame as tables of text.

use super::frame::{Frame, NodeRates, Task};
use super::threads::{LanguageRates, ThreadRates};
use command_line::counted;

/// A thread that is busy for this share of the time is full: it has no time for more.
const FULL: f64 = 0.9;
/// Most threads of a name that are listed one by one.
const EACH_MAX: usize = 16;

/// The subject of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Routes,
    Databases,
    Views,
    Threads,
    Tasks,
    Memory,
    Nodes,
}

/// All tables, in the order of their keys.
pub const TABS: [Tab; 7] = [
    Tab::Routes,
    Tab::Databases,
    Tab::Views,
    Tab::Threads,
    Tab::Tasks,
    Tab::Memory,
    Tab::Nodes,
];

impl Tab {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tab::Routes => "routes",
            Tab::Databases => "databases",
            Tab::Views => "views",
            Tab::Threads => "threads",
            Tab::Tasks => "tasks",
            Tab::Memory => "memory",
            Tab::Nodes => "nodes",
        }
    }

    /// The names of its columns; the first is text, the others are numbers.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Tab::Routes => &[
                "route", "req/s", "p50 ms", "p99 ms", "max ms", "4xx/s", "5xx/s",
            ],
            Tab::Databases => &["database", "req/s", "writes/s", "busy", "B/s"],
            Tab::Views => &["view", "req/s", "busy", "function", "B/s"],
            Tab::Threads => &[
                "threads",
                "alive",
                "cpu %",
                "queued %",
                "most of their time",
            ],
            Tab::Tasks => &["task", "%", "done", "total", "left", "pending"],
            Tab::Memory => &["part", "used", "budget", "%"],
            Tab::Nodes => &[
                "node", "state", "req/s", "writes/s", "cpu", "lag s", "lacks", "leads", "queued",
                "B/s",
            ],
        }
    }
}

/// A row: its sort key, and its cells.
pub struct Row {
    /// Its text, then its numbers.
    pub cells: Vec<String>,
    /// The numbers of the columns behind the first.
    pub keys: Vec<f64>,
}

impl Row {
    fn new(name: &str, numbers: impl IntoIterator<Item = (f64, String)>) -> Row {
        let (keys, mut cells): (Vec<f64>, Vec<String>) = numbers.into_iter().unzip();
        // Names of design documents and views may hold what a terminal takes for orders.
        cells.insert(0, name.replace(char::is_control, "\u{fffd}"));
        Row { cells, keys }
    }
}

/// A number with few digits.
pub fn few(n: f64) -> String {
    match n {
        n if n >= 10_000.0 => grouped(n as u64),
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n if n > 0.0 => format!("{n:.2}"),
        _ => "0".to_owned(),
    }
}

/// A number with commas between its thousands.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the unit that suits them.
pub fn bytes(n: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut n = n;
    let mut unit = 0;
    while n >= 1000.0 && unit + 1 < units.len() {
        n /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n:.0} B"),
        _ => format!("{n:.1} {}", units[unit]),
    }
}

/// A time in the unit that suits it.
pub fn duration(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s / 60),
        7200..172_800 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

fn number(n: f64) -> (f64, String) {
    (n, few(n))
}

fn size(n: f64) -> (f64, String) {
    (n, bytes(n))
}

/// The rows of a table, those with the largest number in column `sort` first, of which the first column has the text `filter`.
pub fn rows(tab: Tab, frame: &Frame, sort: usize, filter: &str) -> Vec<Row> {
    let mut rows = match tab {
        Tab::Routes => routes(frame),
        Tab::Databases => databases(frame),
        Tab::Views => views(frame),
        Tab::Threads => threads(frame),
        Tab::Tasks => frame.tasks.iter().map(task).collect(),
        Tab::Memory => memory(frame),
        Tab::Nodes => nodes(frame),
    };
    rows.retain(|row| row.cells[0].contains(filter));
    if sort > 0 {
        let key = |row: &Row| row.keys.get(sort - 1).copied().unwrap_or(0.0);
        rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    } else {
        rows.sort_by(|a, b| a.cells[0].cmp(&b.cells[0]));
    }
    rows
}

fn routes(frame: &Frame) -> Vec<Row> {
    let row = |r: &super::frame::RouteRates| {
        let numbers = [
            r.per_s,
            r.p50_ms,
            r.p99_ms,
            r.max_ms,
            r.refused_per_s,
            r.failed_per_s,
        ];
        Row::new(&r.route, numbers.map(number))
    };
    frame.routes.iter().map(row).collect()
}

fn databases(frame: &Frame) -> Vec<Row> {
    let rows = frame.databases.iter().map(|d| {
        let numbers = [number(d.per_s), number(d.writes_per_s), number(d.busy)];
        Row::new(&d.name, numbers.into_iter().chain([size(d.bytes_per_s)]))
    });
    rows.collect()
}

fn views(frame: &Frame) -> Vec<Row> {
    let rows = frame.views.iter().map(|v| {
        Row::new(
            &v.name,
            [
                number(v.per_s),
                number(v.busy),
                number(v.functions),
                size(v.bytes_per_s),
            ],
        )
    });
    rows.collect()
}

fn threads(frame: &Frame) -> Vec<Row> {
    let rows = frame.threads.iter().flat_map(|t| {
        let mut states: Vec<_> = t.states_percent.iter().collect();
        states.sort_by(|a, b| b.1.total_cmp(a.1));
        let most = states
            .iter()
            .take(3)
            .map(|(name, p)| format!("{name} {p:.0}"));
        let most: Vec<String> = most.collect();
        let alive = match t.alive {
            0 => String::new(),
            n => n.to_string(),
        };
        let idle = t.states_percent.get("idle").copied().unwrap_or(100.0);
        let numbers = [
            (t.alive as f64, alive),
            (t.cpu, few(100.0 * t.cpu)),
            (t.run_queue, few(100.0 * t.run_queue)),
            (100.0 - idle, most.join(" ")),
        ];
        [Row::new(&t.name, numbers)].into_iter().chain(each(t))
    });
    let workers = (frame.worker_cpu, few(100.0 * frame.worker_cpu));
    let workers = Row::new(
        "(processes of functions)",
        [none(), workers, none(), none()],
    );
    rows.chain([workers])
        .chain(frame.languages.iter().map(language))
        .collect()
}

/// No number.
fn none() -> (f64, String) {
    (0.0, String::new())
}

/// The threads of a name one by one, if one of several is full: the sum hides it.
fn each(of: &ThreadRates) -> Vec<Row> {
    let is_full = of.each.first().is_some_and(|busiest| busiest.cpu >= FULL);
    if !is_full || of.each.len() == 1 {
        return vec![];
    }
    let rows = of.each.iter().take(EACH_MAX).map(|thread| {
        let state = if thread.cpu >= FULL { "full" } else { "" };
        let numbers = [
            none(),
            (thread.cpu, few(100.0 * thread.cpu)),
            none(),
            (0.0, state.to_owned()),
        ];
        Row::new(&format!("{} {}", of.name, thread.id), numbers)
    });
    rows.collect()
}

/// The processes of a language, among the threads; their memory is in place of states.
fn language(of: &LanguageRates) -> Row {
    Row::new(
        &format!("(functions in {})", of.language),
        [
            (of.processes as f64, grouped(of.processes)),
            (of.cpu, few(100.0 * of.cpu)),
            none(),
            (0.0, bytes(of.private_bytes as f64)),
        ],
    )
}

fn task(task: &Task) -> Row {
    let maybe = |n: Option<f64>, text: fn(f64) -> String| match n {
        Some(n) => (n, text(n)),
        None => (0.0, String::new()),
    };
    let count = |n: u64| (n as f64, grouped(n));
    Row::new(
        &format!("{} {}", task.kind, task.what),
        [
            maybe(task.percent.map(|p| p as f64), few),
            count(task.done),
            count(task.total),
            maybe(task.eta_s, duration),
            maybe(task.pending.map(|n| n as f64), |n| grouped(n as u64)),
        ],
    )
}

fn nodes(frame: &Frame) -> Vec<Row> {
    let row = |node: &NodeRates| {
        let count = |n: u64| (n as f64, grouped(n));
        let is_wrong = f64::from(node.state != "ok");
        Row::new(
            &node.name,
            [
                (is_wrong, node.state.clone()),
                number(node.per_s),
                number(node.writes_per_s),
                number(node.cpu),
                number(node.lag_s),
                count(node.lag_records),
                count(node.slots_led),
                count(node.messages_waiting),
                size(node.messages_bytes_per_s),
            ],
        )
    };
    frame.nodes.iter().map(row).collect()
}

fn memory(frame: &Frame) -> Vec<Row> {
    let row = |name: &str, used: u64, of: u64| {
        let percent = 100.0 * used as f64 / of.max(1) as f64;
        Row::new(name, [size(used as f64), size(of as f64), number(percent)])
    };
    let mut rows = vec![row(
        "the process",
        frame.resident_bytes,
        frame.memory_limit_bytes,
    )];
    rows.extend(
        frame
            .memory
            .iter()
            .map(|(name, (used, budget))| row(name, *used, *budget)),
    );
    if let (Some(free), Some(all)) = (frame.disk_free_bytes, frame.disk_size_bytes) {
        rows.push(row("disk", all.saturating_sub(free), all));
    }
    rows.extend(
        frame.files.iter().map(|(name, n)| {
            Row::new(&format!("files: {name}"), [size(*n as f64), none(), none()])
        }),
    );
    rows
}

/// The line about what happens before requests are read.
fn before_requests(f: &Frame) -> String {
    let waits = f.waits.iter();
    let waits: Vec<String> = waits
        .map(|(name, wait)| {
            let name = name.replace('_', " ");
            format!("{name} {}/{}", few(wait.p99_ms), few(wait.max_ms))
        })
        .collect();
    format!(
        "before requests, ms p99/max: {}  {} dropped/s  {} queued",
        waits.join("  "),
        few(f.dropped_per_s),
        counted(few(f.run_queue), "threads")
    )
}

/// The lines above the tables.
pub fn head(frame: &Frame) -> [String; 6] {
    let f = frame;
    let queues = f.queues.iter();
    let queues: Vec<String> = queues
        .map(|(name, q)| format!("{name} {}/{}", q.now, q.max))
        .collect();
    let mut states: Vec<_> = f.states_percent.iter().collect();
    states.sort_by(|a, b| b.1.total_cmp(a.1));
    let states: Vec<String> = states
        .iter()
        .map(|(name, p)| format!("{name} {p:.1}"))
        .collect();
    [
        format!(
            "{} {}  up {}  {}, {} open",
            f.node,
            f.version,
            duration(f.uptime_s),
            counted(grouped(f.all_databases), "databases"),
            grouped(f.open_databases)
        ),
        format!(
            "{} req/s  {} aborted/s  {}/s out  {}/s in  cpu {:.2} of {}  functions {:.2}",
            few(f.requests_per_s),
            few(f.aborted_per_s),
            bytes(f.sent_bytes_per_s),
            bytes(f.received_bytes_per_s),
            f.cpu,
            f.processors,
            f.worker_cpu
        ),
        format!(
            "{}  {} in flight  {}  {} writes/s  {} syncs/s  {} a batch",
            counted(f.connections, "connections"),
            f.in_flight,
            counted(f.feeds, "feeds"),
            few(f.document_writes_per_s),
            few(f.syncs_per_s),
            counted(few(f.requests_a_batch), "requests")
        ),
        format!(
            "waiting now/most: {}  replications {} run, {} wait, {} crash",
            queues.join("  "),
            f.replications_running,
            f.replications_pending,
            f.replications_crashing
        ),
        before_requests(f),
        format!("threads %: {}", states.join("  ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(few(1_234_567.8), "1,234,567");
        assert_eq!(
            [few(0.0), few(0.123), few(12.34), few(999.6)],
            ["0", "0.12", "12.3", "1000"]
        );
        assert_eq!([bytes(999.0), bytes(1_500_000.0)], ["999 B", "1.5 MB"]);
        assert_eq!([duration(59.0), duration(7300.0)], ["59 s", "2 h 1 min"]);
        assert_eq!(grouped(1000), "1,000");
    }

    #[test]
    fn languages_are_listed_with_the_threads() {
        let mut frame = Frame::default();
        for (name, processes, cpu) in [("python", 3, 1.5), ("javascript", 2, 0.1)] {
            frame.languages.push(LanguageRates {
                language: name.into(),
                processes,
                private_bytes: 64_000_000,
                cpu,
            });
        }
        let rows = rows(Tab::Threads, &frame, 2, "functions in");
        let cells: Vec<_> = rows.iter().map(|row| row.cells.join(" ")).collect();
        let expected = [
            "(functions in python) 3 150  64.0 MB",
            "(functions in javascript) 2 10.0  64.0 MB",
        ];
        assert_eq!(cells, expected);
    }

    #[test]
    fn threads_are_listed_one_by_one_when_one_is_full() {
        let of = |name: &str, cpus: &[f64]| {
            let each = cpus.iter().zip(7..);
            ThreadRates {
                name: name.into(),
                alive: cpus.len() as u64,
                cpu: cpus.iter().sum(),
                run_queue: 0.5,
                states_percent: [("idle".to_owned(), 50.0)].into(),
                each: each
                    .map(|(cpu, id)| super::super::threads::ThreadRate { id, cpu: *cpu })
                    .collect(),
            }
        };
        let frame = Frame {
            threads: vec![
                of("serve", &[0.99, 0.1]),
                of("commit", &[1.0]),
                of("index", &[0.5, 0.4]),
            ],
            ..Frame::default()
        };
        let cells = |filter| -> Vec<String> {
            let rows = rows(Tab::Threads, &frame, 2, filter);
            rows.iter().map(|row| row.cells.join("|")).collect()
        };
        let expected = [
            "serve|2|109|50.0|idle 50",
            "serve 7||99.0||full",
            "serve 8||10.0||",
        ];
        assert_eq!(cells("serve"), expected);
        assert_eq!(cells("commit").len(), 1, "it is listed anyway");
        assert_eq!(cells("index").len(), 1);
    }

    #[test]
    fn the_head_tells_what_happens_before_requests() {
        let wait = super::super::times::Wait {
            p99_ms: 266.0,
            max_ms: 1035.0,
            ..Default::default()
        };
        let frame = Frame {
            waits: [("event_loop".to_owned(), wait)].into(),
            dropped_per_s: 3.0,
            run_queue: 0.25,
            ..Frame::default()
        };
        let told = "before requests, ms p99/max: event loop 266/1035  3.00 dropped/s  \
                    0.25 threads queued";
        assert_eq!(before_requests(&frame), told);
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let mut frame = Frame::default();
        for (name, busy) in [("alpha", 1.0), ("beta", 3.0), ("gamma", 2.0)] {
            frame.databases.push(super::super::frame::UseRates {
                name: name.into(),
                per_s: 10.0 - busy,
                writes_per_s: 0.0,
                busy,
                bytes_per_s: 0.0,
            });
        }
        let names = |sort, filter: &str| -> Vec<String> {
            let rows = rows(Tab::Databases, &frame, sort, filter);
            rows.into_iter().map(|row| row.cells[0].clone()).collect()
        };
        assert_eq!(names(3, ""), ["beta", "gamma", "alpha"]);
        assert_eq!(names(1, ""), ["alpha", "gamma", "beta"]);
        assert_eq!(names(0, "a"), ["alpha", "beta", "gamma"]);
        assert_eq!(names(3, "mm"), ["gamma"]);
    }
}
