//! Documents that expire: a property of a database names the member of its documents that contains the time.
//!
//! | module | content |
//! |---|---|
//! | `property` | the property |
//! | `time` | reading the time of a document |
//! | `mapper` | the index of times: its specification, and the rows of a document |
//! | `refuse` | refusal of edits with an invalid time |
//! | `due` | which documents have expired, and their deletion or purge |
//! | `watch` | which databases changed and are to be searched |
//!
//! **The index is one like those of views**: built from the changes of each shard after they were committed, with no document
//! that defines it. So conflicts, replicated edits, purges, copies of slots and crashes need no code here, writes cost
//! nothing more, and the stored form of documents is the same in all databases. The crate `node` decides when to search it.

mod due;
mod mapper;
mod property;
mod refuse;
mod time;
mod watch;

pub use due::{DueDocuments, ExpiredDocument};
pub(crate) use mapper::{ExpiryMapper, LANGUAGE, NAME, signature, spec};
pub use property::{ExpiredDocuments, Expiry};
pub use watch::ExpiryWatch;
