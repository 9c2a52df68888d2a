//! Lucene 9's flexible parser, as Nouveau uses it.

use super::{Error, ParseOptions, Query};

pub(super) fn parse(text: &str, options: &ParseOptions<'_>) -> Result<Query, Error> {
    super::classic::parse(text, options)
}
