//! Words without their endings, language by language.

mod porter;

/// Which stemmer. Those that end in "light" or "minimal" in Lucene are by Jacques Savoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stemmer {
    /// English: Porter's first algorithm.
    Porter,
}

impl Stemmer {
    /// Removes the endings of `word`, which is in lower case.
    pub(crate) fn stem(self, word: &mut String) {
        match self {
            Self::Porter => porter::stem(word),
        }
    }
}
