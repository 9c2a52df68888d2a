//! Access to documents: the member `_access`, and the changes that each principal sees.
//!
//! A *principal* is a user, a role, or all users. A revision has an [`AccessSet`], which its body's
//! member `_access` names; a tombstone takes over that of the revision that it deletes. A
//! [`DocAccess`] has the sets of all leaves of a document, and for each principal the change that
//! it saw last.
//!
//! `set.rs` reads sets, `doc.rs` has the access of a document, `verdict.rs` judges edits,
//! `change.rs` computes what each principal sees of a change, and `codec.rs` has stored forms.

mod change;
mod codec;
mod doc;
mod principal;
mod set;
#[cfg(test)]
mod tests;
mod verdict;

pub use change::GrantMove;
pub use doc::{DocAccess, Grant, LeafAccess, Shown};
pub use principal::{PRINCIPAL_BYTES_MAX, Principal, Principals};
pub use set::{ACCESS_MEMBER, ACCESS_PRINCIPALS_MAX, AccessError, AccessSet, IndexReaders};
pub use verdict::{ACCESS_BYTES_MAX, AccessEdit, AccessVerdict, EditBasis, nearest_known};
