//! Where values come from, and which source wins.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::ConfigError;
use crate::ini;
use crate::settings::{self, Setting};
use crate::unknown::{nearest, unknown};

/// All values: section, then key, then value.
pub type Values = BTreeMap<String, BTreeMap<String, String>>;

/// The sources of the configuration. A later one wins over an earlier one:
///
/// 1. `default_ini`;
/// 2. `files`, in order;
/// 3. `*.ini` of `local_d`, in name order;
/// 4. `local_ini`, which changes at run time are written to. It comes after `local_d` (CouchDB writes to the last
///    file of `local.d`), so that values set through the API survive a restart;
/// 5. `env`;
/// 6. `overrides`.
///
/// In a file, `key =` with nothing after it removes the value of earlier sources.
///
/// # Environment
///
/// - `SETTEE__<section>__<key>`: everything to the second `__` is the section. When the name has no
///   lower-case letter, section and key are lower-cased; otherwise they are used unchanged. So
///   `SETTEE__CHTTPD_AUTH__TIMEOUT` is `[chttpd_auth] timeout`, and `SETTEE__admins__Bob` is
///   `[admins] Bob`.
/// - `SETTEE_<SECTION>_<KEY>`: compared with the upper-cased names of [`settings::all`], other
///   characters than letters and digits as `_` (these names are unique, which a test ensures):
///   `SETTEE_CHTTPD_AUTH_TIMEOUT`. An unknown name is split after the longest section of
///   [`settings::SECTIONS`] that it begins with, and the key is lower-cased: `SETTEE_ADMINS_ADMIN`.
/// - Other names that begin with `SETTEE_` are reported by [`crate::Config::warnings`]; all other
///   variables are ignored.
#[derive(Debug, Clone)]
pub struct Layers {
    /// Text of the built-in defaults.
    pub default_ini: String,
    /// Files given on the command line, which must exist.
    pub files: Vec<PathBuf>,
    /// The file that run-time changes go to; it, and its folder, are created when first needed.
    pub local_ini: PathBuf,
    /// A folder of further files; it need not exist.
    pub local_d: Option<PathBuf>,
    /// Environment variables, as of `std::env::vars()`.
    pub env: Vec<(String, String)>,
    /// Section, key and value from the command line.
    pub overrides: Vec<(String, String, String)>,
}

impl Layers {
    /// The built-in defaults, and `local_ini` for changes.
    pub fn new(local_ini: impl Into<PathBuf>) -> Layers {
        Layers {
            default_ini: crate::DEFAULT_INI.to_owned(),
            files: Vec::new(),
            local_ini: local_ini.into(),
            local_d: None,
            env: Vec::new(),
            overrides: Vec::new(),
        }
    }

    /// Reads all sources. The second part lists ignored lines and names, for the log.
    pub(crate) fn read(&self) -> Result<(Values, Vec<String>), ConfigError> {
        let mut merged = Merged::default();
        merged.ini("default.ini", &self.default_ini);
        for file in &self.files {
            merged.ini(&file.display().to_string(), &read(file)?);
        }
        for file in self.local_d_files()? {
            merged.ini(&file.display().to_string(), &read(&file)?);
        }
        merged.ini(
            &self.local_ini.display().to_string(),
            &read_if_there(&self.local_ini)?,
        );
        for (name, value) in &self.env {
            merged.env(name, value);
        }
        for (section, key, value) in &self.overrides {
            merged.put("the command line", section, key, Some(value.trim()));
        }
        Ok((merged.values, merged.warnings))
    }

    /// All files, those that need not exist included.
    pub(crate) fn paths(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let mut paths = self.files.clone();
        paths.extend(self.local_d_files()?);
        paths.push(self.local_ini.clone());
        Ok(paths)
    }

