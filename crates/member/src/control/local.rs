//! What this node has is brought in line with the control slot's state.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::slot::StoreError;
use database::{Databases, StoredDatabase};

use super::entry::CataloguedDatabase;
use super::state::ControlState;
use crate::slot::open_error;

/// What is told of a setting that all nodes have alike.
pub type OnSetting = Box<dyn Fn(&str, &str, Option<&str>) + Send + Sync>;

type Result<T> = std::result::Result<T, StoreError>;

/// Makes the databases that the state has and this node has not, deletes those that it has not, and changes properties that differ; tells of
/// all settings. `before` is the state that was here, if another takes its place: settings that only that one has are taken away.
///
/// # Errors
/// Those of the store. What was done is done, and it can be called again.
pub(super) async fn bring_in_line(
    databases: &Arc<Databases>,
    before: &ControlState,
    state: &ControlState,
    on_setting: &OnSetting,
) -> Result<()> {
    let all = databases.clone();
    let stored = tokio::task::spawn_blocking(move || all.stored()).await;
    let stopped = |_| StoreError::Failed("the server is shutting down".into());
    let stored = stored.map_err(stopped)?.map_err(open_error)?;
    let mut here = BTreeMap::new();
    for database in stored {
        let wanted = state.databases.get(&*database.name);
        match wanted.is_some_and(|wanted| wanted.uuid == database.uuid) {
            true => drop(here.insert(database.name.clone(), database)),
            false => leave(databases, &database).await?,
        }
    }
    for (name, wanted) in &state.databases {
        let known = here.get(name.as_str());
        if known.is_none() && wanted.is_going {
            // This node has dropped it already, and the others will.
            continue;
        }
        if known.is_none() {
            let made = databases.create_ordered(name, wanted.to_new()).await;
            made.map_err(open_error)?;
        }
        change(databases, name, wanted, known).await?;
    }
    for (section, key) in before.settings.keys() {
        if !(state.settings).contains_key(&(section.clone(), key.clone())) {
            on_setting(section, key, None);
        }
    }
    for ((section, key), value) in &state.settings {
        on_setting(section, key, Some(value));
    }
    Ok(())
}

/// A database that is not in the catalogue goes, unless this server made it alone.
async fn leave(databases: &Arc<Databases>, database: &StoredDatabase) -> Result<()> {
    let StoredDatabase { name, uuid, .. } = database;
    if !database.is_ordered {
        tracing::warn!(db = %name, "this database is of this node alone: it was made before the node was in the cluster");
        return Ok(());
    }
    tracing::info!(db = %name, "a database that the cluster has no more is deleted");
    let gone = databases.delete_ordered(name, *uuid).await;
    gone.map_err(open_error)
}

/// Changes the properties that differ.
async fn change(
    databases: &Arc<Databases>,
    name: &str,
    wanted: &CataloguedDatabase,
    known: Option<&StoredDatabase>,
) -> Result<()> {
    for property in wanted.properties() {
        if known.is_some_and(|known| known.properties.contains(&property)) {
            continue;
        }
        let changed = databases.change_ordered(name, wanted.uuid, property).await;
        changed.map_err(open_error)?;
    }
    Ok(())
}
