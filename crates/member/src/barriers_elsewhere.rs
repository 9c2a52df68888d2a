//! Sets the design documents in force in slots that this node does not have: their nodes report
//! those in force, and whether a barrier counted.
//!
//! Of a spread database every node has the design documents, and few nodes have each of the other
//! slots.

use std::sync::Arc;
use std::time::Duration;

use cluster::SlotNumber;
use cluster::record::Body;
use data_encoding::HEXLOWER;
use database::Database;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::gateway::Gateway;
use crate::membership::random;
use crate::query::value;
use crate::replicas::Replica;

/// Maximum number of attempts while other nodes set the design documents in force, too.
const ATTEMPTS_MAX: u32 = 8;
/// Time limit of a report.
const REPORT_TIME_MAX: Duration = Duration::from_secs(3);

/// The path of reports of the design documents in force in a slot.
pub(crate) const BARRIERS: &str = "/barriers";

/// The question for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BarrierQuestion {
    /// The slot.
    pub slot: SlotNumber,
    /// The database's uuid.
    pub database: [u8; 16],
    /// The number of a barrier that may have counted; 0 for none.
    pub number: u64,
}

impl BarrierQuestion {
    /// Returns the path with the question in its query.
    pub fn to_path(self) -> String {
        let (slot, number) = (self.slot, self.number);
        let database = HEXLOWER.encode(&self.database);
        format!("{BARRIERS}?slot={slot}&database={database}&number={number}")
    }

    /// Reads it from a query.
    pub fn from_query(query: &str) -> Option<BarrierQuestion> {
        let database = HEXLOWER.decode(value(query, "database")?.as_bytes()).ok()?;
        Some(BarrierQuestion {
            slot: value(query, "slot")?.parse().ok()?,
            database: database.try_into().ok()?,
            number: value(query, "number")?.parse().ok()?,
        })
    }
}

/// The design documents in force in a slot, as one of its nodes reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BarrierReport {
    /// The number of the barrier that set them.
    pub in_force: u64,
    /// The barrier in the question has counted.
    pub has_counted: bool,
}

impl BarrierReport {
    /// Returns the report of a node's replica, once it has everything acknowledged before.
    ///
    /// # Errors
    /// The reason why that is not known.
    pub async fn of(replica: &Replica, question: &BarrierQuestion) -> Result<Self, String> {
        replica.fresh(Instant::now() + REPORT_TIME_MAX).await?;
        let validators = replica.validators();
        let BarrierQuestion {
            database, number, ..
        } = question;
        Ok(BarrierReport {
            in_force: validators.get(database).number,
            has_counted: *number != 0 && validators.has_counted(database, *number),
        })
    }
}

impl Gateway {
    /// Ensures that from here on nothing is written in slots of other nodes that was validated by
    /// design documents other than the current ones. See [`Gateway::bar_older`].
    pub(crate) async fn bar_older_elsewhere(
        &self,
        db: &Arc<Database>,
        slots: &[SlotNumber],
    ) -> Result<(), database::Error> {
        let bars = slots.iter().map(|slot| self.bar_elsewhere(db, *slot));
        try_join_all(bars).await.map(drop)
    }

    async fn bar_elsewhere(
        &self,
        db: &Arc<Database>,
        slot: SlotNumber,
    ) -> Result<(), database::Error> {
        let unavailable = |e: crate::Error| database::Error::Unavailable(e.to_string());
        let mut question = BarrierQuestion {
            slot,
            database: *db.uuid().as_bytes(),
            number: 0,
        };
        for _ in 0..ATTEMPTS_MAX {
            // Before the design documents are read: a barrier that another node sets meanwhile makes
            // this one late.
            let before = self.barriers(question).await?;
            if before.has_counted {
                return Ok(());
            }
            let seen = self.fresh_slots(self.design_slots(db)).await;
            let seen = seen.map_err(unavailable)?;
            let designs = db.designs_hash().await?;
            self.settle(&seen).await.map_err(unavailable)?;
            question.number = u64::from_be_bytes(random().map_err(unavailable)?).max(1);
            let body = Body::Barrier {
                database: question.database,
                designs,
                number: question.number,
                follows: before.in_force,
            };
            self.proposer.append(slot, body).await?;
        }
        match self.barriers(question).await?.has_counted {
            true => Ok(()),
            false => Err(database::Error::Unavailable(
                "design documents change all the time: try again".into(),
            )),
        }
    }

    /// Returns the report of the first node of a slot that answers.
    async fn barriers(&self, question: BarrierQuestion) -> Result<BarrierReport, database::Error> {
        let mut left = self.members.live_others_for(question.slot);
        let mut why = "no node of the slot answers".to_owned();
        while let Some(node) = self.members.ready(&left).await {
            left.retain(|other| *other != node);
            let deadline = Instant::now() + REPORT_TIME_MAX;
            match self.members.barriers(node, question, deadline).await {
                Ok(report) => return Ok(report),
                Err(e) => why = e.text,
            }
        }
        Err(database::Error::Unavailable(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_survive_their_path() {
        let question = BarrierQuestion {
            slot: 7,
            database: [0xab; 16],
            number: u64::MAX,
        };
        let path = question.to_path();
        let (path, query) = path.split_once('?').unwrap();
        assert_eq!(path, BARRIERS);
        assert_eq!(BarrierQuestion::from_query(query), Some(question));
        assert_eq!(BarrierQuestion::from_query("slot=7&number=1"), None);
        let short = "slot=7&database=abab&number=1";
        assert_eq!(BarrierQuestion::from_query(short), None);
    }
}
