//! Flame graphs for the report: given as files, or taken from servers that have a route for them.

use std::path::Path;
use std::time::Duration;

use crate::error::BenchError;
use crate::system::System;

/// Largest picture that is accepted: a report must open in a browser.
const SVG_BYTES_MAX: u64 = 32 << 20;

/// A flame graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Flame {
    /// Its subject.
    pub title: String,
    /// The picture, which may hold anything.
    pub svg: String,
}

impl Flame {
    /// Reads a picture for the report.
    ///
    /// # Errors
    /// [`BenchError::File`] when it cannot be read, is not SVG, or is larger than 32 MB.
    pub(crate) fn read(path: &Path, title: String) -> Result<Self, BenchError> {
        let refuse = |reason: String| BenchError::File {
            file: path.display().to_string(),
            reason,
        };
        let size = std::fs::metadata(path)
            .map_err(|error| refuse(error.to_string()))?
            .len();
        if size > SVG_BYTES_MAX {
            return Err(refuse(format!(
                "{size} bytes are too many for a picture of the report"
            )));
        }
        let svg = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        if !svg.contains("<svg") {
            return Err(refuse("this is not an SVG image".to_owned()));
        }
        Ok(Self { title, svg })
    }
}

/// A profile's seconds for a stretch of work: whole ones.
pub(crate) fn seconds(length: Duration) -> u64 {
    (length.as_secs_f64().ceil() as u64).max(1)
}

/// Requests a flame graph of the next seconds from a server. Returns an error text if the server
/// has no profiler.
pub(crate) async fn take(system: &System, title: String, seconds: u64) -> Result<Flame, String> {
    let path = format!("/_settee/profile?seconds={seconds}&format=svg");
    let label = &system.target.label;
    let failed = |what: String| format!("no flame graph: {title}: {label} {what}");
    match system.call("GET", &path, None).await {
        Ok((200, svg)) => match String::from_utf8(svg) {
            Ok(svg) if svg.contains("<svg") => Ok(Flame { title, svg }),
            _ => Err(failed("did not answer with an SVG image".to_owned())),
        },
        Ok((404, _)) => Err(failed("has no /_settee/profile".to_owned())),
        Ok((status, body)) => {
            let body = String::from_utf8_lossy(&body).trim().to_owned();
            Err(failed(format!("answered {status}: {body}")))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        let read = || Flame::read(&path, "A".to_owned());
        assert!(matches!(read(), Err(BenchError::File { .. })));
        std::fs::write(&path, "not one").unwrap();
        assert!(read().unwrap_err().to_string().contains("not an SVG"));
        std::fs::write(&path, "<?xml version=\"1.0\"?><svg></svg>").unwrap();
        assert_eq!(read().unwrap().title, "A");
    }
}
