//! The configuration: layers of ini files, environment and command line, changeable while the server runs.
//!
//! [`Layers`] says where values come from and which source wins; [`settings`] lists every setting with its default;
//! [`Config`] answers questions and takes changes.

#![warn(missing_docs)]

mod error;
mod ini;
mod layers;
pub mod settings;
mod store;

pub use error::ConfigError;
pub use layers::{Layers, Values};
pub use store::{Change, Config};

/// The text of `default.ini`, built into the program.
pub const DEFAULT_INI: &str = include_str!("../../../default.ini");
