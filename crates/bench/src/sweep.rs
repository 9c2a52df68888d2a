//! One parameter changed between measurements: connections, or a setting of the server, which is
//! restored afterwards.

use std::rc::Rc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::Value;

use crate::client::Connection;
use crate::compare::{self, Comparison, PairingMode};
use crate::error::BenchError;
use crate::gather::Gatherer;
use crate::lines::{Line, Measurement};
use crate::rounds::Rounds;
use crate::stats::{self, Interval};
use crate::target::Target;

/// Figures at several values of one parameter. Each repeat goes through all values, and then
/// measures the first one again, which shows other changes meanwhile.
#[derive(Debug, Clone, Serialize)]
pub struct Sweep {
    /// `connections`, or the setting as SECTION/KEY.
    pub what: String,
    /// The values in the order in which they were measured.
    pub values: Vec<String>,
    /// One a measured part.
    pub lines: Vec<SweepLine>,
}

/// A part of a workload at all values.
#[derive(Debug, Clone, Serialize)]
pub struct SweepLine {
    /// The workload that the part belongs to.
    pub workload: String,
    /// The part's name.
    pub name: String,
    /// The unit of the rate.
    pub unit: String,
    /// One entry a value.
    pub points: Vec<Option<Measurement>>,
    /// The first value, measured again after the last one.
    pub again: Option<Measurement>,
    /// The first value's rate at the end over that at the beginning: 1 without other changes.
    pub drift: Option<f64>,
    /// The drift's interval over the repeats.
    pub drift_interval: Option<Interval>,
    /// Each other value against the first one, from before and after: `name` is the value.
    pub against_first: Vec<Comparison>,
}

/// The parameter of a sweep, and its values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) subject: Subject,
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Subject {
    Connections,
    Setting { section: String, key: String },
}

impl Plan {
    /// `connections=1,16,64` or `SECTION/KEY=a,b`.
    ///
    /// # Errors
    /// [`BenchError::Options`] with the problem.
    pub(crate) fn parse(text: &str) -> Result<Self, BenchError> {
        let refuse = |why: &str| BenchError::Options(format!("--sweep {text}: {why}"));
        let (what, values) = text
            .split_once('=')
            .ok_or_else(|| refuse("give connections=1,16,64 or SECTION/KEY=a,b"))?;
        let values: Vec<String> = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        if values.len() < 2 {
            return Err(refuse(
                "at least two values are needed, with commas between them",
            ));
        }
        let repeated = values
            .iter()
            .enumerate()
            .any(|(at, value)| values[..at].contains(value));
        if repeated {
            return Err(refuse(
                "a value is listed twice; the first one is measured again automatically",
            ));
        }
        let subject = match what.split_once('/') {
            None if what == "connections" => Subject::Connections,
            None => {
                return Err(refuse(
                    "it is neither connections nor a setting as SECTION/KEY",
                ));
            }
            Some((section, key)) if section.is_empty() || key.is_empty() => {
                return Err(refuse("a setting is SECTION/KEY"));
            }
            Some((section, key)) => Subject::Setting {
                section: section.to_owned(),
                key: key.to_owned(),
            },
        };
        let is_count = |value: &String| value.parse::<usize>().is_ok_and(|count| count > 0);
        if subject == Subject::Connections && !values.iter().all(is_count) {
            return Err(refuse("connections are whole numbers above 0"));
        }
        Ok(Self { subject, values })
    }

    pub(crate) fn what(&self) -> String {
        match &self.subject {
            Subject::Connections => "connections".to_owned(),
            Subject::Setting { section, key } => format!("{section}/{key}"),
        }
    }
}

/// A setting's value before a sweep changed it.
pub(crate) struct PriorSetting {
    node: Rc<Target>,
    section: String,
    key: String,
    before: Option<String>,
}

