//! Ids that a host gives its documents itself.

use std::sync::Arc;

use document::{ProcessIds, check_id_prefix};

use crate::{Error, Result};

/// Ids with a prefix. Threads can share it; a forked process continues with other ids.
#[derive(Clone, Debug)]
pub struct Ids {
    kind: ProcessIds,
    prefix: Arc<str>,
}

impl Ids {
    /// Returns a source of ids: the prefix, then 32 hexadecimal digits.
    ///
    /// # Errors
    /// 400 `bad_request` for a prefix that documents' ids cannot start with.
    pub fn new(kind: ProcessIds, prefix: &str) -> Result<Ids> {
        check_id_prefix(prefix).map_err(|e| Error::bad_request(e.to_string()))?;
        Ok(Ids {
            kind,
            prefix: prefix.into(),
        })
    }

    /// Returns the prefix.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the next id, which is greater than all earlier ones of this process, kind and prefix.
    pub fn next(&self) -> String {
        let mut id = String::with_capacity(self.prefix.len() + 32);
        id.push_str(&self.prefix);
        id.push_str(&self.kind.next());
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_prefix_and_ascend_whichever_source_makes_them() {
        let ids = |prefix| Ids::new(ProcessIds::Sequential, prefix).unwrap();
        let (one, other) = (ids("status/"), ids("status/"));
        let made: Vec<String> = (0..50).flat_map(|_| [one.next(), other.next()]).collect();
        assert!(made.is_sorted_by(|left, right| left < right), "{made:?}");
        assert!(
            made.iter()
                .all(|id| id.len() == 39 && id.starts_with("status/"))
        );
        let refused = Ids::new(ProcessIds::Monotonic, "_x").unwrap_err();
        assert_eq!((refused.status, &*refused.error), (400, "bad_request"));
    }
}
