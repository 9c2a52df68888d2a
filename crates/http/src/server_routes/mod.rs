//! Routes of the server as a whole: paths whose first segment is not a database.

pub mod backup;
pub mod cluster;
pub mod db_updates;
pub mod doctor;
pub mod infos_elsewhere;
pub mod openapi;
pub mod profile;
pub mod replication;
pub mod reshard;
pub mod root;
pub mod session;
pub mod setup;
pub mod slow;
pub mod this_node;
pub mod top;
pub mod utils;
