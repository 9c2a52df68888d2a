//! One measurement of a workload: prepared on every system, then in interleaved rounds.

use std::time::Duration;

use crate::error::BenchError;
use crate::lines::Figure;
use crate::pace::Pace;
use crate::profile;
use crate::progress;
use crate::system::WorkloadPart;
use crate::workload::{Bench, Outcome, ROUNDS, Workload};

/// Workloads that measure effects of a load: a rate, or a number of requests, does not apply to
/// them.
const UNPACED: [&str; 4] = ["saturated", "flooded", "views_while_building", "fairness"];

/// Length of a turn of a round with two interleaved servers. The rate of one turn differs from the
/// next one's by some 10 % (100 ms, two cores), almost independently of the previous turn: the sum
/// of many turns varies less than the sum of a few. The cause is unknown.
const TURN: Duration = Duration::from_millis(50);

/// The lengths of the turns of a round, in their order.
struct Turns {
    left: Duration,
    each: Duration,
}

impl Turns {
    /// Many turns that together are `length`.
    fn of(length: Duration) -> Self {
        Self {
            left: length,
            each: TURN,
        }
    }

    /// A single one.
    fn whole(length: Duration) -> Self {
        Self {
            left: length,
            each: length,
        }
    }

    /// The next turn's length, the same for both servers; `None` when the round is over.
    fn next(&mut self) -> Option<Duration> {
        if self.left.is_zero() {
            return None;
        }
        // As many as fit, so that there is no short rest.
        let turns = (self.left.as_secs_f64() / self.each.as_secs_f64()).round();
        let turn = self.left / (turns as u32).max(1);
        self.left -= turn;
        Some(turn)
    }

    /// Notes the duration of a part: where one request takes longer than a turn, there are fewer
    /// turns, since each of them has a request.
    fn took(&mut self, seconds: f64) {
        self.each = self.each.max(Duration::from_secs_f64(seconds));
    }
}

