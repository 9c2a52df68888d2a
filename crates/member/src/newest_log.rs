//! Chooses the log that a node opens at its start.

use std::time::Duration;

use cluster::CONTROL;
use cluster::replica::Cursor;
use database::Databases;
use kafka_log::OpenError;

use crate::Error;
use crate::membership::Membership;
use crate::slot::failed;

/// Time limit to wait for unreachable brokers at the start.
const BROKERS_TIME_MAX: Duration = Duration::from_secs(60);

/// A log in Kafka that a node opens.
pub(crate) struct NewestLog {
    pub kafka: kafka_log::Options,
    /// The brokers have its topics.
    pub exists: bool,
}

/// Returns the log to open: the newest of the cluster, with the brokers of `kafka`. The first node creates the first one.
pub(crate) async fn newest_log(
    home: &Membership,
    databases: &Databases,
    mut kafka: kafka_log::Options,
) -> Result<NewestLog, Error> {
    let slots = databases.store().slots().map_err(failed)?;
    let is_new = slots.is_empty() || home.brings_data;
    let numbers = patiently(async || kafka_log::log_numbers(&kafka).await).await?;
    match numbers.iter().max() {
        Some(newest) => {
            kafka.log = *newest;
            if is_new
                && home.node == home.cluster.first
                && patiently(async || kafka_log::has_records(&kafka).await).await?
            {
                return Err(Error::NoLog(other_log(home, &kafka)));
            }
        }
        None if is_new && home.node == home.cluster.first => {
            kafka_log::create_topics(&kafka, kafka_log::TopicOptions::default()).await?;
        }
        None if is_new => {
            return Err(Error::NoLog(format!(
                "the brokers {} have no topics of the cluster {}: they are others than those of the other nodes",
                kafka.brokers, kafka.cluster
            )));
        }
        // They are gone. A recreated log has another number; only an operator recreates it.
        None => {
            kafka.log = log_of_control(databases)?.unwrap_or(0);
            tracing::error!(
                brokers = kafka.brokers,
                "the topics of the cluster are gone, or [cluster] log names other brokers than those of the other nodes. Reads continue where possible. If the topics are gone, `settee cluster reseed` creates others and continues from the nodes' state"
            );
            let exists = false;
            return Ok(NewestLog { kafka, exists });
        }
    }
    patiently(async || kafka_log::check_topics(&kafka).await).await?;
    let exists = true;
    Ok(NewestLog { kafka, exists })
}

/// Returns the number of the log that the control slot's position is in; `None` before the first start.
pub(crate) fn log_of_control(databases: &Databases) -> Result<Option<u64>, Error> {
    let known = databases.store().slot_state(CONTROL, b"@cursor");
    let rows = known.map_err(failed)?;
    let cursor = rows.first().and_then(|(_, row)| Cursor::decode(row));
    Ok(cursor.map(|cursor| cursor.log))
}

/// Describes a log that is that of another cluster of this name.
fn other_log(home: &Membership, kafka: &kafka_log::Options) -> String {
    let how = match home.brings_data {
        false => "`settee cluster init --cluster NAME` with another --data",
        true => {
            "remove the folder `cluster` of --data and the file `cluster-node` of its store, and run `settee cluster init --adopt --cluster NAME` again"
        }
    };
    format!(
        "the brokers {} have a log of a cluster {} already: another name is needed, {how}. If that cluster is gone, delete its topics first",
        kafka.brokers, kafka.cluster
    )
}

/// Asks the brokers again until they answer: those that start together with this node, or are busy,
/// may take a while.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, OpenError>) -> Result<T, Error> {
    let until = std::time::Instant::now() + BROKERS_TIME_MAX;
    loop {
        match ask().await {
            Err(e @ OpenError::Unreachable { .. }) if std::time::Instant::now() < until => {
                tracing::warn!(error = %e, "waiting for the brokers");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            answer => return Ok(answer?),
        }
    }
}
