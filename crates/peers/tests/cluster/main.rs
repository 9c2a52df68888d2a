//! Nodes that talk, in one process.

mod calls;
mod certificates;
mod figures;
mod joining;
mod messages;
mod support;
