//! Workloads measured again and again, or at several values of one thing.

use std::mem;
use std::time::Duration;

use crate::compare;
use crate::error::BenchError;
use crate::faults::Launch;
use crate::gather::Gatherer;
use crate::report::Failure;
use crate::stand_in::{StandIn, with_setting};
use crate::sweep::{self, Sweep};
use crate::sweep_plan::{Plan, Subject};
use crate::swept_setting::{Effect, PriorSetting, effect};
use crate::variation::Variation;
use crate::workload::{Bench, RATIOS};

impl Bench {
    /// Measures the selected workloads. A failure does not stop the others.
    pub(crate) async fn measure_all(
        &mut self,
        selected: &[&'static str],
    ) -> Result<(), BenchError> {
        if let Some(plan) = &self.sweep {
            self.report.sweep = Some(Sweep {
                what: plan.what(),
                values: plan.values.clone(),
                lines: Vec::new(),
            });
        }
        for name in selected {
            match self.sweep.is_some() {
                true => self.sweep_workload(name).await,
                false => self.repeat_workload(name).await,
            }
        }
        match &mut self.report.sweep {
            Some(sweep) => sweep::decide(&mut sweep.lines),
            None => {
                self.report.add_ratios(RATIOS);
                self.report.comparisons = compare::sides(&self.report.lines, &self.report.figures);
            }
        }
        Ok(())
    }

    async fn repeat_workload(&mut self, name: &'static str) {
        self.clock.begin(name.to_owned());
        self.gathering = Gatherer::new(self.columns());
        for repeat in 0..self.options.repeats {
            self.repeat = repeat;
            let figures = self.report.figures.clone();
            let measured = match self.before_repeat().await {
                Ok(()) => self.measure_named(name).await,
                Err(error) => Err(error),
            };
            if let Err(error) = measured {
                // Its measurements so far are discarded.
                self.gathering.forget(repeat);
                self.report.figures = figures;
                self.failed(name, &error);
                break;
            }
            self.clean_up_unshared().await;
        }
        let gathering = mem::take(&mut self.gathering);
        self.report.lines.extend(gathering.into_lines(name));
        self.clean_up_unshared().await;
        self.end_stand_in();
    }

    /// Sets the number of shards, and notes it, settings, pauses and new servers in the report.
    pub(crate) fn prepare_repeats(&mut self) {
        self.vary(Variation::default());
        if let Some(q) = self.options.q {
            self.note(format!("the databases had q={q} shards"));
        }
        if !self.options.settings.is_empty() {
            let settings = self.options.settings.join(" ");
            self.note(format!("the server was started with {settings}"));
        }
        let pause_s = self.options.pause_s;
        if pause_s > 0.0 {
            self.note(format!(
                "there was a pause of {pause_s} s before each repeat but the first"
            ));
        }
        if self.options.has_new_servers {
            self.restart = self.options.restart.clone();
            self.note(
                "each repeat of each workload was measured on a server that bench started for it"
                    .to_owned(),
            );
        }
    }

    /// Rests before a repeat, and starts its server, where the options want that.
    async fn before_repeat(&mut self) -> Result<(), BenchError> {
        if self.repeat > 0 {
            tokio::time::sleep(Duration::from_secs_f64(self.options.pause_s)).await;
        }
        match self
            .restart
            .clone()
            .filter(|_| self.options.has_new_servers)
        {
            Some(launch) => self.replace_server(&launch).await,
            None => Ok(()),
        }
    }

    /// Starts a server in the place of the first one, or of the one that was started before.
    async fn replace_server(&mut self, launch: &Launch) -> Result<(), BenchError> {
        self.end_stand_in();
        let (systems, servers) = (&mut self.systems, &mut self.options.servers);
        self.stand_in = Some(StandIn::start(launch, systems, servers, &self.clock).await?);
        self.vary(Variation::default());
        Ok(())
    }

    /// Finds out how a swept setting is changed: in the running servers, or by starting a server
    /// for each value.
    ///
    /// # Errors
    /// [`BenchError::Options`] where a sweep would change nothing.
    pub(crate) async fn prepare_sweep(&mut self) -> Result<(), BenchError> {
        let Some(plan) = self.sweep.clone() else {
            return Ok(());
        };
        let Subject::Setting { section, key } = &plan.subject else {
            return Ok(());
        };
        let (what, label) = (plan.what(), self.systems[0].target.label.clone());
        let takes_effect = effect(&self.systems, section, key).await?;
        match takes_effect {
            Effect::Immediate => {}
            Effect::Unknown => self.note(format!(
                "{label} does not report which settings need a restart: make sure that {what} does not, or all values are the same"
            )),
            Effect::AtStart if self.options.restart.is_none() => {
                return Err(BenchError::Options(format!(
                    "--sweep {what}: {label} reads this setting only when it starts; without --url, bench starts a server for each value"
                )));
            }
            Effect::AtStart => {
                self.restart = self.options.restart.clone();
                self.note(format!(
                    "{what} takes effect when a server starts: each value was measured on a server that bench started with it"
                ));
            }
        }
        Ok(())
    }

    /// The first value, the others, and the first one again, in each repeat.
    async fn sweep_workload(&mut self, name: &'static str) {
        let Some(plan) = self.sweep.clone() else {
            return;
        };
        let turns = plan.values.len() + 1;
        let connections = self.options.connections;
        let mut gatherings = vec![Gatherer::new(self.columns()); turns];
        'repeats: for repeat in 0..self.options.repeats {
            self.repeat = repeat;
            if repeat > 0 {
                tokio::time::sleep(Duration::from_secs_f64(self.options.pause_s)).await;
            }
            for (at, gathering) in gatherings.iter_mut().enumerate() {
                let value = &plan.values[at % plan.values.len()];
                self.clock.begin(format!("{name}, {}={value}", plan.what()));
                mem::swap(&mut self.gathering, gathering);
                let measured = self.measure_at(name, &plan, value).await;
                mem::swap(&mut self.gathering, gathering);
                if let Err(error) = measured {
                    self.failed(name, &error);
                    gatherings
                        .iter_mut()
                        .for_each(|gathering| gathering.forget(repeat));
                    break 'repeats;
                }
            }
        }
        self.options.connections = connections;
        self.vary(Variation::default());
        if let Some(sweep) = &mut self.report.sweep {
            sweep
                .lines
                .extend(sweep::lines(name, &plan.values, gatherings));
        }
        self.clean_up_unshared().await;
        self.end_stand_in();
    }

