//! Many strings in one buffer.

/// A list of strings with an overhead of 8 bytes per string: a request may hold a million ids or
/// keys until it is answered.
///
/// ```
/// use document::TextList;
///
/// let mut ids: TextList = ["b", "a"].into_iter().collect();
/// assert_eq!(ids.get(0), Some(b"b".as_slice()));
/// ids.sort();
/// assert!(ids.contains(b"a") && !ids.contains(b"c"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextList {
    bytes: Vec<u8>,
    /// The end of each text.
    ends: Vec<usize>,
}

impl TextList {
    /// Appends a text.
    pub fn push(&mut self, text: &[u8]) {
        self.push_parts(&[text]);
    }

    /// Appends the concatenation of these parts.
    pub fn push_parts(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push(self.bytes.len());
    }

    /// Frees memory reserved for further texts.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the text at an index.
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        let end = *self.ends.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// Iterates over the texts, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (0..self.len()).map(|place| self.get(place).unwrap_or_default())
    }

    /// Sorts the texts by their bytes, for [`TextList::contains`], and removes duplicates.
    pub fn sort(&mut self) {
        let mut texts: Vec<&[u8]> = self.iter().collect();
        texts.sort_unstable();
        texts.dedup();
        let mut sorted = TextList {
            bytes: Vec::with_capacity(texts.iter().map(|text| text.len()).sum()),
            ends: Vec::with_capacity(texts.len()),
        };
        for text in texts {
            sorted.push(text);
        }
        *self = sorted;
    }

    /// Returns whether a sorted list contains this text.
    pub fn contains(&self, text: &[u8]) -> bool {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).unwrap_or_default().cmp(text) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }

    /// Returns the memory of the list, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for TextList {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> TextList {
        let mut list = TextList::default();
        for text in texts {
            list.push(text.as_ref());
        }
        list.shrink_to_fit();
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_list_is_like_a_vector_and_sorted_like_a_set(texts: Vec<Vec<u8>>, other: Vec<u8>) {
            let mut list: TextList = texts.iter().collect();
            prop_assert_eq!(list.iter().map(<[u8]>::to_vec).collect::<Vec<_>>(), texts.clone());
            prop_assert_eq!(list.get(texts.len()), None);
            let set: BTreeSet<Vec<u8>> = texts.into_iter().collect();
            list.sort();
            prop_assert_eq!(list.iter().map(<[u8]>::to_vec).collect::<Vec<_>>(), set.iter().cloned().collect::<Vec<_>>());
            prop_assert!(set.iter().all(|text| list.contains(text)));
            prop_assert_eq!(list.contains(&other), set.contains(&other));
        }
    }

    #[test]
    fn a_short_text_takes_its_bytes_and_eight_more() {
        let list: TextList = (0..10_000).map(|n| format!("{n:08}")).collect();
        assert_eq!(list.memory_bytes(), 10_000 * 16);
    }
}
