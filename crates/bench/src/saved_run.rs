//! A run in a file: all its measurements, for later comparisons.
//!
//! Two lines of JSON. The first identifies the format and has the checksum of the second, so that a
//! file that was cut off or changed is noticed. The second is the run.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::compare::{self, Baseline};
use crate::error::BenchError;
use crate::lines::Line;
use crate::machine::Machine;
use crate::report::Report;
use crate::rounds::Rounds;
use crate::timeline::Timeline;

const FORMAT: &str = "settee bench";
/// Version of the second line. Others are refused.
const VERSION: u32 = 1;
/// Size above which a file is not a saved run.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    /// CRC-32 of the second line without its end.
    crc32: u32,
}

/// The parts of a run that a comparison needs.
#[derive(Debug, Deserialize)]
pub(crate) struct SavedRun {
    version: String,
    began_s: u64,
    machine: Machine,
    products: Vec<String>,
    options: Options,
    lines: Vec<SavedLine>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Options {
    scale: f64,
    seconds: f64,
    connections: usize,
    repeats: u32,
    rate: Option<f64>,
    requests: Option<u64>,
    #[serde(default)]
    new_connections: bool,
}

#[derive(Debug, Deserialize)]
struct SavedLine {
    workload: String,
    name: String,
    sides: Vec<Option<Rounds>>,
}

#[derive(Serialize)]
struct ToSave<'a> {
    version: &'a str,
    began_s: u64,
    machine: &'a Machine,
    products: Vec<&'a str>,
    options: Options,
    lines: Vec<LineToSave<'a>>,
    sweep: Vec<LineToSave<'a>>,
    timeline: &'a Timeline,
    /// The run in the format of `--json`; not read again.
    report: &'a Report,
}

#[derive(Serialize)]
struct LineToSave<'a> {
    workload: &'a str,
    name: &'a str,
    unit: &'a str,
    /// For a sweep: one entry per value, and the first value again. For other lines: one per
    /// server.
    sides: Vec<Option<&'a Rounds>>,
}

impl Options {
    fn of(report: &Report) -> Self {
        Self {
            scale: report.scale,
            seconds: report.seconds,
            connections: report.connections,
            repeats: report.repeats,
            rate: report.rate,
            requests: report.requests,
            new_connections: report.new_connections,
        }
    }

    fn differences(&self, other: &Self) -> Vec<String> {
        let optional =
            |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
        let count =
            |value: Option<u64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
        [
            ("--scale", self.scale.to_string(), other.scale.to_string()),
            (
                "--seconds",
                self.seconds.to_string(),
                other.seconds.to_string(),
            ),
            (
                "--connections",
                self.connections.to_string(),
                other.connections.to_string(),
            ),
            (
                "--repeats",
                self.repeats.to_string(),
                other.repeats.to_string(),
            ),
            ("--rate", optional(self.rate), optional(other.rate)),
            ("--requests", count(self.requests), count(other.requests)),
            (
                "--new-connections",
                self.new_connections.to_string(),
                other.new_connections.to_string(),
            ),
        ]
        .into_iter()
        .filter(|(_, now, then)| now != then)
        .map(|(what, now, then)| format!("{what}: {now} now, {then} then"))
        .collect()
    }
}

fn refused(path: &Path, reason: impl ToString) -> BenchError {
    BenchError::File {
        file: path.display().to_string(),
        reason: reason.to_string(),
    }
}

impl SavedRun {
    /// Reads a saved run.
    ///
    /// # Errors
    /// [`BenchError::File`] with the problem: no file, not a saved run, of another version,
    /// damaged.
    pub(crate) fn read(path: &Path) -> Result<Self, BenchError> {
        let size = fs::metadata(path)
            .map_err(|error| refused(path, error))?
            .len();
        if size > BYTES_MAX {
            return Err(refused(
                path,
                "this is not a saved run of settee bench: it is too large",
            ));
        }
        let bytes = fs::read(path).map_err(|error| refused(path, error))?;
        let none = || refused(path, "this is not a saved run of settee bench");
        let end = memchr::memchr(b'\n', &bytes).ok_or_else(none)?;
        let head: Head = serde_json::from_slice(&bytes[..end]).map_err(|_| none())?;
        if head.format != FORMAT {
            return Err(none());
        }
        if head.version != VERSION {
            let reason = format!(
                "it was saved in format {}, and this program reads format {VERSION}: measure again, or use the program that saved it",
                head.version
            );
            return Err(refused(path, reason));
        }
        let body = bytes[end + 1..].strip_suffix(b"\n").unwrap_or_default();
        if crc32fast::hash(body) != head.crc32 {
            return Err(refused(
                path,
                "it is damaged: it was cut off, or changed since it was saved",
            ));
        }
        serde_json::from_slice(body)
            .map_err(|error| refused(path, format!("it is damaged: {error}")))
    }

