//! Contents that this node keeps for records that may name them.

use std::sync::Arc;
use std::time::Duration;

use cluster::NodeId;
use database::DatabaseUuid;
use document::ContentId;
use peers::Body;
use storage::{Contents, ShardNumber};
use tokio::time::Instant;

use super::{
    ContentError, ContentExchange, ContentName, ContentPlace, FETCH, KEPT, KEPT_TIME, PIN, Pin,
    RECLAIMED_EVERY, STORE, blocking, stream,
};

/// The length of the tag of a content that is kept: the database, and the shard's index.
const TAG_BYTES: usize = DatabaseUuid::LEN + 4;

impl ContentExchange {
    /// Answers a request of another node; `None` for a path of another kind.
    ///
    /// # Errors
    /// The reason why it was not done.
    pub async fn answer(
        self: &Arc<Self>,
        from: NodeId,
        (path, query): (&str, &str),
        body: Body,
    ) -> Option<Result<Body, ContentError>> {
        if !matches!(path, PIN | STORE | FETCH) {
            return None;
        }
        let Some(name) = ContentName::from_query(query) else {
            let why = "the name of a content was expected".to_owned();
            return Some(Err(ContentError::Failed(why)));
        };
        Some(match path {
            PIN => self.keep_if_here(&name).await.map(|is_here| match is_here {
                true => Body::from(bytes::Bytes::from_static(KEPT)),
                false => Body::empty(),
            }),
            STORE => {
                let taken = self.take_in(from, &name, body).await;
                taken.map(|()| Body::empty())
            }
            _ => self.give_out(from, &name).await,
        })
    }

    async fn keep_if_here(&self, name: &ContentName) -> Result<bool, ContentError> {
        let (_db, contents) = self.place(name).await?;
        let _turn = self.turn(contents.home(), &name.id).await;
        self.pin(&contents, name).await
    }

    /// Keeps a content that the caller has the turn of. Returns whether it is here.
    async fn pin(
        &self,
        contents: &Arc<Contents>,
        name: &ContentName,
    ) -> Result<bool, ContentError> {
        let place = (contents.home(), name.id);
        let Some(before) = self.note_pin(place, name) else {
            return Ok(true);
        };
        let index = u32::try_from(name.shard).unwrap_or(u32::MAX).to_be_bytes();
        let tag = [&name.database[..], &index].concat();
        let (of, id) = (contents.clone(), name.id);
        let is_here = blocking(move || of.pin(&id, &tag)).await?;
        let mut pins = self.pins.lock();
        match (is_here, before) {
            (true, _) => {
                if let Some(pin) = pins.get_mut(&place) {
                    pin.is_on_disk = true;
                }
            }
            (false, Some(before)) => drop(pins.insert(place, before)),
            (false, None) => drop(pins.remove(&place)),
        }
        Ok(is_here)
    }

    /// Notes that a content is named. `None`: it is kept on disk already. Otherwise it is noted
    /// before it is kept, and the former note is returned: the caller may be dropped while the disk
    /// is slow, and the content is kept nevertheless.
    fn note_pin(&self, place: ContentPlace, name: &ContentName) -> Option<Option<Pin>> {
        let mut pins = self.pins.lock();
        if let Some(pin) = pins.get_mut(&place) {
            let is_same = (pin.database, pin.shard) == (name.database, name.shard);
            if pin.is_on_disk && is_same {
                pin.named = Instant::now();
                return None;
            }
        }
        let pin = Pin {
            database: name.database,
            shard: name.shard,
            named: Instant::now(),
            is_on_disk: false,
        };
        Some(pins.insert(place, pin))
    }

    /// Keeps a content that this node holds.
    pub(super) async fn keep_own(&self, name: &ContentName) -> Result<(), ContentError> {
        match self.keep_if_here(name).await? {
            true => Ok(()),
            false => Err(ContentError::Missing),
        }
    }

    async fn take_in(
        &self,
        from: NodeId,
        name: &ContentName,
        body: Body,
    ) -> Result<(), ContentError> {
        let (_db, contents) = self.place(name).await?;
        let _turn = self.turn(contents.home(), &name.id).await;
        if self.pin(&contents, name).await? {
            return Ok(());
        }
        let closed = |_| ContentError::Failed("the server is shutting down".into());
        let limit = self.receiving.of(from);
        let _room = limit.acquire().await.map_err(closed)?;
        let _content = stream::receive(contents.clone(), name, body).await?;
        match self.pin(&contents, name).await? {
            true => Ok(()),
            false => Err(ContentError::Failed("the database was deleted".into())),
        }
    }

