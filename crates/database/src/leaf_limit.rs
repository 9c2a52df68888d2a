//! Limit of the leaves of a document: `[couchdb] max_document_leaves`.

use std::sync::Arc;

use document::ACCESS_BYTES_MAX;
use storage::ShardEdit;

use crate::database::{ACCESS_LEAVES_MAX, Database};
use crate::refusals::RefusalRoom;
use crate::update::blocking;
use crate::{Error, Outcome};

/// Edits that may be logged, and the outcomes of the others with gaps for them.
type Divided = (Vec<ShardEdit>, Vec<Option<Outcome>>);

/// Fewer edits are checked on the thread that has them, unless revision trees have to be read.
const FEW_EDITS: usize = 64;

/// The refusal of a leaf beyond the limit. It is `forbidden`, so that replicators continue with
/// other documents.
pub(crate) fn too_many_leaves(max: Option<u64>) -> Outcome {
    let max = max.unwrap_or(u64::MAX).max(1);
    Outcome::Refused(
        "forbidden".into(),
        format!(
            "the document has as many leaf revisions as it may have: [couchdb] max_document_leaves ({max}). Purge some of them, or raise the limit"
        )
        .into(),
    )
}

/// The refusal of an edit of a database with access, after which a document would have too many
/// leaves, or too many principals in them. It is `forbidden`, as [`too_many_leaves`].
pub(crate) fn access_too_long() -> Outcome {
    let kib = ACCESS_BYTES_MAX >> 10;
    let reason = format!(
        "in a database with access, a document has at most {ACCESS_LEAVES_MAX} leaf revisions, whose `_access` take at most {kib} KiB together: name fewer principals, or resolve conflicts"
    );
    Outcome::Refused("forbidden".into(), reason.into())
}

impl Database {
    /// Divides edits that are about to be logged into those that would exceed the limit and the
    /// others. The outcomes of the former have gaps for the latter.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn refuse_leaves(&self, edits: Vec<ShardEdit>) -> Result<Divided, Error> {
        let limits = self.limits();
        let is_short = edits.len() <= FEW_EDITS;
        if is_short && !storage::may_have_too_many_leaves(&edits, &limits)? {
            let outcomes = edits.iter().map(|_| None).collect();
            return Ok((edits, outcomes));
        }
        // Dropped with this future, when the caller waits no more.
        let waits = Arc::new(());
        let caller_waits = Arc::downgrade(&waits);
        let check = move || -> Result<Divided, Error> {
            let is_wanted = || caller_waits.strong_count() > 0;
            let refused = storage::too_many_leaves(&edits, &limits, is_wanted)?;
            let mut room = RefusalRoom::new();
            let mut refusal = || too_many_leaves(limits.leaves_max).kept_in(&mut room);
            let outcomes = refused.iter().map(|refused| refused.then(&mut refusal));
            let outcomes: Vec<_> = outcomes.collect();
            let allowed = edits.into_iter().zip(refused);
            let allowed = allowed.filter(|(_, refused)| !refused);
            Ok((allowed.map(|(edit, _)| edit).collect(), outcomes))
        };
        blocking(check).await
    }
}
