//! What may who asks do in a database, and what may be done in their place?

pub mod access;
pub mod internal;
