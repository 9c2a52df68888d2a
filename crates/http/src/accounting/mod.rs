//! Accounts for each request when its response has ended: counters, the slow log, and traces.

pub mod completion;
pub mod route_label;
pub mod slow;
pub mod traced;
pub mod waits;