    /// Compares a run's first server with that of this one.
    pub(crate) fn compare(&self, path: &Path, report: &mut Report) {
        let mut differences = report.machine.differences(&self.machine);
        differences.extend(Options::of(report).differences(&self.options));
        if self.version != report.version {
            differences.push(format!(
                "settee bench: {} now, {} then",
                report.version, self.version
            ));
        }
        let name = |path: &Path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        report.against = Some(Baseline {
            file: name(path).unwrap_or_else(|| path.display().to_string()),
            product: self.products.first().cloned().unwrap_or_default(),
            began_s: self.began_s,
            differences,
        });
        let of_line = |line: &Line| -> Option<&Rounds> {
            let mut same = self
                .lines
                .iter()
                .filter(|saved| saved.name == line.name && saved.workload == line.workload);
            same.next()?.sides.first()?.as_ref()
        };
        report.comparisons = compare::saved(&report.lines, of_line);
        for line in report.lines.iter().filter(|line| of_line(line).is_none()) {
            report
                .notes
                .push(format!("{}: not in {}", line.name, path.display()));
        }
    }
}

/// The mode of a saved run: it has the servers' messages about refused requests, which may contain
/// parts of documents.
pub(crate) const OWNER_ONLY: u32 = 0o600;
/// The mode of public files, within the user's umask.
pub(crate) const FOR_ALL: u32 = 0o666;

/// A file that is to be written at the end of a run, created before it so that an unwritable path
/// is found early.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl Output {
    /// # Errors
    /// [`BenchError::File`] when no file can be made there.
    pub(crate) fn create(path: &Path, mode: u32) -> Result<Self, BenchError> {
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{:08x}.part", fastrand::u32(..)));
        let part = PathBuf::from(part);
        if path.is_dir() {
            return Err(refused(path, "this is a directory"));
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let file = options.open(&part).map_err(|error| refused(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            part,
            file,
        })
    }

    /// Writes it whole, replacing an existing file.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub(crate) fn write(mut self, bytes: &[u8]) -> Result<(), BenchError> {
        let written = self
            .file
            .write_all(bytes)
            .and_then(|()| self.file.sync_all());
        written
            .and_then(|()| fs::rename(&self.part, &self.path))
            .map_err(|error| refused(&self.path, error))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // After a successful write it does not exist.
        let _ = fs::remove_file(&self.part);
    }
}

