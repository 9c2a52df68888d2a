//! What a view query asks for, and the ranges of places that it means.

use document::collation::HIGHEST;
use index::keys::put_terminated;
use index::{GroupLevel, PlaceRange, write_key_sort};

use super::design::{Design, ViewAt};
use crate::{Error, ShownAttachments};

/// Whether a query waits for the index to be current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Answer when it is.
    True,
    /// Answer at once.
    False,
    /// Answer at once, then update.
    Lazy,
}

/// How a reduced query groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One row of all.
    None,
    /// One row a group.
    By(GroupLevel),
}

impl Grouping {
    /// What `group` and `group_level` say together, in whichever order they are given: the level counts more.
    ///
    /// # Errors
    /// [`Error::QueryParse`] when they contradict each other.
    pub fn of(group: Option<bool>, level: Option<u64>) -> Result<Grouping, Error> {
        let elements = |n| GroupLevel::Elements(usize::try_from(n).unwrap_or(usize::MAX));
        match (group, level) {
            (Some(true), None) => Ok(Grouping::By(GroupLevel::Exact)),
            (_, None | Some(0)) => Ok(Grouping::None),
            (Some(false), Some(_)) => Err(refused(
                "Can't specify group=false and group_level>0 at the same time",
            )),
            (_, Some(n)) => Ok(Grouping::By(elements(n))),
        }
    }
}

/// A view query. Keys are JSON text.
#[derive(Clone, Debug)]
pub struct ViewQuery {
    /// Where the range begins, in the query's direction.
    pub start: Option<Vec<u8>>,
    /// With `start`: the first document of its key.
    pub start_id: Option<String>,
    /// Where it ends.
    pub end: Option<Vec<u8>>,
    /// With `end`: the last document of its key.
    pub end_id: Option<String>,
    /// `end` itself is in the range.
    pub inclusive_end: bool,
    /// Rows of these keys, in their order.
    pub keys: Option<Vec<Vec<u8>>>,
    /// Rows at most.
    pub limit: Option<u64>,
    /// Rows left out at the beginning.
    pub skip: u64,
    /// From the last row to the first.
    pub descending: bool,
    /// Rows have the document.
    pub include_docs: bool,
    /// `None`: not said, which counts as no. A reduced query must not say it.
    pub conflicts: Option<bool>,
    /// With `include_docs`: how attachments are shown.
    pub attachments: ShownAttachments,
    /// `None`: when the view has a reduce function.
    pub reduce: Option<bool>,
    /// How reduced rows are grouped.
    pub grouping: Grouping,
    /// Whether the index is brought up to date first.
    pub update: Update,
    /// The update seq that the rows stand for is asked for too.
    pub update_seq: bool,
    /// Only rows of documents of this partition.
    pub partition: Option<String>,
}

impl Default for ViewQuery {
    fn default() -> Self {
        ViewQuery {
            start: None,
            start_id: None,
            end: None,
            end_id: None,
            inclusive_end: true,
            keys: None,
            limit: None,
            skip: 0,
            descending: false,
            include_docs: false,
            conflicts: None,
            attachments: ShownAttachments::default(),
            reduce: None,
            grouping: Grouping::None,
            update: Update::True,
            update_seq: false,
            partition: None,
        }
    }
}

/// The bounds of one range as asked for: a key with a document id, in the direction of the query.
struct Ends<'a> {
    start: Option<&'a [u8]>,
    start_id: Option<&'a str>,
    end: Option<&'a [u8]>,
    end_id: Option<&'a str>,
    inclusive_end: bool,
}

fn refused(reason: &str) -> Error {
    Error::QueryParse(reason.to_owned())
}

impl ViewQuery {
    /// Refuses what makes no sense of this view, as CouchDB does.
    ///
    /// # Errors
    /// [`Error::QueryParse`].
    pub fn check(&self, design: &Design, at: ViewAt) -> Result<(), Error> {
        match (design.spec.partitioned, &self.partition) {
            (true, None) => {
                return Err(refused(
                    "`partition` parameter is mandatory for queries to this view.",
                ));
            }
            (false, Some(_)) => {
                return Err(refused(
                    "`partition` parameter is not supported in this design doc",
                ));
            }
            _ => {}
        }
        self.check_reduction(at)?;
        let has_range = self.start.is_some() || self.end.is_some();
        if has_range && self.keys.as_ref().is_some_and(|keys| !keys.is_empty()) {
            return Err(refused(
                "`keys` is incompatible with `key`, `start_key` and `end_key`",
            ));
        }
        if self.keys.is_none() && self.is_reversed(design.spec.views[at.view].raw)? {
            return Err(refused(
                "No rows can match your key range, reverse your start_key and end_key or set descending=true",
            ));
        }
        Ok(())
    }

