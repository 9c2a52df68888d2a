//! A slot of documents.

use std::sync::Arc;

use cluster::record::{Body, DatabaseWork, EditRecord, Request, Work};
use cluster::replica::{Cursor, DurableState, Promises};
use cluster::slot::{Outcomes, SlotStore, StoreError};
use cluster::{BoxFuture, NodeId, SlotNumber};
use database::{Database, DatabaseUuid, Databases};
use rustc_hash::FxHashMap;
use storage::{Limits, Session, SlotOutcome, SlotRequest, SlotWork, Store};

use super::chunks::{Assembly, Chunk};
use super::queue::{Prepare, PreparedRecord, Queue, failed, open_error};
use super::translate::{shard_edit, shard_purge};
use crate::content::{ContentExchange, ContentName, LackedContent};
use crate::control::Catalogue;
use crate::copy::{Copier, FetchedCopy};
use crate::validation::{ActiveDesigns, Validators};

/// Why part of a request was refused: the database does not exist.
pub const NO_DATABASE: u8 = 1;
/// Why part of a request was refused: it was validated by outdated design documents.
pub const OLD_DESIGNS: u8 = 2;

/// The key prefix of the design documents in force, by database uuid.
const DESIGNS: u8 = b'v';

type Result<T> = std::result::Result<T, StoreError>;

/// A slot of documents on this node's store.
pub struct DataSlot {
    queue: Queue,
    applier: Arc<Applier>,
    copier: Arc<Copier>,
}

impl DataSlot {
    /// Starts it; requires a Tokio runtime.
    pub fn start(
        slot: SlotNumber,
        (databases, catalogue, contents): (&Arc<Databases>, &Arc<Catalogue>, &Arc<ContentExchange>),
        copier: Arc<Copier>,
        validators: Arc<Validators>,
    ) -> DataSlot {
        let applier = Arc::new(Applier {
            slot,
            databases: databases.clone(),
            catalogue: catalogue.clone(),
            contents: contents.clone(),
            long: Assembly::new(databases.store().clone(), slot),
            validators,
        });
        DataSlot {
            queue: Queue::start(slot, databases.store().clone(), applier.clone()),
            applier,
            copier,
        }
    }
}

impl SlotStore for DataSlot {
    type Outcome = SlotOutcome;
    type Copy = FetchedCopy;

    fn saved(&self) -> Result<Option<DurableState>> {
        let saved = self.queue.saved()?;
        self.applier.load()?;
        Ok(saved)
    }

    fn apply(
        &self,
        body: Option<Body>,
        cursor: &Cursor,
    ) -> BoxFuture<'static, Result<Outcomes<SlotOutcome>>> {
        self.queue.apply(body, cursor)
    }

    fn promise(&self, promises: &Promises) -> BoxFuture<'static, Result<()>> {
        self.queue.promise(promises)
    }

    fn position(&self) -> Result<cluster::Position> {
        self.queue.position()
    }

    fn copy(&self, from: NodeId) -> BoxFuture<'static, Result<FetchedCopy>> {
        let (renewal, applier) = (self.queue.renewal(), self.applier.clone());
        let then = Box::new(move || {
            let renewed = renewal.renew_now().and_then(|()| applier.load());
            Box::pin(std::future::ready(renewed)) as BoxFuture<'static, Result<()>>
        });
        Box::pin(self.copier.clone().fetch(self.applier.slot, from, then))
    }
}

/// Translates records to operations of the store.
struct Applier {
    slot: SlotNumber,
    databases: Arc<Databases>,
    catalogue: Arc<Catalogue>,
    contents: Arc<ContentExchange>,
    /// Requests in chunks.
    long: Assembly,
    /// The design documents that edits must have been validated by.
    validators: Arc<Validators>,
}

impl Prepare for Applier {
    async fn prepare(&self, body: Body, cursor: &Cursor) -> Result<PreparedRecord> {
        let mut prepared = PreparedRecord::default();
        match body {
            Body::Requests(requests) => {
                for request in requests {
                    let request = self.request(request, &mut prepared.lacking).await?;
                    prepared.requests.push(request);
                }
            }
            Body::Part {
                gateway,
                counter,
                index,
                count,
                bytes,
            } => {
                let part = Chunk {
                    gateway,
                    counter,
                    index,
                    count,
                    bytes,
                };
                let parted = self.long.take(&part, cursor.position.next_offset).await?;
                prepared.rows = parted.rows;
                if let Some(request) = parted.request {
                    let request = self.request(request, &mut prepared.lacking).await?;
                    prepared.requests.push(request);
                }
            }
            Body::Await { version } => self.catalogue.wait_for(version).await?,
            Body::Barrier {
                database,
                designs,
                number,
                follows,
            } => {
                let new = ActiveDesigns { number, designs };
                if self.validators.bar(database, new, follows) {
                    let row = (designs_key(&database), Some(new.to_bytes()));
                    prepared.rows.push(row);
                }
            }
            Body::Replicas { .. } | Body::Begin(_) => {}
        }
        Ok(prepared)
    }
}

