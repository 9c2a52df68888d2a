//! Reports of the design documents in force in a slot.

use std::time::Duration;

use cluster::SlotNumber;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::query::value;

/// Time limit of a report.
pub(crate) const REPORT_TIME_MAX: Duration = Duration::from_secs(3);

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