    fn check_reduction(&self, at: ViewAt) -> Result<(), Error> {
        if at.reduce.is_none() || self.reduce == Some(false) {
            if self.reduce == Some(true) {
                return Err(refused("Reduce is invalid for map-only views."));
            }
            if self.grouping != Grouping::None {
                return Err(refused("Invalid use of grouping on a map view."));
            }
            return Ok(());
        }
        if self.keys.is_some() && self.grouping != Grouping::By(GroupLevel::Exact) {
            return Err(refused(
                "Multi-key fetches for reduce views must use `group=true`",
            ));
        }
        if self.include_docs {
            return Err(refused("`include_docs` is invalid for reduce"));
        }
        if self.conflicts.is_some() {
            return Err(refused("`conflicts` is invalid for reduce views."));
        }
        Ok(())
    }

    /// Whether the range ends before it begins. `raw`: of the view's keys.
    fn is_reversed(&self, raw: bool) -> Result<bool, Error> {
        let (Some(start), Some(end)) = (&self.start, &self.end) else {
            return Ok(false);
        };
        let mut keys = [vec![], vec![]];
        for (key, out) in [start, end].into_iter().zip(&mut keys) {
            write_key_sort(key, raw, out)?;
        }
        let [start, end] = keys;
        Ok(if self.descending {
            end > start
        } else {
            end < start
        })
    }

    /// What every place of the query's partition begins with.
    pub fn partition_prefix(&self) -> Vec<u8> {
        let mut prefix = vec![];
        if let Some(p) = &self.partition {
            put_terminated(p.as_bytes(), &mut prefix);
        }
        prefix
    }

    /// All places of the view, or of the partition.
    pub fn whole(&self) -> PlaceRange {
        let low = self.partition_prefix();
        PlaceRange {
            high: (!low.is_empty()).then(|| [&low[..], HIGHEST].concat()),
            low,
        }
    }

    /// The ranges asked for, in their order: one for each of `keys`, or one.
    pub fn ranges(&self, raw: bool) -> Result<Vec<PlaceRange>, Error> {
        let Some(keys) = &self.keys else {
            let ends = Ends {
                start: self.start.as_deref(),
                start_id: self.start_id.as_deref(),
                end: self.end.as_deref(),
                end_id: self.end_id.as_deref(),
                inclusive_end: self.inclusive_end,
            };
            return Ok(vec![self.range(&ends, raw)?]);
        };
        keys.iter()
            .map(|k| {
                let ends = Ends {
                    start: Some(k),
                    start_id: self.start_id.as_deref(),
                    end: Some(k),
                    end_id: self.end_id.as_deref(),
                    inclusive_end: self.inclusive_end,
                };
                self.range(&ends, raw)
            })
            .collect()
    }

    fn range(&self, ends: &Ends<'_>, raw: bool) -> Result<PlaceRange, Error> {
        let prefix = self.partition_prefix();
        let place = |key: &[u8], id: Option<&str>| -> Result<Vec<u8>, Error> {
            let mut place = prefix.clone();
            write_key_sort(key, raw, &mut place)?;
            if let Some(id) = id {
                put_terminated(id.as_bytes(), &mut place);
            }
            Ok(place)
        };
        // Without a key the document id of a bound is ignored.
        let before = |key: &[u8], id| place(key, id);
        let after = |key: &[u8], id| place(key, id).map(|p| [&p[..], HIGHEST].concat());
        let mut range = self.whole();
        if self.descending {
            if let Some(key) = ends.start {
                range.high = Some(after(key, ends.start_id)?);
            }
            if let Some(key) = ends.end {
                range.low = if ends.inclusive_end {
                    before(key, ends.end_id)?
                } else {
                    after(key, ends.end_id)?
                };
            }
        } else {
            if let Some(key) = ends.start {
                range.low = before(key, ends.start_id)?;
            }
            if let Some(key) = ends.end {
                range.high = Some(if ends.inclusive_end {
                    after(key, ends.end_id)?
                } else {
                    before(key, ends.end_id)?
                });
            }
        }
        Ok(range)
    }
}