    /// Measures a workload at a value of a sweep, and deletes the databases that no later value may
    /// read.
    async fn measure_at(
        &mut self,
        name: &'static str,
        plan: &Plan,
        value: &str,
    ) -> Result<(), BenchError> {
        self.apply(plan, value).await?;
        let measured = self.measure_named(name).await;
        if plan.needs_new_databases() {
            let systems = self.systems.iter().chain(&self.second);
            systems.for_each(|system| system.forget_all());
        }
        if measured.is_ok() {
            self.clean_up_unshared().await;
        }
        measured
    }

    /// Makes a value of a sweep count.
    async fn apply(&mut self, plan: &Plan, value: &str) -> Result<(), BenchError> {
        match &plan.subject {
            Subject::Connections => {
                let wrong =
                    |_| BenchError::Options(format!("{value:?} is not a number of connections"));
                self.options.connections = value.parse().map_err(wrong)?;
            }
            Subject::Setting { section, key } => match self.restart.clone() {
                None => self.change(section, key, value).await?,
                Some(launch) => {
                    let launch = with_setting(launch, &plan.what(), value);
                    self.replace_server(&launch).await?;
                }
            },
            Subject::Q | Subject::DocumentBytes | Subject::BulkDocs => {}
        }
        self.vary(plan.variation(value));
        Ok(())
    }

    /// Changes a setting of the running servers.
    async fn change(&mut self, section: &str, key: &str, value: &str) -> Result<(), BenchError> {
        if self.changed.is_empty() {
            // All of them, or none: half a cluster is nothing to measure.
            let mut all = Vec::new();
            for node in self.systems.iter().flat_map(|system| &system.nodes) {
                all.push(PriorSetting::remember(node, section, key).await?);
            }
            self.changed = all;
        }
        for changed in &self.changed {
            changed.set(value).await?;
        }
        Ok(())
    }

    /// Varies what is created from now on; the number of shards is that of the options if a sweep has none.
    fn vary(&self, variation: Variation) {
        let variation = Variation {
            q: variation.q.or(self.options.q),
            ..variation
        };
        let systems = self.systems.iter().chain(&self.second);
        systems.for_each(|system| system.vary(variation));
    }

    /// Ends the server that a sweep or a repeat has started, and puts the first one back in its place.
    pub(crate) fn end_stand_in(&mut self) {
        if let Some(stand_in) = self.stand_in.take() {
            stand_in.end(&mut self.systems, &mut self.options.servers);
        }
    }

    fn failed(&mut self, name: &str, error: &BenchError) {
        let reason = match self.options.repeats {
            1 => error.to_string(),
            repeats => format!("in repeat {} of {repeats}: {error}", self.repeat + 1),
        };
        self.report.failures.push(Failure {
            workload: name.to_owned(),
            reason,
        });
    }

    async fn clean_up_unshared(&self) {
        if !self.options.keep {
            for system in self.systems.iter().chain(&self.second) {
                system.clean_up_unshared().await;
            }
        }
    }
}
