//! Files that a command writes at its end.

use std::path::Path;

use crate::Failure;

/// Checks, before the work, that a file can be written at a path: a mistake is reported before the work, and not after it.
///
/// # Errors
/// [`Failure`] for a directory, and for a path whose directory does not exist.
pub fn check_output(path: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::new(format!("{}: {why}", path.display())));
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    match parent {
        _ if path.is_dir() => refuse("this is a directory: name a file in it"),
        Some(parent) if !parent.is_dir() => refuse("its directory does not exist: create it first"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_needs_a_directory_and_must_not_be_one() {
        let here = std::env::temp_dir();
        assert!(check_output(&here.join("settee-absent.svg")).is_ok());
        assert!(check_output(Path::new("settee-absent.svg")).is_ok());
        let directory = check_output(&here).unwrap_err();
        assert!(
            directory.message.contains("this is a directory"),
            "{}",
            directory.message
        );
        let below = check_output(&here.join("settee-absent/x.svg")).unwrap_err();
        assert!(
            below.message.contains("does not exist"),
            "{}",
            below.message
        );
    }
}
