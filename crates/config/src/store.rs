//! The configuration of a running server.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::error::ConfigError;
use crate::ini;
use crate::layers::{Layers, Values, read_if_there, remove};
use crate::settings::{self, Settings};

/// One value that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Section.
    pub section: String,
    /// Key.
    pub key: String,
    /// The new value; `None` when it was removed.
    pub value: Option<String>,
}

type Subscriber = Arc<dyn Fn(&Change) + Send + Sync>;

/// The configuration: a handle that is cheap to clone and safe to share between threads.
#[derive(Clone)]
pub struct Config {
    inner: Arc<Inner>,
}

struct Inner {
    layers: Layers,
    /// Held while a change is made; never while subscribers run.
    changing: Mutex<()>,
    loaded: RwLock<Loaded>,
    version: AtomicU64,
    subscribers: RwLock<Vec<Subscriber>>,
}

#[derive(Clone)]
struct Loaded {
    values: Arc<Values>,
    settings: Arc<Settings>,
    warnings: Arc<Vec<String>>,
}

impl std::fmt::Debug for Config {
    /// Names no values: some are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Reads all layers.
    ///
    /// # Errors
    /// A file that cannot be read or is not UTF-8, and a value of the wrong kind.
    pub fn load(layers: Layers) -> Result<Config, ConfigError> {
        let loaded = read(&layers)?;
        let inner = Inner {
            layers,
            changing: Mutex::new(()),
            loaded: RwLock::new(loaded),
            version: AtomicU64::new(0),
            subscribers: RwLock::new(Vec::new()),
        };
        Ok(Config {
            inner: Arc::new(inner),
        })
    }

    /// The value in force of every setting, typed: those set, those set in a section's older name, and defaults. Cheap: what
    /// is read is shared until something changes.
    pub fn settings(&self) -> Arc<Settings> {
        let loaded = self.inner.loaded.read();
        loaded
            .unwrap_or_else(PoisonError::into_inner)
            .settings
            .clone()
    }

    /// The value that is set, without defaults of the code: what `_node/_local/_config` shows.
    pub fn get(&self, section: &str, key: &str) -> Option<String> {
        self.values().get(section)?.get(key).cloned()
    }

    /// All values set in a section.
    pub fn section(&self, section: &str) -> BTreeMap<String, String> {
        self.values().get(section).cloned().unwrap_or_default()
    }

    /// All values set.
    pub fn all(&self) -> Values {
        (*self.values()).clone()
    }

    /// Sets a value, immediately and for all readers, and returns the previous one. With `persist`
    /// it is also written to `local_ini`, where it stays until it is changed again; but after a
    /// restart or [`Config::reload`] the environment and the command line win over it. An empty
    /// value is the same as [`Config::delete`].
    ///
    /// # Errors
    /// A name or value that an ini file cannot hold, a value of the wrong kind, or a file that cannot be written;
    /// nothing has changed then.
    pub fn set(
        &self,
        section: &str,
        key: &str,
        value: &str,
        persist: bool,
    ) -> Result<Option<String>, ConfigError> {
        let value = value.trim();
        check_names(section, key, value)?;
        check_kind(section, key, value)?;
        let changed = Some(value).filter(|v| !v.is_empty());
        self.change(section, key, changed, persist)
    }

    /// Removes a value that is set, so that the default is in force, and returns it. With `persist` the removal is
    /// kept in `local_ini`, where it also hides the values of `default.ini` and of other files.
    ///
    /// # Errors
    /// As [`Config::set`].
    pub fn delete(
        &self,
        section: &str,
        key: &str,
        persist: bool,
    ) -> Result<Option<String>, ConfigError> {
        if self.get(section, key).is_none() {
            return Ok(None);
        }
        check_names(section, key, "")?;
        self.change(section, key, None, persist)
    }

