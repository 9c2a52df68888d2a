//! Sorting of many texts scattered in memory. Fetching them dominates: so each item carries eight
//! bytes of its text, by which it is sorted first, and only items that are equal there fetch the
//! next eight.

/// An item that refers to a text.
pub(crate) trait Item: Copy {
    /// Returns the bytes that it carries along.
    fn window(&self) -> u64;
    /// Changes them.
    fn set_window(&mut self, window: u64);
}

const WINDOW_BYTES: usize = size_of::<u64>();
/// Number of items that are sorted directly by their texts.
const FEW: usize = 24;
/// Number of windows after which the rest is compared as a whole: this function recurses, and
/// crafted texts could remove one item per level.
const WINDOWS_MAX: usize = 64;

/// Sorts by texts.
pub(crate) fn sort<'t, T: Item>(items: &mut [T], text: &impl Fn(&T) -> &'t [u8]) {
    sort_within(items, 0, WINDOWS_MAX, text);
}

/// Sorts by texts whose first `known` bytes are equal, with at most this many windows.
fn sort_within<'t, T: Item>(
    items: &mut [T],
    known: usize,
    windows: usize,
    text: &impl Fn(&T) -> &'t [u8],
) {
    if items.len() <= FEW || windows == 0 {
        items.sort_unstable_by(|a, b| text(a)[known..].cmp(&text(b)[known..]));
        return;
    }
    let at = known + shared_bytes(items, known, text);
    for item in items.iter_mut() {
        item.set_window(window(&text(item)[at..]));
    }
    items.sort_unstable_by_key(T::window);
    for alike in items.chunk_by_mut(|a, b| a.window() == b.window()) {
        if alike.len() == 1 {
            continue;
        }
        // Past the end of a text the window is zero, as it is where a text has zeros.
        if alike
            .iter()
            .all(|item| text(item).len() >= at + WINDOW_BYTES)
        {
            sort_within(alike, at + WINDOW_BYTES, windows - 1, text);
        } else {
            alike.sort_unstable_by(|a, b| text(a)[at..].cmp(&text(b)[at..]));
        }
    }
}

/// Returns the number of bytes after the first `known` that are equal in all texts.
fn shared_bytes<'t, T>(items: &[T], known: usize, text: &impl Fn(&T) -> &'t [u8]) -> usize {
    let Some((first, others)) = items.split_first() else {
        return 0;
    };
    let mut shared = &text(first)[known..];
    for item in others {
        let other = &text(item)[known..];
        let alike = shared.iter().zip(other).take_while(|(a, b)| a == b);
        shared = &shared[..alike.count()];
        if shared.is_empty() {
            break;
        }
    }
    shared.len()
}

fn window(text: &[u8]) -> u64 {
    match text.first_chunk::<WINDOW_BYTES>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; WINDOW_BYTES];
            bytes[..text.len()].copy_from_slice(text);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy)]
    struct Numbered(usize, u64);

    impl Item for Numbered {
        fn window(&self) -> u64 {
            self.1
        }
        fn set_window(&mut self, window: u64) {
            self.1 = window;
        }
    }

    fn sorted(texts: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut items: Vec<_> = (0..texts.len()).map(|n| Numbered(n, 0)).collect();
        sort(&mut items, &|item: &Numbered| &texts[item.0][..]);
        items.iter().map(|item| texts[item.0].clone()).collect()
    }

    #[test]
    fn long_texts_that_differ_late_are_sorted() {
        let text = |n: usize| {
            [
                vec![b'x'; 5_000 + n % 3],
                vec![0; n % 19],
                vec![(n * 7 % 251) as u8],
            ]
        };
        let mut texts: Vec<Vec<u8>> = (0..2_000).map(|n| text(n).concat()).collect();
        let found = sorted(&texts);
        texts.sort();
        assert_eq!(found, texts);
    }

    #[test]
    fn texts_that_begin_each_other_take_no_more_windows_than_there_may_be() {
        let mut texts: Vec<Vec<u8>> = (0..3_000).rev().map(|n| vec![1; 8 * n]).collect();
        let found = sorted(&texts);
        texts.sort();
        assert_eq!(found, texts);
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_texts(
            texts in proptest::collection::vec(
                // Few distinct bytes, so that many texts are equal or share a prefix; zeros among
                // them.
                ("[ab]{0,3}", proptest::collection::vec(0u8..3, 0..20)), 0..300),
        ) {
            let mut texts: Vec<Vec<u8>> =
                texts.into_iter().map(|(head, rest)| [head.as_bytes(), &rest].concat()).collect();
            let found = sorted(&texts);
            texts.sort();
            prop_assert_eq!(found, texts);
        }
    }
}
