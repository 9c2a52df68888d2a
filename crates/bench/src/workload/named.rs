//! Workloads that run only when they are named: YCSB's, mixes, faults, and those that peers do too.

use std::rc::Rc;
use std::time::Duration;

use super::catalogue::is_fault;
use super::operations::{MixWorkload, Ycsb};
use super::own::Own;
use super::urls::Urls;
use super::{Bench, Mix, Outcome, ROUNDS};
use crate::competitor::{Competitor, Documents, HttpRows, Row};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::faults::{Fault, FaultOutcome, measure, measure_databases};
use crate::options::BenchOptions;
use crate::pace::Pace;
use crate::progress;
use crate::report::Failure;

/// The default mix.
const DEFAULT_MIX: &str = "mixed";
/// How long a server is stopped, in seconds.
const STOPPED_MAX: f64 = 10.0;
const STOPPED_MIN: f64 = 0.2;

/// Refuses options that do not apply to a server that the bench starts for faults: there is one
/// such server, with its own settings, and its load is as fast as possible.
///
/// # Errors
/// [`BenchError::Options`] names the workload and the option.
pub(crate) fn check_faults(selected: &[&str], options: &BenchOptions) -> Result<(), BenchError> {
    let Some(name) = selected.iter().find(|name| is_fault(name)) else {
        return Ok(());
    };
    let refused = [
        ("a second server", options.servers.len() > 1),
        ("--sweep", options.sweep.is_some()),
        ("--rate", options.rate.is_some()),
        ("--requests", options.requests.is_some()),
        ("--new-connections", options.new_connections),
    ];
    match refused.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((what, _)) => Err(BenchError::Options(format!(
            "{name} uses a server that the bench starts: {what} does not apply to it"
        ))),
    }
}

impl Bench {
    pub(super) async fn measure_named_only(
        &mut self,
        name: &'static str,
    ) -> Result<(), BenchError> {
        let connections = self.options.connections;
        let records = self.scaled(100_000);
        if let Some(ycsb) = Ycsb::named(name, records, connections) {
            return self.measure(name, ycsb).await;
        }
        if let Some(row) = Row::named(name) {
            return self.measure_with_competitor(row).await;
        }
        match name {
            "mix" => {
                let mix = match &self.options.mix {
                    Some(mix) => mix.clone(),
                    None => Mix::named(DEFAULT_MIX)?,
                };
                let mix = MixWorkload {
                    mix,
                    documents: self.scaled(100_000),
                    connections,
                };
                self.measure(name, mix).await
            }
            "own" => {
                let data = self.options.own.clone().ok_or_else(|| {
                    BenchError::Options(
                        "own needs --documents FILE, a JSON object a line".to_owned(),
                    )
                })?;
                self.measure(name, Own { data, connections }).await
            }
            "urls" => {
                let list = self.options.urls.clone().ok_or_else(|| {
                    BenchError::Options("urls needs --urls FILE, a list of paths".to_owned())
                })?;
                let urls = Urls { list, connections };
                self.measure(name, urls).await
            }
            _ if name.starts_with("faults_") => self.measure_fault(name).await,
            _ => Err(BenchError::Options(format!("{name} has no measurement"))),
        }
    }

    async fn measure_fault(&mut self, name: &'static str) -> Result<(), BenchError> {
        let Some(launch) = self.options.launch.clone() else {
            return Err(BenchError::Options(format!(
                "{name} kills a server that it starts, and does not know how to start one"
            )));
        };
        let spinner = progress::spinner();
        spinner.set_message(name);
        let length = Duration::from_secs_f64(self.options.seconds / f64::from(ROUNDS));
        let stopped = (self.options.seconds / 5.0).clamp(STOPPED_MIN, STOPPED_MAX);
        let stop = Fault::Stop(Duration::from_secs_f64(stopped));
        let clock = Rc::clone(&self.clock);
        let suffered = match name {
            "faults_kill" => measure(&launch, Fault::Kill, length, &clock).await?,
            "faults_stop" => measure(&launch, stop, length, &clock).await?,
            _ => measure_databases(&launch, self.scaled(2_000), &clock).await?,
        };
        spinner.finish_and_clear();
        self.add_suffered(name, suffered);
        Ok(())
    }

    fn add_suffered(&mut self, name: &'static str, suffered: FaultOutcome) {
        // The server is not one of the run's, so its figures are shown as those of a run with one
        // server.
        let now_s = self.clock.now_s();
        for part in suffered.parts {
            self.gathering.add(0, self.repeat, now_s, part);
        }
        let mut notes = suffered.notes;
        let told = suffered.events.iter();
        let told = told.map(|event| format!("{:.3} s {}", event.at_seconds, event.text));
        notes.push(told.collect::<Vec<_>>().join("; "));
        let figures = suffered.figures;
        self.add_outcome(0, Outcome { figures, notes });
        for (name, unit, count) in suffered.counts {
            self.figure(name, unit).count(0, count);
        }
        if let Some(reason) = suffered.broken {
            self.report.failures.push(Failure {
                workload: name.to_owned(),
                reason,
            });
        }
    }