    /// Reads all layers again, forgetting changes that were not persisted.
    ///
    /// # Errors
    /// As [`Config::load`]; nothing has changed then.
    pub fn reload(&self) -> Result<(), ConfigError> {
        let changes = {
            let _changing = self
                .inner
                .changing
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let new = read(&self.inner.layers)?;
            let changes = differences(&self.values(), &new.values);
            self.replace(new);
            changes
        };
        changes.iter().for_each(|change| self.notify(change));
        Ok(())
    }

    /// Calls `subscriber` after each changed value, on the thread that changed it, before that call returns. It may
    /// read and change the configuration. It must not hold a `Config` itself if that must ever be dropped.
    pub fn subscribe(&self, subscriber: impl Fn(&Change) + Send + Sync + 'static) {
        let mut subscribers = self
            .inner
            .subscribers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        subscribers.push(Arc::new(subscriber));
    }

    /// A number that grows with each change, so that readers can keep what they computed from values.
    pub fn version(&self) -> u64 {
        self.inner.version.load(Ordering::Acquire)
    }

    /// Ignored lines of files, ignored environment variables, and unknown settings, for the log.
    /// Contains no values.
    pub fn warnings(&self) -> Vec<String> {
        self.loaded().warnings.to_vec()
    }

    /// The value in `local_ini`, whatever wins over it.
    ///
    /// # Errors
    /// [`ConfigError::Read`].
    pub fn persisted(&self, section: &str, key: &str) -> Result<Option<String>, ConfigError> {
        let (entries, _) = ini::parse(&read_if_there(&self.inner.layers.local_ini)?);
        Ok(entries
            .into_iter()
            .rfind(|e| e.section == section && e.key == key)
            .and_then(|e| e.value))
    }

    /// The files of the configuration that hold a secret.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn files_with_secrets(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let mut files = self.inner.layers.paths()?;
        files.retain(|path| {
            // One that is gone since it was read holds nothing.
            let (entries, _) = ini::parse(&read_if_there(path).unwrap_or_default());
            entries.iter().any(is_secret)
        });
        Ok(files)
    }

    fn change(
        &self,
        section: &str,
        key: &str,
        value: Option<&str>,
        persist: bool,
    ) -> Result<Option<String>, ConfigError> {
        let old = {
            let _changing = self
                .inner
                .changing
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let mut loaded = self.loaded();
            let old = loaded
                .values
                .get(section)
                .and_then(|keys| keys.get(key))
                .cloned();
            apply(Arc::make_mut(&mut loaded.values), section, key, value);
            loaded.settings = Arc::new(Settings::read(&loaded.values)?);
            if persist {
                let path = &self.inner.layers.local_ini;
                write_value(path, section, key, value.unwrap_or_default())?;
            }
            self.replace(loaded);
            old
        };
        let value = value.map(str::to_owned);
        self.notify(&Change {
            section: section.to_owned(),
            key: key.to_owned(),
            value,
        });
        Ok(old)
    }

    fn replace(&self, new: Loaded) {
        *self
            .inner
            .loaded
            .write()
            .unwrap_or_else(PoisonError::into_inner) = new;
        self.inner.version.fetch_add(1, Ordering::AcqRel);
    }

    fn notify(&self, change: &Change) {
        let subscribers = self
            .inner
            .subscribers
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        subscribers.iter().for_each(|subscriber| subscriber(change));
    }

    fn loaded(&self) -> Loaded {
        self.inner
            .loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn values(&self) -> Arc<Values> {
        self.loaded().values
    }
}

fn read(layers: &Layers) -> Result<Loaded, ConfigError> {
    let (values, warnings) = layers.read()?;
    for (section, keys) in &values {
        for (key, value) in keys {
            check_kind(section, key, value)?;
        }
    }
    Ok(Loaded {
        settings: Arc::new(Settings::read(&values)?),
        values: Arc::new(values),
        warnings: Arc::new(warnings),
    })
}

