//! Writes of slots: replicas that apply the same log reach the same state, and refusals leave no
//! trace.

pub mod copy;
mod copy_contents;
mod copy_refusals;
pub mod crash;
mod dump;
mod history;
mod model;
mod refusals;
mod removal;
mod replay;
mod sessions;
pub mod world;

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}
