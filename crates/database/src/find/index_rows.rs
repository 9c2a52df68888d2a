//! The rows of an index that a query reads.

use index::IndexView;
use index::keys::put_terminated;
use mango::{FieldPath, Find, Plan};

use super::FindIndex;
use super::cursor::{ARRAY, Cursor, ScanRange};
use crate::views::{ViewIndex, parts_of};
use crate::{DatabaseAs, Error};

/// The rows of an index that are left.
pub(crate) struct Rows {
    /// Of all shards; for a user of a database with access, the parts that the user sees.
    pub views: Vec<IndexView>,
    /// They are such parts: a row may be in several.
    pub is_of_user: bool,
    pub view: usize,
    pub scan_range: ScanRange,
    pub range: index::PlaceRange,
    /// The places that CouchDB would examine, if no match follows the returned ones.
    pub counted: index::PlaceRange,
    pub descending: bool,
    /// The keys hold everything: where the selector's and the answer's fields are in them.
    pub covering: Option<Covering>,
}

/// Which part of a row is a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    Id,
    Key(usize),
}

/// Columns by the selector's fields, and by those of the answer.
pub(crate) struct Covering {
    pub selector: Vec<Column>,
    pub answer: Vec<Column>,
    /// The id is one of them.
    pub has_id: bool,
}

impl Covering {
    fn new(find: &Find, columns: &[FieldPath]) -> Covering {
        let of = |paths: &[FieldPath]| -> Vec<Column> {
            let column = |path| columns.iter().position(|c| c == path);
            paths
                .iter()
                .map(|path| column(path).map_or(Column::Id, Column::Key))
                .collect()
        };
        let selector = of(find.selector.fields());
        let answer = match &find.aggregate {
            Some(aggregate) => of(aggregate.paths()),
            None => of(find.fields.paths()),
        };
        let is_id = |column: &Column| matches!(column, Column::Id);
        Covering {
            has_id: selector.iter().chain(&answer).any(is_id),
            selector,
            answer,
        }
    }
}

impl Rows {
    /// Opens a view's index for the plan.
    pub fn open(
        db: &DatabaseAs,
        view_index: &ViewIndex,
        view: usize,
        find: &Find,
        plan: &Plan,
        index: &FindIndex,
        bookmark: Option<&[u8]>,
    ) -> Result<Rows, Error> {
        let (views, prefix): (Vec<IndexView>, Vec<u8>) = match &find.partition {
            Some(p) => {
                let shard = db.shard_index(&format!("{p}:"));
                let mut prefix = vec![];
                put_terminated(p.as_bytes(), &mut prefix);
                (vec![view_index.shards[shard].view()?], prefix)
            }
            None => {
                let views = view_index.shards.iter().map(|i| i.view());
                (views.collect::<Result<_, _>>()?, vec![])
            }
        };
        let views = match db.principals() {
            None => views,
            Some(user) => parts_of(&views, view, user)?,
        };
        let counted = places(&prefix, &plan.range);
        let scan_range = ScanRange::new(prefix, &plan.columns);
        Ok(Rows {
            views,
            is_of_user: db.is_limited(),
            view,
            counted: counted_from(counted, bookmark, plan.descending),
            range: scan_range.range.clone(),
            scan_range,
            descending: plan.descending,
            covering: plan
                .covering
                .then(|| Covering::new(find, &index.index.definition.paths)),
        })
    }

    pub fn cursors<'a>(&'a self, range: &index::PlaceRange) -> Result<Vec<Cursor<'a>>, Error> {
        let views = self.views.iter();
        views
            .map(|v| Cursor::new(v, self.view, range, &self.scan_range, self.descending))
            .collect()
    }

    /// Rows that CouchDB would examine, up to the one at `behind`.
    pub fn count_up_to(&self, behind: Option<&[u8]>) -> Result<u64, Error> {
        let range = counted_up_to(self.counted.clone(), behind, self.descending);
        let mut count = 0;
        for view in &self.views {
            let end = view.rank_of_end(self.view, &range)?;
            count += end.saturating_sub(view.rank(self.view, &range.low)?);
        }
        Ok(count)
    }

    pub fn go_on_at(&mut self, place: Vec<u8>) {
        if self.descending {
            self.end_before([&place[..], &[0]].concat());
        } else {
            self.begin_at(place);
        }
    }

    pub fn go_on_behind(&mut self, place: &[u8]) {
        if self.descending {
            self.end_before(place.to_vec());
        } else {
            self.begin_at([place, &[0]].concat());
        }
    }

    /// Begins at a place. A bookmark may be of another partition: places outside of the range are
    /// never read.
    fn begin_at(&mut self, place: Vec<u8>) {
        if place > self.range.low {
            self.range.low = place;
        }
        self.close();
    }

    fn end_before(&mut self, place: Vec<u8>) {
        if self.range.high.as_ref().is_none_or(|high| place < *high) {
            self.range.high = Some(place);
        }
        self.close();
    }

    /// A range that ends before it begins is empty.
    fn close(&mut self) {
        if let Some(high) = &self.range.high
            && *high < self.range.low
        {
            self.range.low = high.clone();
        }
    }
}

/// The places of the keys of a range behind a prefix.
fn places(prefix: &[u8], range: &(Vec<u8>, Vec<u8>)) -> index::PlaceRange {
    index::PlaceRange {
        low: [prefix, &[ARRAY], &range.0].concat(),
        high: Some([prefix, &[ARRAY], &range.1].concat()),
    }
}

/// The count for a range that is read from a bookmark on, whose own place CouchDB examines again.
pub(super) fn counted_from(
    mut range: index::PlaceRange,
    bookmark: Option<&[u8]>,
    descending: bool,
) -> index::PlaceRange {
    let Some(place) = bookmark else {
        return range;
    };
    if descending {
        let end = [place, &[0]].concat();
        range.high = Some(range.high.map_or(end.clone(), |high| high.min(end)));
    } else {
        range.low = range.low.max(place.to_vec());
    }
    range
}

/// The count for a range whose examination ends at a place.
pub(super) fn counted_up_to(
    range: index::PlaceRange,
    last: Option<&[u8]>,
    descending: bool,
) -> index::PlaceRange {
    // The other way round, this is where looking begins.
    counted_from(range, last, !descending)
}