/// Whether others should not see the value.
fn is_secret(entry: &ini::Entry) -> bool {
    entry.value.is_some() && settings::is_secret(&entry.section, &entry.key)
}

fn apply(values: &mut Values, section: &str, key: &str, value: Option<&str>) {
    match value {
        Some(value) => {
            values
                .entry(section.to_owned())
                .or_default()
                .insert(key.to_owned(), value.to_owned());
        }
        None => remove(values, section, key),
    }
}

fn differences(old: &Values, new: &Values) -> Vec<Change> {
    let lookup = |values: &Values, section: &str, key: &str| values.get(section)?.get(key).cloned();
    let mut names: Vec<(&String, &String)> = [old, new]
        .into_iter()
        .flatten()
        .flat_map(|(section, keys)| keys.keys().map(move |k| (section, k)))
        .collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|(section, key)| lookup(old, section, key) != lookup(new, section, key))
        .map(|(section, key)| Change {
            section: section.clone(),
            key: key.clone(),
            value: lookup(new, section, key),
        })
        .collect()
}

/// Checks that an ini file can hold these texts so that they are read unchanged.
fn check_names(section: &str, key: &str, value: &str) -> Result<(), ConfigError> {
    let printable = |text: &str| text.chars().all(|c| c == '\t' || !c.is_control());
    let name = |text: &str| printable(text) && !text.contains(['[', ']']);
    if section.is_empty() || !name(section) {
        return Err(ConfigError::InvalidSection);
    }
    if key.is_empty() || !name(key) {
        return Err(ConfigError::InvalidKey);
    }
    let reads_back = |value: &str| {
        let (entries, _) = ini::parse(&ini::with_value("", section, key, value));
        let [entry] = entries.as_slice() else {
            return false;
        };
        entry.section == section
            && entry.key == key
            && entry.value.as_deref().unwrap_or_default() == value
    };
    if !reads_back("x") {
        return Err(if reads_back_section(section) {
            ConfigError::InvalidKey
        } else {
            ConfigError::InvalidSection
        });
    }
    if !printable(value) || !reads_back(value) {
        return Err(ConfigError::InvalidValue);
    }
    Ok(())
}

fn reads_back_section(section: &str) -> bool {
    ini::parse(&ini::with_value("", section, "k", "v"))
        .0
        .iter()
        .any(|e| e.section == section)
}

fn check_kind(section: &str, key: &str, value: &str) -> Result<(), ConfigError> {
    match settings::find(section, key) {
        Some(setting) if !value.is_empty() && !setting.accepts(value) => {
            Err(ConfigError::InvalidSetting {
                section: section.to_owned(),
                key: key.to_owned(),
                value: value.to_owned(),
                expected: setting.expected(),
            })
        }
        _ => Ok(()),
    }
}

fn write_value(path: &Path, section: &str, key: &str, value: &str) -> Result<(), ConfigError> {
    let text = ini::with_value(&read_if_there(path)?, section, key, value);
    write_atomically(path, &text).map_err(|source| ConfigError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Replaces a file so that after a crash it has either the old or the new text. A new file can be
/// read by its owner only, since it holds secrets. An old file keeps its permissions, unless all
/// users could read it, which is a common default of programs and hardly intended. A link keeps its
/// target.
fn write_atomically(path: &Path, text: &str) -> io::Result<()> {
    let path = resolve(path)?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new()
        .prefix(".settee-")
        .suffix(".ini")
        .tempfile_in(folder)?;
    if let Ok(metadata) = fs::metadata(&path)
        && !is_for_everybody(&metadata)
    {
        file.as_file().set_permissions(metadata.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    #[cfg(unix)]
    fs::File::open(folder)?.sync_all()?;
    Ok(())
}

#[cfg(unix)]
fn is_for_everybody(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o007 != 0
}

#[cfg(not(unix))]
fn is_for_everybody(_: &fs::Metadata) -> bool {
    false
}

fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        result => result,
    }
}
