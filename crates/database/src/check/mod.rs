//! Checks whether a store is intact: compares the contents of the store, the indexes and the
//! catalogue of databases, and names the differences.
//!
//! Nothing is changed: [`storage::check`] opens the store for reading only, while no server has it open.

mod designs;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use functions::{Languages, Owner};
use index::check::{IndexCheck, IndexTotals, Remap};
use storage::check::{CatalogueOwners, Findings, References, ShardRules, StoreCheck};
use storage::{Shard, ShardMeta, ShardNumber, View};

use crate::Error;
use crate::catalogue::{ContentsUnder, DatabaseRecord};
use crate::find::WithIndexes;
use crate::hash_ranges::{range_of, shard_index};

pub(crate) use designs::{Designs, DesignsOf};
pub use report::{LocatedFinding, Report, Totals};
pub use storage::check::{Finding, Kind, Watch};

/// The parts to check, and options.
pub struct CheckOptions {
    /// Where files go that sorting needs: about 40 bytes a document of one shard, when it has more than a million.
    pub temporary: PathBuf,
    /// Runs map functions, to compare their results with stored rows; `None` skips this.
    pub languages: Option<Arc<dyn Languages>>,
    /// The time zone of dates in JavaScript, which indexes may depend on: that of the server, also when
    /// no function is run.
    pub time_zone: String,
    /// Receives the progress to watch, before the check begins.
    pub begun: Box<dyn FnOnce(Arc<Watch>)>,
}

/// A database of the catalogue.
struct CatalogueDatabase {
    name: String,
    record: DatabaseRecord,
}

impl CatalogueDatabase {
    fn range(&self, index: usize) -> String {
        let (start, end) = range_of(index, self.record.shards.len());
        format!("{start:08x}-{end:08x}")
    }

    fn homes(&self) -> &[ShardNumber] {
        match self.record.contents {
            ContentsUnder::EachShard => &self.record.shards,
            ContentsUnder::FirstShard => self.record.shards.get(..1).unwrap_or_default(),
        }
    }
}

/// Checks the store in `store`.
///
/// # Errors
/// [`Error::Storage`]: it could not be checked, because it is not a store, a server has it open, or
/// it cannot be opened.
pub fn check(store: &Path, options: CheckOptions) -> Result<Report, Error> {
    let started = Instant::now();
    let mut first = Findings::default();
    let of = StoreCheck::open(store, &options.temporary, &mut first)?;
    (options.begun)(of.watch.clone());
    let mut check = Check {
        store: store.to_owned(),
        of,
        languages: options.languages.map(|languages| {
            let all: Arc<dyn Languages> = Arc::new(WithIndexes(languages));
            all
        }),
        time_zone: options.time_zone,
        report: Report::default(),
    };
    check.run(first);
    let Check { of, mut report, .. } = check;
    report.totals.seconds = started.elapsed().as_secs_f64();
    report.totals.rows = of.watch.rows.load(std::sync::atomic::Ordering::Relaxed);
    Ok(report)
}

struct Check {
    store: PathBuf,
    of: StoreCheck,
    languages: Option<Arc<dyn Languages>>,
    time_zone: String,
    report: Report,
}

/// Where findings are.
#[derive(Clone, Default)]
struct Location {
    database: Option<String>,
    shard: Option<String>,
    index: Option<String>,
}

impl Check {
    fn run(&mut self, mut findings: Findings) {
        let owners = match self.of.catalogue(&mut findings) {
            Ok(owners) => owners,
            Err(e) => {
                let topic = "the catalogue cannot be read";
                findings.damage(Kind::Catalogue, None, topic, e.to_string());
                CatalogueOwners::default()
            }
        };
        let databases = databases(&owners, &mut findings);
        let names = names(&databases, &owners);
        let name = |n: ShardNumber| {
            let named = names.get(&n).cloned();
            named.unwrap_or_else(|| format!("number {n}, which nothing has"))
        };
        let homes: BTreeSet<ShardNumber> = databases
            .iter()
            .flat_map(|db| db.homes())
            .copied()
            .collect();
        if let Err(e) = self.of.files(&homes, &name, &mut findings) {
            findings.damage(Kind::Files, None, "files cannot be read", e.to_string());
        }
        let shards: BTreeSet<ShardNumber> = databases
            .iter()
            .flat_map(|db| &db.record.shards)
            .copied()
            .collect();
        if let Err(e) = self.of.check_owners(&owners, &shards, &mut findings) {
            let topic = "the owners of its parts could not be determined";
            findings.damage(Kind::Catalogue, None, topic, e.to_string());
        }
        if let Ok((files, bytes, _)) = self.of.table_totals() {
            (self.report.totals.files, self.report.totals.file_bytes) = (files, bytes);
        }
        self.take(&Location::default(), findings);
        for db in &databases {
            self.database(db, &owners);
        }
    }

