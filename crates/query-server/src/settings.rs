//! The configuration of query servers.

use std::collections::BTreeMap;
use std::time::Duration;

use document::write_json_string;

/// `[query_server_config] reduce_limit`: whether a reduction that does not shrink is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReduceLimit {
    /// It is an error.
    #[default]
    On,
    /// It is not an error.
    Off,
    /// Such a reduction is logged and used.
    Log,
}

/// Settings of query servers. The default has no language at all: a query server runs its users'
/// code with all rights of the server's own user, so each must be configured explicitly.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `[query_servers]`: command line by language, in lowercase. The line is split as by a shell,
    /// but no shell is run. The result of [`builtin_command`](crate::builtin_command) may be used
    /// too.
    pub commands: BTreeMap<String, String>,
    /// `[query_server_config] os_process_limit`: most processes of one language.
    pub process_limit: usize,
    /// `[query_server_config] os_process_soft_limit`: maximum number of idle processes of one
    /// language.
    pub process_soft_limit: usize,
    /// `[query_server_config] os_process_idle_limit` (seconds there): when an unused process is
    /// ended.
    pub idle_limit: Duration,
    /// `[couchdb] os_process_timeout` (milliseconds there): longest time for one answer.
    pub timeout: Duration,
    /// `[query_server_config] reduce_limit`. This and the next two are only handed over to the
    /// servers.
    pub reduce_limit: ReduceLimit,
    /// `[query_server_config] reduce_limit_threshold`, in bytes.
    pub reduce_limit_threshold: u64,
    /// `[query_server_config] reduce_limit_ratio`.
    pub reduce_limit_ratio: f64,
    /// Longest time to wait for a process while all are in use.
    pub wait: Duration,
    /// Longest line that is read from a process, in bytes.
    pub answer_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            commands: BTreeMap::new(),
            process_limit: 100,
            process_soft_limit: 100,
            idle_limit: Duration::from_secs(300),
            timeout: Duration::from_millis(5000),
            reduce_limit: ReduceLimit::On,
            reduce_limit_threshold: 5000,
            reduce_limit_ratio: 2.0,
            wait: Duration::from_secs(60),
            answer_bytes_max: 256 << 20,
        }
    }
}

impl Settings {
    /// Adds a line of `[query_servers]`: a language, in any case, and its command line. The word
    /// `builtin` stands for what [`builtin_command`](super::builtin_command) gives, run by the
    /// interpreter that follows it, if one does (`builtin pypy3`); an empty line for nothing.
    pub fn set_command(&mut self, language: &str, command: &str) {
        let language = language.to_ascii_lowercase();
        match command.trim() {
            "" => {}
            "builtin" => self.set_builtin(language, ""),
            command => match command.strip_prefix("builtin ") {
                Some(interpreter) => self.set_builtin(language, interpreter.trim()),
                None => {
                    self.commands.insert(language, command.to_owned());
                }
            },
        }
    }

    /// Returns the commands that CouchDB takes from environment variables:
    /// `COUCHDB_QUERY_SERVER_PYTHON=couchpy` is like `python = couchpy` in `[query_servers]`.
    pub fn commands_of_environment(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Vec<(String, String)> {
        variables
            .into_iter()
            .filter_map(|(name, command)| {
                let language = name.strip_prefix("COUCHDB_QUERY_SERVER_")?;
                Some((language.to_ascii_lowercase(), command))
            })
            .collect()
    }

    fn set_builtin(&mut self, language: String, interpreter: &str) {
        match crate::builtin::builtin_command_on(&language, interpreter) {
            Some(command) => {
                self.commands.insert(language, command);
            }
            None => tracing::warn!(
                language,
                interpreter,
                "the program that the built-in query server needs is not installed"
            ),
        }
    }

    /// Returns the `reset` command with the configuration that CouchDB hands over.
    pub(crate) fn reset_command(&self) -> Vec<u8> {
        let limit = match self.reduce_limit {
            ReduceLimit::On => "true",
            ReduceLimit::Off => "false",
            ReduceLimit::Log => "\"log\"",
        };
        format!(
            "[\"reset\",{{\"reduce_limit\":{limit},\"reduce_limit_threshold\":{},\"reduce_limit_ratio\":{:?},\"timeout\":{}}}]",
            self.reduce_limit_threshold,
            self.reduce_limit_ratio,
            self.timeout.as_millis(),
        )
        .into_bytes()
    }
}

/// `["command",` with as many JSON strings after it as given, each with a comma.
pub(crate) fn command_start(command: &str, strings: &[&str]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.push(b'[');
    for text in std::iter::once(&command).chain(strings) {
        write_json_string(text, &mut out);
        out.push(b',');
    }
    out
}