impl Bench {
    /// Prepares a workload on every system, measures its interleaved rounds, and finishes it.
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
        let mut states: Vec<Option<W::State>> = self.systems.iter().map(|_| None).collect();
        for at in self.order(0) {
            let system = &self.systems[at];
            spinner.set_message(format!("{repeat}: preparing {}", system.target.label));
            states[at] = Some(workload.prepare(system).await?);
        }
        let pace = self.pace_of(name);
        let rounds = pace.rounds(workload.rounds());
        let length = Duration::from_secs_f64(self.options.seconds / f64::from(rounds));
        let is_sliced = workload.is_sliced() && self.systems.len() > 1 && pace == Pace::default();
        self.keep_connections(is_sliced);
        let mut turn = 0;
        let mut measured = Ok(());
        for round in 0..rounds {
            self.set_pace(pace.in_round(round, rounds));
            spinner.set_message(format!("{repeat}: round {} of {rounds}", round + 1));
            let turns = match is_sliced {
                true => Turns::of(length),
                false => Turns::whole(length),
            };
            measured = self
                .measure_round(&workload, &mut states, turns, &mut turn)
                .await;
            if measured.is_err() {
                break;
            }
        }
        self.keep_connections(false);
        measured?;
        if self.options.profile && workload.rounds() == ROUNDS && self.is_last() {
            spinner.set_message(format!("{repeat}: flame graphs"));
            self.take_profiles(name, &workload, &mut states).await?;
        }
        self.set_pace(Pace::default());
        for (at, state) in states.into_iter().enumerate() {
            spinner.set_message(format!(
                "{repeat}: finishing {}",
                self.systems[at].target.label
            ));
            let state = state.expect("every system has been prepared");
            let outcome = workload.finish(&self.systems[at], state).await?;
            self.add_outcome(at, outcome);
        }
        spinner.finish_and_clear();
        Ok(())
    }

    /// Measures a round on all systems. `number` counts turns.
    async fn measure_round<W: Workload>(
        &mut self,
        workload: &W,
        states: &mut [Option<W::State>],
        mut turns: Turns,
        number: &mut u32,
    ) -> Result<(), BenchError> {
        let mut measured: Vec<(f64, Vec<WorkloadPart>)> = Vec::new();
        measured.resize_with(self.systems.len(), Default::default);
        while let Some(length) = turns.next() {
            for at in self.order(*number) {
                let (system, state) = (&self.systems[at], states[at].as_mut());
                let state = state.expect("every system has been prepared");
                let parts = workload.round(system, state, length).await?;
                parts.iter().for_each(|part| turns.took(part.slice.seconds));
                measured[at].0 = self.clock.now_s();
                WorkloadPart::append_all(&mut measured[at].1, parts);
            }
            *number += 1;
        }
        for (at, (at_s, parts)) in measured.into_iter().enumerate() {
            for part in parts {
                self.gathering.add(at, self.repeat, at_s, part);
            }
        }
        Ok(())
    }

    /// Returns the systems in the order of a turn. The order alternates, because the first one changes the state of the machine.
    pub(crate) fn order(&self, turn: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.systems.len()).collect();
        if (self.repeat + turn) % 2 == 1 {
            order.reverse();
        }
        order
    }

    fn is_last(&self) -> bool {
        self.repeat + 1 == self.options.repeats && self.sweep.is_none()
    }

    fn keep_connections(&self, wanted: bool) {
        self.systems
            .iter()
            .for_each(|system| system.keep_connections(wanted));
    }

    pub(crate) fn set_pace(&self, pace: Pace) {
        self.systems.iter().for_each(|system| system.set_pace(pace));
    }

    /// How the options want a workload to be sent.
    pub(crate) fn pace_of(&mut self, name: &str) -> Pace {
        let pace = Pace {
            rate: self.options.rate,
            requests: self.options.requests,
            new_connections: self.options.new_connections,
        };
        if !UNPACED.contains(&name) || pace.is_by_time() {
            return pace;
        }
        self.note(format!(
            "{name}: neither at a rate nor for a number of requests"
        ));
        Pace {
            new_connections: pace.new_connections,
            ..Pace::default()
        }
    }

    /// One more round of each system that is not counted, during which the server records a
    /// profile.
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
            let system = &self.systems[at];
            let title = format!("{name} on {}", ["A", "B"][at]);
            let state = state.as_mut().expect("every system has been prepared");
            let (flame, round) = tokio::join!(
                profile::take(system, title, seconds),
                workload.round(system, state, Duration::from_secs(seconds)),
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

    /// The single value of that name, for adding a repeat.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(mut turns: Turns, took: impl Fn(Duration) -> Duration) -> Vec<Duration> {
        std::iter::from_fn(|| {
            let turn = turns.next()?;
            turns.took(took(turn).as_secs_f64());
            Some(turn)
        })
        .collect()
    }

    #[test]
    fn turns_together_are_as_long_as_the_round() {
        for length in [1, 49, 50, 74, 76, 120, 2_000, 3_333].map(Duration::from_millis) {
            let each = turns(Turns::of(length), |turn| turn);
            assert_eq!(each.iter().sum::<Duration>(), length);
            let bounds = (TURN * 3 / 5).min(length)..TURN * 3 / 2;
            assert!(each.iter().all(|turn| bounds.contains(turn)), "{each:?}");
            assert_eq!(turns(Turns::whole(length), |turn| turn), [length]);
        }
    }

    #[test]
    fn where_requests_are_long_there_are_fewer_turns() {
        let request = Duration::from_millis(600);
        let each = turns(Turns::of(Duration::from_secs(2)), |turn| turn.max(request));
        assert_eq!(each.len(), 4, "{each:?}");
        assert_eq!(each.iter().sum::<Duration>(), Duration::from_secs(2));
    }
}
