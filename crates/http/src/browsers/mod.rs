//! What may pages in browsers do? Those of other origins, and those that show answers in frames.

pub mod cors;
pub mod cross_site;
pub mod dev;
pub mod frame_options;
