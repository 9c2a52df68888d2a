//! Partitioned databases: documents whose ids have the same text before the first colon are stored
//! together.

use document::DocId;

use crate::Error;

const ILLEGAL_PARTITION: &str = "illegal_partition";

/// Checks the name of a partition in a request.
pub fn check(partition: &str) -> Result<(), Error> {
    let refuse = |reason: &str| Err(Error::Partition(ILLEGAL_PARTITION, reason.into()));
    if partition.is_empty() {
        return refuse("Partition must not be empty");
    }
    if partition.starts_with('_') {
        return refuse("Partition must not start with an underscore");
    }
    if partition.contains(':') {
        return refuse("Partition must not contain a colon");
    }
    Ok(())
}

/// Checks the id of a document for a partitioned database. Design and local documents belong to no partition.
pub fn check_id(id: &DocId) -> Result<(), Error> {
    if id.is_design() || id.is_local() {
        return Ok(());
    }
    match id.as_str().split_once(':') {
        None => check_named(id.as_str()),
        Some((_, "")) => Err(Error::Partition(
            "illegal_docid",
            "Document id must not be empty".into(),
        )),
        Some((partition, _)) => check(partition),
    }
}

/// Checks that an id names a partition, which determines its document's shard.
pub fn check_named(id: &str) -> Result<(), Error> {
    if id.starts_with('_') || id.contains(':') {
        return Ok(());
    }
    Err(Error::Partition(
        "illegal_docid",
        "Doc id must be of form partition:id".into(),
    ))
}

/// The bounds of a partition's ids: from the first, up to before the second.
pub fn bounds(partition: &str) -> (String, String) {
    (format!("{partition}:"), format!("{partition};"))
}
