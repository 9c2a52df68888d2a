//! The same maps in the languages that a server may support, and the ones that it does support.

use serde_json::json;

use super::build::View;
use crate::error::BenchError;
use crate::system::System;

/// CouchDB's name of the error for a language that it has no server for.
const UNKNOWN: &str = "unknown_query_language";

/// A language with its sources, and the names of the lines that it is measured in.
pub(super) struct Language {
    /// A design document's `language`.
    pub(super) name: &'static str,
    pub(super) small: Source,
    pub(super) trivial: Source,
    pub(super) real: Source,
}

#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) part: &'static str,
    map: &'static str,
}

impl Source {
    pub(super) fn summed(self) -> View {
        View {
            name: "v",
            map: self.map,
            reduce: Some("_sum"),
        }
    }

    pub(super) fn map_only(self) -> View {
        View {
            reduce: None,
            ..self.summed()
        }
    }
}

macro_rules! language {
    ($name:literal, $extension:literal) => {
        Language {
            name: $name,
            small: Source {
                part: concat!("first_build ", $name),
                map: include_str!(concat!("maps/small.", $extension)),
            },
            trivial: Source {
                part: concat!("declarations_trivial ", $name),
                map: include_str!(concat!("maps/trivial.", $extension)),
            },
            real: Source {
                part: concat!("declarations_real ", $name),
                map: include_str!(concat!("maps/real.", $extension)),
            },
        }
    };
}

/// JavaScript first: the others are compared with it.
static LANGUAGES: [Language; 5] = [
    language!("javascript", "js"),
    language!("nodejs", "js"),
    language!("python", "py"),
    language!("pypy", "py"),
    language!("erlang", "erl"),
];

/// JavaScript in process, which every server has.
pub(super) fn javascript() -> &'static Language {
    &LANGUAGES[0]
}

/// Refuses the name of a language without maps.
///
/// # Errors
/// [`BenchError::Options`] names it, and all languages.
pub(crate) fn check_languages(names: &[String]) -> Result<(), BenchError> {
    let known = || LANGUAGES.iter().map(|language| language.name);
    match names
        .iter()
        .find(|name| !known().any(|known| known == *name))
    {
        None => Ok(()),
        Some(name) => Err(BenchError::Options(format!(
            "--languages: there is no {name:?}; the languages are {}",
            known().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// The languages of one server.
pub(super) struct Present {
    pub(super) languages: Vec<&'static Language>,
    /// A remark for each that is absent or does not work.
    pub(super) notes: Vec<String>,
}

/// Tries each language on one document; only the wanted ones, if there are any.
pub(super) async fn present(system: &System, wanted: &[String]) -> Result<Present, BenchError> {
    let database = system.create("languages").await?;
    let document = json!({"type": "order", "customer": "a", "amount": 1}).to_string();
    system
        .require("PUT", &format!("/{database}/a"), Some(document.as_bytes()))
        .await?;
    let mut present = Present {
        languages: Vec::new(),
        notes: Vec::new(),
    };
    let is_wanted =
        |language: &&Language| wanted.is_empty() || wanted.iter().any(|name| name == language.name);
    for language in LANGUAGES.iter().filter(is_wanted) {
        let refusal = refusal(system, &database, language).await?;
        match refusal {
            None => present.languages.push(language),
            Some(body) => {
                let (name, server) = (language.name, &system.target.label);
                present.notes.push(if body.contains(UNKNOWN) {
                    format!("{name}: absent on {server} ({UNKNOWN})")
                } else {
                    format!("{name}: does not work on {server}: {body}")
                });
            }
        }
    }
    Ok(present)
}

/// The server's error when it cannot run the language.
async fn refusal(
    system: &System,
    database: &str,
    language: &Language,
) -> Result<Option<String>, BenchError> {
    let design = json!({
        "language": language.name,
        "views": { "v": { "map": language.small.map } },
    });
    let path = format!("/{database}/_design/{}", language.name);
    let body = design.to_string();
    let (status, reply) = system.call("PUT", &path, Some(body.as_bytes())).await?;
    if !(200..300).contains(&status) {
        return Ok(Some(String::from_utf8_lossy(&reply).into_owned()));
    }
    let (status, reply) = system.call("GET", &format!("{path}/_view/v"), None).await?;
    Ok((status != 200).then(|| String::from_utf8_lossy(&reply).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_without_maps_is_refused_and_named() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert!(check_languages(&names(&["javascript", "pypy"])).is_ok());
        let error = check_languages(&names(&["python", "lua"])).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("\"lua\"") && error.contains("nodejs"),
            "{error}"
        );
    }
}
