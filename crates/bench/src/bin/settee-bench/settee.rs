//! The program `settee`, whose servers are measured when no URL is given.

use std::env;
use std::path::{Path, PathBuf};

use command_line::Failure;

const NAME: &str = "settee";

/// Returns the program that started this one, or otherwise the one next to this one, or in PATH.
pub fn find() -> Result<PathBuf, Failure> {
    let own = env::current_exe().map_err(Failure::new)?;
    let starter = env::var_os(command_line::PROGRAM).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(NAME));
    starter
        .into_iter()
        .chain([own.with_file_name(NAME)])
        .chain(in_path)
        .find(|file| file.is_file())
        .ok_or_else(|| missing(&own))
}

fn missing(own: &Path) -> Failure {
    Failure::new(format!(
        "settee was found neither in {} nor in PATH: install it, or give the URL of a running server by --url",
        own.parent().unwrap_or(own).display()
    ))
}

/// Returns a password of 120 random bits for a server that this program starts.
pub fn random_password() -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes).map_err(Failure::new)?;
    let letter = |byte: &u8| char::from(LETTERS[usize::from(byte % 32)]);
    Ok(bytes.iter().map(letter).collect())
}
