//! The parameter of a sweep, its values, and the workloads that it changes.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::error::BenchError;
use crate::variation::Variation;

/// Smaller documents would have no place for the members that all of them have.
const DOCUMENT_BYTES: RangeInclusive<u64> = 150..=1_000_000;
/// Larger documents would make requests of more than 64 MB in bulks of 1,000.
const DOCUMENT_BYTES_MAX_IN_BULKS: u64 = 64_000;
const BULK_DOCS: RangeInclusive<u64> = 1..=100_000;
const CONNECTIONS: RangeInclusive<u64> = 1..=100_000;
const Q: RangeInclusive<u64> = 1..=1_024;

/// Workloads whose clients are `--connections`.
const BY_CONNECTIONS: &[&str] = &[
    "get",
    "get_random",
    "find",
    "views_read",
    "cluster_get",
    "ycsb_a",
    "ycsb_b",
    "ycsb_c",
    "ycsb_d",
    "ycsb_e",
    "ycsb_f",
    "mix",
];
/// Workloads that write bulks of a size that their names do not say.
const BY_BULK_DOCS: &[&str] = &["bulk_parallel", "bulk_300", "cluster_bulk"];
/// Workloads whose documents may have any size.
const BY_DOCUMENT_BYTES: &[&str] = &[
    "bulk_parallel",
    "bulk_300",
    "single",
    "writers_32",
    "batch_ok",
    "full_commit",
    "get",
    "get_random",
    "changes",
    "changes_include_docs",
    "all_docs",
    "find",
    "views_first_build",
    "views_read",
    "cluster_put",
    "cluster_writers_32",
    "cluster_bulk",
    "cluster_get",
    "cluster_mixed",
];
/// It runs without a server.
const WITHOUT_SERVER: &str = "lightning";
/// It reads the user's databases.
const WITHOUT_DATABASES: &str = "urls";

/// The parameter of a sweep, and its values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) subject: Subject,
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Subject {
    Connections,
    /// Shards of new databases.
    Q,
    DocumentBytes,
    BulkDocs,
    Setting {
        section: String,
        key: String,
    },
}

impl Subject {
    fn parse(what: &str) -> Result<Self, &'static str> {
        match (what, what.split_once('/')) {
            ("connections", _) => Ok(Self::Connections),
            ("q", _) => Ok(Self::Q),
            ("document_bytes", _) => Ok(Self::DocumentBytes),
            ("bulk_docs", _) => Ok(Self::BulkDocs),
            (_, None) => Err(
                "it is neither connections, q, document_bytes or bulk_docs, nor a setting as SECTION/KEY",
            ),
            (_, Some((section, key))) if section.is_empty() || key.is_empty() => {
                Err("a setting is SECTION/KEY")
            }
            (_, Some((section, key))) => Ok(Self::Setting {
                section: section.to_owned(),
                key: key.to_owned(),
            }),
        }
    }

    /// The numbers that the values may be; `None` for settings, whose values are texts.
    fn numbers(&self) -> Option<RangeInclusive<u64>> {
        match self {
            Self::Connections => Some(CONNECTIONS),
            Self::Q => Some(Q),
            Self::DocumentBytes => Some(DOCUMENT_BYTES),
            Self::BulkDocs => Some(BULK_DOCS),
            Self::Setting { .. } => None,
        }
    }

    /// The workloads that it changes; `None` for all that use a server.
    fn workloads(&self) -> Option<&'static [&'static str]> {
        match self {
            Self::Connections => Some(BY_CONNECTIONS),
            Self::DocumentBytes => Some(BY_DOCUMENT_BYTES),
            Self::BulkDocs => Some(BY_BULK_DOCS),
            Self::Q | Self::Setting { .. } => None,
        }
    }

    fn changes(&self, workload: &str) -> bool {
        match self.workloads() {
            Some(workloads) => workloads.contains(&workload),
            None if workload == WITHOUT_DATABASES => *self != Self::Q,
            None => workload != WITHOUT_SERVER,
        }
    }
}

/// Values with commas between them, or a JSON array, whose values may have commas.
fn split(values: &str) -> Vec<String> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match serde_json::from_str::<Vec<Value>>(values) {
        Ok(values) => values.into_iter().map(text).collect(),
        Err(_) => values.split(',').map(|v| v.trim().to_owned()).collect(),
    }
}

