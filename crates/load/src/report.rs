//! The result of a load, and why it stopped.

use command_line::{LoginPlace, RefusedRequest};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::scanner::InputError;

/// Ids kept as examples of a refusal.
const EXAMPLES_MAX: usize = 3;
/// Different refusals kept apart; servers that put the id into the reason would otherwise fill the
/// memory.
const REFUSALS_MAX: usize = 200;

/// The result of a load.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LoadReport {
    /// Documents found in the input.
    pub read: u64,
    /// Documents that the server accepted.
    pub written: u64,
    /// Documents that were not written, grouped by reason, in the order in which the reasons first
    /// came.
    pub refused: Vec<Refusal>,
    /// Cells of a CSV input that are not of their column's type.
    pub notes: Vec<String>,
    /// Bytes of JSON in the documents that were read.
    pub bytes: u64,
    /// Whether this load created the database.
    pub database_created: bool,
    /// Time from start to end.
    pub seconds: f64,
}

/// Documents refused for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// CouchDB's `error`, or `load` when the document was not sent.
    pub error: String,
    /// CouchDB's `reason`.
    pub reason: String,
    /// Number of documents.
    pub count: u64,
    /// The first three of them: ids, or the position in the input of documents without an id.
    pub first_ids: Vec<String>,
}

impl LoadReport {
    /// Documents that were not written.
    pub fn refused_count(&self) -> u64 {
        self.refused.iter().map(|refusal| refusal.count).sum()
    }

    /// Documents written a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.written as f64 / self.seconds
        } else {
            0.0
        }
    }

    pub(crate) fn refuse(&mut self, error: &str, reason: &str, id: &str) {
        let same = |refusal: &Refusal| refusal.error == error && refusal.reason == reason;
        let at = self.refused.iter().position(same).unwrap_or_else(|| {
            if self.refused.len() < REFUSALS_MAX {
                self.refused.push(Refusal {
                    error: error.to_owned(),
                    reason: reason.to_owned(),
                    count: 0,
                    first_ids: Vec::new(),
                });
            }
            // Past the limit, further reasons are counted with the last one, which is renamed to
            // say so.
            self.refused.len() - 1
        });
        let refusal = &mut self.refused[at];
        if !same(refusal) {
            "further reasons".clone_into(&mut refusal.reason);
        }
        refusal.count += 1;
        if refusal.first_ids.len() < EXAMPLES_MAX {
            refusal.first_ids.push(id.to_owned());
        }
    }
}

impl std::fmt::Display for LoadReport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} read, {} written, {} refused, {:.1} MB in {:.1} s ({:.0} docs/s)",
            command_line::counted(self.read, "documents"),
            self.written,
            self.refused_count(),
            self.bytes as f64 / 1e6,
            self.seconds,
            self.rate()
        )?;
        for refusal in &self.refused {
            write!(
                out,
                "\n  {} refused: {}: {} (first: {})",
                refusal.count,
                refusal.error,
                refusal.reason,
                refusal.first_ids.join(", ")
            )?;
        }
        for note in &self.notes {
            write!(out, "\n  {note}")?;
        }
        Ok(())
    }
}

/// Loading stopped before the end of the input.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct LoadError {
    /// Why.
    #[source]
    pub cause: LoadCause,
    /// The documents loaded until then.
    pub report: Box<LoadReport>,
}

/// Why loading stopped.
#[derive(Debug, thiserror::Error)]
pub enum LoadCause {
    /// Options or names that cannot be used.
    #[error("{0}")]
    Options(String),
    /// The input cannot be read, or is not JSON.
    #[error(transparent)]
    Input(InputError),
    /// The server refused a whole request.
    #[error("{}", refusal(*side, url, *status, body))]
    Refused {
        /// The server's role.
        side: Side,
        /// The URL.
        url: Url,
        /// HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// A reply that is not CouchDB's.
    #[error("{what}: {problem}")]
    Reply {
        /// Method and URL.
        what: String,
        /// The problem with it.
        problem: String,
    },
    /// No usable reply.
    #[error("{}", silence(url, *has_answered, source))]
    Http {
        /// The URL.
        url: Url,
        /// Whether the server answered an earlier request.
        has_answered: bool,
        /// The client's error.
        source: reqwest::Error,
    },
}

/// The role of a server in a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The documents are read from it.
    Source,
    /// The documents are written to it.
    Target,
    /// The database is created on it.
    NewDatabase,
}

/// Describes a server that did not answer in one line.
fn silence(url: &Url, has_answered: bool, error: &reqwest::Error) -> String {
    match has_answered {
        true => command_line::connection_loss(url, error),
        false => command_line::connection_failure(url, error),
    }
}

/// Describes a refused request in one line.
fn refusal(side: Side, url: &Url, status: u16, body: &str) -> String {
    #[derive(Deserialize)]
    struct Body {
        reason: String,
    }
    let body: Option<Body> = serde_json::from_str(body).ok();
    let (needs, login_place) = match side {
        Side::Source => ("a user who may read the database", LoginPlace::Url),
        Side::Target => (
            "a user who may write to the database",
            LoginPlace::UrlOrCredentials,
        ),
        Side::NewDatabase => (
            "an admin, who may create the database,",
            LoginPlace::UrlOrCredentials,
        ),
    };
    let refused = RefusedRequest {
        status,
        reason: body.as_ref().map(|body| body.reason.as_str()),
        has_login: !url.username().is_empty(),
        needs,
        login_place,
        location: None,
    };
    refused.description(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_advised_where_it_is_read() {
        let of = |side| LoadCause::Refused {
            side,
            url: Url::parse("http://127.0.0.1:5984/db").unwrap(),
            status: 401,
            body: r#"{"error":"unauthorized","reason":"You are not authorized."}"#.to_owned(),
        };
        let source = of(Side::Source).to_string();
        assert!(
            source.ends_with("who may read the database in the URL"),
            "{source}"
        );
        let target = of(Side::Target).to_string();
        assert!(
            target.ends_with("in the URL or in SETTEE_CREDENTIALS"),
            "{target}"
        );
        let new = of(Side::NewDatabase).to_string();
        assert!(
            new.ends_with(
                "of an admin, who may create the database, in the URL or in SETTEE_CREDENTIALS"
            ),
            "{new}"
        );
    }

    #[test]
    fn refusals_are_grouped_with_the_first_three_ids() {
        let mut report = LoadReport::default();
        for id in ["a", "b", "c", "d"] {
            report.refuse("conflict", "Document update conflict.", id);
        }
        report.refuse("forbidden", "no", "e");
        assert_eq!(report.refused.len(), 2);
        assert_eq!(report.refused[0].count, 4);
        assert_eq!(report.refused[0].first_ids, ["a", "b", "c"]);
        assert!(report.to_string().contains("5 refused"));
    }

    #[test]
    fn reasons_without_end_take_bounded_memory() {
        let mut report = LoadReport::default();
        for number in 0..10_000 {
            report.refuse("bad_request", &format!("reason {number}"), "a");
        }
        assert_eq!(report.refused.len(), REFUSALS_MAX);
        assert_eq!(report.refused_count(), 10_000);
    }
}
