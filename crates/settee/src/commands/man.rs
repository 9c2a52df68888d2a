//! `settee man`: manual pages, generated from the texts of `--help`.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::Failure;
use crate::cli::Cli;

/// Writes `settee.1`, `settee-serve.1` and so on.
pub fn run(directory: &Path) -> Result<(), Failure> {
    write(directory).map_err(|e| Failure::new(format!("{}: {e}", directory.display())))
}

fn write(directory: &Path) -> io::Result<()> {
    if !directory.exists() {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    }
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    write_with_subcommands(&all, directory)
}

fn write_with_subcommands(command: &Command, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write_with_subcommands(subcommand, directory)?;
    }
    let path = directory.join(Man::new(command.clone()).get_filename());
    let mut text = vec![];
    render(command, &mut text)?;
    fs::write(&path, text)?;
    // Other users read them, whatever mask this process has for files with secrets.
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// A page as clap_mangen renders it, with two differences: the title has no date, so that the other
/// parts move up, and the lines of examples are filled.
fn render(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let version = env!("CARGO_PKG_VERSION");
    writeln!(
        page,
        ".TH \"{name}\" \"1\" \"\" \"settee {version}\" \"Settee\""
    )?;
    let man = Man::new(command.clone());
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        man.render_subcommands_section(page)?;
    }
    match command.get_after_help() {
        Some(notes) => notes_section(&notes.to_string()).to_writer(page),
        None => Ok(()),
    }
}

/// Text with separate lines where they are indented.
fn notes_section(text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["NOTES"]);
    let mut is_example = false;
    for line in text.lines() {
        if line.starts_with("  ") != is_example {
            is_example = !is_example;
            roff.control(if is_example { "nf" } else { "fi" }, []);
        }
        match line {
            "" => roff.control("PP", []),
            line => roff.text([roman(line)]),
        };
    }
    if is_example {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_that_everybody_may_read() {
        let dir = tempfile::tempdir().unwrap();
        let man = dir.path().join("man");
        write(&man).unwrap();
        for page in ["settee.1", "settee-serve.1", "settee-cluster-init.1"] {
            let path = man.join(page);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o644);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{page}");
        }
        assert!(!man.join("settee-functions-worker.1").exists());
        let mode = fs::metadata(&man).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn examples_keep_their_lines() {
        let section = notes_section("Examples:\n  a -b\n  c\n\nMore.").to_roff();
        let wanted = ".SH NOTES\nExamples:\n.nf\n  a \\-b\n  c\n.fi\n.PP\nMore.\n";
        assert_eq!(section, wanted);
    }
}
