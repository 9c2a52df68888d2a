//! Workloads measured again and again, or at several values of one thing.

use std::mem;

use crate::compare;
use crate::error::BenchError;
use crate::gather::Gatherer;
use crate::report::Failure;
use crate::sweep::{self, PriorSetting, Subject, Sweep};
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
            if let Err(error) = self.measure_named(name).await {
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
            for (at, gathering) in gatherings.iter_mut().enumerate() {
                let value = &plan.values[at % plan.values.len()];
                self.clock.begin(format!("{name}, {}={value}", plan.what()));
                mem::swap(&mut self.gathering, gathering);
                let measured = match self.apply(&plan.subject, value).await {
                    Ok(()) => self.measure_named(name).await,
                    Err(error) => Err(error),
                };
                mem::swap(&mut self.gathering, gathering);
                if let Err(error) = measured {
                    self.failed(name, &error);
                    gatherings
                        .iter_mut()
                        .for_each(|gathering| gathering.forget(repeat));
                    break 'repeats;
                }
                self.clean_up_unshared().await;
            }
        }
        self.options.connections = connections;
        if let Some(sweep) = &mut self.report.sweep {
            sweep
                .lines
                .extend(sweep::lines(name, &plan.values, gatherings));
        }
        self.clean_up_unshared().await;
    }

    /// Makes a value of a sweep count.
    async fn apply(&mut self, subject: &Subject, value: &str) -> Result<(), BenchError> {
        match subject {
            Subject::Connections => {
                let wrong =
                    |_| BenchError::Options(format!("{value:?} is not a number of connections"));
                self.options.connections = value.parse().map_err(wrong)?;
            }
            Subject::Setting { section, key } => {
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
            }
        }
        Ok(())
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
