//! Which indexes queries recently used, and how many documents they examined per result. Old
//! figures are dropped, so that a fixed problem disappears.

use std::time::{Duration, Instant};

use document::collation::HIGHEST;
use mango::plan::{Space, intervals};
use mango::{FieldPath, Find, Intervals};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Figures are kept for one to two of these periods.
const HALF: Duration = Duration::from_secs(30 * 60);
/// Indexes of databases that are remembered in each half. Those with the fewest examined documents
/// are forgotten.
const REMEMBERED_MAX: usize = 1024;
/// Fields of a query that are remembered. One with a longer name is left out: a part of its name would be another field.
const FIELDS_MAX: usize = 8;
const FIELD_BYTES_MAX: usize = 256;
/// Fields of a selector that are looked for in it.
const FIELDS_LOOKED_FOR_MAX: usize = 64;

/// Figures of the queries of a database by one index in the last 30 to 60 minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindUse {
    /// Number of queries, without aggregates, which must examine everything.
    pub queries: u64,
    /// Documents, or keys where no document was needed, that were examined.
    pub examined: u64,
    /// Documents that were returned.
    pub returned: u64,
    /// Most documents that one query examined.
    pub examined_most: u64,
    /// The fields that an index for that query should have, in their order.
    pub fields: Vec<String>,
}

impl FindUse {
    fn note(&mut self, (examined, returned): (u64, u64), fields: Option<Vec<String>>) {
        self.queries += 1;
        self.examined += examined;
        self.returned += returned;
        // Of two that ended together the costlier one may have come first.
        if let Some(fields) = fields
            && examined > self.examined_most
        {
            self.examined_most = examined;
            self.fields = fields;
        }
    }

    fn add(&mut self, other: &FindUse) {
        self.queries += other.queries;
        self.examined += other.examined;
        self.returned += other.returned;
        if other.examined_most > self.examined_most {
            self.examined_most = other.examined_most;
            self.fields.clone_from(&other.fields);
        }
    }
}

/// Which index: the database's name, and design document and name; `None` for all documents by id.
pub type IndexKey = (String, Option<(String, String)>);

/// Figures of queries, by database, and by index there: few, so that they are searched linearly.
#[derive(Clone, Default)]
struct Uses {
    by_database: FxHashMap<String, Vec<UseEntry>>,
    count: usize,
}

type UseEntry = (Option<(String, String)>, FindUse);

impl Uses {
    fn get(&mut self, (database, design): IndexRef<'_>) -> Option<&mut FindUse> {
        let of = self.by_database.get_mut(database)?;
        let is_it = |(known, _): &&mut UseEntry| names(known.as_ref()) == design;
        of.iter_mut().find(is_it).map(|(_, of)| of)
    }

    fn insert(&mut self, (database, design): IndexRef<'_>, of: FindUse) {
        let owned = design.map(|(design, name)| (design.to_owned(), name.to_owned()));
        let all = self.by_database.entry(database.to_owned()).or_default();
        all.push((owned, of));
        self.count += 1;
    }

    fn retain(&mut self, keep: impl Fn(&FindUse) -> bool) {
        let of_databases = self.by_database.values_mut();
        of_databases.for_each(|of| of.retain(|(_, of)| keep(of)));
        self.by_database.retain(|_, of| !of.is_empty());
        self.count = self.by_database.values().map(Vec::len).sum();
    }

    fn all(&self) -> impl Iterator<Item = (IndexRef<'_>, &FindUse)> {
        self.by_database.iter().flat_map(|(database, of)| {
            of.iter()
                .map(move |(design, of)| ((database.as_str(), names(design.as_ref())), of))
        })
    }
}

fn names(design: Option<&(String, String)>) -> Option<(&str, &str)> {
    design.map(|(design, name)| (design.as_str(), name.as_str()))
}

/// A reference to an [`IndexKey`].
type IndexRef<'a> = (&'a str, Option<(&'a str, &'a str)>);

/// The current half, and the previous one.
struct Halves {
    began: Instant,
    now: Uses,
    before: Uses,
}

