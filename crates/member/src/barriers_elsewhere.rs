//! Sets the design documents in force in slots that this node does not have: their nodes report
//! those in force, and whether a barrier counted.
//!
//! Of a spread database every node has the design documents, and few nodes have each of the other
//! slots.

use std::sync::Arc;

use cluster::SlotNumber;
use cluster::record::Body;
use database::Database;
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::barrier_report::{BarrierQuestion, BarrierReport, REPORT_TIME_MAX};
use crate::gateway::Gateway;
use crate::membership::random;

/// Maximum number of attempts while other nodes set the design documents in force, too.
const ATTEMPTS_MAX: u32 = 8;

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
