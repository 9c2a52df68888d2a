//! Prefixes of words, for search as the user types.

use crate::{Error, Token};
use serde_json::Value;

/// Maximum characters of a prefix.
const LENGTH_MAX: usize = 50;

/// The lengths of the prefixes that are indexed in addition to the word, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EdgeGrams {
    min: usize,
    max: usize,
}

impl EdgeGrams {
    /// From the options of the analyzer's definition: `min_gram`, 1 when it is not given, and
    /// `max_gram`, 20.
    pub(crate) fn parse(definition: &Value) -> Result<Self, Error> {
        let option = |name, default| match definition.get(name) {
            None => Some(default),
            Some(value) => value.as_u64().and_then(|n| n.try_into().ok()),
        };
        match (option("min_gram", 1), option("max_gram", 20)) {
            (Some(min), Some(max)) if 1 <= min && min <= max && max <= LENGTH_MAX => {
                Ok(Self { min, max })
            }
            _ => Err(Error::Grams),
        }
    }

    /// Calls `visit` with the prefixes of `word`, the shortest first, and at last with the word.
    /// All have its position; `gram` is used for them.
    pub(crate) fn each(self, word: &Token, gram: &mut Token, visit: &mut dyn FnMut(&Token)) {
        (gram.position, gram.start, gram.end) = (word.position, word.start, word.end);
        let ends = word.text.char_indices().map(|(at, _)| at);
        for end in ends.skip(self.min).take(self.max - self.min + 1) {
            gram.text.clear();
            gram.text.push_str(&word.text[..end]);
            visit(gram);
        }
        visit(word);
    }
}
