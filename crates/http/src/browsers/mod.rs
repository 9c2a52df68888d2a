//! Rights of pages in browsers: pages of other origins, and pages that show responses in frames.

pub mod cors;
pub mod cross_site;
pub mod dev;
pub mod frame_options;