    fn take(&mut self, location: &Location, findings: Findings) {
        let found = findings
            .into_all()
            .into_iter()
            .map(|finding| LocatedFinding {
                database: location.database.clone(),
                shard: location.shard.clone(),
                index: location.index.clone(),
                finding,
            });
        self.report.found.extend(found);
    }

    fn database(&mut self, db: &CatalogueDatabase, owners: &CatalogueOwners) {
        self.report.totals.databases += 1;
        let designs = self.designs(db);
        let mut references: BTreeMap<ShardNumber, References> = BTreeMap::new();
        for (index, &shard) in db.record.shards.iter().enumerate() {
            let location = Location {
                database: Some(db.name.clone()),
                shard: Some(db.range(index)),
                index: None,
            };
            let home = *db.homes().get(index).unwrap_or(&db.homes()[0]);
            self.of
                .watch
                .begin(format!("{} {}", db.name, db.range(index)));
            let references = references
                .entry(home)
                .or_insert_with(|| References::new(self.of.temporary()));
            let mut findings = Findings::default();
            let n = db.record.shards.len();
            let partitioned = db.record.partitioned;
            let rules = ShardRules {
                home,
                belongs: &|id| shard_index(id, n, partitioned) == index,
            };
            let meta = self.of.shard(shard, &rules, references, &mut findings);
            let meta = match meta {
                Ok(meta) => Some(meta),
                Err(e) => {
                    let topic = "it could not be checked completely";
                    findings.damage(Kind::Documents, None, topic, e.to_string());
                    None
                }
            };
            self.access(db, shard, &mut findings);
            let is_damaged = findings.has_damage();
            self.take(&location, findings);
            let Some(meta) = meta else {
                continue;
            };
            self.report.totals.documents += meta.doc_count;
            self.report.totals.deleted_documents += meta.doc_del_count;
            for (signature, number) in owners.indexes_of(shard) {
                if let Some(name) = designs.text(signature) {
                    self.text_index(&location, *number, name);
                    continue;
                }
                let design = designs.of(signature);
                self.index(&location, (shard, &meta, is_damaged), *number, design);
            }
        }
        self.contents(db, references);
    }

    fn contents(&mut self, db: &CatalogueDatabase, references: BTreeMap<ShardNumber, References>) {
        for (home, references) in references {
            let index = db.record.shards.iter().position(|shard| *shard == home);
            let location = Location {
                database: Some(db.name.clone()),
                shard: index.map(|index| db.range(index)),
                index: None,
            };
            self.of.watch.begin(format!("attachments of {}", db.name));
            let mut findings = Findings::default();
            match self.of.contents(home, references, &mut findings) {
                Ok(totals) => {
                    self.report.totals.attachments += totals.contents;
                    self.report.totals.attachment_bytes += totals.bytes;
                }
                Err(e) => {
                    let topic = "not all contents of attachments could be checked";
                    findings.damage(Kind::Attachments, None, topic, e.to_string());
                }
            }
            self.take(&location, findings);
        }
    }

    /// Its files are not the store's, and have checksums of their own.
    fn text_index(&mut self, location: &Location, number: ShardNumber, name: &str) {
        let location = Location {
            index: Some(name.to_owned()),
            ..location.clone()
        };
        self.of.watch.begin(format!(
            "text index {name} of {}",
            location.database.as_deref().unwrap_or_default()
        ));
        let mut findings = Findings::default();
        let folder = storage::folder_in(&self.store, number);
        match search::find_damage(&folder) {
            Ok(None) => {}
            Ok(Some(reason)) => {
                let topic = "files of a text index are damaged";
                let more = format!("{reason} in {}", folder.display());
                findings.damage(Kind::TextIndex, None, topic, more);
            }
            Err(e) => {
                let topic = "files of a text index cannot be read";
                findings.damage(Kind::TextIndex, None, topic, e.to_string());
            }
        }
        self.report.totals.indexes += 1;
        self.take(&location, findings);
    }

    fn index(
        &mut self,
        location: &Location,
        (owner, meta, is_damaged): (ShardNumber, &ShardMeta, bool),
        number: ShardNumber,
        design: Option<&designs::IndexDefinition>,
    ) {
        let label = design.map_or_else(
            || format!("number {number}, which no design document has"),
            |design| design.ids.join(", "),
        );
        let location = Location {
            index: Some(label.clone()),
            ..location.clone()
        };
        self.of.watch.begin(format!(
            "index {label} of {}",
            location.database.as_deref().unwrap_or_default()
        ));
        let mut findings = Findings::default();
        let check = IndexCheck {
            number,
            spec: design.map(|design| &*design.spec),
            owner,
            meta,
        };
        let watch = self.of.watch.clone();
        let totals = match check.run(self.of.snapshot(), &watch, &mut findings) {
            Ok(totals) => totals,
            Err(e) => {
                let topic = "it could not be checked completely";
                findings.damage(Kind::Index, None, topic, e.to_string());
                IndexTotals::default()
            }
        };
        self.report.totals.indexes += 1;
        self.report.totals.index_rows += totals.rows;
        if design.is_none() {
            let more = format!(
                "no design document has it: _view_cleanup removes its {} rows, or _nouveau_cleanup its files",
                totals.rows
            );
            findings.note(Kind::Space, more);
        }
        if let (Some(languages), Some(design)) = (self.languages.clone(), design)
            && !findings.has_damage()
            && !is_damaged
        {
            let again = self.remap(
                &check,
                &location,
                (owner, meta),
                &totals,
                &languages,
                design,
                &mut findings,
            );
            if let Err(e) = again {
                let more = format!("its map functions could not be run: {e}");
                findings.note(Kind::Index, more);
            }
        }
        self.take(&location, findings);
    }

