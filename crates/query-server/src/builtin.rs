//! The query servers that come with Settee, for languages whose own program has to be installed.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tempfile::TempDir;

/// The prefix of a built-in server's command line.
const PREFIX: &str = "@settee/";

/// A server whose program this binary carries.
struct Builtin {
    name: &'static str,
    languages: &'static [&'static str],
    /// The program that must be installed.
    runs_on: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// Arguments of `runs_on`; `{dir}` is the folder of `files`.
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

/// The program to start for a command line.
pub(crate) struct Command {
    /// Program and arguments; never empty.
    pub words: Vec<String>,
    pub environment: &'static [(&'static str, &'static str)],
}

/// Loads the two modules, compiled once for all processes of a pool: the compilation takes longer
/// than all else of a start.
const ERLANG_START: &str = "[Dir] = init:get_plain_arguments(), \
    Load = fun(Name) -> \
        Beam = filename:join(Dir, Name ++ \".beam\"), \
        Code = case file:read_file(Beam) of \
            {ok, Found} -> Found; \
            _ -> \
                {ok, _, Made} = compile:file(filename:join(Dir, Name), [binary, report]), \
                Draft = Beam ++ \".\" ++ os:getpid(), \
                ok = file:write_file(Draft, Made), \
                ok = file:rename(Draft, Beam), \
                Made \
        end, \
        {module, Module} = code:load_binary(list_to_atom(Name), Name, Code), \
        Module \
    end, \
    Load(\"couch_util\"), (Load(\"settee_query_server\")):main().";

const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "erlang",
        languages: &["erlang"],
        runs_on: "erl",
        files: &[
            (
                "settee_query_server.erl",
                include_str!("../erlang/settee_query_server.erl"),
            ),
            ("couch_util.erl", include_str!("../erlang/couch_util.erl")),
        ],
        // One scheduler that does not spin: a query server does one thing at a time, and there may
        // be many.
        arguments: &[
            "+S",
            "1:1",
            "+SDcpu",
            "1:1",
            "+SDio",
            "1",
            "+sbwt",
            "none",
            "-noinput",
            "-boot",
            "no_dot_erlang",
            "-eval",
            ERLANG_START,
            "-extra",
            "{dir}",
        ],
        environment: &[("ERL_CRASH_DUMP_SECONDS", "0")],
    },
    Builtin {
        name: "node",
        languages: &["node", "nodejs"],
        runs_on: "node",
        files: &[
            ("node-server.js", include_str!("../node/node-server.js")),
            ("prelude.js", crate::prelude::PRELUDE),
        ],
        arguments: &["{dir}/node-server.js"],
        environment: &[],
    },
    Builtin {
        name: "python",
        languages: &["python", "python3"],
        runs_on: "python3",
        files: &[(
            "settee_query_server.py",
            include_str!("../python/settee_query_server.py"),
        )],
        arguments: &["{dir}/settee_query_server.py"],
        environment: &[],
    },
];

/// Returns the command line of the server that ships with Settee for `language` (`erlang`,
/// `nodejs`, `python`), for [`Settings::commands`](crate::Settings::commands). `None` for other
/// languages, or when the program that it runs on is not installed.
pub fn builtin_command(language: &str) -> Option<String> {
    builtin_command_on(language, "")
}

/// Returns the same, run by another interpreter: a path, or a program's name. An empty text stands
/// for the usual one.
pub(crate) fn builtin_command_on(language: &str, interpreter: &str) -> Option<String> {
    let builtin = BUILTINS
        .iter()
        .find(|builtin| builtin.languages.contains(&language))?;
    let (runs_on, separator) = match interpreter {
        "" => (builtin.runs_on, ""),
        program => (program, " "),
    };
    is_installed(runs_on).then(|| format!("{PREFIX}{}{separator}{interpreter}", builtin.name))
}

fn is_installed(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    })
}

/// The folder with the programs of built-in servers, created when the first is started, and removed
/// with this.
#[derive(Default)]
pub(crate) struct Programs {
    folder: Mutex<Option<TempDir>>,
}

impl Programs {
    /// Takes a command line apart.
    pub fn command(&self, line: &str) -> Result<Command, String> {
        if let Some(command) = line.strip_prefix(PREFIX) {
            let (name, interpreter) = command.split_once(' ').unwrap_or((command, ""));
            let builtin = BUILTINS
                .iter()
                .find(|builtin| builtin.name == name)
                .ok_or_else(|| format!("there is no built-in query server {name}"))?;
            let folder = self.folder_of(builtin).map_err(|error| {
                format!("cannot write the program of the query server: {error}")
            })?;
            let folder = folder.to_string_lossy();
            let runs_on = match interpreter {
                "" => builtin.runs_on,
                program => program,
            };
            return Ok(Command {
                words: std::iter::once(runs_on.to_owned())
                    .chain(
                        builtin
                            .arguments
                            .iter()
                            .map(|word| word.replace("{dir}", &folder)),
                    )
                    .collect(),
                environment: builtin.environment,
            });
        }
        let words =
            shell_words::split(line).map_err(|error| format!("bad command line: {error}"))?;
        if words.is_empty() {
            return Err("the command line is empty".to_owned());
        }
        Ok(Command {
            words,
            environment: &[],
        })
    }

    /// Returns the folder with `builtin`'s files. A cleaner of temporary files may have taken them
    /// away since the last time.
    fn folder_of(&self, builtin: &Builtin) -> io::Result<PathBuf> {
        let mut folder = self.folder.lock();
        let missing = |dir: &Path| {
            builtin
                .files
                .iter()
                .any(|(name, _)| !dir.join(name).is_file())
        };
        let root = match folder.take().filter(|dir| dir.path().is_dir()) {
            Some(dir) => folder.insert(dir),
            None => folder.insert(
                tempfile::Builder::new()
                    .prefix("settee-query-servers-")
                    .tempdir()?,
            ),
        };
        let dir = root.path().join(builtin.name);
        if missing(&dir) {
            std::fs::create_dir_all(&dir)?;
            for (name, text) in builtin.files {
                std::fs::write(dir.join(name), text)?;
            }
        }
        Ok(dir)
    }
}
