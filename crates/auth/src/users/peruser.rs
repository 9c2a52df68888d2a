//! A database for each user (`[couch_peruser]`).

use std::sync::Arc;

use data_encoding::HEXLOWER;
use database::{
    ChangesQuery, CreateOptions, Database, Databases, Error, Filter, Framing, Since, Style,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::settings::PerUser;
use super::{USER_PREFIX, Users};

/// Size of a piece of changes, in bytes, approximately.
const PIECE_BYTES: usize = 64 << 10;

/// Position in the changes of the users database.
#[derive(Default)]
pub(super) struct Progress {
    /// The settings in force then, the database's identity, and its update sequence.
    at: Option<(PerUser, Arc<Database>, String)>,
}

#[derive(Deserialize)]
struct ChangeRow {
    id: String,
    #[serde(default)]
    deleted: bool,
}

impl Users {
    /// Processes the changes since `progress`.
    pub(super) async fn keep_user_databases(&self, progress: &mut Progress) {
        let settings = self.settings().peruser.clone();
        if !settings.enabled {
            progress.at = None;
            return;
        }
        let (Some(databases), Some(users)) = (self.databases.upgrade(), self.database()) else {
            return;
        };
        // Other settings, or another database of that name: start at the beginning.
        let since = match progress.at.take() {
            Some((known, db, seq)) if known == settings && Arc::ptr_eq(&db, &users) => {
                Since::Seq(seq)
            }
            _ => Since::Start,
        };
        match follow(&databases, &users, &settings, since).await {
            Ok(seq) => progress.at = Some((settings, users, seq)),
            Err(e) => tracing::warn!(error = %e, "users' databases are not up to date"),
        }
    }
}

async fn follow(
    databases: &Arc<Databases>,
    users: &Arc<Database>,
    settings: &PerUser,
    since: Since,
) -> Result<String, Error> {
    let mut changes = users.changes(ChangesQuery {
        since,
        descending: false,
        limit: None,
        style: Style::MainOnly,
        include_docs: false,
        conflicts: false,
        attachments: database::ShownAttachments::default(),
        filter: Filter::None,
        seq_interval: None,
    })?;
    loop {
        let mut piece = vec![];
        let more = changes.next_chunk(Framing::Lines, &mut piece, PIECE_BYTES)?;
        for line in piece.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let Ok(row) = serde_json::from_slice::<ChangeRow>(line) else {
                continue;
            };
            let Some(name) = row.id.strip_prefix(USER_PREFIX) else {
                continue;
            };
            let done = if row.deleted {
                forget(databases, settings, name).await
            } else {
                provide(databases, settings, name).await
            };
            if let Err(e) = done {
                // One user's trouble, a name too long for a database, say, is not another's.
                tracing::warn!(user = name, error = %e, "creating or deleting this user's database failed");
            }
            // A database that exists was perhaps opened, and nothing waited.
            tokio::task::yield_now().await;
        }
        if !more {
            return Ok(changes.last_seq());
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the name of a user's database: its bytes in hex, since names of databases are narrower.
fn database_name(settings: &PerUser, user: &str) -> String {
    settings.prefix.clone() + &HEXLOWER.encode(user.as_bytes())
}

async fn provide(databases: &Arc<Databases>, settings: &PerUser, user: &str) -> Result<(), Error> {
    let name = database_name(settings, user);
    let options = CreateOptions {
        q: Some(settings.q),
        n: None,
        partitioned: false,
        spread: false,
        access: None,
        security: settings.security.to_owned(),
    };
    let db = match databases.get(&name) {
        Ok(db) => db,
        Err(Error::NoDatabase) => match databases.create(&name, options).await {
            Err(Error::DatabaseExists) => databases.get(&name)?,
            other => other?,
        },
        Err(e) => return Err(e),
    };
    change_security(&db, |names| {
        let missing = !names.contains(&user.into());
        if missing {
            names.insert(0, user.into());
        }
        missing
    })
    .await
}

async fn forget(databases: &Arc<Databases>, settings: &PerUser, user: &str) -> Result<(), Error> {
    let name = database_name(settings, user);
    if settings.delete {
        return match databases.delete(&name).await {
            Err(Error::NoDatabase) => Ok(()),
            other => other,
        };
    }
    let Ok(db) = databases.get(&name) else {
        return Ok(());
    };
    change_security(&db, |names| {
        let before = names.len();
        names.retain(|name| name != user);
        names.len() != before
    })
    .await
}

/// Applies `change` to the names of admins and members; it returns whether it changed them.
async fn change_security(
    db: &Arc<Database>,
    change: impl Fn(&mut Vec<Value>) -> bool,
) -> Result<(), Error> {
    let mut security: Map<String, Value> = serde_json::from_str(&db.security()).unwrap_or_default();
    let mut changed = false;
    for group in ["admins", "members"] {
        let group = security.entry(group).or_insert_with(|| json!({}));
        let Some(group) = group.as_object_mut() else {
            continue;
        };
        let names = group.entry("names").or_insert_with(|| json!([]));
        if let Some(names) = names.as_array_mut() {
            changed |= change(names);
        }
    }
    if changed {
        db.set_security(Value::Object(security).to_string()).await?;
    }
    Ok(())
}