impl Halves {
    fn new(began: Instant) -> Halves {
        Halves {
            began,
            now: Uses::default(),
            before: Uses::default(),
        }
    }

    /// Begins a new half if it is time. Whatever is done begins with this.
    fn turn(&mut self, at: Instant) {
        let age = at.saturating_duration_since(self.began);
        if age >= HALF * 2 {
            *self = Halves::new(at);
        } else if age >= HALF {
            self.began += HALF;
            self.before = std::mem::take(&mut self.now);
        }
    }

    /// Notes a query. The most expensive one of its index in this half needs its fields: without
    /// them this returns false, and notes nothing.
    fn note(
        &mut self,
        which: IndexRef<'_>,
        counts: (u64, u64),
        fields: Option<Vec<String>>,
    ) -> bool {
        let examined = counts.0;
        let all = &mut self.now;
        let most = all.get(which).map_or(0, |of| of.examined_most);
        if examined > most && fields.is_none() {
            return false;
        }
        match all.get(which) {
            Some(of) => of.note(counts, fields),
            None => {
                if all.count >= REMEMBERED_MAX {
                    let mut examined: Vec<u64> = all.all().map(|(_, of)| of.examined).collect();
                    let middle = examined.len() / 2;
                    let median = *examined.select_nth_unstable(middle).1;
                    all.retain(|of| of.examined > median);
                }
                let mut of = FindUse::default();
                of.note(counts, fields);
                all.insert(which, of);
            }
        }
        true
    }

    fn all(&mut self, at: Instant) -> Uses {
        self.turn(at);
        let mut all = self.before.clone();
        for (which, of) in self.now.all() {
            match all.get(which) {
                Some(sum) => sum.add(of),
                None => all.insert(which, of.clone()),
            }
        }
        all
    }
}

/// Figures of recent queries, by index.
pub(crate) struct FindUses(Mutex<Halves>);

impl Default for FindUses {
    fn default() -> FindUses {
        FindUses(Mutex::new(Halves::new(Instant::now())))
    }
}

impl FindUses {
    /// A query has ended: of this database, and by this design document and index, or by all documents. `fields` are those of
    /// [`index_order`].
    pub fn note<'a>(
        &self,
        which: (&str, Option<(&str, &str)>),
        counts: (u64, u64),
        fields: impl FnOnce() -> Vec<&'a str>,
    ) {
        let at = Instant::now();
        let is_noted = {
            let mut halves = self.0.lock();
            halves.turn(at);
            halves.note(which, counts, None)
        };
        if !is_noted {
            // Others do not wait while a selector is gone through.
            let fields = remembered(fields());
            self.0.lock().note(which, counts, Some(fields));
        }
    }

    /// All that are remembered.
    pub fn all(&self) -> Vec<(IndexKey, FindUse)> {
        let all = self.0.lock().all(Instant::now());
        let owned = |design: Option<(&str, &str)>| {
            design.map(|(design, name)| (design.to_owned(), name.to_owned()))
        };
        let all = all
            .all()
            .map(|((database, design), of)| ((database.to_owned(), owned(design)), of.clone()));
        all.collect()
    }
}

fn remembered(fields: Vec<&str>) -> Vec<String> {
    let short = fields
        .into_iter()
        .filter(|name| name.len() <= FIELD_BYTES_MAX);
    short.take(FIELDS_MAX).map(str::to_owned).collect()
}

