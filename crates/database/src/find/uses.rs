//! Which indexes queries use, and how much they look at for what they return.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Indexes of databases that are remembered. Those that least was looked at for are forgotten.
const REMEMBERED_MAX: usize = 1024;
/// Fields of a selector that are remembered, and bytes of each.
const FIELDS_MAX: usize = 8;
const FIELD_BYTES_MAX: usize = 64;

/// What queries of a database by one index came to, since the server's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindUse {
    /// How many, aggregates aside: those have to look at everything.
    pub queries: u64,
    /// Documents, or keys where no document was needed, that were looked at.
    pub examined: u64,
    /// Documents that were returned.
    pub returned: u64,
    /// The most that one query looked at.
    pub examined_most: u64,
    /// The fields of that query's selector.
    pub fields: Vec<String>,
}

impl FindUse {
    fn note(&mut self, examined: u64, returned: u64, fields: impl FnOnce() -> Vec<String>) {
        self.queries += 1;
        self.examined += examined;
        self.returned += returned;
        if examined > self.examined_most {
            self.examined_most = examined;
            self.fields = fields();
        }
    }
}

/// Which index: the database's name, and design document and name; `None` for all documents by id.
pub type WhichIndex = (String, Option<(String, String)>);

/// What queries came to, by index.
#[derive(Default)]
pub(crate) struct FindUses(Mutex<FxHashMap<WhichIndex, FindUse>>);

impl FindUses {
    /// A query has ended.
    pub fn note<'a>(
        &self,
        which: WhichIndex,
        (examined, returned): (u64, u64),
        fields: impl FnOnce() -> Vec<&'a str>,
    ) {
        let short = || {
            let fields = fields().into_iter().take(FIELDS_MAX);
            let cut = |name: &str| name[..name.floor_char_boundary(FIELD_BYTES_MAX)].to_owned();
            fields.map(cut).collect()
        };
        let mut all = self.0.lock();
        if all.len() >= REMEMBERED_MAX && !all.contains_key(&which) {
            let mut examined: Vec<u64> = all.values().map(|of| of.examined).collect();
            let middle = examined.len() / 2;
            let median = *examined.select_nth_unstable(middle).1;
            all.retain(|_, of| of.examined > median);
        }
        all.entry(which)
            .or_default()
            .note(examined, returned, short);
    }

    /// All that are remembered.
    pub fn all(&self) -> Vec<(WhichIndex, FindUse)> {
        let all = self.0.lock();
        all.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_costly_ones_are_remembered() {
        let uses = FindUses::default();
        for i in 0..5_000 {
            uses.note((format!("db{i}"), None), (1, 1), || vec!["a"]);
            uses.note(("costly".to_owned(), None), (1_000, 1), || vec!["b", "c"]);
            uses.note(("costly".to_owned(), None), (10, 1), || vec!["d"]);
        }
        let all = uses.all();
        assert!(all.len() <= REMEMBERED_MAX);
        let (_, costly) = all.iter().find(|((db, _), _)| db == "costly").unwrap();
        assert_eq!((costly.queries, costly.examined), (10_000, 5_050_000));
        assert_eq!(costly.fields, ["b", "c"]);
    }
}
