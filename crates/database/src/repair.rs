//! Rescues the readable data of a damaged store into a new one: database by database, with its
//! settings.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use storage::repair::{DocumentCopy, DocumentDestination, Loss, RescuedDocuments, Source};
use storage::{Limits, ShardNumber, Store, StoreOptions};

use crate::Error;
use crate::catalogue::{ContentsUnder, DatabaseRecord, DatabaseUuid};
use crate::databases::{PURGED_INFOS_LIMIT, REVS_LIMIT, random};
use crate::ttl::Ttl;

/// Rescued data of a database.
#[derive(Clone, Debug)]
pub struct RepairedDatabase {
    /// Its name.
    pub name: String,
    /// Rescued data.
    pub saved: RescuedDocuments,
}

/// Something that was lost.
#[derive(Clone, Debug)]
pub struct RepairLoss {
    /// In which database; `None` of the store.
    pub database: Option<String>,
    /// The document, where it is known.
    pub document: Option<String>,
    /// The lost part of it.
    pub what: String,
}

/// Callbacks of a repair.
pub struct RepairHooks<'a> {
    /// Called for each loss, when it is found.
    pub lost: &'a mut dyn FnMut(RepairLoss),
    /// Called periodically with a database and the number of its documents saved so far.
    pub progress: &'a dyn Fn(&str, u64),
    /// Called with each change that was needed to open the store.
    pub note: &'a mut dyn FnMut(&str),
}

/// A database to create.
struct DatabaseToCreate {
    name: String,
    record: DatabaseRecord,
}

/// Copies everything that can be read in the store `from` into a new one in `to`, which must be empty or absent. `scratch` must not exist:
/// the engine works there when its list of files is lost.
///
/// # Errors
/// The old store cannot be read at all, or the new one not be written.
pub fn repair(
    from: &Path,
    to: &Path,
    scratch: &Path,
    hooks: RepairHooks<'_>,
) -> Result<Vec<RepairedDatabase>, Error> {
    let source = Source::open(from, scratch)?;
    for note in &source.notes {
        (hooks.note)(note);
    }
    let store = Store::open(to, &StoreOptions::default(), Box::new(|_| {}))?;
    let databases = databases(&source, hooks.lost);
    let mut all = vec![];
    for database in databases {
        let saved = copy(&source, &store, &database, hooks.lost, hooks.progress)?;
        all.push(RepairedDatabase {
            name: database.name,
            saved,
        });
    }
    store
        .committer
        .sync()
        .blocking_recv()
        .map_err(|_| Error::ShuttingDown)??;
    store.close();
    Ok(all)
}

/// The existing databases, and one for each shard that belongs to none: its database's record was
/// lost then.
fn databases(source: &Source, lost: &mut dyn FnMut(RepairLoss)) -> Vec<DatabaseToCreate> {
    let mut databases = vec![];
    let mut owned: BTreeSet<ShardNumber> = BTreeSet::new();
    let mut of_store = |database: Option<&str>, what: String| {
        lost(RepairLoss {
            database: database.map(str::to_owned),
            document: None,
            what,
        });
    };
    let records = source.databases(&mut |loss: Loss| of_store(None, loss.what));
    for (name, record) in records {
        match DatabaseRecord::decode(&record) {
            Ok(record) if !record.shards.is_empty() => {
                owned.extend(&record.shards);
                databases.push(DatabaseToCreate { name, record });
            }
            _ => of_store(
                Some(&name),
                "its record cannot be read: its settings are lost, its documents are in databases recovered/shard-N".into(),
            ),
        }
    }
    for shard in source.shards().difference(&owned) {
        let name = format!("recovered/shard-{shard}");
        of_store(
            None,
            format!("the name of the database of shard {shard}: its documents are in {name}"),
        );
        databases.push(DatabaseToCreate {
            name,
            record: DatabaseRecord {
                epoch: 0,
                uuid: None,
                shards: vec![*shard],
                contents: ContentsUnder::EachShard,
                n: 1,
                partitioned: false,
                spread: false,
                created_unix_s: crate::unix_seconds(),
                revs_limit: REVS_LIMIT,
                purged_infos_limit: PURGED_INFOS_LIMIT,
                // The lost record may have said so, whatever the default is.
                deleted_document_ttl: Ttl::parse("infinity"),
                expiry: None,
                access: None,
                // For admins only, until somebody says who else.
                security: r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#
                    .into(),
            },
        });
    }
    databases
}

/// Opens a new shard of the database with this record.
fn destination(
    store: &Store,
    number: ShardNumber,
    of: &DatabaseRecord,
) -> Result<DocumentDestination, storage::Error> {
    let shard = Arc::new(store.shard(number)?);
    if of.access.is_some() {
        shard.keep_access();
    }
    let contents = store.contents(shard.clone());
    Ok(DocumentDestination { shard, contents })
}

/// Creates a database with the record that `encode` returns.
fn create(
    store: &Store,
    DatabaseToCreate { name, record }: &DatabaseToCreate,
    encode: impl FnOnce(&[ShardNumber]) -> Vec<u8>,
) -> Result<(), Error> {
    let q = record.shards.len() as u32;
    let done = match record.access {
        Some(_) => store.create_database_with_access(name, q, encode),
        None => store.create_database(name, q, encode),
    };
    done.blocking_recv().map_err(|_| Error::ShuttingDown)??;
    Ok(())
}

fn copy(
    source: &Source,
    store: &Store,
    database: &DatabaseToCreate,
    lost: &mut dyn FnMut(RepairLoss),
    progress: &dyn Fn(&str, u64),
) -> Result<RescuedDocuments, Error> {
    let old = &database.record;
    let mut shards = vec![];
    let record = DatabaseRecord {
        // Seqs are different: clients must not resume from the former ones.
        epoch: u32::from_be_bytes(random()?),
        uuid: Some(DatabaseUuid::new(random()?)),
        contents: ContentsUnder::EachShard,
        ..old.clone()
    };
    let encode = |numbers: &[ShardNumber]| {
        shards = numbers.to_vec();
        let shards = numbers.to_vec();
        DatabaseRecord { shards, ..record }.encode()
    };
    create(store, database, encode)?;
    let homes: Vec<DocumentDestination> = shards
        .iter()
        .map(|&number| destination(store, number, old))
        .collect::<Result<_, storage::Error>>()?;
    let mut all = RescuedDocuments::default();
    let sharding = old.sharding();
    for &shard in &old.shards {
        let contents = match old.contents {
            ContentsUnder::EachShard => shard,
            ContentsUnder::FirstShard => old.shards[0],
        };
        let before = all.documents;
        let copied = DocumentCopy {
            source,
            from: (shard, contents),
            committer: &store.committer,
            home: &|id| homes[sharding.index_of(id)].clone(),
            limits: Limits {
                revs_limit: old.revs_limit,
                purged_infos_limit: old.purged_infos_limit,
                // Existing leaves are kept.
                leaves_max: None,
            },
            losses: &mut |loss| {
                lost(RepairLoss {
                    database: Some(database.name.clone()),
                    document: loss.document,
                    what: loss.what,
                });
            },
            progress: &|documents| progress(&database.name, before + documents),
        };
        let saved = copied.run()?;
        all.documents += saved.documents;
        all.revisions += saved.revisions;
        all.locals += saved.locals;
        all.attachments += saved.attachments;
        all.losses += saved.losses;
    }
    let shards = homes.iter().map(|home| home.shard.clone()).collect();
    let saved = store.committer.save(shards);
    saved.blocking_recv().map_err(|_| Error::ShuttingDown)??;
    Ok(all)
}
