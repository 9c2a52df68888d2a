//! Rebuilds the engine's list of its files where it is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::{ColumnFamilyDescriptor, DB, Options};

use crate::Error;
use crate::engine::{Engine, Strictness};
use crate::keyspace::Keyspace;

const NAME_OF_LIST: &str = "CURRENT";
const LIST: &str = "MANIFEST-";
/// A key that no row has: keys start with a letter, or with a number that is not in use.
const NO_ROW: &[u8] = b"\xff\xff\xff\xff\xff";

/// Opens the store in `path` with a rebuilt list, in `scratch`, which must not exist: with links to
/// the tables and copies of the rest. Also returns a description for people.
///
/// # Errors
/// [`Error::Directory`], [`Error::Engine`]: nothing can be read this way either.
pub(super) fn open_without_list(
    path: &Path,
    scratch: &Path,
) -> Result<(Arc<Engine>, Vec<String>), Error> {
    if let Some(list) = newest_list(path) {
        copy(path, scratch).map_err(|e| refused(scratch, &e))?;
        fs::write(scratch.join(NAME_OF_LIST), format!("{list}\n"))
            .map_err(|e| refused(scratch, &e))?;
        if let Ok(engine) = Engine::open_read_only(scratch, Strictness::Lenient) {
            let said = format!("{list} was taken as the engine's list of files: nothing names it");
            return Ok((engine, vec![said]));
        }
        fs::remove_dir_all(scratch).map_err(|e| refused(scratch, &e))?;
    }
    copy(path, scratch).map_err(|e| refused(scratch, &e))?;
    name_keyspaces(scratch)?;
    DB::repair(&Options::default(), scratch)?;
    let engine = Engine::open_read_only(scratch, Strictness::Lenient)?;
    let said = [
        "the engine's list of files was rebuilt",
        "attachments longer than 4 KiB that it does not find again are lost",
    ];
    Ok((engine, said.map(str::to_owned).to_vec()))
}

fn refused(path: &Path, reason: &std::io::Error) -> Error {
    Error::Directory {
        path: path.into(),
        reason: reason.to_string(),
    }
}

/// Returns the last list that was started, when only the file that names it is lost.
fn newest_list(path: &Path) -> Option<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let number = |name: &String| name.strip_prefix(LIST)?.parse::<u64>().ok();
    names
        .filter(|name| number(name).is_some())
        .max_by_key(number)
}

/// Adds an empty table to each keyspace. When the engine rebuilds a list, it knows keyspaces only
/// by their tables, and drops what the log has for an unknown one.
fn name_keyspaces(scratch: &Path) -> Result<(), Error> {
    let place = scratch.join("keyspaces");
    let mut o = Options::default();
    o.create_if_missing(true);
    o.create_missing_column_families(true);
    let families = Keyspace::ALL.map(|k| ColumnFamilyDescriptor::new(k.name(), Options::default()));
    let db = DB::open_cf_descriptors(&o, &place, families)?;
    for k in Keyspace::ALL {
        if let Some(cf) = db.cf_handle(k.name()) {
            db.delete_cf(cf, NO_ROW)?;
            db.flush_cf(cf)?;
        }
    }
    drop(db);
    let mut number = files(scratch).filter_map(|path| number(&path)).max();
    for table in files(&place).filter(|path| is_table(path)) {
        let next = number.map_or(1, |last| last + 1);
        let target = scratch.join(format!("{next:06}.sst"));
        fs::rename(&table, &target).map_err(|e| refused(&target, &e))?;
        number = Some(next);
    }
    fs::remove_dir_all(&place).map_err(|e| refused(&place, &e))
}

fn files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Returns the number in the name of a table or a log.
fn number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// Returns whether it is a file that the engine never changes.
pub(super) fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|x| x == "sst" || x == "blob")
}

/// Copies a store so that the engine may change the copy: tables are hard links where the file
/// system can.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() || entry.file_name() == "LOCK" {
            continue;
        }
        let target = to.join(entry.file_name());
        if !is_table(&entry.path()) || fs::hard_link(entry.path(), &target).is_err() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
