//! Which node runs which job: of the nodes that the control slot names, the one that rendezvous
//! hashing chooses. A job never runs on two nodes, whatever each of them knows about the others.
//!
//! A node runs jobs only while it knew a moment ago what the cluster has decided ([`HELD_MAX`]). A
//! job that becomes its own starts once every other node has noticed, or has stopped ([`WAIT`]). Both
//! are durations of the node's own monotonic clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{CONTROL, NodeId, SlotNumber};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::control::Catalogue;
use crate::control::entry::Entry;
use crate::control::state::Runners;
use crate::gateway::Gateway;
use crate::members::Members;

/// A node stops its jobs when this time has passed since it was brought up to date.
const HELD_MAX: Duration = Duration::from_millis(4500);
/// A job that has become a node's own starts after this time.
const WAIT: Duration = Duration::from_millis(5500);
/// Interval at which a node is brought up to date.
const RENEWED_EVERY: Duration = Duration::from_secs(1);
/// Interval of checks whether the lease has ended.
const CHECKED_EVERY: Duration = Duration::from_millis(100);
/// Interval of checks which nodes can run jobs.
const APPOINTED_EVERY: Duration = Duration::from_millis(500);
/// A node that could not run jobs for this time is dismissed.
const MISSED_TIME: Duration = Duration::from_secs(1);
/// Time after which the next node makes a change that the one before it has not made.
const LEADER_TIME: Duration = Duration::from_secs(5);
/// Time in which the others are not missed after the start of this node.
const START_TIME: Duration = Duration::from_secs(10);
/// Time that a job which another node will run has to record its progress: less than the other one
/// waits.
const END_TIME: Duration = Duration::from_secs(3);

/// The jobs that this node may run.
pub struct Jobs {
    catalogue: Arc<Catalogue>,
    lease: Mutex<Lease>,
    changes: watch::Sender<u64>,
}

impl Jobs {
    pub(crate) fn new(me: NodeId, catalogue: Arc<Catalogue>) -> Arc<Jobs> {
        Arc::new(Jobs {
            catalogue,
            lease: Mutex::new(Lease::new(me)),
            changes: watch::Sender::new(0),
        })
    }

    /// Returns whether this node may run the job with this name now.
    pub fn runs(&self, job: &str) -> bool {
        let latest = self.latest();
        self.lease.lock().runs(Instant::now(), &latest, job)
    }

    /// Returns the time that a job has to end which this node may not run any more.
    pub fn end_time(&self) -> Duration {
        let left = self.lease.lock().left(Instant::now());
        left.min(END_TIME)
    }

    /// Notifies of all changes of [`Jobs::runs`].
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the nodes that run jobs.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.latest().nodes
    }

    /// Returns whether this node is up to date, so that it can run jobs.
    pub(crate) fn is_held(&self) -> bool {
        self.lease.lock().is_held(Instant::now())
    }

    fn latest(&self) -> Runners {
        self.catalogue.with(|state| state.runners.clone())
    }
}

/// Starts the tasks that keep this node's lease, and the nodes that run jobs.
pub(crate) fn start(
    jobs: &Arc<Jobs>,
    members: &Arc<Members>,
    gateway: &Arc<Gateway>,
) -> [JoinHandle<()>; 3] {
    let appoint = appoint(jobs.clone(), members.clone(), gateway.clone());
    [
        tokio::spawn(keep(jobs.clone(), gateway.clone())),
        tokio::spawn(watch(jobs.clone())),
        tokio::spawn(appoint),
    ]
}

/// Keeps this node's lease, until the future is dropped.
async fn keep(jobs: Arc<Jobs>, gateway: Arc<Gateway>) {
    let mut entries = jobs.catalogue.watch_runners();
    loop {
        // A change is confirmed at once: the wait begins then.
        let _timeout = tokio::time::timeout(RENEWED_EVERY, entries.changed()).await;
        let began = Instant::now();
        let confirm = async {
            let seen = gateway.fresh_slots([CONTROL]).await?;
            let runners = jobs.latest();
            gateway.settle(&seen).await.map(|()| runners)
        };
        if let Ok(Ok(runners)) = tokio::time::timeout(HELD_MAX, confirm).await {
            let mut lease = jobs.lease.lock();
            let had_ended = !lease.is_held(Instant::now());
            lease.confirm(began, Instant::now(), runners);
            drop(lease);
            if had_ended {
                // Jobs may have been left in between, however short it was.
                jobs.changes.send_modify(|count| *count += 1);
            }
        }
    }
}

