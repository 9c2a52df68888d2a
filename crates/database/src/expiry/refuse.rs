//! Clients' edits with an invalid time are refused.

use std::sync::atomic::Ordering::Relaxed;

use document::EditDoc;

use super::property::Expiry;
use super::time::ExpiryTime;
use crate::database::Database;
use crate::refusals::RefusalRoom;
use crate::{EditMode, Outcome};

impl Database {
    /// Replaces clients' edits with an invalid time by their refusal. Replicated edits are accepted as they are: other servers
    /// have them.
    pub(crate) fn refuse_invalid_times(
        &self,
        edits: Vec<Result<EditDoc, Outcome>>,
        mode: EditMode,
    ) -> Vec<Result<EditDoc, Outcome>> {
        if mode == EditMode::Replicated || !self.has_expiry.load(Relaxed) {
            return edits;
        }
        let Some(expiry) = self.expiry() else {
            return edits;
        };
        let mut refusals = RefusalRoom::new();
        let check = |edit: Result<EditDoc, Outcome>| match edit {
            Ok(doc) if is_invalid(&doc, &expiry) => Err(refusal(&expiry).kept_in(&mut refusals)),
            edit => edit,
        };
        edits.into_iter().map(check).collect()
    }
}

fn is_invalid(doc: &EditDoc, expiry: &Expiry) -> bool {
    let may_expire = |id: &document::DocId| !id.is_design() && !id.is_local();
    !doc.deleted
        && doc.id.as_ref().is_none_or(may_expire)
        && ExpiryTime::of(&doc.body, expiry.member()) == ExpiryTime::Invalid
}

fn refusal(expiry: &Expiry) -> Outcome {
    let reason = format!(
        "`{}`, the time when the document expires, must be a string with a time of RFC 3339, such as \"2026-12-31T23:59:59Z\", or a number of seconds since 1970",
        expiry.member()
    );
    Outcome::Refused("bad_request".into(), reason.into())
}
