//! Whether writes succeed, and connections find a place.

use serde_json::json;

use crate::check::{Area, Check};
use crate::finding::{Finding, Severity, counted, percent};

/// An engine that resumes at each write and fails at the next one takes writes at most moments.
const RECENT_S: u64 = 30;

pub const WRITES: Check = Check {
    id: "writes",
    area: Area::Machine,
    title: "writes that fail",
    looks_at: "whether the storage engine accepts writes; its errors and failed compactions since the start",
    finds: || {
        format!(
            "error while all writes fail, and until {RECENT_S} s later; note of earlier errors, and of compactions that failed"
        )
    },
    why: "while the storage engine refuses writes nothing can be stored; `/_up` returns 503 meanwhile",
    look: |facts| {
        let machine = &facts.machine;
        let evidence = json!({
            "errors": machine.engine_errors,
            "compaction_failures": machine.compaction_failures,
        });
        let mut found = vec![];
        if let Some(failure) = &machine.write_failure {
            let act = match failure.needs_restart {
                true => "# restart the server: the storage engine cannot recover without a restart",
                false => "# remove the cause: the server takes writes again within seconds",
            };
            found.push(
                Finding::new(Severity::Error, "the store", failure.reason.clone())
                    .evidence(evidence)
                    .act(act),
            );
        } else if machine.engine_errors > 0 {
            let n = machine.engine_errors;
            let says = format!(
                "the storage engine refused writes because of {} since the start, and accepts them again",
                counted(n, "errors")
            );
            let is_recent = machine.engine_error_age_s.is_some_and(|age| age < RECENT_S);
            let severity = match is_recent {
                true => Severity::Error,
                false => Severity::Note,
            };
            found.push(
                Finding::new(severity, "the store", says)
                    .evidence(evidence)
                    .act("# search the log for `storage engine`"),
            );
        }
        if machine.compaction_failures > 0 {
            let n = machine.compaction_failures;
            let says = format!(
                "failed since the start, and retried: {}",
                counted(n, "compactions")
            );
            found.push(
                Finding::new(Severity::Note, "compactions", says)
                    .evidence(json!({"compaction_failures": n}))
                    .act("# search the log for `compaction failed`; if it names a file of the store: settee check"),
            );
        }
        Ok(found)
    },
};

const CONNECTIONS_PERCENT: u64 = 90;

pub const CONNECTIONS: Check = Check {
    id: "connections",
    area: Area::Machine,
    title: "connections near their limit",
    looks_at: "client connections, and their limit",
    finds: || format!("warning from {CONNECTIONS_PERCENT} % of the limit"),
    why: "at the limit idle connections are closed to make room, anonymous ones first; without idle connections, new ones wait",
    look: |facts| {
        let machine = &facts.machine;
        let Some(max) = machine.connections_max else {
            return Ok(vec![]);
        };
        let open = machine.connections;
        let used = percent(open, max);
        if used < CONNECTIONS_PERCENT {
            return Ok(vec![]);
        }
        let says = format!("{open} connections of {max} are open ({used} %)");
        Ok(vec![
            Finding::new(Severity::Warning, "the HTTP port", says)
                .evidence(json!({"open": open, "limit": max}))
                .act("# to list the clients: ss -tn state established")
                .act("# the limit depends on that of open files: raise that (LimitNOFILE with systemd, ulimit -n), and restart the server"),
        ])
    },
};

#[cfg(test)]
mod tests {
    use database::WriteFailure;

    use super::*;
    use crate::checks::planted::severities;
    use crate::facts::Machine;

    #[test]
    fn writes_that_fail_are_an_error_and_those_that_failed_a_note() {
        let machine = |failing: bool, errors, compaction_failures| Machine {
            write_failure: failing.then(|| WriteFailure {
                cause: "the disk is full".to_owned(),
                reason: "0 bytes are free".to_owned(),
                since: None,
                needs_restart: false,
            }),
            engine_errors: errors,
            compaction_failures,
            ..Machine::default()
        };
        assert_eq!(severities(&WRITES, machine(false, 0, 0)), []);
        assert_eq!(severities(&WRITES, machine(true, 1, 0)), [Severity::Error]);
        assert_eq!(severities(&WRITES, machine(false, 2, 0)), [Severity::Note]);
        let failed_ago = |seconds| Machine {
            engine_error_age_s: Some(seconds),
            ..machine(false, 2, 0)
        };
        assert_eq!(severities(&WRITES, failed_ago(5)), [Severity::Error]);
        assert_eq!(severities(&WRITES, failed_ago(60)), [Severity::Note]);
        assert_eq!(
            severities(&WRITES, machine(false, 1, 3)),
            [Severity::Note; 2]
        );
    }

    #[test]
    fn few_free_places_are_found() {
        let machine = |connections| Machine {
            connections,
            connections_max: Some(1000),
            ..Machine::default()
        };
        assert_eq!(severities(&CONNECTIONS, machine(800)), []);
        assert_eq!(severities(&CONNECTIONS, machine(950)), [Severity::Warning]);
    }
}