impl Plan {
    /// `connections=1,16,64`, `q=2,8`, `document_bytes=300,16000`, `bulk_docs=100,1000` or
    /// `SECTION/KEY=a,b`. A JSON array of values may have commas in them.
    ///
    /// # Errors
    /// [`BenchError::Options`] with the problem.
    pub(crate) fn parse(text: &str) -> Result<Self, BenchError> {
        let refuse = |why: &str| BenchError::Options(format!("--sweep {text}: {why}"));
        let (what, values) = text.split_once('=').ok_or_else(|| {
            refuse("give connections=1,16,64, q=2,8, document_bytes=300,16000, bulk_docs=100,1000 or SECTION/KEY=a,b")
        })?;
        let subject = Subject::parse(what).map_err(refuse)?;
        let values = split(values);
        if values.len() < 2 {
            return Err(refuse(
                "at least two values are needed, with commas between them or as a JSON array",
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
        if let Some(numbers) = subject.numbers() {
            let is_number =
                |value: &String| value.parse::<u64>().is_ok_and(|n| numbers.contains(&n));
            if !values.iter().all(is_number) {
                let (min, max) = numbers.into_inner();
                return Err(refuse(&format!(
                    "the values are whole numbers from {min} to {max}"
                )));
            }
        }
        Ok(Self { subject, values })
    }

    pub(crate) fn what(&self) -> String {
        match &self.subject {
            Subject::Connections => "connections".to_owned(),
            Subject::Q => "q".to_owned(),
            Subject::DocumentBytes => "document_bytes".to_owned(),
            Subject::BulkDocs => "bulk_docs".to_owned(),
            Subject::Setting { section, key } => format!("{section}/{key}"),
        }
    }

    /// The workloads of a run that the sweep changes. Of those that the user named, it must change
    /// all: the others would be measured at several values of nothing.
    ///
    /// # Errors
    /// [`BenchError::Options`] names one that the sweep does not change.
    pub(crate) fn select(
        &self,
        workloads: Vec<&'static str>,
        are_named: bool,
    ) -> Result<Vec<&'static str>, BenchError> {
        let refuse = |why: String| BenchError::Options(format!("--sweep {}: {why}", self.what()));
        let mut names = workloads.iter().copied();
        let unchanged = names.find(|name| !self.subject.changes(name));
        let changed: Vec<&'static str> = match unchanged {
            Some(name) if are_named => {
                let those = match self.subject.workloads() {
                    Some(workloads) => format!("it changes {}", workloads.join(", ")),
                    None if name == WITHOUT_DATABASES => "it creates no databases".to_owned(),
                    None => "it runs without a server".to_owned(),
                };
                return Err(refuse(format!("this does not change {name}; {those}")));
            }
            _ => {
                let workloads = workloads.into_iter();
                workloads.filter(|n| self.subject.changes(n)).collect()
            }
        };
        let in_bulks = changed.iter().find(|name| BY_BULK_DOCS.contains(name));
        let largest = self.values.iter().filter_map(|v| v.parse::<u64>().ok());
        if self.subject == Subject::DocumentBytes
            && let Some(name) = in_bulks
            && largest.max() > Some(DOCUMENT_BYTES_MAX_IN_BULKS)
        {
            return Err(refuse(format!(
                "{name} writes 1,000 documents in a request, of at most {DOCUMENT_BYTES_MAX_IN_BULKS} bytes each"
            )));
        }
        Ok(changed)
    }

    /// The properties of databases and documents at a value.
    pub(crate) fn variation(&self, value: &str) -> Variation {
        let usual = Variation::default();
        // The values were checked when the plan was parsed.
        match self.subject {
            Subject::Q => Variation {
                q: value.parse().ok(),
                ..usual
            },
            Subject::DocumentBytes => Variation {
                document_bytes: value.parse().ok(),
                ..usual
            },
            Subject::BulkDocs => Variation {
                bulk_docs: value.parse().ok(),
                ..usual
            },
            Subject::Connections | Subject::Setting { .. } => usual,
        }
    }

    /// Whether each value needs new databases: a setting may count when a database is created or
    /// written, and what is read must have been written at the same value.
    pub(crate) fn needs_new_databases(&self) -> bool {
        self.subject != Subject::Connections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(section: &str, key: &str) -> Subject {
        Subject::Setting {
            section: section.to_owned(),
            key: key.to_owned(),
        }
    }

    #[test]
    fn a_sweep_is_of_a_number_or_of_a_setting() {
        for (text, subject) in [
            ("connections=1,16", Subject::Connections),
            ("q=1,8", Subject::Q),
            ("document_bytes=300,16000", Subject::DocumentBytes),
            ("bulk_docs=100,1000", Subject::BulkDocs),
            ("cluster/q=2,60", setting("cluster", "q")),
            // A key may hold a slash.
            ("a/b/c=1,2", setting("a", "b/c")),
        ] {
            let plan = Plan::parse(text).unwrap();
            assert_eq!((&plan.subject, plan.values.len()), (&subject, 2), "{text}");
            assert!(text.starts_with(&format!("{}=", plan.what())), "{text}");
        }
        for wrong in [
            "",
            "connections",
            "connections=",
            "connections=1",
            "connections=0,1",
            "connections=1,x",
            "connections=1,1",
            "q=0,1",
            "q=1,2000",
            "document_bytes=100,200",
            "bulk_docs=1,1.5",
            "threads=1,2",
            "/key=1,2",
            "section/=1,2",
            "log/level=[\"info\"]",
        ] {
            let refused = Plan::parse(wrong);
            let error = refused.unwrap_err();
            assert!(matches!(error, BenchError::Options(_)), "{wrong}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn values_of_a_json_array_may_have_commas() {
        let values = |text: &str| Plan::parse(text).unwrap().values;
        assert_eq!(
            values(r#"cors/origins=["http://a,http://b","*"]"#),
            ["http://a,http://b", "*"]
        );
        assert_eq!(values("a/b=[1, true]"), ["1", "true"]);
        assert_eq!(values("connections=[1, 16]"), ["1", "16"]);
        assert_eq!(values("a/b= x , y"), ["x", "y"]);
        // Not a JSON array.
        assert_eq!(values("chttpd/bind_address=[::1],::"), ["[::1]", "::"]);
    }

    #[test]
    fn workloads_that_a_sweep_does_not_change_are_refused() {
        let plan = |text: &str| Plan::parse(text).unwrap();
        let all = || vec!["bulk_300", "single", "lightning", "get"];
        for (text, changed) in [
            ("connections=1,2", vec!["get"]),
            ("bulk_docs=1,2", vec!["bulk_300"]),
            ("document_bytes=200,300", vec!["bulk_300", "single", "get"]),
            ("q=1,2", vec!["bulk_300", "single", "get"]),
            ("log/level=info,debug", vec!["bulk_300", "single", "get"]),
        ] {
            let plan = plan(text);
            assert_eq!(plan.select(all(), false).unwrap(), changed, "{text}");
            let error = plan.select(all(), true).unwrap_err().to_string();
            assert!(error.contains("does not change"), "{error}");
            assert_eq!(plan.select(changed.clone(), true).unwrap(), changed);
        }
        assert_eq!(
            plan("log/level=info,debug")
                .select(vec!["urls"], true)
                .unwrap(),
            ["urls"]
        );
        for text in ["q=1,2", "connections=1,2"] {
            let error = plan(text).select(vec!["urls"], true).unwrap_err();
            assert!(
                error.to_string().contains("does not change urls"),
                "{error}"
            );
        }
        let large = plan("document_bytes=200,100000");
        assert_eq!(large.select(vec!["get"], true).unwrap(), ["get"]);
        let error = large.select(vec!["bulk_300"], true).unwrap_err();
        assert!(error.to_string().contains("at most 64000"), "{error}");
    }

    #[test]
    fn every_listed_workload_exists() {
        let known: Vec<&str> = crate::workloads().iter().map(|each| each.name).collect();
        let listed = [BY_CONNECTIONS, BY_BULK_DOCS, BY_DOCUMENT_BYTES].concat();
        for name in listed.iter().chain([&WITHOUT_SERVER, &WITHOUT_DATABASES]) {
            assert!(known.contains(name), "{name}");
        }
    }
}
