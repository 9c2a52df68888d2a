//! Metrics with labels, which only Prometheus' form has.

use std::time::Duration;

use crate::counts::Counts;
use crate::memory::MemoryPart;
use crate::process;
use crate::prometheus::Text;

/// Appends the metrics of each class of requests.
pub fn write_classes(counts: &Counts, text: &mut Text) {
    let name = "settee_request_seconds";
    let help = "time of requests to the end of their responses' bodies, by class of route";
    text.head(name, "histogram", help);
    for (route, of) in counts.routes() {
        text.buckets(name, &[("route", route.name())], &of.whole_us);
    }
    for (name, help, failed) in [
        (
            "settee_failed_requests_total",
            "requests answered with a status of 500 and above, by class of route",
            true,
        ),
        (
            "settee_refused_requests_total",
            "requests answered with a status of 400 to 499, by class of route",
            false,
        ),
    ] {
        let values = counts.routes().map(|(route, of)| {
            let n = if failed { of.failed } else { of.refused };
            (route.name(), n as f64)
        });
        text.by((name, "counter", help), "route", values);
    }
}

/// Appends the metrics of threads, by kind of work.
pub fn write_threads(text: &mut Text) {
    let name = "settee_thread_seconds_total";
    let help = "time of the server's threads by kind of work; idle is waiting for work";
    text.head(name, "counter", help);
    let threads = telemetry::threads();
    for of in &threads {
        let spent = of.spent.iter().filter(|(_, time)| *time > Duration::ZERO);
        for (state, time) in spent {
            let labels = [("threads", of.name.as_str()), ("state", state.name())];
            text.sample(name, &labels, time.as_secs_f64());
        }
    }
    let alive = threads.iter().map(|of| (&of.name, of.alive as f64));
    let help = "threads that have a clock by their names";
    text.by(("settee_threads", "gauge", help), "threads", alive);
}

/// Appends the CPU times of threads and of processes that run users' functions.
pub fn write_cpu_times(text: &mut Text) {
    if let Some(cpu) = process::cpu_times() {
        let help = "CPU time of the process's threads by their names";
        text.by(
            ("settee_thread_cpu_seconds_total", "counter", help),
            "threads",
            (cpu.threads.iter()).map(|of| (&of.name, of.cpu_seconds)),
        );
        let help = "time that the process's threads were ready to run and waited for a processor";
        text.by(
            ("settee_thread_run_queue_seconds_total", "counter", help),
            "threads",
            (cpu.threads.iter()).map(|of| (&of.name, of.run_queue_seconds)),
        );
        let help = "CPU time of processes that run users' functions";
        text.number(
            "settee_worker_cpu_seconds_total",
            "counter",
            help,
            cpu.workers,
        );
    }
}

/// Appends the table of memory.
pub fn write_memory(parts: &[MemoryPart], text: &mut Text) {
    type Of = fn(&MemoryPart) -> Option<u64>;
    let columns: [(&str, &str, Of); 3] = [
        (
            "settee_memory_budget_bytes",
            "memory that a part may take",
            |part| Some(part.budget),
        ),
        (
            "settee_memory_used_bytes",
            "memory that a part takes",
            |part| Some(part.used),
        ),
        (
            "settee_memory_peak_bytes",
            "the most memory that a part took",
            |part| part.peak,
        ),
    ];
    for (name, help, of) in columns {
        let values = parts
            .iter()
            .filter_map(|part| Some((part.name, of(part)? as f64)));
        text.by((name, "gauge", help), "part", values);
    }
}
