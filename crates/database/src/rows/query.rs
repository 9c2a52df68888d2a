//! Parameters of a listing.

use document::TextList;

use crate::attachments::ShownAttachments;

/// Which documents are listed.
#[derive(Clone, Debug)]
pub enum Listing {
    /// All but local ones (`_all_docs`).
    AllDocs,
    /// `_design_docs`
    DesignDocs,
    /// `_local_docs`
    LocalDocs,
    /// Documents of the partition of this name.
    Partition(String),
}

/// A key of `keys`: only strings can be ids; anything else is echoed as not found.
pub enum Key {
    /// A document's id.
    Id(String),
    /// JSON text.
    Other(String),
}

/// Keys in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Keys(TextList);

/// The prefix of the text of a key that is an id, or that is not one.
const ID: &[u8] = b"i";
const OTHER: &[u8] = b"o";

impl Keys {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Memory that they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// The key at a place.
    pub(super) fn get(&self, place: usize) -> Option<KeyRef<'_>> {
        let (kind, text) = self.0.get(place)?.split_at_checked(1)?;
        let text = std::str::from_utf8(text).ok()?;
        Some(match kind == ID {
            true => KeyRef::Id(text),
            false => KeyRef::Other(text),
        })
    }
}

impl FromIterator<Key> for Keys {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Keys {
        let mut list = TextList::default();
        for key in keys {
            match &key {
                Key::Id(id) => list.push_parts(&[ID, id.as_bytes()]),
                Key::Other(json) => list.push_parts(&[OTHER, json.as_bytes()]),
            }
        }
        list.shrink_to_fit();
        Keys(list)
    }
}

/// A [`Key`] in [`Keys`].
#[derive(Clone, Copy)]
pub(super) enum KeyRef<'a> {
    Id(&'a str),
    Other(&'a str),
}

/// A start or end of a range. JSON that is not a string lies before or after every id in the
/// listing's direction.
#[derive(Clone, Debug)]
pub enum Bound {
    /// At this id.
    Id(String),
    /// Before the listing's first id.
    BeforeAll,
    /// After the listing's last id.
    AfterAll,
}

/// A requested listing.
#[derive(Clone, Debug)]
pub struct RowsQuery {
    /// Which documents.
    pub listing: Listing,
    /// Where the range begins, in the listing's direction.
    pub start: Option<Bound>,
    /// Where it ends.
    pub end: Option<Bound>,
    /// `end` itself is in the range.
    pub inclusive_end: bool,
    /// Rows of these keys, in place of a range.
    pub keys: Option<Keys>,
    /// Rows at most.
    pub limit: Option<u64>,
    /// Rows left out at the beginning.
    pub skip: u64,
    /// From the last id to the first.
    pub descending: bool,
    /// Rows have the document.
    pub include_docs: bool,
    /// With `include_docs`: documents have `_conflicts`.
    pub conflicts: bool,
    /// With `include_docs`: how attachments are shown.
    pub attachments: ShownAttachments,
    /// Whether the update seq of the listing is requested too.
    pub update_seq: bool,
}

impl RowsQuery {
    /// Memory that it takes, about, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let bound = |bound: &Option<Bound>| match bound {
            Some(Bound::Id(id)) => id.capacity(),
            _ => 0,
        };
        let partition = match &self.listing {
            Listing::Partition(name) => name.capacity(),
            _ => 0,
        };
        size_of::<RowsQuery>()
            + partition
            + self.keys.as_ref().map_or(0, Keys::memory_bytes)
            + bound(&self.start)
            + bound(&self.end)
    }
}
