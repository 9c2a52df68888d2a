//! The rates of threads, and of the processes that run functions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::snapshot::{Clock, Snapshot, ThreadSums};

/// The threads of a name.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadRates {
    pub name: String,
    /// Number of threads with a clock; 0 for kinds without.
    pub alive: u64,
    /// Processors that they were busy on.
    pub cpu: f64,
    /// How many of them waited for a processor, in the mean.
    pub run_queue: f64,
    /// Their time by kind of work; 100 together.
    pub states_percent: BTreeMap<String, f64>,
    /// The threads one by one, the busiest first.
    pub each: Vec<ThreadRate>,
}

/// One thread.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadRate {
    /// Its number; with those of several nodes, it is that of a thread of one of them.
    pub id: i32,
    /// The share of a processor that it was busy on: at 1 it is full.
    pub cpu: f64,
}

/// The processes that run the functions of a language.
#[derive(Clone, Debug, Serialize)]
pub struct LanguageRates {
    pub language: String,
    pub processes: u64,
    /// Memory that they share with no other process.
    pub private_bytes: u64,
    /// Processors that they were busy on.
    pub cpu: f64,
}

/// The share of each state in the clocks' total, in percent.
pub fn states(a: &[Clock], b: &[Clock], wanted: impl Fn(&Clock) -> bool) -> BTreeMap<String, f64> {
    let mut spent: BTreeMap<String, f64> = BTreeMap::new();
    for now in b.iter().filter(|clock| wanted(clock)) {
        let was = a.iter().find(|was| was.name == now.name);
        for (state, seconds) in &now.states {
            let before = was.and_then(|was| was.states.get(state)).unwrap_or(&0.0);
            *spent.entry(state.clone()).or_default() += (seconds - before).max(0.0);
        }
    }
    let all: f64 = spent.values().sum();
    spent.retain(|_, seconds| *seconds > 0.0);
    spent
        .values_mut()
        .for_each(|seconds| *seconds *= 100.0 / all);
    spent
}

/// The threads by their names, the busiest first.
pub fn threads(a: &Snapshot, b: &Snapshot, interval: f64) -> Vec<ThreadRates> {
    let mut all: BTreeMap<String, ThreadRates> = BTreeMap::new();
    let empty = |name: &str| ThreadRates {
        name: name.to_owned(),
        alive: 0,
        cpu: 0.0,
        run_queue: 0.0,
        states_percent: BTreeMap::new(),
        each: vec![],
    };
    let rate = |from: &BTreeMap<String, f64>, to: &BTreeMap<String, f64>, name: &str| {
        let of = |sums: &BTreeMap<String, f64>| sums.get(name).copied().unwrap_or(0.0);
        (of(to) - of(from)).max(0.0) / interval
    };
    let (before, now) = (&a.threads, &b.threads);
    for name in now.cpu_seconds.keys() {
        let of = all.entry(name.clone()).or_insert_with(|| empty(name));
        of.cpu = rate(&before.cpu_seconds, &now.cpu_seconds, name);
        of.run_queue = rate(&before.run_queue_seconds, &now.run_queue_seconds, name);
        of.each = each_thread(&before.each, &now.each, name, interval);
    }
    for clock in &b.threads.clocks {
        let of = all
            .entry(clock.name.clone())
            .or_insert_with(|| empty(&clock.name));
        of.alive = clock.alive;
        of.states_percent = states(&a.threads.clocks, &b.threads.clocks, |c| {
            c.name == clock.name
        });
    }
    let mut all: Vec<ThreadRates> = all.into_values().collect();
    all.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    all
}

/// The threads of a name that both lists have, the busiest first.
fn each_thread(a: &[ThreadSums], b: &[ThreadSums], name: &str, interval: f64) -> Vec<ThreadRate> {
    let rates = b.iter().filter(|now| now.name == name).filter_map(|now| {
        let was = a.iter().find(|was| was.id == now.id && was.name == name)?;
        Some(ThreadRate {
            id: now.id,
            cpu: (now.cpu_seconds - was.cpu_seconds).max(0.0) / interval,
        })
    });
    let mut rates: Vec<ThreadRate> = rates.collect();
    rates.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    rates
}