/// Returns the design documents in force for a database in a slot, as stored.
pub fn stored_in_force(
    store: &Store,
    slot: SlotNumber,
    database: &[u8; 16],
) -> Result<ActiveDesigns> {
    let rows = store.slot_state(slot, &designs_key(database));
    let row = rows.map_err(failed)?.into_iter().next();
    Ok(row
        .and_then(|(_, value)| ActiveDesigns::from_bytes(&value))
        .unwrap_or_default())
}

fn designs_key(database: &[u8; 16]) -> Vec<u8> {
    [&[DESIGNS][..], database].concat()
}

impl Applier {
    async fn request(
        &self,
        request: Request,
        lacking: &mut Vec<LackedContent>,
    ) -> Result<SlotRequest> {
        let mut work = Vec::with_capacity(request.databases.len());
        for part in request.databases {
            work.push(self.work(part, lacking).await?);
        }
        let session = Session {
            gateway: request.gateway,
            counter: request.counter,
        };
        Ok(SlotRequest { session, work })
    }

    /// Contents that cannot be obtained are noted in `lacking`: the store knows whether the edit that
    /// names them has an effect.
    async fn work(&self, part: DatabaseWork, lacking: &mut Vec<LackedContent>) -> Result<SlotWork> {
        self.catalogue.wait_for(part.since).await?;
        let uuid = DatabaseUuid::new(part.database);
        let db = self.catalogue.database(&self.databases, uuid);
        let Some(db) = db.map_err(open_error)? else {
            return Ok(SlotWork::Refused(NO_DATABASE));
        };
        db.load().await.map_err(open_error)?;
        let limits = Limits {
            revs_limit: part.revs_limit,
            purged_infos_limit: part.purged_infos_limit,
            leaves_max: part.leaves_max,
        };
        match part.work {
            Work::Edits(edits) if self.validators.are_old(&part.database, part.designs) => {
                drop(edits);
                Ok(SlotWork::Refused(OLD_DESIGNS))
            }
            Work::Edits(edits) => {
                let has_files = edits.iter().any(|edit| !edit.files.is_empty());
                let named = named_contents(&db, (part.database, part.since), &edits);
                let obtained = self.contents.obtain_all(self.slot, &db, named).await?;
                let (_held, missing) = obtained;
                lacking.extend(missing);
                let translate = move |db: &Database| {
                    let edits = edits.into_iter().map(|edit| shard_edit(db, edit));
                    let edits = edits.collect::<std::result::Result<_, _>>();
                    edits.map(|edits| SlotWork::Edits { edits, limits })
                };
                let done = match has_files {
                    false => translate(&db),
                    true => {
                        let done = tokio::task::spawn_blocking(move || translate(&db)).await;
                        done.map_err(|_| StoreError::Failed("the server is shutting down".into()))?
                    }
                };
                done.map_err(failed)
            }
            Work::Purges(purges) => {
                let purges = purges.into_iter().map(|purge| shard_purge(&db, purge));
                let purges = purges.collect();
                Ok(SlotWork::Purges { purges, limits })
            }
            Work::Entry(_) => Ok(SlotWork::Refused(NO_DATABASE)),
        }
    }

    /// Loads the slot's rows that are kept in memory.
    fn load(&self) -> Result<()> {
        self.long.load()?;
        self.load_validators()
    }

    fn load_validators(&self) -> Result<()> {
        let rows = self.databases.store().slot_state(self.slot, &[DESIGNS]);
        let mut validators = FxHashMap::default();
        for (key, value) in rows.map_err(failed)? {
            if let (Ok(database), Some(known)) =
                (key[1..].try_into(), ActiveDesigns::from_bytes(&value))
            {
                validators.insert(database, known);
            }
        }
        self.validators.set_all(validators);
        Ok(())
    }
}

/// Returns the contents that edits name without their bytes.
fn named_contents(
    db: &Database,
    (database, since): ([u8; 16], u64),
    edits: &[EditRecord],
) -> Vec<ContentName> {
    let of_edit = |edit: &EditRecord| {
        let shard = db.shard_index(edit.id.as_str());
        let files = edit.files.iter().filter(|file| file.content.is_none());
        let name = |file: &cluster::record::FileRecord| ContentName {
            database,
            since,
            shard,
            id: file.attachment.content,
            length: file.attachment.stored_length,
        };
        files.map(name).collect::<Vec<_>>()
    };
    edits.iter().flat_map(of_edit).collect()
}