/// Notifies of changes, until the future is dropped.
async fn watch(jobs: Arc<Jobs>) {
    let mut entries = jobs.catalogue.watch_runners();
    let mut before = None;
    loop {
        let now = jobs.lease.lock().view(Instant::now(), &jobs.latest());
        if now != before {
            before = now;
            jobs.changes.send_modify(|count| *count += 1);
        }
        let _timeout = tokio::time::timeout(CHECKED_EVERY, entries.changed()).await;
    }
}

/// Keeps the nodes that run jobs equal to those that can, until the future is dropped.
async fn appoint(jobs: Arc<Jobs>, members: Arc<Members>, gateway: Arc<Gateway>) {
    let started = Instant::now();
    let mut wanted_since = None;
    loop {
        tokio::time::sleep(APPOINTED_EVERY).await;
        let able = able(&jobs, &members, &gateway).await;
        let latest = jobs.latest();
        let is_new = able.iter().any(|node| !latest.nodes.contains(node));
        let may_dismiss = started.elapsed() > START_TIME;
        // A node that does not reach a majority would dismiss all others.
        let is_majority = jobs.is_held() && able.len() * 2 > members.count();
        if !is_majority || !(is_new || may_dismiss && able != latest.nodes) {
            wanted_since = None;
            continue;
        }
        // The first one makes the change; if it does not, the next one.
        let since: &Instant = wanted_since.get_or_insert_with(Instant::now);
        let before_me = able.iter().filter(|node| **node < members.me).count();
        let turn = LEADER_TIME * u32::try_from(before_me).unwrap_or(u32::MAX);
        if since.elapsed() < turn + if is_new { Duration::ZERO } else { MISSED_TIME } {
            continue;
        }
        let nodes = match may_dismiss {
            true => able,
            false => able.union(&latest.nodes).copied().collect(),
        };
        let changes = latest.changes + 1;
        if let Err(e) = gateway.enter(Entry::Runs { nodes, changes }).await {
            tracing::debug!(error = %e, "the nodes that run jobs were not changed");
        }
    }
}

/// Returns the nodes that can run jobs: those that are live, are up to date, and have all data that
/// every node keeps.
async fn able(jobs: &Jobs, members: &Members, gateway: &Gateway) -> BTreeSet<NodeId> {
    let others = members.live_others().into_iter();
    let asked = others.map(|node| async move { (node, members.can_run_jobs(node).await) });
    let answers = futures_util::future::join_all(asked).await.into_iter();
    let others = answers.filter_map(|(node, is_able)| is_able.then_some(node));
    let me = jobs.is_held().then_some(members.me);
    let members_of = |slot: &SlotNumber| {
        let replica = gateway.replicas.get(*slot);
        replica.map_or(vec![], |replica| replica.status().members)
    };
    let slots: Vec<SlotNumber> = match gateway.lacks_slots() {
        true => gateway.slots_everywhere().iter().copied().collect(),
        false => (0..gateway.replicas.count()).collect(),
    };
    let slots = slots.iter().chain([&CONTROL]);
    let replicas: Vec<Vec<NodeId>> = slots.map(members_of).collect();
    let has_all = |node: &NodeId| replicas.iter().all(|members| members.contains(node));
    others.chain(me).filter(has_all).collect()
}

/// The decisions that a node knows, with times.
struct Lease {
    me: NodeId,
    /// The beginning of the last check that found it up to date.
    held: Option<Instant>,
    /// The decisions that were in force in the last [`WAIT`], each with the time from which this
    /// node knew that no node can miss it for long; the latest one is last.
    confirmed: Vec<(Instant, Runners)>,
}

impl Lease {
    fn new(me: NodeId) -> Lease {
        Lease {
            me,
            held: None,
            confirmed: vec![],
        }
    }

    fn is_held(&self, now: Instant) -> bool {
        !self.left(now).is_zero()
    }

    /// Returns the time until it ends unless it is renewed.
    fn left(&self, now: Instant) -> Duration {
        let held = self.held.map(|at| now.saturating_duration_since(at));
        held.map_or(Duration::ZERO, |held| HELD_MAX.saturating_sub(held))
    }

    /// Records that `runners` were in force between `began` and `now`, and are stable.
    fn confirm(&mut self, began: Instant, now: Instant, runners: Runners) {
        let last = self.confirmed.last().map(|(_, last)| last.changes);
        // Another decision was in force in between, which is not known here.
        let follows =
            last.is_some_and(|last| last == runners.changes || last + 1 == runners.changes);
        if !follows {
            self.confirmed.clear();
        }
        self.held = Some(began);
        if self.confirmed.is_empty() || last != Some(runners.changes) {
            self.confirmed.push((now, runners));
        }
        // The first of them that ended less than the time ago is the first that counts.
        let over = |pair: &[(Instant, Runners)]| now.saturating_duration_since(pair[1].0) >= WAIT;
        let old = self
            .confirmed
            .windows(2)
            .take_while(|pair| over(pair))
            .count();
        self.confirmed.drain(..old);
    }

