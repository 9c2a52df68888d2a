//! `settee bench`: starts the program `settee-bench`.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

const NAME: &str = "settee-bench";

/// Becomes `settee-bench` with the arguments after `bench`: terminal, signals and exit status are that program's. Returns only
/// when it cannot be started.
pub fn run() -> Result<(), Failure> {
    let own = env::current_exe().map_err(Failure::new)?;
    let path = env::var_os("PATH").unwrap_or_default();
    let program = find(&own, &path).ok_or_else(|| missing(&own))?;
    let error = Command::new(&program)
        // The command line is valid already. No option precedes the command's name.
        .args(env::args_os().skip(2))
        .env(command_line::PROGRAM, &own)
        .exec();
    Err(Failure::new(format!("{}: {error}", program.display())))
}

/// Returns the program in the folder of this one, or else the first in the absolute folders of `path`.
fn find(own: &Path, path: &OsString) -> Option<PathBuf> {
    let beside = own.with_file_name(NAME);
    let in_path = env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(NAME));
    std::iter::once(beside)
        .chain(in_path)
        .find(|file| file.is_file())
}

fn missing(own: &Path) -> Failure {
    let folder = own.parent().unwrap_or(own);
    Failure::new(format!(
        "{NAME} was found neither in {} nor in PATH. It is a separate program in Settee's tarball, package and image. \
         Copy it to one of these folders, in the same version ({})",
        folder.display(),
        env!("CARGO_PKG_VERSION")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_beside_settee_wins_over_path_and_relative_folders_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, other) = (dir.path().join("bin"), dir.path().join("other"));
        for folder in [&bin, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        let own = bin.join("settee");
        let path = env::join_paths([Path::new("."), Path::new(""), &other]).unwrap();
        assert_eq!(find(&own, &path), None);
        // A folder of that name is no program.
        std::fs::create_dir(bin.join(NAME)).unwrap();
        std::fs::write(other.join(NAME), "").unwrap();
        assert_eq!(find(&own, &path), Some(other.join(NAME)));
        std::fs::remove_dir(bin.join(NAME)).unwrap();
        std::fs::write(bin.join(NAME), "").unwrap();
        assert_eq!(find(&own, &path), Some(bin.join(NAME)));
    }

    #[test]
    fn a_missing_program_is_reported_with_what_to_install() {
        let failure = missing(Path::new("/opt/settee/bin/settee"));
        assert_eq!(failure.status, 1);
        for part in [
            NAME,
            "/opt/settee/bin",
            "tarball",
            env!("CARGO_PKG_VERSION"),
        ] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }
}
