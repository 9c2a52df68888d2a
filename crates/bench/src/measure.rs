//! One measurement of a workload: prepared on every side, then in rounds that take turns.

use std::time::Duration;

use crate::error::BenchError;
use crate::pace::Pace;
use crate::profile;
use crate::progress;
use crate::report::Figure;
use crate::workload::{Bench, Outcome, ROUNDS, Workload};

/// Workloads that are about what happens beside a load: a rate, or a number of requests, is not for them.
const UNPACED: [&str; 3] = ["saturated", "views_while_building", "fairness"];

impl Bench {
    /// Prepares a workload on every side, measures its rounds in turns, and finishes it.
    pub(crate) async fn measure<W: Workload>(
        &mut self,
        name: &str,
        workload: W,
    ) -> Result<(), BenchError> {
        let spinner = progress::spinner();
        let repeat = match self.options.repeats {
            1 => name.to_owned(),
            repeats => format!("{name}, {} of {repeats}", self.repeat + 1),
        };
        self.set_pace(Pace::default());
        let mut states: Vec<Option<W::State>> = self.sides.iter().map(|_| None).collect();
        for at in self.order(0) {
            let side = &self.sides[at];
            spinner.set_message(format!("{repeat}: preparing {}", side.target.label));
            states[at] = Some(workload.prepare(side).await?);
        }
        let pace = self.pace_of(name);
        let rounds = pace.rounds(workload.rounds());
        let length = Duration::from_secs_f64(self.options.seconds / f64::from(rounds));
        for round in 0..rounds {
            self.set_pace(pace.in_round(round, rounds));
            for at in self.order(round) {
                let (side, state) = (&self.sides[at], states[at].as_mut());
                let state = state.expect("every side has been prepared");
                let label = &side.target.label;
                spinner.set_message(format!(
                    "{repeat}: round {} of {rounds}, {label}",
                    round + 1
                ));
                for part in workload.round(side, state, length).await? {
                    self.gathering
                        .add(at, self.repeat, self.clock.now_s(), part);
                }
            }
        }
        if self.options.profile && workload.rounds() == ROUNDS && self.is_last() {
            spinner.set_message(format!("{repeat}: flame graphs"));
            self.take_profiles(name, &workload, &mut states).await?;
        }
        self.set_pace(Pace::default());
        for (at, state) in states.into_iter().enumerate() {
            spinner.set_message(format!(
                "{repeat}: finishing {}",
                self.sides[at].target.label
            ));
            let state = state.expect("every side has been prepared");
            let outcome = workload.finish(&self.sides[at], state).await?;
            self.add_outcome(at, outcome);
        }
        spinner.finish_and_clear();
        Ok(())
    }

    /// The sides in the order of a turn. It alternates, since whoever comes second finds another machine.
    pub(crate) fn order(&self, turn: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.sides.len()).collect();
        if (self.repeat + turn) % 2 == 1 {
            order.reverse();
        }
        order
    }

    fn is_last(&self) -> bool {
        self.repeat + 1 == self.options.repeats && self.sweep.is_none()
    }

    pub(crate) fn set_pace(&self, pace: Pace) {
        self.sides.iter().for_each(|side| side.set_pace(pace));
    }

    /// How the options want a workload to be sent.
    pub(crate) fn pace_of(&mut self, name: &str) -> Pace {
        let pace = Pace {
            rate: self.options.rate,
            requests: self.options.requests,
        };
        if UNPACED.contains(&name) && pace != Pace::default() {
            self.note(format!(
                "{name}: neither at a rate nor for a number of requests"
            ));
            return Pace::default();
        }
        pace
    }

    /// A round more of each side that is not counted, during which the server takes a profile of itself.
    async fn take_profiles<W: Workload>(
        &mut self,
        name: &str,
        workload: &W,
        states: &mut [Option<W::State>],
    ) -> Result<(), BenchError> {
        let seconds = profile::seconds(Duration::from_secs_f64(
            self.options.seconds / f64::from(ROUNDS),
        ));
        for (at, state) in states.iter_mut().enumerate() {
            let side = &self.sides[at];
            let title = format!("{name} on {}", ["A", "B"][at]);
            let state = state.as_mut().expect("every side has been prepared");
            let (flame, round) = tokio::join!(
                profile::take(side, title, seconds),
                workload.round(side, state, Duration::from_secs(seconds)),
            );
            round?;
            match flame {
                Ok(flame) => self.report.flames.push(flame),
                Err(remark) => self.note(remark),
            }
        }
        Ok(())
    }

    pub(crate) fn add_outcome(&mut self, at: usize, outcome: Outcome) {
        // A sweep's values would be mixed.
        let is_swept = self.sweep.is_some();
        for (name, unit, value) in outcome.figures.into_iter().filter(|_| !is_swept) {
            self.figure(name, unit).add(at, value);
        }
        outcome.notes.into_iter().for_each(|note| self.note(note));
    }

    /// The single value of that name, to which a repeat is to be added.
    pub(crate) fn figure(&mut self, name: String, unit: &str) -> &mut Figure {
        let columns = self.columns();
        let figures = &mut self.report.figures;
        let known = figures.iter().position(|figure| figure.name == name);
        let at = known.unwrap_or_else(|| {
            figures.push(Figure::new(name, unit, columns));
            figures.len() - 1
        });
        &mut figures[at]
    }

    pub(crate) fn note(&mut self, note: String) {
        if !self.report.notes.contains(&note) {
            self.report.notes.push(note);
        }
    }
}
