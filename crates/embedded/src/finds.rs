//! Mango: queries and their indexes.

use database::{DatabaseAs, Durability, EditMode, FindAnswer, FindLimits};
use mango::index::{DesignMembers, design_members, remove_from, write_design};
use mango::{AggregateLimits, Defaults, Find, NewIndex, TextKind};
use serde_json::{Map, Value, json};

use crate::batch::{Rows, Source};
use crate::documents::caller;
use crate::{Database, Error, Result};

/// How often a change of a design document is retried after a conflict.
const TRIES_MAX: usize = 4;

/// Unlimited unless the query has a limit: results are read on demand.
const DEFAULTS: fn() -> Defaults = || Defaults {
    limit: u64::MAX >> 1,
    limits: mango::Limits::default(),
};

/// The defaults of `[mango]`.
const LIMITS: FindLimits = FindLimits {
    scan_limit: 0,
    scan_warning_threshold: 10,
    aggregate: AggregateLimits {
        groups_max: 100_000,
        values_max: 1_000_000,
        bytes_max: 256 << 20,
        user: None,
    },
};

impl Source for FindAnswer {
    fn next(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool> {
        Ok(match self.is_aggregate() {
            true => self.next_groups(out, soft_bytes)?,
            false => self.next_chunk(out, soft_bytes)?,
        })
    }

    fn tail(&self) -> Map<String, Value> {
        let mut tail = Map::new();
        if !self.is_aggregate() && !self.is_nothing() {
            tail.insert("bookmark".to_owned(), self.bookmark().into());
        }
        if let Some(stats) = self.execution_stats() {
            tail.insert("execution_stats".to_owned(), stats);
        }
        if let Some(warning) = self.warning() {
            tail.insert("warning".to_owned(), warning.into());
        }
        tail
    }
}

impl Database {
    fn seen(&self) -> Result<DatabaseAs> {
        Ok(self.get()?.seen_by(caller))
    }

    /// Returns matching documents, or groups. `query`: JSON text, as for `_find`, but without a
    /// default `limit`.
    ///
    /// # Errors
    /// 400 for an invalid query.
    pub async fn find(&self, query: &[u8]) -> Result<Rows> {
        let db = self.seen()?;
        let find = Find::parse(&document::normalise(query)?, &DEFAULTS())?;
        let indexes = db.find_indexes()?;
        let plan = db.plan_find(find, &LIMITS, &indexes)?;
        let found = async { Ok(db.find(plan, LIMITS).await?) };
        let answer = self.directory.while_open(found).await?;
        Ok(Rows::new(&self.directory, answer, Map::new()))
    }

    /// Which index would answer a query: JSON text, as of `_explain`.
    ///
    /// # Errors
    /// 400 for an invalid query.
    pub fn explain(&self, query: &[u8]) -> Result<Vec<u8>> {
        let find = Find::parse(&document::normalise(query)?, &DEFAULTS())?;
        let db = self.get()?;
        let indexes = db.find_indexes()?;
        let mut explanation = db.explain(find, &indexes)?;
        let mut text = vec![];
        while explanation.next_chunk(&mut text, usize::MAX >> 1)? {}
        Ok(text)
    }

    /// Returns the indexes: JSON text of a list, that of all documents first.
    ///
    /// # Errors
    /// 404 `not_found`.
    pub fn indexes(&self) -> Result<Vec<u8>> {
        let indexes = self.get()?.find_indexes()?;
        let texts = indexes.iter().map(|index| index.index.to_json());
        let texts: Vec<Vec<u8>> = texts.collect();
        Ok([b"[", texts.join(&b',').as_slice(), b"]"].concat())
    }

    /// Creates an index unless it exists: JSON text of `result`, `id` and `name`. `definition`:
    /// JSON text, as for `_index`.
    ///
    /// # Errors
    /// 400 for an invalid index.
    pub async fn create_index(&self, definition: &[u8]) -> Result<String> {
        let index = NewIndex::parse(
            &document::normalise(definition)?,
            &mango::Limits::OF_INDEXES,
        )?;
        let mut result = "exists";
        for left in (0..TRIES_MAX).rev() {
            let (rev, members) = split(self.get()?.design_text(&index.ddoc)?);
            let Some(new) = index.add_to(members.as_ref())? else {
                break;
            };
            let text = write_design(&index.ddoc, rev, Some(new));
            if self.save(&text, left).await? {
                result = "created";
                break;
            }
        }
        Ok(json!({"result": result, "id": index.ddoc, "name": index.name}).to_string())
    }

    /// Deletes an index.
    ///
    /// # Errors
    /// 404 `not_found`.
    pub async fn delete_index(&self, design: &str, name: &str) -> Result<()> {
        let id = crate::views::design_id(design);
        for left in (0..TRIES_MAX).rev() {
            let (rev, Some(members)) = split(self.get()?.design_text(&id)?) else {
                return Err(Error::missing("missing"));
            };
            let kinds = [None].into_iter().chain(TextKind::ALL.map(Some));
            let mut removed = kinds.filter_map(|kind| remove_from(&members, kind, name).ok());
            let new = removed.next().ok_or_else(|| Error::missing("missing"))?;
            if !mango::index::is_of_indexes(&members) {
                return Err(Error::missing("missing"));
            }
            if self.save(&write_design(&id, rev, new), left).await? {
                break;
            }
        }
        Ok(())
    }

    /// Writes a design document; false when another write came before and the change can be tried
    /// again.
    async fn save(&self, text: &[u8], tries_left: usize) -> Result<bool> {
        let edit = document::parse_document(text)?;
        let written = self.write(edit, EditMode::Interactive, Durability::Synced);
        match written.await {
            Ok(_) => Ok(true),
            Err(e) if e.status == 409 && tries_left > 0 => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Returns the revision, as JSON text, and the members to write back.
fn split(design: Option<Vec<u8>>) -> (Option<Vec<u8>>, Option<DesignMembers>) {
    let Some(design) = design else {
        return (None, None);
    };
    let mut members = design_members(&design);
    let rev = members.iter().find(|(name, _)| name == "_rev");
    let rev = rev.map(|(_, rev)| rev.clone());
    members.retain(|(name, _)| name != "_id" && name != "_rev");
    (rev, Some(members))
}
