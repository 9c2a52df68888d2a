//! Exports into files.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::runtime::Handle;

use crate::error::ExportError;
use crate::export;
use crate::options::{ExportOptions, ExportReport};

/// Writes what is selected into a file, compressed if its name ends in `.gz`. The file is there
/// when it is complete: until then its name ends in `.partial`.
///
/// # Errors
/// [`ExportError`]. The file is then as it was before.
pub fn export_to_file(
    options: &ExportOptions,
    runtime: &Handle,
    path: &Path,
) -> Result<ExportReport, ExportError> {
    // A device or a pipe is not replaced.
    if path.exists() && !path.is_file() {
        return write(options, runtime, path, path);
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = write(options, runtime, path, &partial).and_then(|report| {
        fs::rename(&partial, path).map_err(|source| unwritable(path, source))?;
        Ok(report)
    });
    if written.is_err() {
        // It may not have been created.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn write(
    options: &ExportOptions,
    runtime: &Handle,
    path: &Path,
    place: &Path,
) -> Result<ExportReport, ExportError> {
    let file = File::create(place).map_err(|source| unwritable(path, source))?;
    let mut file = BufWriter::new(file);
    let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
    let report = if is_compressed {
        let mut encoder = GzEncoder::new(&mut file, Compression::default());
        let report = export(options, runtime, &mut encoder)?;
        let finished = encoder.finish();
        finished.map_err(|source| unwritable(path, source))?;
        report
    } else {
        export(options, runtime, &mut file)?
    };
    file.flush().map_err(|source| unwritable(path, source))?;
    Ok(report)
}

fn unwritable(path: &Path, source: std::io::Error) -> ExportError {
    ExportError::Output {
        name: path.display().to_string(),
        source,
    }
}