/// The fields that an index for a query should have, in their order: those that equal a value,
/// those that sort the result, and the others that reduce the examined documents. The id is needed
/// only for sorting: the index of all documents is ordered by it.
pub(super) fn index_order(find: &Find) -> Vec<&str> {
    let (mut equal, mut others) = (vec![], vec![]);
    let names = find.selector.field_names().into_iter();
    let names = names.filter(|name| *name != "_id");
    for name in names.take(FIELDS_LOOKED_FOR_MAX) {
        // A name that is not a path refers to the document itself.
        let Ok(path) = FieldPath::parse(name) else {
            continue;
        };
        let values = intervals(&find.selector, &path, Space::SortKeys);
        match () {
            () if is_one_value(&values) => equal.push(name),
            // It does not narrow the result; or it selects documents without the field, which an
            // index of the field does not have.
            () if values.is_full() || values.is_none() => {}
            () => others.push(name),
        }
    }
    let mut all = equal;
    for name in find.sort.names().chain(others) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Whether these are the rows of one key.
fn is_one_value(values: &Intervals) -> bool {
    match values.ranges() {
        [(key, end)] => !key.is_empty() && end.strip_prefix(key.as_slice()) == Some(HIGHEST),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use mango::{Defaults, Limits};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_costly_ones_are_remembered() {
        let uses = FindUses::default();
        for i in 0..5_000 {
            uses.note((&format!("db{i}"), None), (1, 1), || vec!["a"]);
            uses.note(("costly", None), (1_000, 1), || vec!["b", "c"]);
            uses.note(("costly", None), (10, 1), || vec!["d"]);
        }
        let all = uses.all();
        assert!(all.len() <= REMEMBERED_MAX);
        let (_, costly) = all.iter().find(|((db, _), _)| db == "costly").unwrap();
        assert_eq!((costly.queries, costly.examined), (10_000, 5_050_000));
        assert_eq!(costly.fields, ["b", "c"]);
    }

    #[test]
    fn what_was_an_hour_ago_is_forgotten() {
        let start = Instant::now();
        let minute = |n: u64| start + Duration::from_secs(n * 60);
        let mut halves = Halves::new(start);
        let note = |halves: &mut Halves, at, examined, field: &str| {
            halves.turn(minute(at));
            if !halves.note(("db", None), (examined, 1), None) {
                halves.note(("db", None), (examined, 1), Some(vec![field.to_owned()]));
            }
        };
        note(&mut halves, 5, 1_000, "a");
        note(&mut halves, 40, 100, "b");
        let of = |halves: &mut Halves, at| {
            let mut all = halves.all(minute(at));
            let of = all.get(("db", None));
            of.map(|of| (of.queries, of.examined, of.fields.join(" ")))
        };
        assert_eq!(of(&mut halves, 59), Some((2, 1_100, "a".to_owned())));
        assert_eq!(of(&mut halves, 61), Some((1, 100, "b".to_owned())));
        assert_eq!(of(&mut halves, 91), None);
        note(&mut halves, 100, 1, "c");
        assert_eq!(of(&mut halves, 300), None);
    }

    fn order(query: Value) -> Vec<String> {
        let defaults = Defaults {
            limit: 25,
            limits: Limits::default(),
        };
        let find = Find::parse(query.to_string().as_bytes(), &defaults).unwrap();
        remembered(index_order(&find))
    }

    #[test]
    fn an_index_has_equal_fields_first_then_sorted_ones_then_ranges() {
        let selector =
            json!({"_id": {"$gt": null}, "a": {"$gt": 1, "$lt": 5}, "m": {"$lt": "x"}, "z": 1});
        assert_eq!(order(json!({"selector": selector})), ["z", "a", "m"]);
        let sorted = json!({"selector": selector, "sort": ["m", "n"]});
        assert_eq!(order(sorted), ["z", "m", "n", "a"]);
    }

    #[test]
    fn fields_that_no_index_narrows_are_left_out() {
        let either =
            json!({"$or": [{"a": 1}, {"b": 1}], "c": {"$ne": 1}, "d": {"$exists": false}, "e": 1});
        assert_eq!(order(json!({"selector": either})), ["e"]);
        let both = json!({"$or": [{"a": 1, "b": 1}, {"a": 2, "b": 1}]});
        assert_eq!(order(json!({"selector": both})), ["b", "a"]);
    }

    #[test]
    fn a_long_name_is_left_out_whole() {
        let long = "n".repeat(FIELD_BYTES_MAX + 1);
        assert_eq!(order(json!({"selector": {long: 1, "z": 1}})), ["z"]);
    }
}