/// The languages, the busiest first.
pub fn languages(a: &Snapshot, b: &Snapshot, interval: f64) -> Vec<LanguageRates> {
    let mut all: Vec<LanguageRates> = b
        .languages
        .iter()
        .map(|now| {
            let was = a.languages.iter().find(|was| was.language == now.language);
            let before = was.map_or(0.0, |was| was.cpu_seconds);
            LanguageRates {
                language: now.language.clone(),
                processes: now.process_ids.len() as u64,
                private_bytes: now.private_bytes,
                cpu: (now.cpu_seconds - before).max(0.0) / interval,
            }
        })
        .collect();
    all.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::snapshot::LanguageSums;

    #[test]
    fn states_sum_up_to_a_hundred() {
        let clock = |idle: f64, read: f64| Clock {
            name: "serve".into(),
            alive: 1,
            states: [("idle".to_owned(), idle), ("read".to_owned(), read)].into(),
        };
        let shares = states(&[clock(5.0, 1.0)], &[clock(8.0, 2.0)], |_| true);
        assert_eq!(shares["idle"], 75.0);
        assert_eq!(shares.values().sum::<f64>(), 100.0);
        assert!(states(&[], &[], |_| true).is_empty());
    }

    #[test]
    fn languages_have_their_own_processes_and_time() {
        let of = |at, languages: &[(&str, u32, f64)]| {
            let sums = languages
                .iter()
                .map(|(language, processes, cpu_seconds)| LanguageSums {
                    language: (*language).to_owned(),
                    process_ids: (0..*processes).collect(),
                    private_bytes: 7,
                    cpu_seconds: *cpu_seconds,
                });
            Snapshot {
                at,
                languages: sums.collect(),
                ..Snapshot::default()
            }
        };
        let a = of(10.0, &[("nodejs", 2, 50.0)]);
        let b = of(12.0, &[("nodejs", 1, 50.0), ("python", 3, 3.0)]);
        let rates = languages(&a, &b, 2.0);
        let rates: Vec<_> = rates
            .iter()
            .map(|of| (&*of.language, of.processes, of.cpu))
            .collect();
        assert_eq!(rates, [("python", 3, 1.5), ("nodejs", 1, 0.0)]);
    }

    #[test]
    fn a_full_thread_is_told_from_idle_ones_of_its_name() {
        let of = |at, each: &[(i32, f64)]| {
            let sums = each.iter().map(|(id, cpu_seconds)| ThreadSums {
                id: *id,
                name: "serve".into(),
                cpu_seconds: *cpu_seconds,
            });
            let mut snapshot = Snapshot {
                at,
                ..Snapshot::default()
            };
            snapshot.threads.each = sums.collect();
            let all = each.iter().map(|(_, cpu_seconds)| cpu_seconds).sum();
            snapshot.threads.cpu_seconds = [("serve".to_owned(), all)].into();
            snapshot.threads.run_queue_seconds = [("serve".to_owned(), at / 4.0)].into();
            snapshot
        };
        // A thread that began in between has no rate yet.
        let a = of(10.0, &[(7, 5.0), (8, 3.0)]);
        let b = of(12.0, &[(7, 5.5), (8, 5.0), (9, 0.5)]);
        let rates = threads(&a, &b, 2.0);
        let [serve] = &rates[..] else {
            panic!("{rates:?}")
        };
        let each: Vec<_> = serve.each.iter().map(|of| (of.id, of.cpu)).collect();
        assert_eq!(each, [(8, 1.0), (7, 0.25)]);
        assert_eq!((serve.cpu, serve.run_queue), (1.5, 0.25));
    }
}