impl PriorSetting {
    /// Reads the value of a node's setting, to restore it later.
    pub(crate) async fn remember(
        node: &Rc<Target>,
        section: &str,
        key: &str,
    ) -> Result<Self, BenchError> {
        Ok(Self {
            before: setting(node, section, key).await?,
            node: Rc::clone(node),
            section: section.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Sets the value, until the server restarts.
    pub(crate) async fn set(&self, value: &str) -> Result<(), BenchError> {
        set(&self.node, &self.section, &self.key, Some(value)).await
    }

    /// Restores the former value.
    ///
    /// # Errors
    /// [`BenchError::NotPutBack`], which explains how to do it by hand.
    pub(crate) async fn put_back(&self) -> Result<(), BenchError> {
        let before = self.before.as_deref();
        let result = async {
            set(&self.node, &self.section, &self.key, before).await?;
            setting(&self.node, &self.section, &self.key).await
        };
        let reason = match result.await {
            Ok(now) if now.as_deref() == before => return Ok(()),
            Ok(now) => format!("it is {now:?} now"),
            Err(error) => error.to_string(),
        };
        Err(BenchError::NotPutBack {
            setting: format!("{}/{}", self.section, self.key),
            node: self.node.label.clone(),
            before: before.map_or_else(|| "not set".to_owned(), |value| format!("{value:?}")),
            reason,
        })
    }
}

/// Characters that are not encoded in paths.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.');

fn path(section: &str, key: &str) -> String {
    let encoded = |text| utf8_percent_encode(text, IN_PATHS);
    format!(
        "/_node/_local/_config/{}/{}",
        encoded(section),
        encoded(key)
    )
}

/// A setting of a node; `None` when it has no value.
async fn setting(node: &Target, section: &str, key: &str) -> Result<Option<String>, BenchError> {
    let path = path(section, key);
    let (status, body) = call(node, "GET", &path, None).await?;
    match status {
        404 => Ok(None),
        200 => match serde_json::from_slice(&body) {
            Ok(Value::String(value)) => Ok(Some(value)),
            _ => Err(refused("GET", &path, status, &body)),
        },
        _ => Err(refused("GET", &path, status, &body)),
    }
}

async fn set(
    node: &Target,
    section: &str,
    key: &str,
    value: Option<&str>,
) -> Result<(), BenchError> {
    let path = path(section, key);
    let (method, body) = match value {
        Some(value) => ("PUT", Some(Value::from(value).to_string())),
        None => ("DELETE", None),
    };
    let body = body.as_ref().map(String::as_bytes);
    match call(node, method, &path, body).await? {
        (200, _) => Ok(()),
        // There is nothing to delete.
        (404, _) if value.is_none() => Ok(()),
        (status, body) => Err(refused(method, &path, status, &body)),
    }
}

/// Changes apply to the running server only: after a restart it has the values of its files.
async fn call(
    node: &Target,
    method: &str,
    path: &str,
    body: Option<&[u8]>,
) -> Result<(u16, Vec<u8>), BenchError> {
    let mut connection = Connection::open(node).await?;
    let mut request = Vec::new();
    node.write_request(
        &mut request,
        method,
        path,
        "X-Couch-Persist: false\r\n",
        body,
    );
    let mut reply = Vec::new();
    let exchanged = connection.exchange(&request, &mut reply).await;
    let status = exchanged.map_err(|source| BenchError::Exchange {
        what: format!("{method} {path}"),
        source,
    })?;
    if status != 200 {
        reply = connection.refusal().into_bytes();
    }
    Ok((status, reply))
}

fn refused(method: &str, path: &str, status: u16, body: &[u8]) -> BenchError {
    BenchError::Refused {
        what: format!("{method} {path}"),
        status,
        body: String::from_utf8_lossy(body).into_owned(),
    }
}

/// The lines of a workload at all values: one gathering a value, and one of the first value again.
pub(crate) fn lines(
    workload: &str,
    values: &[String],
    gatherings: Vec<Gatherer>,
) -> Vec<SweepLine> {
    let mut measured: Vec<Vec<Line>> = gatherings
        .into_iter()
        .map(|one| one.into_lines(workload))
        .collect();
    let again = measured.pop().unwrap_or_default();
    let mut found: Vec<SweepLine> = Vec::new();
    for (at, lines) in measured.into_iter().enumerate() {
        for line in lines {
            let known = found.iter().position(|known| known.name == line.name);
            let known = known.unwrap_or_else(|| {
                found.push(SweepLine {
                    workload: line.workload.clone(),
                    name: line.name.clone(),
                    unit: line.unit.clone(),
                    points: vec![None; values.len()],
                    again: None,
                    drift: None,
                    drift_interval: None,
                    against_first: Vec::new(),
                });
                found.len() - 1
            });
            found[known].points[at] = line.sides.into_iter().next().flatten();
        }
    }
    for line in again {
        if let Some(known) = found.iter_mut().find(|known| known.name == line.name) {
            known.again = line.sides.into_iter().next().flatten();
        }
    }
    found.iter_mut().for_each(|line| line.compare(values));
    found
}

impl SweepLine {
    fn compare(&mut self, values: &[String]) {
        let (Some(Some(first)), Some(again)) = (self.points.first(), &self.again) else {
            return;
        };
        let drift = compare::rounds("", &again.rounds, &first.rounds, PairingMode::InTurns);
        self.drift_interval = drift.first().map(|drift| drift.ratio);
        let whole = again.rate.value / first.rate.value;
        self.drift =
            Some(stats::value(self.drift_interval, whole)).filter(|drift| drift.is_finite());
        let mut both = first.rounds.clone();
        for (rounds, more) in both.0.iter_mut().zip(&again.rounds.0) {
            rounds.extend_from_slice(more);
        }
        let compared = |(value, point): (&String, &Option<Measurement>)| -> Vec<Comparison> {
            let rounds: Option<&Rounds> = point.as_ref().map(|point| &point.rounds);
            rounds.map_or_else(Vec::new, |rounds| {
                compare::rounds(value, rounds, &both, PairingMode::InTurns)
            })
        };
        self.against_first = values
            .iter()
            .zip(&self.points)
            .skip(1)
            .flat_map(compared)
            .collect();
    }
}

/// Decides all comparisons of a sweep as one family.
pub(crate) fn decide(lines: &mut [SweepLine]) {
    let all = lines.iter().flat_map(|line| &line.against_first);
    let probabilities: Vec<f64> = all.map(|comparison| comparison.p).collect();
    let all = lines.iter_mut().flat_map(|line| &mut line.against_first);
    for (comparison, shown) in all.zip(stats::shown(&probabilities)) {
        comparison.significant = shown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::Slice;
    use crate::system::WorkloadPart;

    fn setting(section: &str, key: &str) -> Subject {
        Subject::Setting {
            section: section.to_owned(),
            key: key.to_owned(),
        }
    }

    #[test]
    fn a_sweep_is_of_connections_or_of_a_setting() {
        let plan = Plan::parse("connections=1,16").unwrap();
        assert_eq!(
            (plan.subject.clone(), plan.values.len()),
            (Subject::Connections, 2)
        );
        let plan = Plan::parse("couchdb/delayed_commits=true,false").unwrap();
        assert_eq!(plan.subject, setting("couchdb", "delayed_commits"));
        assert_eq!(plan.what(), "couchdb/delayed_commits");
        // A key may hold a slash.
        let plan = Plan::parse("a/b/c=1,2").unwrap();
        assert_eq!(plan.subject, setting("a", "b/c"));
        for wrong in [
            "",
            "connections",
            "connections=",
            "connections=1",
            "connections=0,1",
            "connections=1,x",
            "connections=1,1",
            "threads=1,2",
            "/key=1,2",
            "section/=1,2",
        ] {
            assert!(
                matches!(Plan::parse(wrong), Err(BenchError::Options(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn names_of_settings_are_encoded_in_paths() {
        assert_eq!(
            path("a b", "c/d_e.f"),
            "/_node/_local/_config/a%20b/c%2Fd_e.f"
        );
    }

    fn gathering(rates: &[u64]) -> Gatherer {
        let mut gathering = Gatherer::new(1);
        for (repeat, rate) in rates.iter().enumerate() {
            let mut slice = Slice::new();
            (slice.count, slice.seconds) = (*rate, 1.0);
            let part = WorkloadPart {
                name: "get",
                unit: "req",
                slice,
                cpu_seconds: None,
                peak_resident_bytes: None,
            };
            gathering.add(0, repeat as u32, 0.0, part);
        }
        gathering
    }

    #[test]
    fn what_drifts_is_not_taken_for_the_settings_doing() {
        // The machine gets faster by a tenth from one measurement to the next, and the setting does nothing.
        let values = ["a".to_owned(), "b".to_owned()];
        let (first, middle, last): (Vec<u64>, Vec<u64>, Vec<u64>) = (
            vec![1_000, 1_010, 1_020, 990, 1_005, 995],
            vec![1_100, 1_111, 1_122, 1_089, 1_105, 1_095],
            vec![1_200, 1_212, 1_224, 1_188, 1_205, 1_195],
        );
        let gatherings = [&first, &middle, &last].map(|rates| gathering(rates));
        let mut lines = lines("get", &values, gatherings.into());
        decide(&mut lines);
        let line = &lines[0];
        assert!((line.drift.unwrap() - 1.2).abs() < 0.01);
        assert!(line.drift_interval.unwrap().low > 1.1);
        let against = &line.against_first[0];
        assert!(against.name == "b" && !against.significant, "{against:?}");
        assert!((against.ratio.value - 1.0).abs() < 0.01, "{against:?}");
    }

    #[test]
    fn what_the_setting_does_is_shown() {
        let values = ["a".to_owned(), "b".to_owned()];
        let (one, other): (Vec<u64>, Vec<u64>) = (
            vec![1_000, 1_010, 1_020, 990, 1_005, 995],
            vec![1_300, 1_310, 1_320, 1_290, 1_305, 1_295],
        );
        let gatherings = [&one, &other, &one].map(|rates| gathering(rates));
        let mut lines = lines("get", &values, gatherings.into());
        decide(&mut lines);
        assert!(lines[0].against_first[0].significant);
        assert_eq!(lines[0].points.len(), 2);
        assert!((lines[0].drift.unwrap() - 1.0).abs() < 0.01);
    }
}