    /// Returns the decisions all of which must give a job to this node; `None` if it may run none.
    fn counting(&self, now: Instant) -> Option<impl Iterator<Item = &Runners>> {
        let is_over = |at: &Instant| now.saturating_duration_since(*at) >= WAIT;
        let in_force = self.confirmed.iter().rposition(|(at, _)| is_over(at))?;
        let counting = self.confirmed[in_force..]
            .iter()
            .map(|(_, runners)| runners);
        self.is_held(now).then_some(counting)
    }

    fn runs(&self, now: Instant, latest: &Runners, job: &str) -> bool {
        let is_mine = |runners: &Runners| owner(&runners.nodes, job) == Some(self.me);
        let counting = self.counting(now);
        counting.is_some_and(|mut all| all.all(is_mine)) && is_mine(latest)
    }

    /// Returns what the results of [`Lease::runs`] depend on.
    fn view(&self, now: Instant, latest: &Runners) -> Option<Vec<BTreeSet<NodeId>>> {
        let all = self.counting(now)?.chain([latest]);
        Some(all.map(|runners| runners.nodes.clone()).collect())
    }
}

/// Returns the node of these that runs a job. A node that is added or removed moves no jobs between
/// others.
fn owner(nodes: &BTreeSet<NodeId>, job: &str) -> Option<NodeId> {
    let score = |node: &NodeId| {
        let mut hash = blake3::Hasher::new();
        hash.update(&node.to_be_bytes()).update(job.as_bytes());
        *hash.finalize().as_bytes()
    };
    nodes.iter().copied().max_by_key(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: [&str; 4] = ["a", "b", "c", "d"];
    /// The job of a request that is kept and ended again and again.
    const REQUESTED: &str = "_replicate/1+continuous";
    const NODES: usize = 3;

    fn runners(nodes: &[NodeId], changes: u64) -> Runners {
        Runners {
            nodes: nodes.iter().copied().collect(),
            changes,
        }
    }

    #[test]
    fn jobs_are_spread_and_move_only_from_and_to_nodes_that_change() {
        let three: BTreeSet<NodeId> = [1, 2, 3].into();
        let two: BTreeSet<NodeId> = [1, 3].into();
        let mut counts = [0; 4];
        for n in 0..1000 {
            let job = format!("_replicator/job-{n}");
            let before = owner(&three, &job).unwrap();
            counts[before as usize] += 1;
            let after = owner(&two, &job).unwrap();
            assert!(after == before || before == 2, "{job}");
        }
        assert!(
            counts[1..].iter().all(|n| (267..=400).contains(n)),
            "{counts:?}"
        );
        assert_eq!(owner(&BTreeSet::new(), "a"), None);
    }

    #[test]
    fn a_node_waits_before_its_first_job_and_stops_when_it_is_out_of_date() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut lease = Lease::new(1);
        let alone = runners(&[1], 1);
        for ms in (0..=6000).step_by(1000) {
            assert!(!lease.runs(at(ms), &alone, "a") || ms >= 5500);
            lease.confirm(at(ms), at(ms + 10), alone.clone());
        }
        assert!(lease.runs(at(6000), &alone, "a"));
        assert!(lease.runs(at(10_400), &alone, "a"));
        assert!(!lease.runs(at(10_500), &alone, "a"));
        lease.confirm(at(10_600), at(10_610), alone.clone());
        assert!(lease.runs(at(10_700), &alone, "a"), "nothing was decided");
        // A decision that was not seen may have been in force.
        let later = runners(&[1], 3);
        lease.confirm(at(11_000), at(11_000), later.clone());
        assert!(!lease.runs(at(11_000), &later, "a"));
    }

    /// One node: what it has applied of the decisions, and its lease.
    struct Node {
        applied: usize,
        lease: Lease,
        /// A check under way: when it began, the decisions that it must find, when it ends.
        check: Option<(Instant, usize, Instant)>,
    }

    impl Node {
        /// Applies some decisions, and begins or ends a check.
        fn step(
            &mut self,
            now: Instant,
            decisions: &[(Instant, Runners)],
            rng: &mut fastrand::Rng,
        ) {
            let stable = decisions.iter().filter(|(at, _)| *at <= now).count();
            if rng.u32(..4) == 0 {
                self.applied = rng.usize(self.applied..=decisions.len());
            }
            match self.check {
                None => {
                    let ends = now + Duration::from_millis(rng.u64(..1500));
                    self.check = Some((now, stable, ends));
                }
                Some((began, found, ends)) if ends <= now => {
                    self.check = None;
                    self.applied = self.applied.max(found);
                    // Settled: what it has applied is stable.
                    if self.applied <= stable && self.applied > 0 {
                        let runners = decisions[self.applied - 1].1.clone();
                        self.lease.confirm(began, now, runners);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Returns whether the request is kept after this number of decisions: the entries that keep and
    /// end it are among them.
    fn is_kept(decisions: usize) -> bool {
        decisions % 4 != 3
    }

    /// Whether a node runs a job, by its lease and the latest decision that it has applied.
    type Rule = fn(&Lease, Instant, &Runners, &str) -> bool;

    /// Nodes apply decisions before or after these are stable, checks take any time, and nodes are
    /// cut off. Returns how often a job ran, and a description of the first that ran on two nodes, or
    /// long after its request ended.
    fn simulate(seed: u64, runs: Rule) -> (usize, Option<String>) {
        let (mut busy, mut wrong) = (0, None);
        let mut rng = fastrand::Rng::with_seed(seed);
        let start = Instant::now();
        let new = |me| Node {
            applied: 0,
            lease: Lease::new(me),
            check: None,
        };
        let mut nodes: Vec<Node> = (1..=NODES as NodeId).map(new).collect();
        // Each with the time from which it is stable.
        let mut decisions = vec![(start, runners(&[1, 2, 3], 1))];
        let mut cut = [start; NODES];
        for step in 1..1200u64 {
            let now = start + Duration::from_millis(step * 50);
            if rng.u32(..[40, 300][seed as usize % 2]) == 0 {
                let mut nodes = decisions.last().unwrap().1.nodes.clone();
                let node = rng.u64(1..=NODES as u64) as NodeId;
                if !nodes.remove(&node) {
                    nodes.insert(node);
                }
                let stable = now + Duration::from_millis(rng.u64(..4000));
                let changes = decisions.len() as u64 + 1;
                let stable = stable.max(decisions.last().unwrap().0);
                decisions.push((stable, Runners { nodes, changes }));
            }
            for (i, node) in nodes.iter_mut().enumerate() {
                if rng.u32(..200) == 0 {
                    cut[i] = now + Duration::from_millis(rng.u64(..15_000));
                }
                if cut[i] > now {
                    node.check = None;
                    continue;
                }
                node.step(now, &decisions, &mut rng);
            }
            // All that were in force within the lease of any node.
            let before = now.checked_sub(HELD_MAX).unwrap_or(start);
            let first = decisions.iter().filter(|(at, _)| *at <= before).count();
            let may_run = (first..=decisions.len()).any(is_kept);
            for job in JOBS.into_iter().chain([REQUESTED]) {
                let runs_it = |node: &&Node| {
                    let is_there = job != REQUESTED || is_kept(node.applied);
                    node.applied > 0 && is_there && {
                        let latest = &decisions[node.applied - 1].1;
                        runs(&node.lease, now, latest, job)
                    }
                };
                let running = nodes.iter().filter(runs_it).count();
                if running > 1 || running == 1 && job == REQUESTED && !may_run {
                    wrong.get_or_insert_with(|| format!("seed {seed}, step {step}, {job}"));
                }
                busy += running;
            }
        }
        (busy, wrong)
    }

    #[test]
    fn no_job_runs_on_two_nodes_or_after_its_end() {
        let mut busy = 0;
        for seed in 0..400 {
            let (count, wrong) = simulate(seed, Lease::runs);
            assert_eq!(wrong, None);
            busy += count;
        }
        assert!(busy > 250_000, "jobs run: {busy}");
    }

    /// Without a part of the rule, jobs run on two nodes, and the simulation notices it.
    #[test]
    fn a_rule_without_the_lease_is_noticed() {
        let no_lease: Rule = |lease, _, latest, job| owner(&latest.nodes, job) == Some(lease.me);
        let no_wait: Rule = |lease, now, latest, job| {
            lease.is_held(now) && owner(&latest.nodes, job) == Some(lease.me)
        };
        for (what, rule) in [("no lease", no_lease), ("no wait", no_wait)] {
            let mut doubles = (0..400).filter_map(|seed| simulate(seed, rule).1);
            assert!(doubles.next().is_some(), "{what}");
        }
    }
}