/// A run as the bytes of a file.
pub(crate) fn bytes(report: &Report) -> Result<Vec<u8>, BenchError> {
    let line = |workload, name, unit, sides| LineToSave {
        workload,
        name,
        unit,
        sides,
    };
    let lines = report.lines.iter().map(|each| {
        let sides = each
            .sides
            .iter()
            .map(|side| side.as_ref().map(|side| &side.rounds));
        line(&each.workload, &each.name, &each.unit, sides.collect())
    });
    let sweep = report
        .sweep
        .iter()
        .flat_map(|sweep| &sweep.lines)
        .map(|each| {
            let points = each.points.iter().chain(std::iter::once(&each.again));
            let sides = points.map(|point| point.as_ref().map(|point| &point.rounds));
            line(&each.workload, &each.name, &each.unit, sides.collect())
        });
    let run = ToSave {
        version: &report.version,
        began_s: report.began_s,
        machine: &report.machine,
        products: report
            .servers
            .iter()
            .map(|server| &*server.product)
            .collect(),
        options: Options::of(report),
        lines: lines.collect(),
        sweep: sweep.collect(),
        timeline: &report.timeline,
        report,
    };
    let body = serde_json::to_vec(&run).map_err(std::io::Error::from)?;
    let head = Head {
        format: FORMAT.to_owned(),
        version: VERSION,
        crc32: crc32fast::hash(&body),
    };
    let mut bytes = serde_json::to_vec(&head).map_err(std::io::Error::from)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(&body);
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::Gatherer;
    use crate::slice::Slice;
    use crate::system::WorkloadPart;
    use std::time::Duration;

    fn report(us: u64) -> Report {
        let mut gathering = Gatherer::new(1);
        for repeat in 0..6 {
            let mut slice = Slice::new();
            (0..300).for_each(|n| slice.record(1, Duration::from_micros(us + n % 7)));
            slice.seconds = (us as f64 + f64::from(repeat)) / 1_000.0;
            let part = WorkloadPart {
                name: "get",
                unit: "req",
                slice,
                cpu_seconds: None,
                peak_resident_bytes: None,
            };
            gathering.add(0, repeat, 0.0, part);
        }
        Report {
            lines: gathering.into_lines("get"),
            version: "1.0".to_owned(),
            machine: Machine::here(),
            repeats: 6,
            ..Report::default()
        }
    }

    fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let output = Output::create(&path, OWNER_ONLY).unwrap();
        output.write(bytes).unwrap();
        (dir, path)
    }

    #[test]
    fn a_run_that_is_read_again_has_the_same_rounds() {
        let report = report(500);
        let (dir, path) = written(&bytes(&report).unwrap());
        let saved = SavedRun::read(&path).unwrap();
        let side = report.lines[0].sides[0].as_ref().unwrap();
        assert_eq!(saved.lines[0].sides[0].as_ref(), Some(&side.rounds));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_the_owner_reads_a_saved_run_also_where_everybody_could_read_the_former_one() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_dir, path) = written(b"former");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let output = Output::create(&path, OWNER_ONLY).unwrap();
        output.write(b"this").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_slower_run_is_told_with_how_the_machine_differed() {
        let (_dir, path) = written(&bytes(&report(500)).unwrap());
        let saved = SavedRun::read(&path).unwrap();
        let mut now = report(700);
        now.machine.processors += 6;
        now.repeats = 7;
        saved.compare(&path, &mut now);
        let against = now.against.unwrap();
        assert!(
            against
                .differences
                .iter()
                .any(|text| text.starts_with("processors:"))
        );
        assert!(
            against
                .differences
                .iter()
                .any(|text| text == "--repeats: 7 now, 6 then")
        );
        let rate = now
            .comparisons
            .iter()
            .find(|each| each.figure == "rate")
            .unwrap();
        assert!(
            rate.significant && rate.a_is_better == Some(false),
            "{rate:?}"
        );
        let mut same = report(500);
        saved.compare(&path, &mut same);
        assert!(same.comparisons.iter().all(|each| !each.significant));
        assert!(same.against.unwrap().differences.is_empty());
    }

    #[test]
    fn damage_of_any_kind_is_noticed() {
        let whole = bytes(&report(500)).unwrap();
        let told = |bytes: &[u8]| SavedRun::read(&written(bytes).1).unwrap_err().to_string();
        let half = told(&whole[..whole.len() / 2]);
        assert!(half.contains("damaged"), "{half}");
        assert!(told(&whole[..whole.len() - 1]).contains("damaged"));
        assert!(told(&whole[..20]).contains("not a saved run"));
        assert!(told(b"").contains("not a saved run"));
        assert!(told(b"{\"a\":1}\n{}\n").contains("not a saved run"));
        let mut random = fastrand::Rng::with_seed(11);
        let end = whole.iter().position(|byte| *byte == b'\n').unwrap();
        for _ in 0..200 {
            let mut changed = whole.clone();
            changed[random.usize(end + 1..whole.len())] ^= 1 << random.u32(..8);
            let (_dir, path) = written(&changed);
            assert!(SavedRun::read(&path).is_err());
        }
    }

    #[test]
    fn a_file_of_another_version_says_so() {
        let text = String::from_utf8(bytes(&report(500)).unwrap()).unwrap();
        let (_dir, path) = written(
            text.replacen("\"version\":1", "\"version\":2", 1)
                .as_bytes(),
        );
        let told = SavedRun::read(&path).unwrap_err().to_string();
        assert!(
            told.contains("format 2") && told.contains("format 1"),
            "{told}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_before_anything_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Output::create(&dir.path().join("none/run.json"), OWNER_ONLY).is_err());
        assert!(Output::create(dir.path(), OWNER_ONLY).is_err());
        let path = dir.path().join("given-up.json");
        drop(Output::create(&path, OWNER_ONLY).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
