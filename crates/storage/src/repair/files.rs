//! The engine's list of its files, made anew where it is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::{ColumnFamilyDescriptor, DB, Options};

use crate::Error;
use crate::engine::{Engine, Strictness};
use crate::keyspace::Keyspace;

const NAME_OF_LIST: &str = "CURRENT";
const LIST: &str = "MANIFEST-";
/// No row has this key: keys begin with a letter, or with a number that is not in use.
const NO_ROW: &[u8] = b"\xff\xff\xff\xff\xff";

/// Opens what is in `path` by a list made anew, in `scratch`, which must not exist: with links to the tables and copies of the rest. Answers
/// for people what was done, too.
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
        "the engine's list of files was made anew",
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

/// The list that was begun last, when only the file that names it is lost.
fn newest_list(path: &Path) -> Option<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let number = |name: &String| name.strip_prefix(LIST)?.parse::<u64>().ok();
    names
        .filter(|name| number(name).is_some())
        .max_by_key(number)
}

/// Adds a table to each keyspace, with nothing in it. The engine knows keyspaces by their tables only, when it makes a list anew, and drops
/// what the log has for one that it does not know.
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

/// The number in the name of a table or a log.
fn number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// Files that the engine never changes.
pub(super) fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|x| x == "sst" || x == "blob")
}

/// A copy of a store that the engine may change: tables are links where the file system can.
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
