//! The configuration: layers of ini files, environment and command line, changeable while the server runs.
//!
//! [`Layers`] defines the sources of values and their precedence; [`settings`] declares every
//! setting with its default; [`Config`] has the values in force, typed ([`Settings`]), and takes
//! changes.
//!
//! ```
//! use config::{Config, Layers};
//!
//! let folder = tempfile::tempdir()?;
//! let config = Config::load(Layers::new(folder.path().join("local.ini")))?;
//! config.set("chttpd", "header_timeout", "1500", false)?;
//! assert_eq!(config.settings().chttpd.header_timeout.as_millis(), 1500);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod error;
mod ini;
mod layers;
pub mod settings;
mod store;
mod unknown;

pub use error::ConfigError;
pub use layers::{Layers, Values};
pub use settings::Settings;
pub use store::{Change, Config};
pub use unknown::{UnknownSetting, unknown};

/// The text of `default.ini`, built into the program.
pub const DEFAULT_INI: &str = include_str!("../../../default.ini");
