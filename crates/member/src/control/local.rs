//! Reconciles the databases of this node with the control slot's state.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::slot::StoreError;
use database::{Databases, StoredDatabase};

use super::entry::CataloguedDatabase;
use super::state::ControlState;
use crate::slot::open_error;

/// Called with section, key and value of a cluster-wide setting.
pub type OnSetting = Box<dyn Fn(&str, &str, Option<&str>) + Send + Sync>;

type Result<T> = std::result::Result<T, StoreError>;

/// Creates the databases that only the state has, deletes those that only this node has, changes
/// properties that differ, and reports all settings. `before` is the state that is being replaced,
/// if any: settings that only it has are removed.
///
/// # Errors
/// Errors of the store. Completed steps remain, and it can be called again.
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
            let made = databases.create_sequenced(name, wanted.to_new()).await;
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

/// Deletes a database that is not in the catalogue, unless this server created it while it was in
/// no cluster.
async fn leave(databases: &Arc<Databases>, database: &StoredDatabase) -> Result<()> {
    let StoredDatabase { name, uuid, .. } = database;
    if !database.is_sequenced {
        tracing::warn!(db = %name, "this database exists on this node only: it was created before the node joined the cluster");
        return Ok(());
    }
    tracing::info!(db = %name, "deleted a database that the cluster no longer has");
    let gone = databases.delete_sequenced(name, *uuid).await;
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
        let changed = databases
            .change_sequenced(name, wanted.uuid, property)
            .await;
        changed.map_err(open_error)?;
    }
    Ok(())
}
