//! The table of checks. The manual's page has the same table, which a test compares.

mod cluster;
mod data;
mod finds;
mod index;
mod machine;
mod operation;
#[cfg(test)]
mod planted;
mod texts;
mod views;
mod writes;

use crate::check::Check;

/// All checks, in the order of the manual.
pub static CHECKS: &[Check] = &[
    writes::WRITES,
    machine::OPEN_FILES,
    writes::CONNECTIONS,
    machine::ACCEPT_BACKLOG,
    machine::DISK_SPACE,
    machine::SLOW_SYNCS,
    machine::BLOCK_CACHE,
    machine::MEMORY,
    machine::QUEUES,
    machine::PERMISSIONS,
    machine::CONFINEMENT,
    data::RANDOM_IDS,
    data::LONG_IDS,
    data::TINY_BULKS,
    data::CONFLICTS,
    data::TOMBSTONES,
    data::COMPACTION,
    data::EXPIRY,
    finds::SCANS,
    finds::EXAMINED,
    views::UNUSED_INDEXES,
    views::DUPLICATE_INDEXES,
    views::WHOLE_DOCUMENTS,
    views::FAILING_MAPS,
    views::FAILING_BUILDS,
    views::FUNCTIONS,
    texts::TEXT_INDEXES,
    operation::REPLICATIONS,
    operation::WEAK_HASHES,
    operation::PLAIN_HTTP,
    operation::CORS,
    operation::DEV,
    operation::CERTIFICATES,
    operation::AUTO_PURGE,
    operation::BACKUP,
    operation::MAINTENANCE,
    cluster::NODES,
    cluster::SLOTS,
    cluster::MARGIN,
    cluster::LOG,
    cluster::LAG,
    cluster::CONNECTIONS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    /// The manual's table.
    fn table() -> String {
        let mut table = String::from("| check | examines | reports |\n|---|---|---|\n");
        for check in CHECKS {
            let finds = (check.finds)();
            table.push_str(&format!(
                "| `{}` | {} | {finds} |\n",
                check.id, check.looks_at
            ));
        }
        table
    }

    #[test]
    fn the_manual_has_this_table() {
        let path = "../../docs/src/operations/doctor.md";
        let page = std::fs::read_to_string(path).unwrap();
        let table = table();
        assert!(
            page.contains(&table),
            "docs/src/operations/doctor.md should have:\n{table}"
        );
    }

    #[test]
    fn ids_are_told_apart_and_everything_is_said() {
        for (n, check) in CHECKS.iter().enumerate() {
            assert!(
                CHECKS[..n].iter().all(|other| other.id != check.id),
                "{}",
                check.id
            );
            for text in [check.title, check.looks_at, check.why, &(check.finds)()] {
                assert!(
                    !text.is_empty() && !text.contains('|'),
                    "{}: {text}",
                    check.id
                );
            }
        }
    }

    #[test]
    fn a_server_of_which_nothing_is_known_has_nothing_wrong() {
        for check in CHECKS {
            if let Ok(found) = check.run(&Facts::default()) {
                assert_eq!(found, [], "{}", check.id);
            }
        }
    }
}
