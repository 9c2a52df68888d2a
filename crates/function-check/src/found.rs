//! Findings of runs.

use functions::{Effect, Error};

/// A finding that no place in a source shows.
pub struct FunctionFinding {
    /// The difference, in a word.
    pub kind: &'static str,
    /// Its effect on the function.
    pub effect: Effect,
    /// The line of the source, from 1, where one is known.
    pub line: Option<u32>,
    /// The event.
    pub differs: String,
    /// The remedy.
    pub instead: &'static str,
}

/// A function that does not compile.
pub fn does_not_compile(error: &Error) -> FunctionFinding {
    // The source follows in brackets.
    let text = error.to_string();
    let reason = text.lines().next().unwrap_or_default();
    let reason = reason.split(" (").next().unwrap_or_default();
    FunctionFinding {
        kind: "compile",
        effect: Effect::Fails,
        line: None,
        differs: format!("it does not compile here: {reason}"),
        instead: "standard JavaScript, after checking whether CouchDB compiles it",
    }
}

/// A function that threw.
pub fn throws(what: String, line: Option<u32>) -> FunctionFinding {
    FunctionFinding {
        kind: "throws",
        effect: Effect::Fails,
        line,
        differs: what,
        instead: "check whether it works in CouchDB, and use standard JavaScript",
    }
}

/// A map function whose rows for a document depend on the time zone.
pub fn depends_on_zone(id: &str) -> FunctionFinding {
    FunctionFinding {
        kind: "time-zone",
        effect: Effect::Differs,
        line: None,
        differs: format!(
            "its rows depend on the time zone, as those of document {id}: CouchDB uses that of its machine, Settee UTC, or [functions] time_zone"
        ),
        instead: "dates with a time zone and UTC methods, or set [functions] time_zone to the zone of the CouchDB server",
    }
}

/// A map function whose rows for a document depend on the order of its members.
pub fn depends_on_order(id: &str) -> FunctionFinding {
    FunctionFinding {
        kind: "member-order",
        effect: Effect::Differs,
        line: None,
        differs: format!(
            "its rows depend on the order of a document's members, as those of document {id}: CouchDB puts _attachments and _conflicts after the others, Settee before them"
        ),
        instead: "members by their names, or sorted names: Object.keys(doc).sort()",
    }
}
