//! `settee completions`: scripts for shells that complete command lines.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

/// Prints the script of a shell.
pub fn run(shell: Shell) {
    say!("{}", script(shell).trim_end());
}

fn script(shell: Shell) -> String {
    let mut script = vec![];
    clap_complete::generate(shell, &mut Cli::command(), "settee", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_is_told_of_each_command_that_is_not_hidden() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for command in ["serve", "healthcheck", "monitoring"] {
                assert!(script.contains(command), "{shell}: {command}");
            }
        }
    }
}
