//! Views: first builds in every language, catching up, reads, and the effect of a build on
//! concurrent readers.

mod build;
mod declarations;
mod extraction;
mod languages;
mod rows;
mod several;
mod small;
mod steady;
mod tasks;
mod view_reads;

pub(super) use build::wait_for;
pub(crate) use declarations::Declarations;
pub(crate) use languages::check_languages;
pub(crate) use rows::Rows;
pub(crate) use several::Several;
pub(crate) use small::FirstBuilds;
pub(crate) use steady::WhileBuilding;
pub(crate) use view_reads::ViewReads;

/// Rounds of first builds, each of a new design document.
const BUILD_ROUNDS: u32 = 3;
