//! Brings later record versions into force: every member announces which records its program reads,
//! and once all have announced a later version, one of them raises the version in force.
//!
//! Announcements are entries of the control slot, so that they have an order with the entry that
//! raises the version: a node whose program was replaced by an older one either announces that
//! before, and the version is not raised, or finds the later version in force, and ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::NodeId;
use cluster::record::{Agreement, RecordVersion};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::Error;
use crate::control::entry::{Entry, EntryOutcome};
use crate::gateway::Gateway;
use crate::members::Members;

/// Interval of checks.
const EVERY: Duration = Duration::from_millis(500);
/// Time after which the next node raises the version if the one before it has not.
const LEADER_TIME: Duration = Duration::from_secs(5);
/// How long an older program than before waits at its start for another node's version.
const OTHERS_TIME_MAX: Duration = Duration::from_secs(5);
/// Interval of its questions.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// Refuses a program that does not read the version in force.
///
/// # Errors
/// [`Error::OldProgram`].
pub(crate) fn check(agreement: &Agreement, known: RecordVersion) -> Result<(), Error> {
    let in_force = agreement.in_force();
    match in_force > known {
        true => Err(Error::OldProgram { in_force, known }),
        false => Ok(()),
    }
}

/// Refuses the start of a program that is older than the node's last one if the cluster has raised
/// the version since. Other starts do not wait: the version in force is never later than
/// the one that the node announced. If no other node answers, it is noticed in the log.
///
/// # Errors
/// [`Error::OldProgram`].
pub(crate) async fn check_older(members: &Members, agreement: &Agreement) -> Result<(), Error> {
    let known = members.record_versions().known();
    if agreement.known(members.me) <= known {
        return Ok(());
    }
    let began = Instant::now();
    while began.elapsed() < OTHERS_TIME_MAX {
        let others = members.all().into_iter().map(|(id, _)| id);
        let others = others.filter(|id| *id != members.me);
        let answers = join_all(others.map(|node| members.versions_of(node))).await;
        let in_force = answers.into_iter().flatten().map(|of| of.in_force).max();
        match in_force {
            Some(in_force) if in_force > known => {
                return Err(Error::OldProgram { in_force, known });
            }
            Some(_) => return Ok(()),
            None => tokio::time::sleep(ASKED_EVERY).await,
        }
    }
    Ok(())
}

impl Gateway {
    /// Waits until a record version is known to be in force.
    ///
    /// # Errors
    /// [`Error::NotNow`], and [`Error::OldProgram`].
    pub(crate) async fn wait_for_version(&self, needs: RecordVersion) -> Result<(), Error> {
        if needs <= self.members.record_versions().written() {
            return Ok(());
        }
        if needs > self.catalogue.agreement().in_force() {
            self.fresh_control().await?;
        }
        let agreement = self.catalogue.agreement();
        if needs > agreement.in_force() {
            return Err(not_in_force(&self.members, &agreement, needs));
        }
        self.adopt_version().await
    }

    /// Writes the version in force, once it is stable: the log may lose the entry until then, and
    /// older programs could be members again.
    ///
    /// # Errors
    /// [`Error::NotNow`], and [`Error::OldProgram`].
    pub(crate) async fn adopt_version(&self) -> Result<(), Error> {
        let of_program = self.members.record_versions();
        let before = self.catalogue.agreement();
        check(&before, of_program.known())?;
        self.settle_control().await?;
        let after = self.catalogue.agreement();
        let in_force = before.in_force().min(after.in_force());
        if in_force > of_program.written() {
            of_program.raise(in_force);
            tracing::info!(version = %in_force, "records are written in this version from now on");
        }
        Ok(())
    }
}

/// Announces this node's version, and raises the one in force.
pub(crate) struct VersionKeeper {
    gateway: Arc<Gateway>,
    /// Since when a later version could be raised to.
    raisable_since: Mutex<Option<Instant>>,
}

impl VersionKeeper {
    pub fn new(gateway: Arc<Gateway>) -> Arc<VersionKeeper> {
        Arc::new(VersionKeeper {
            gateway,
            raisable_since: Mutex::default(),
        })
    }

