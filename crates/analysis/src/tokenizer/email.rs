//! `standard`, where URLs and addresses of mail are words.

use super::{Raw, standard};
use crate::analyzer::Flavour;

/// Calls `sink` with each word of `text`.
pub(super) fn each<'a>(flavour: Flavour, text: &'a str, sink: &mut dyn FnMut(Raw<'a>)) {
    standard::each(flavour, text, sink);
}