    /// Reads the definitions of a database's indexes.
    fn designs(&self, db: &CatalogueDatabase) -> Designs {
        let of = DesignsOf {
            partitioned: db.record.partitioned,
            has_access: db.record.access.is_some(),
            time_zone: self.time_zone.as_str(),
        };
        let mut designs = Designs::read(self.of.snapshot(), &db.record.shards, &of);
        if let Some(expiry) = &db.record.expiry {
            designs.add_expiry(expiry.member());
        }
        designs
    }

    /// Checks the access of the documents of a shard, in a database with access.
    fn access(&self, db: &CatalogueDatabase, shard: ShardNumber, findings: &mut Findings) {
        if db.record.access.is_some()
            && let Err(e) = self.of.access(shard, findings)
        {
            let topic = "the access of its documents could not be checked completely";
            findings.damage(Kind::Documents, None, topic, e.to_string());
        }
    }

    #[expect(clippy::too_many_arguments, reason = "they identify an index")]
    fn remap(
        &self,
        check: &IndexCheck<'_>,
        location: &Location,
        (owner, meta): (ShardNumber, &ShardMeta),
        totals: &IndexTotals,
        languages: &Arc<dyn Languages>,
        design: &designs::IndexDefinition,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let snapshot = self.of.snapshot();
        let shard = Shard::open(snapshot.engine().clone(), owner)?;
        let view = View {
            snapshot: snapshot.clone(),
            meta: meta.clone(),
        };
        let again = Remap {
            languages: &**languages,
            owner: Owner {
                database: location.database.as_deref().unwrap_or_default().into(),
                design: design.ids.first().cloned().unwrap_or_default(),
                views: vec![],
            },
            shard: &shard,
            view: &view,
        };
        Ok(check.remap(&again, totals, &self.of.watch, findings)?)
    }
}

/// The databases whose records can be read.
fn databases(owners: &CatalogueOwners, findings: &mut Findings) -> Vec<CatalogueDatabase> {
    let mut databases = vec![];
    let mut users: BTreeMap<ShardNumber, String> = BTreeMap::new();
    for (name, record) in &owners.databases {
        let record = match DatabaseRecord::decode(record) {
            Ok(record) if !record.shards.is_empty() => record,
            _ => {
                let topic = "the record of a database cannot be read";
                findings.damage(Kind::Catalogue, None, topic, format!("'{name}'"));
                continue;
            }
        };
        if record.access.is_some() && !owners.has_format_with_access {
            let topic = "a database has access by document, but the format of the store lets older versions open it";
            findings.damage(Kind::Catalogue, None, topic, format!("'{name}'"));
        }
        for &shard in &record.shards {
            if let Some(other) = users.insert(shard, name.clone()) {
                let topic = "two databases have the same shard";
                findings.damage(
                    Kind::Catalogue,
                    None,
                    topic,
                    format!("'{name}' and '{other}'"),
                );
            }
            if owners.dropped.contains(&shard) {
                let topic = "a database has a shard that is listed as dropped: a server would remove its documents";
                findings.damage(Kind::Catalogue, None, topic, format!("'{name}'"));
            }
        }
        databases.push(CatalogueDatabase {
            name: name.clone(),
            record,
        });
    }
    databases
}

/// The names of shards and indexes.
fn names(
    databases: &[CatalogueDatabase],
    owners: &CatalogueOwners,
) -> BTreeMap<ShardNumber, String> {
    let mut names = BTreeMap::new();
    for db in databases {
        for (index, &shard) in db.record.shards.iter().enumerate() {
            names.insert(
                shard,
                format!("database '{}', shard {}", db.name, db.range(index)),
            );
            for (_, number) in owners.indexes_of(shard) {
                names.insert(
                    *number,
                    format!(
                        "an index of database '{}', shard {}",
                        db.name,
                        db.range(index)
                    ),
                );
            }
        }
    }
    for dropped in &owners.dropped {
        let what = "something that was dropped";
        names.entry(*dropped).or_insert_with(|| what.to_owned());
    }
    names
}
