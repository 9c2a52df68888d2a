//! Code that checks of views and checks of text indexes share.

use database::DesignFacts;
use serde_json::json;

use crate::facts::Database;
use crate::finding::{Finding, Severity, percent};

/// Documents for which a function must have failed to be reported.
pub const FAILED_MIN: u64 = 100;
/// Share of failed documents from which a function is reported, in percent.
pub const FAILED_PERCENT: u64 = 10;
/// Failed builds since the last one that succeeded, from which they are reported.
pub const BUILDS_FAILED_MIN: u32 = 2;

/// A design document as findings name it: the database, and its id.
pub fn path(db: &Database, design: &DesignFacts) -> String {
    format!("{}/{}", db.name, design.id)
}

/// A function that threw for many of the documents that it was called with.
pub fn failing_function(
    subject: String,
    kind: &str,
    (failed, mapped): (u64, u64),
) -> Option<Finding> {
    let severity = match () {
        () if failed < FAILED_MIN => return None,
        () if failed >= mapped => Severity::Warning,
        () if percent(failed, mapped) >= FAILED_PERCENT => Severity::Note,
        () => return None,
    };
    let says = match failed >= mapped {
        true => format!("it threw for all of {mapped} documents"),
        false => format!("it threw for {failed} of {mapped} documents"),
    };
    Some(
        Finding::new(severity, subject, says)
            .evidence(json!({"failed": failed, "mapped": mapped}))
            .act(format!("# the exception is in the log, at \"{kind}\""))
            .act("# let the function check before it reads: if (doc.items) { ... }"),
    )
}
