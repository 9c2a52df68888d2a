//! Routes of a database: `/{db}` and `/{db}/_…`, but those of its documents.

pub mod bulk;
pub mod bulk_get;
pub mod changes;
pub mod database;
pub mod find;
pub mod indexes;
pub mod listing;
pub mod nouveau;
pub mod partition;
pub mod preview;
pub mod queries;
pub mod revs_diff;
pub mod search;
pub mod texts;
pub mod views;
