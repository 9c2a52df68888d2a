//! One server without sockets: rights in databases, the arguments of design functions, the
//! environment of the replicator, set-up and backups. Requests come in as types, and failures are
//! [`Error`]s: `http` defines their statuses.
#![forbid(unsafe_code)]

mod access;
mod auto_purge;
mod backups;
mod clock;
mod descriptors;
mod design;
mod documents;
mod error;
mod expirer;
mod filters;
mod internal;
mod memory;
mod node;
mod query;
mod replication;
mod request_object;
mod settings;
pub mod setup;
mod value;

pub use access::{Access, caller, requester, require_login, require_server_admin};
pub use auto_purge::{AutoPurge, counters as auto_purge_counters};
pub use backups::counters as backup_counters;
pub use backups::{BackupFigures, BackupHistory, Backups, FinishedBackup, Phase, RunningBackup};
pub use descriptors::DescriptorPlan;
pub use design::{design_doc, require_function};
pub use documents::{check_document, parse_id};
pub use error::Error;
pub use expirer::{Expirer, ExpiryFacts, counters as expiry_counters};
pub use filters::{FunctionPath, NamedFilter, selector_filter};
pub use internal::{RewrittenRequest, design_doc_of_list, open_for_replication, updater};
pub use memory::{LimitSource, MemoryPlan};
pub use node::Node;
pub use query::{
    Query, count_pairs, decode, encode_into, is_utf8_decoded, is_well_encoded, parse_json,
    segments, segments_with,
};
pub use request_object::{
    RequestPart, body_given, for_rewrite, info_json, is_form, limited_info_json, request_json,
};
pub use settings::{
    is_shared, ken, may_be_taken_over, new_database, reduce_limit, shared_settings,
};
pub use value::value_of;