    /// Measures a row on every server, and on the competitor if it supports the row.
    async fn measure_with_competitor(&mut self, row: Row) -> Result<(), BenchError> {
        let Some(prepared) = self.prepare_rows(row).await? else {
            return Ok(());
        };
        let has_competitor = self.prepare_competitor(row, &prepared[0]).await?;
        let spinner = progress::spinner();
        let pace = match row.is_unpaced() {
            true => Pace::default(),
            false => self.pace_of(row.name()),
        };
        let rounds = pace.rounds(ROUNDS);
        let length = Duration::from_secs_f64(self.options.seconds / f64::from(rounds));
        let connections = self.options.connections;
        for round in 0..rounds {
            spinner.set_message(format!("{}: round {} of {rounds}", row.name(), round + 1));
            let pace = pace.in_round(round, rounds);
            self.set_pace(pace);
            // The second one always finds a different machine.
            let mut order: Vec<usize> = (0..self.columns()).collect();
            if (self.repeat + round) % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let part = match (prepared.get(at), &self.competitor) {
                    (Some((rows, documents)), _) => {
                        let system = &self.systems[at];
                        rows.round(system, row, documents, connections, length)
                            .await?
                    }
                    (None, Some(competitor)) if has_competitor => {
                        let documents = &prepared[0].1;
                        competitor
                            .round(row, documents, connections, length, pace)
                            .await?
                    }
                    _ => continue,
                };
                self.gathering
                    .add(at, self.repeat, self.clock.now_s(), part);
            }
        }
        self.set_pace(Pace::default());
        spinner.finish_and_clear();
        if row == Row::SearchFresh {
            // Another repeat begins without what this one has written.
            for (system, (_, documents)) in self.systems.iter().zip(&prepared) {
                system.forget(Shape::Words, documents.count);
            }
            self.competitor
                .iter_mut()
                .for_each(Competitor::forget_texts);
        }
        Ok(())
    }

    /// The row's databases on all servers; `None`, with a note, when one does not support the row.
    async fn prepare_rows(
        &mut self,
        row: Row,
    ) -> Result<Option<Vec<(HttpRows, Documents)>>, BenchError> {
        let count = self.scaled(200_000);
        let mut prepared = Vec::new();
        for system in &self.systems {
            let rows = HttpRows::prepare(system, row, count).await?;
            if !rows.does(system, row).await? {
                let label = &system.target.label;
                let note = format!("{}: skipped, {label} does no such work", row.name());
                self.note(note);
                return Ok(None);
            }
            let documents = rows.documents();
            prepared.push((rows, documents));
        }
        Ok(Some(prepared))
    }

    /// Prepares the row on the competitor. Returns false when no competitor does it, and an error when its
    /// responses differ.
    async fn prepare_competitor(
        &mut self,
        row: Row,
        (rows, documents): &(HttpRows, Documents),
    ) -> Result<bool, BenchError> {
        let Some(competitor) = self
            .competitor
            .as_mut()
            .filter(|competitor| competitor.does(row))
        else {
            return Ok(false);
        };
        competitor.prepare(row, documents).await?;
        let of_server = rows.answer(&self.systems[0], row).await?;
        let of_competitor = competitor.answer(row, documents).await?;
        if of_server == of_competitor {
            return Ok(true);
        }
        Err(BenchError::Options(format!(
            "the answers differ, so it is not the same work: {of_server} and {of_competitor}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_refused_with_what_means_nothing_for_them() {
        let server = || vec!["http://127.0.0.1:1".to_owned()];
        let alone = BenchOptions {
            servers: vec![server()],
            ..BenchOptions::default()
        };
        let mut wrong = vec![alone.clone(); 5];
        wrong[0].servers.push(server());
        wrong[1].sweep = Some("log/level=info,debug".to_owned());
        wrong[2].rate = Some(10.0);
        wrong[3].requests = Some(10);
        wrong[4].new_connections = true;
        let refused = [
            "a second server",
            "--sweep",
            "--rate",
            "--requests",
            "--new-connections",
        ];
        for (options, what) in wrong.iter().zip(refused) {
            let error = check_faults(&["get", "faults_stop"], options).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("faults_stop") && error.contains(what),
                "{error}"
            );
            assert!(check_faults(&["get", "mix"], options).is_ok());
        }
        assert!(check_faults(&["faults_stop"], &alone).is_ok());
    }
}
