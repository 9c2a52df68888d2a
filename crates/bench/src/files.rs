//! The files of a run: those that it reads are read, and those that it writes made, before anything is measured.

use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::html;
use crate::options::BenchOptions;
use crate::profile::Flame;
use crate::report::Report;
use crate::saved_run::{self, FOR_ALL, OWNER_ONLY, Output, SavedRun};

pub(crate) struct Files {
    compare: Option<(PathBuf, SavedRun)>,
    flames: Vec<Flame>,
    save: Option<Output>,
    report: Option<Output>,
}

impl Files {
    /// # Errors
    /// [`BenchError::File`] names the first one that cannot be used.
    pub(crate) fn open(options: &BenchOptions) -> Result<Self, BenchError> {
        let compare = options
            .compare
            .as_ref()
            .map(|path| -> Result<_, BenchError> { Ok((path.clone(), SavedRun::read(path)?)) });
        let flames = options.flames.iter().zip(["A", "B"]);
        let flames = flames.map(|(path, letter)| Flame::read(path, letter.to_owned()));
        let output = |path: &Option<PathBuf>, mode| {
            let create = |path: &Path| Output::create(path, mode);
            path.as_deref().map(create).transpose()
        };
        Ok(Self {
            compare: compare.transpose()?,
            flames: flames.collect::<Result<_, _>>()?,
            save: output(&options.save, OWNER_ONLY)?,
            report: output(&options.report, FOR_ALL)?,
        })
    }

    /// Compares with a saved run, if there is one.
    pub(crate) fn compare(&self, report: &mut Report) {
        if let Some((path, saved)) = &self.compare {
            saved.compare(path, report);
        }
    }

    /// Writes the requested files.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub(crate) fn write(self, report: &Report) -> Result<(), BenchError> {
        if let Some(save) = self.save {
            save.write(&saved_run::bytes(report)?)?;
        }
        if let Some(output) = self.report {
            let flames: Vec<&Flame> = self.flames.iter().chain(&report.flames).collect();
            output.write(html::page(report, &flames).as_bytes())?;
        }
        Ok(())
    }
}