    async fn give_out(&self, from: NodeId, name: &ContentName) -> Result<Body, ContentError> {
        let (_db, contents) = self.place(name).await?;
        let id = name.id;
        let held = blocking(move || contents.hold(&id)).await?;
        let content = held.ok_or(ContentError::Missing)?;
        let closed = |_| ContentError::Failed("the server is shutting down".into());
        let limit = self.giving.of(from);
        let room = limit.acquire_owned().await.map_err(closed)?;
        Ok(stream::send(content, room))
    }

    /// Removes contents that no document references, and that were not named for some time, until
    /// the future is dropped.
    pub async fn reclaim_at_times(self: Arc<Self>) {
        if let Err(e) = self.load_pins().await {
            tracing::error!(error = ?e, "attachments that no document references are not removed");
        }
        loop {
            tokio::time::sleep(RECLAIMED_EVERY).await;
            self.reclaim(KEPT_TIME).await;
        }
    }

    /// Loads what the last start kept: the time begins again.
    pub(crate) async fn load_pins(&self) -> Result<(), ContentError> {
        let store = self.databases.store().clone();
        let stored = blocking(move || store.pinned_contents()).await?;
        let mut pins = self.pins.lock();
        for pinned in stored {
            let tag = pinned.tag.split_first_chunk::<{ DatabaseUuid::LEN }>();
            let tag = tag.filter(|_| pinned.tag.len() == TAG_BYTES);
            let (database, index) = tag.map_or(([0; 16], &[][..]), |(uuid, i)| (*uuid, i));
            let index = index.try_into().map_or(u32::MAX, u32::from_be_bytes);
            pins.entry((pinned.home, pinned.id)).or_insert(Pin {
                database,
                shard: index as usize,
                named: Instant::now(),
                is_on_disk: false,
            });
        }
        Ok(())
    }

    /// Removes contents that no document references, and that were not named for this time.
    pub(crate) async fn reclaim(&self, after: Duration) {
        let old = |pin: &Pin| pin.named.elapsed() >= after;
        let all: Vec<_> = {
            let pins = self.pins.lock();
            let all = pins.iter().filter(|(_, pin)| old(pin));
            all.map(|(key, pin)| (*key, pin.database, pin.shard))
                .collect()
        };
        for ((home, id), database, shard) in all {
            let _turn = self.turn(home, &id).await;
            {
                let mut pins = self.pins.lock();
                let Some(pin) = pins.get_mut(&(home, id)).filter(|pin| old(pin)) else {
                    continue;
                };
                // Unknown if this fails.
                pin.is_on_disk = false;
            }
            match self.unpin(home, id, (database, shard)).await {
                Ok(()) => drop(self.pins.lock().remove(&(home, id))),
                Err(e) => tracing::warn!(error = ?e, "an attachment was not reclaimed"),
            }
        }
    }

    async fn unpin(
        &self,
        home: ShardNumber,
        id: ContentId,
        (database, shard): ([u8; 16], usize),
    ) -> Result<(), ContentError> {
        let databases = self.databases.clone();
        let failed = |e: database::Error| ContentError::Failed(e.to_string());
        let uuid = DatabaseUuid::new(database);
        let db = self.catalogue.database(&databases, uuid);
        let db = db.map_err(failed)?;
        blocking(move || {
            let contents = db.as_ref().and_then(|db| db.contents_of_shard(shard));
            match contents.filter(|contents| contents.home() == home) {
                Some(contents) => contents.unpin(&id),
                // The database was deleted, or the slot was copied.
                None => databases.store().forget_pin(home, &id),
            }
        })
        .await
    }

    /// Returns when a content was last named.
    #[cfg(test)]
    pub(crate) fn last_named(&self) -> Option<Instant> {
        self.pins.lock().values().map(|pin| pin.named).max()
    }

    /// Returns whether a content is kept, also after a restart.
    #[cfg(test)]
    pub(crate) fn keeps(&self, id: &ContentId) -> bool {
        let pins = self.pins.lock();
        pins.iter().any(|((_, of), pin)| of == id && pin.is_on_disk)
    }

    /// Returns the number of contents that are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.pins.lock().len()
    }
}
