//! Reasons to doubt a figure.

use crate::lines::Measurement;
use crate::pace::OpenLoop;
use crate::report::Report;

/// Share of time for which a client's thread is busy, above which the client limits the rate.
const CLIENT_SHARE_MAX: f64 = 0.9;
/// A rate is not reached when the last requests were sent so late, as a share of the time.
const BEHIND_MAX: f64 = 0.02;
/// At a rate, the client's own lateness should be at most this share of a latency.
const CLIENT_LATE_MAX: f64 = 0.5;

/// Warnings about limits of the figures: the client, or a rate that a server cannot sustain.
pub(crate) fn warnings(report: &Report) -> Vec<String> {
    let mut found = Vec::new();
    let swept = report
        .sweep
        .iter()
        .flat_map(|sweep| &sweep.lines)
        .flat_map(|line| {
            let points = line.points.iter().flatten();
            points.map(|point| (&line.name, "A", point))
        });
    let lines = report.lines.iter().flat_map(|line| {
        let sides = line.sides.iter().zip(["A", "B"]);
        sides.filter_map(|(side, letter)| Some((&line.name, letter, side.as_ref()?)))
    });
    for (name, letter, side) in lines.chain(swept) {
        if let Some(cpu) = side.client_cpu.filter(|cpu| *cpu > CLIENT_SHARE_MAX) {
            found.push(format!(
                "the client was the limit of {name} on {letter}: its thread was busy {:.0} % of the time; the server can do more",
                cpu * 100.0
            ));
        } else if let Some((cpu, waited)) = side
            .client_cpu
            .zip(side.client_waited)
            .filter(|(cpu, waited)| cpu + waited > CLIENT_SHARE_MAX)
        {
            found.push(format!(
                "the client lacked a processor for {name} on {letter}: it ran {:.0} % of the time and waited {:.0} % for one; with the client on another machine the server can do more",
                cpu * 100.0,
                waited * 100.0
            ));
        }
        if let Some((open, asked)) = side.open.zip(report.rate) {
            found.extend(of_rate(name, letter, side, open, asked));
        }
    }
    found
}

fn of_rate(
    name: &str,
    letter: &str,
    side: &Measurement,
    open: OpenLoop,
    asked: f64,
) -> Option<String> {
    let nominal_seconds = open.due as f64 / asked;
    let behind = open.last_late_us as f64 / 1e6 / nominal_seconds;
    let client_late_ms = open.client_late_us as f64 / open.client_waits.max(1) as f64 / 1_000.0;
    if open.unsent > 0 || behind > BEHIND_MAX {
        let sent = (open.due - open.unsent) as f64 / side.seconds;
        Some(format!(
            "{name} on {letter} did not reach {asked} requests/s: {sent:.0}/s were sent, {} of {} were not, up to {} were due at the same time",
            open.unsent, open.due, open.backlog_max
        ))
    } else if client_late_ms > side.latency_ms_p50 * CLIENT_LATE_MAX {
        Some(format!(
            "the client itself was {client_late_ms:.2} ms late on average with requests of {name} on {letter}, of a median latency of {:.2} ms",
            side.latency_ms_p50
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::Gatherer;
    use crate::pace::ClientTime;
    use crate::slice::Slice;
    use crate::system::WorkloadPart;

    fn report(client: ClientTime, open: Option<OpenLoop>) -> Report {
        let mut slice = Slice::new();
        slice.seconds = 10.0;
        slice.count = 1_000;
        slice.client = Some(client);
        slice.open = open;
        let mut gathering = Gatherer::new(1);
        let part = WorkloadPart {
            name: "get",
            unit: "req",
            slice,
            cpu_seconds: None,
            peak_resident_bytes: None,
        };
        gathering.add(0, 0, 0.0, part);
        Report {
            lines: gathering.into_lines("get"),
            rate: open.map(|_| 100.0),
            ..Report::default()
        }
    }

    fn client(cpu_seconds: f64, waited_seconds: f64) -> ClientTime {
        ClientTime {
            cpu_seconds,
            waited_seconds,
        }
    }

    #[test]
    fn a_client_that_is_the_limit_is_told() {
        assert!(warnings(&report(client(5.0, 1.0), None)).is_empty());
        let busy = warnings(&report(client(9.7, 0.1), None));
        assert!(
            busy.len() == 1 && busy[0].contains("the client was the limit"),
            "{busy:?}"
        );
        let crowded = warnings(&report(client(6.0, 3.5), None));
        assert!(
            crowded.len() == 1 && crowded[0].contains("lacked a processor"),
            "{crowded:?}"
        );
    }

    #[test]
    fn a_rate_that_is_not_reached_is_told() {
        let open = |unsent| OpenLoop {
            due: 1_000,
            unsent,
            ..OpenLoop::default()
        };
        assert!(warnings(&report(client(1.0, 0.0), Some(open(0)))).is_empty());
        let told = warnings(&report(client(1.0, 0.0), Some(open(400))));
        assert!(
            told.len() == 1 && told[0].contains("60/s were sent, 400 of 1000"),
            "{told:?}"
        );
        let behind = OpenLoop {
            last_late_us: 900_000,
            ..open(0)
        };
        let told = warnings(&report(client(1.0, 0.0), Some(behind)));
        assert!(
            told.len() == 1 && told[0].contains("did not reach"),
            "{told:?}"
        );
    }
}