    /// Does what there is to do, until the future is dropped. Calls `give_up` with the reason, and
    /// ends, when a version is in force that this program does not read.
    pub async fn keep(self: Arc<Self>, give_up: Box<dyn Fn(String) + Send + Sync>) {
        let mut changes = self.gateway.catalogue.watch_agreement();
        loop {
            match self.step().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(e @ Error::OldProgram { .. }) => return give_up(e.to_string()),
                Err(e) => tracing::debug!(error = %e, "the record version is not agreed on"),
            }
            let _timeout = tokio::time::timeout(EVERY, changes.changed()).await;
        }
    }

    /// Makes one step. Returns whether it changed something, so that another one may follow.
    ///
    /// # Errors
    /// [`Error::OldProgram`], and those of entries.
    pub async fn step(&self) -> Result<bool, Error> {
        let agreement = self.gateway.catalogue.agreement();
        let versions = self.gateway.members.record_versions();
        check(&agreement, versions.known())?;
        if agreement.in_force() > versions.written() {
            self.gateway.adopt_version().await?;
        }
        match self.next_entry(&agreement).await {
            None => Ok(false),
            Some(entry) => Ok(self.gateway.enter(entry).await? == EntryOutcome::Done),
        }
    }

    async fn next_entry(&self, agreement: &Agreement) -> Option<Entry> {
        let members = &self.gateway.members;
        let (me, known) = (members.me, members.record_versions().known());
        let all: Vec<NodeId> = members.all().into_iter().map(|(id, _)| id).collect();
        let step = next_step(agreement, (me, known), &all);
        let is_due = self.is_due(matches!(step, Some(NextStep::Raise(_))));
        match step? {
            NextStep::Announce => {
                let unheard = unheard(agreement, me, &all).into_iter();
                let answers = join_all(unheard.map(|node| members.versions_of(node))).await;
                let all_know = answers.iter().all(Option::is_some);
                all_know.then(|| Entry::Announce {
                    node: me,
                    announcement: agreement.next_announcement(me, known),
                })
            }
            NextStep::Raise(version) => is_due.then_some(Entry::Raise { version }),
        }
    }

    /// Returns whether this node raises the version now, if it can be raised: the first live node
    /// does it, and if it does not, the next one.
    fn is_due(&self, is_raisable: bool) -> bool {
        let mut since = self.raisable_since.lock();
        *since = match is_raisable {
            true => since.or_else(|| Some(Instant::now())),
            false => None,
        };
        let before_me = self.gateway.members.live_before_me();
        let turn = LEADER_TIME * u32::try_from(before_me).unwrap_or(u32::MAX);
        since.is_some_and(|since| since.elapsed() >= turn)
    }
}

/// A step towards a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// This node announces its version.
    Announce,
    /// All members have announced this version, or later ones.
    Raise(RecordVersion),
}

/// Returns the next step as a node sees it that reads records up to version `known`.
pub(crate) fn next_step(
    agreement: &Agreement,
    (me, known): (NodeId, RecordVersion),
    members: &[NodeId],
) -> Option<NextStep> {
    if !members.contains(&me) {
        return None;
    }
    if agreement.known(me) != known {
        return Some(NextStep::Announce);
    }
    let next = agreement.next(members.iter().copied());
    next.map(NextStep::Raise)
}

/// Returns the members whose programs may not know announcements: programs of version 1 from before
/// them refuse the entry, and a member that is down may have such a program.
pub(crate) fn unheard(agreement: &Agreement, me: NodeId, members: &[NodeId]) -> Vec<NodeId> {
    let is_unheard = |id: &NodeId| *id != me && agreement.announcement(*id).is_none();
    match agreement.in_force() > RecordVersion::V1 {
        true => vec![],
        false => members.iter().copied().filter(is_unheard).collect(),
    }
}

/// Describes why an entry cannot be written yet.
fn not_in_force(members: &Members, agreement: &Agreement, needs: RecordVersion) -> Error {
    let older = members.all().into_iter();
    let older = older.filter(|(id, _)| agreement.known(*id) < needs);
    let names: Vec<String> = older.map(|(_, member)| member.name).collect();
    let in_force = agreement.in_force();
    Error::NotNow(match names.is_empty() {
        true => format!(
            "record version {needs}, which this needs, is about to come into force: try again"
        ),
        false => format!(
            "this needs record version {needs}, and version {in_force} is in force until all nodes run a program that reads version {needs}. These do not yet: {}",
            names.join(", ")
        ),
    })
}
