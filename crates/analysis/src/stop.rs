//! Stop words: words too frequent to search for. Each list names its source.

use crate::filter::Words;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

macro_rules! lists {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("stopwords/", $name, ".txt")))),*]
    };
}

static LISTS: LazyLock<HashMap<&'static str, Words>> = LazyLock::new(|| {
    lists!(
        "ar" "bg" "br" "ca" "cjk" "cz" "da" "de" "el" "en" "es" "eu" "fa" "fi" "fi46" "fr" "fr46" "ga" "ga46" "gl" "hi" "hu" "hy"
        "id" "it" "ja" "lv" "nl" "no" "pl" "pt" "ro" "ro10" "ru" "sv" "th" "tr"
    )
    .into_iter()
    .map(|(name, list)| (name, words(list.lines().filter(|line| !line.starts_with('#')))))
    .collect()
});

/// Returns the list of that name.
pub(crate) fn list(name: &str) -> Words {
    Arc::clone(
        LISTS
            .get(name)
            .expect("a list of stop words that is in the program"),
    )
}

/// Returns a set of these words.
pub(crate) fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Words {
    Arc::new(words.into_iter().map(str::to_owned).collect())
}
