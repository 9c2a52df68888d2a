//! Thai words.

use super::{Raw, standard};
use crate::analyzer::Flavour;
use crate::checkpoints::Checkpoints;

/// Calls `sink` with each word of `text`.
pub(super) fn each<'a>(
    flavour: Flavour,
    text: &'a str,
    checkpoints: &mut Checkpoints<'_>,
    sink: &mut dyn FnMut(Raw<'a>),
) {
    standard::each(flavour, text, checkpoints, sink);
}
