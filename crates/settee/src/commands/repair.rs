//! `settee repair`: the readable data of a damaged store, in a new one.

use command_line::counted;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use database::repair::{RepairHooks, RepairLoss, RepairedDatabase, repair};
use serde_json::json;

use super::check::store_in;
use super::doctor::plain;
use crate::Failure;
use crate::cli::RepairOptions;
use crate::data::{STORE, require_directory};
use crate::owner::make_for_owner_of;

/// The exit status when something was lost.
const LOSSES: u8 = 3;
/// Files of a data directory next to its store.
const SETTINGS: [&str; 2] = ["local.ini", "admin-password"];
const SETTINGS_DIRECTORY: &str = "local.d";
/// The new store while it is written, and where the engine works meanwhile.
const UNFINISHED: [&str; 2] = ["store.saving", "store.repairing"];

pub fn run(options: &RepairOptions) -> ExitCode {
    match save(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(LOSSES),
        Err(e) => {
            eprintln!("settee: {}", e.message);
            ExitCode::from(e.status)
        }
    }
}

/// Returns whether nothing was lost.
fn save(options: &RepairOptions) -> Result<bool, Failure> {
    require_directory(&options.data)?;
    make_for_owner_of(&options.data, &options.new)?;
    let from = store_in(&options.data);
    let [unfinished, scratch] = UNFINISHED.map(|name| options.new.join(name));
    // The rest of an interrupted repair is not a store yet.
    for left in [&unfinished, &scratch] {
        if left.exists() {
            fs::remove_dir_all(left).map_err(|e| at(left, &e))?;
        }
    }
    let is_empty = fs::read_dir(&options.new).is_ok_and(|mut entries| entries.next().is_none());
    if !is_empty {
        return Err(Failure::new(format!(
            "{} is there already: name a directory that is not, or that is empty",
            options.new.display()
        )));
    }
    let is_shown = std::io::stderr().is_terminal();
    let mut lost: Vec<RepairLoss> = vec![];
    let mut notes: Vec<String> = vec![];
    let hooks = RepairHooks {
        lost: &mut |loss| {
            if !options.json {
                clear(is_shown);
                say!("LOST: {}", described(&loss));
            }
            lost.push(loss);
        },
        progress: &|database, documents| {
            if is_shown {
                eprint!("\r{}: {documents} documents\x1b[K", plain(database));
            }
        },
        note: &mut |note| notes.push(note.to_owned()),
    };
    let saved = repair(&from, &unfinished, &scratch, hooks);
    clear(is_shown);
    let saved = saved.map_err(Failure::new)?;
    copy_settings(&options.data, &options.new)?;
    // Renamed last: an interrupted repair leaves no half store under the store's name.
    let store = options.new.join(STORE);
    fs::rename(&unfinished, &store).map_err(|e| at(&store, &e))?;
    let synced = fs::File::open(&options.new).and_then(|directory| directory.sync_all());
    synced.map_err(|e| at(&options.new, &e))?;
    match options.json {
        true => say!("{}", told(&saved, &lost, &notes)),
        false => print(&saved, &lost, &notes, options),
    }
    Ok(lost.is_empty())
}

fn at(path: &Path, e: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {e}", path.display()))
}

fn clear(is_shown: bool) {
    if is_shown {
        eprint!("\r\x1b[K");
        let _ = std::io::stderr().flush();
    }
}

fn described(lost: &RepairLoss) -> String {
    let mut parts = vec![];
    if let Some(database) = &lost.database {
        parts.push(format!("database '{database}'"));
    }
    if let Some(document) = &lost.document {
        parts.push(format!("document '{document}'"));
    }
    parts.push(lost.what.clone());
    plain(&parts.join(": "))
}

/// Settings are the user's own, and may hold passwords: for their owner only.
fn copy_settings(from: &Path, to: &Path) -> Result<(), Failure> {
    let mut files: Vec<PathBuf> = SETTINGS.iter().map(PathBuf::from).collect();
    let directory = from.join(SETTINGS_DIRECTORY);
    for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
        files.push(Path::new(SETTINGS_DIRECTORY).join(entry.file_name()));
    }
    for file in files.iter().filter(|file| from.join(file).is_file()) {
        let target = to.join(file);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|e| at(parent, &e))?;
        }
        fs::copy(from.join(file), &target).map_err(|e| at(&target, &e))?;
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&target, mode).map_err(|e| at(&target, &e))?;
    }
    Ok(())
}

fn print(
    saved: &[RepairedDatabase],
    lost: &[RepairLoss],
    notes: &[String],
    options: &RepairOptions,
) {
    for note in notes {
        say!("NOTE: {}", plain(note));
    }
    for RepairedDatabase { name, saved } in saved {
        say!(
            "{}: {}, {}, {}, {}",
            plain(name),
            counted(saved.documents, "documents"),
            counted(saved.revisions, "revisions"),
            counted(saved.locals, "local documents"),
            counted(saved.attachments, "attachments")
        );
    }
    match lost.len() {
        0 => say!("nothing was lost"),
        1 => say!("1 loss, listed above"),
        n => say!("{n} losses, listed above"),
    }
    say!(
        "{} is as it was. Start with: settee serve --data {}",
        options.data.display(),
        options.new.display()
    );
}

fn told(saved: &[RepairedDatabase], lost: &[RepairLoss], notes: &[String]) -> serde_json::Value {
    let databases = saved.iter().map(|RepairedDatabase { name, saved }| {
        json!({
            "name": name,
            "documents": saved.documents,
            "revisions": saved.revisions,
            "local_documents": saved.locals,
            "attachments": saved.attachments,
        })
    });
    let lost = lost.iter().map(
        |lost| json!({ "database": lost.database, "document": lost.document, "what": lost.what }),
    );
    json!({
        "databases": databases.collect::<Vec<_>>(),
        "lost": lost.collect::<Vec<_>>(),
        "notes": notes,
    })
}