    fn local_d_files(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let Some(folder) = &self.local_d else {
            return Ok(Vec::new());
        };
        let failed = |source| ConfigError::Read {
            path: folder.clone(),
            source,
        };
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension() == Some(OsStr::new("ini")) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

#[derive(Default)]
struct Merged {
    values: Values,
    warnings: Vec<String>,
}

impl Merged {
    fn ini(&mut self, name: &str, text: &str) {
        let (entries, ignored) = ini::parse(text);
        for entry in entries {
            self.put(name, &entry.section, &entry.key, entry.value.as_deref());
        }
        self.warnings.extend(
            ignored
                .iter()
                .map(|line| format!("{name}: line {line} is ignored")),
        );
    }

    fn env(&mut self, name: &str, value: &str) {
        match env_name(name) {
            EnvName::Setting(section, key) => {
                let source = format!("environment variable {name}");
                self.put(&source, &section, &key, Some(value.trim()));
            }
            EnvName::Unknown => {
                let known = settings::all().map(env_variable);
                let nearest = match nearest(name, known) {
                    Some(known) => format!("; did you mean {known}?"),
                    None => String::new(),
                };
                self.warnings.push(format!(
                    "environment variable {name} is not a setting{nearest}"
                ));
            }
            EnvName::Foreign => {}
        }
    }

    /// Warns of an unknown setting; of an unknown section, only once.
    fn note_unknown(&mut self, source: &str, section: &str, key: &str) {
        if let Some(unknown) = unknown(section, key) {
            let warning = format!("{source}: {unknown}");
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    fn put(&mut self, source: &str, section: &str, key: &str, value: Option<&str>) {
        match value {
            Some(value) if !value.is_empty() => {
                self.note_unknown(source, section, key);
                self.values
                    .entry(section.to_owned())
                    .or_default()
                    .insert(key.to_owned(), value.to_owned());
            }
            _ => remove(&mut self.values, section, key),
        }
    }
}

/// Removes a value, and its section when nothing is left in it.
pub(crate) fn remove(values: &mut Values, section: &str, key: &str) {
    if let Some(keys) = values.get_mut(section) {
        keys.remove(key);
        if keys.is_empty() {
            values.remove(section);
        }
    }
}

/// The meaning of an environment variable.
#[derive(Debug, PartialEq, Eq)]
enum EnvName {
    Setting(String, String),
    Unknown,
    Foreign,
}

fn env_name(name: &str) -> EnvName {
    if let Some(rest) = name.strip_prefix("SETTEE__") {
        return explicit_env_name(rest);
    }
    let Some(rest) = name.strip_prefix("SETTEE_") else {
        return EnvName::Foreign;
    };
    let known = settings::all().find(|s| rest == env_form(s.section) + "_" + &env_form(s.key));
    if let Some(setting) = known {
        return EnvName::Setting(setting.section.to_owned(), setting.key.to_owned());
    }
    let sections = settings::SECTIONS.iter();
    let names = sections.flat_map(|section| [Some(section.name), section.older]);
    let in_section = names.flatten().filter_map(|section| {
        let key = rest.strip_prefix(&env_form(section))?.strip_prefix('_')?;
        (!key.is_empty()).then(|| (section, key.to_lowercase()))
    });
    match in_section.max_by_key(|(section, _)| section.len()) {
        Some((section, key)) => EnvName::Setting(section.to_owned(), key),
        None => EnvName::Unknown,
    }
}

/// The name of a setting in the environment.
fn env_variable(setting: &Setting) -> String {
    format!(
        "SETTEE_{}_{}",
        env_form(setting.section),
        env_form(setting.key)
    )
}

fn explicit_env_name(rest: &str) -> EnvName {
    let rest = if rest.contains(char::is_lowercase) {
        rest.to_owned()
    } else {
        rest.to_lowercase()
    };
    match rest.split_once("__") {
        Some((section, key)) if !section.is_empty() && !key.is_empty() => {
            EnvName::Setting(section.to_owned(), key.to_owned())
        }
        _ => EnvName::Unknown,
    }
}

/// A section or key in the form that it has in an environment variable.
pub(crate) fn env_form(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
}

fn read(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

/// The text of a file, empty if the file does not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<String, ConfigError> {
    match read(path) {
        Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(String::new())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(section: &str, key: &str) -> EnvName {
        EnvName::Setting(section.to_owned(), key.to_owned())
    }

    #[test]
    fn environment_names_have_one_meaning() {
        assert_eq!(
            env_name("SETTEE_CHTTPD_AUTH_TIMEOUT"),
            setting("chttpd_auth", "timeout")
        );
        assert_eq!(env_name("SETTEE_CHTTPD_PORT"), setting("chttpd", "port"));
        assert_eq!(env_name("SETTEE_ADMINS_ADMIN"), setting("admins", "admin"));
        assert_eq!(
            env_name("SETTEE__CHTTPD_AUTH__TIMEOUT"),
            setting("chttpd_auth", "timeout")
        );
        assert_eq!(
            env_name("SETTEE__admins__Bob__x"),
            setting("admins", "Bob__x")
        );
        for name in [
            "SETTEE_NOTHING",
            "SETTEE__X",
            "SETTEE____X",
            "SETTEE_ADMINS_",
            "SETTEE_",
        ] {
            assert_eq!(env_name(name), EnvName::Unknown, "{name}");
        }
        assert_eq!(env_name("PATH"), EnvName::Foreign);
    }

    #[test]
    fn a_mistyped_variable_is_warned_of_with_the_nearest() {
        let warned = |name: &str| {
            let mut layers = Layers::new("none.ini");
            layers.env = vec![(name.to_owned(), "secret".to_owned())];
            layers.read().unwrap().1
        };
        assert_eq!(
            warned("SETTEE_CHTPD_PORT"),
            [
                "environment variable SETTEE_CHTPD_PORT is not a setting; did you mean SETTEE_CHTTPD_PORT?"
            ]
        );
        assert_eq!(
            warned("SETTEE_CHTTPD_PROT"),
            [
                "environment variable SETTEE_CHTTPD_PROT: [chttpd] prot has no effect; did you mean [chttpd] port?"
            ]
        );
        assert!(warned("SETTEE_CHTTPD_PORT").is_empty());
    }

    #[test]
    fn no_two_settings_share_an_environment_name() {
        let mut names: Vec<String> = settings::all()
            .map(|s| env_form(s.section) + "_" + &env_form(s.key))
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
