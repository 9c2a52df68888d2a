//! Acknowledged writes of a server, and whether they still exist.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::error::BenchError;
use crate::target::Target;
use crate::workload::Caller;

/// Ids in one request.
const KEYS: usize = 1_000;

/// Acknowledged writes to a database.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    database: String,
    inserted: Vec<String>,
    /// Documents that are counted up: id, and the last count that was acknowledged.
    counters: Vec<(String, u64)>,
    updates: u64,
    /// Losses that were seen during the load: a counter continues from its present value, and would
    /// hide them.
    seen: Vec<String>,
}

impl Ledger {
    pub(super) fn of(database: &str) -> Self {
        Self {
            database: database.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn insert(&mut self, id: String) {
        self.inserted.push(id);
    }

    /// The document of that id was written with that count, which only grows.
    pub(super) fn count(&mut self, id: &str, count: u64) {
        self.updates += 1;
        match self.counters.iter_mut().find(|(known, _)| known == id) {
            Some((_, known)) => *known = count,
            None => self.counters.push((id.to_owned(), count)),
        }
    }

    /// The document of that id was found with that count.
    pub(super) fn see(&mut self, id: &str, count: u64) {
        let known = self.counters.iter().find(|(known, _)| known == id);
        if let Some((_, acknowledged)) = known.filter(|(_, known)| *known > count) {
            self.seen.push(format!(
                "{id}: {acknowledged} was acknowledged, {count} was there"
            ));
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.inserted.extend(other.inserted);
        self.seen.extend(other.seen);
        self.counters.extend(other.counters);
        self.updates += other.updates;
    }

    /// How many writes were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.inserted.len() as u64 + self.updates
    }

    /// Missing acknowledged writes, each in words.
    pub(super) async fn lost(&self, target: &Rc<Target>) -> Result<Vec<String>, BenchError> {
        let mut caller = Caller::new(target);
        let mut lost = self.seen.clone();
        let path = format!("/{}/_all_docs", self.database);
        for ids in self.inserted.chunks(KEYS) {
            let keys = json!({ "keys": ids }).to_string();
            caller.require("POST", &path, Some(keys.as_bytes())).await?;
            lost.extend(missing(ids, &caller.reply));
        }
        for (id, count) in &self.counters {
            let path = format!("/{}/{id}", self.database);
            let status = caller.send("GET", &path, None).await?;
            let found: Value = serde_json::from_slice(&caller.reply).unwrap_or_default();
            let stored = found["count"].as_u64().filter(|_| status == 200);
            if stored.is_none_or(|stored| stored < *count) {
                let stored = stored.map_or("nothing".to_owned(), |stored| stored.to_string());
                lost.push(format!("{id}: {count} was acknowledged, {stored} is there"));
            }
        }
        Ok(lost)
    }
}

/// The ids for which a response of `_all_docs` has no row with a revision.
fn missing(ids: &[String], answer: &[u8]) -> Vec<String> {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let rows = answer["rows"].as_array().into_iter().flatten();
    let there: std::collections::HashSet<&str> = rows
        .filter(|row| row["value"]["rev"].is_string() && row["value"]["deleted"] != json!(true))
        .filter_map(|row| row["id"].as_str())
        .collect();
    let gone = ids.iter().filter(|id| !there.contains(id.as_str()));
    gone.map(|id| format!("{id} is missing")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_below_the_acknowledged_one_is_a_loss_although_counting_goes_on() {
        let mut ledger = Ledger::of("db");
        ledger.see("c", 0);
        ledger.count("c", 7);
        ledger.see("c", 7);
        ledger.see("c", 8);
        assert!(ledger.seen.is_empty());
        ledger.see("c", 6);
        ledger.count("c", 9);
        assert_eq!(ledger.seen, ["c: 7 was acknowledged, 6 was there"]);
        assert_eq!(ledger.acknowledged(), 2);
    }

    #[test]
    fn an_id_without_a_live_row_is_lost() {
        let ids = ["a", "b", "c", "d"].map(str::to_owned);
        let answer = json!({"rows": [
            {"id": "a", "key": "a", "value": {"rev": "1-x"}},
            {"key": "b", "error": "not_found"},
            {"id": "c", "key": "c", "value": {"rev": "2-x", "deleted": true}, "doc": null},
        ]});
        let lost = missing(&ids, answer.to_string().as_bytes());
        assert_eq!(lost, ["b is missing", "c is missing", "d is missing"]);
        assert_eq!(missing(&ids, b"no answer").len(), 4);
    }
}
