//! Errors of the configuration.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// An error of loading, reading or changing the configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file of the configuration could not be read.
    #[error("cannot read configuration file {path}: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file that run-time changes go to could not be written. Nothing was changed.
    #[error("cannot write configuration file {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A value is not of the kind that the setting needs.
    #[error("[{section}] {key} = {value}: {expected} expected")]
    InvalidSetting {
        /// Section of the setting.
        section: String,
        /// Key of the setting.
        key: String,
        /// The value found.
        value: String,
        /// The values that are allowed.
        expected: String,
    },
    /// A setting that has no default, and that there must be, is not set.
    #[error("[{section}] {key} is not set")]
    Missing {
        /// Section of the setting.
        section: &'static str,
        /// Key of the setting.
        key: &'static str,
    },
    /// A section name that cannot be written to an ini file.
    #[error("Invalid configuration section")]
    InvalidSection,
    /// A key that cannot be written to an ini file.
    #[error("Invalid configuration key")]
    InvalidKey,
    /// A value that cannot be written to an ini file and read back the same.
    #[error("Invalid configuration value")]
    InvalidValue,
}
