//! Names of databases.

use crate::Error;

/// Longest name in bytes: CouchDB's limit, a file name less the suffix of a shard file.
pub const NAME_LENGTH_MAX: usize = 238;

/// Databases whose names begin with an underscore.
const SYSTEM: [&str; 3] = ["_users", "_replicator", "_global_changes"];

/// Checks a name for a new database.
pub fn check(name: &str) -> Result<(), Error> {
    let legal = name.bytes().all(
        |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'$' | b'(' | b')' | b'+' | b'-' | b'/'),
    );
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if SYSTEM.contains(&name) {
        return Ok(());
    }
    if !legal || !starts_well {
        return Err(Error::IllegalName(name.into()));
    }
    if name.len() > NAME_LENGTH_MAX {
        return Err(Error::NameTooLong(name.into()));
    }
    Ok(())
}

/// Whether a database of this name is one of the system, which CouchDB does not partition: also `…/_users` and `…/_replicator`.
pub fn is_system(name: &str) -> bool {
    let suffix = name.rsplit('/').next().unwrap_or(name);
    SYSTEM.contains(&name) || matches!(suffix, "_users" | "_replicator")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_couchdb() {
        for ok in ["a", "a/b", "z0_$()+-/", "_users", &"a".repeat(238)] {
            assert!(check(ok).is_ok(), "{ok}");
        }
        assert!(is_system("_global_changes") && is_system("a/_users"));
        assert!(!is_system("a/_global_changes") && !is_system("users"));
        for bad in ["", "A", "_a", "1a", "a.b", "é", "a b", &"a".repeat(239)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
