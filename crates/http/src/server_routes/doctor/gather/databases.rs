//! Examines some databases: the busiest, the largest open ones, and a sample of all.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use database::{NameRange, Sample};
use doctor::facts::{Database, Databases};

use crate::app::App;

/// Number of examined databases of each kind.
const BUSIEST_MAX: usize = 50;
const LARGEST_MAX: usize = 50;
const OTHERS_MAX: usize = 200;
/// Time for all of them, and for the documents of one.
const SHARE_OF_TIME: u32 = 2;
const TIME_OF_ONE: Duration = Duration::from_millis(150);
/// Most changes that are examined, and most design documents: those with views or text indexes, and
/// those whose functions are searched.
const CHANGES_MAX: u64 = 2_000;
const DESIGNS_MAX: usize = 100;
/// Superseded changes may lie between two listed ones: with more of them than this, changes are not
/// examined.
const SUPERSEDED_MAX: u64 = 500_000;

/// Examines as many as there is time for.
pub fn look(app: &App, until: Instant) -> Databases {
    let now = Instant::now();
    // The rest is for what comes after.
    let until = now + until.saturating_duration_since(now) * SHARE_OF_TIME / (SHARE_OF_TIME + 1);
    let mut databases = Databases {
        count: app.node.databases.count(),
        ..Databases::default()
    };
    for name in chosen(app) {
        if Instant::now() >= until {
            databases.out_of_time = true;
            break;
        }
        match look_at(app, &name, until) {
            Ok(database) => databases.all.push(database),
            // It is gone meanwhile.
            Err(database::Error::NoDatabase) => {}
            Err(error) => databases.failed.push(format!("{name}: {error}")),
        }
    }
    databases
}

/// Names of the databases to examine, the most important first.
fn chosen(app: &App) -> Vec<Arc<str>> {
    let usage = app.stats.usage();
    let busiest = usage.databases.most_used(BUSIEST_MAX);
    let busiest = busiest.into_iter().map(Arc::from);
    let mut largest: Vec<_> = app.node.databases.open_databases();
    largest.sort_by_cached_key(|db| std::cmp::Reverse(weight(db)));
    let largest = largest.iter().take(LARGEST_MAX).map(|db| db.name().clone());
    let names = app.node.databases.names(&NameRange::default());
    let step = names.len().div_ceil(OTHERS_MAX).max(1);
    let others = names.iter().step_by(step).cloned();
    let mut seen = HashSet::new();
    let all = busiest.chain(largest).chain(others);
    all.filter(|name: &Arc<str>| seen.insert(name.clone()))
        .collect()
}

/// The size of a database, from counters in memory.
fn weight(db: &database::Database) -> u64 {
    let metas = db.all_shards().iter().map(|shard| shard.meta());
    metas
        .map(|meta| meta.external_bytes + meta.id_bytes + meta.superseded_rows)
        .sum()
}

fn look_at(app: &App, name: &str, until: Instant) -> Result<Database, database::Error> {
    let db = app.node.databases.get(name)?;
    let info = db.info()?;
    let time = until.min(Instant::now() + TIME_OF_ONE);
    let garbage = db.garbage()?;
    let sample = match garbage.rows {
        ..=SUPERSEDED_MAX => db.sample(CHANGES_MAX, time)?,
        _ => Sample::default(),
    };
    let designs = db.examine_designs(DESIGNS_MAX, time + TIME_OF_ONE)?;
    let functions = db.examine_functions(DESIGNS_MAX, time + TIME_OF_ONE)?;
    Ok(Database {
        name: name.to_owned(),
        documents: info.doc_count,
        deleted: info.doc_del_count,
        external_bytes: info.external_bytes,
        created_unix_s: info.instance_start_time.parse().unwrap_or(u64::MAX),
        sample,
        garbage,
        designs: designs.designs,
        has_more_designs: designs.has_more,
        functions: functions.functions,
        has_more_functions: functions.has_more,
    })
}
