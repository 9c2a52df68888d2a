//! The first and last offsets of partitions, fresh from their leaders.
//!
//! Kafka's answer about a partition's end (ListOffsets, latest) contains the epoch of the leader
//! that gave it, and a new leader does not answer before it knows how far its predecessors' records
//! were acknowledged (KIP-207). So a stale leader's answer can be detected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::{mpsc, oneshot};

use crate::client::Reader;
use crate::names::Place;
use crate::raw;

/// Time limit for all partitions of one query.
const ALL_TIMEOUT: Duration = Duration::from_secs(3);
/// For one of them, after the question for all failed.
const ONE_TIMEOUT: Duration = Duration::from_millis(700);
/// How long to wait for further questions.
const GATHER: Duration = Duration::from_millis(5);
/// Maximum number of waiting questions. More than there are slots.
const QUESTIONS_MAX: usize = 1 << 17;

/// The first and last offsets of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Its first offset.
    pub start: u64,
    /// The offset that the next record will get.
    pub end: u64,
    /// The epoch of the leader that reported the end.
    pub epoch: i32,
}

struct Question {
    place: Place,
    answer: oneshot::Sender<Option<Bounds>>,
}

/// Queries many partitions together: on a quiet cluster every slot asks every two seconds.
#[derive(Clone)]
pub(crate) struct BoundsOf {
    questions: mpsc::Sender<Question>,
}

impl BoundsOf {
    /// Runs until the last clone is dropped.
    pub fn start(reader: Arc<Reader>, runtime: &tokio::runtime::Handle) -> BoundsOf {
        let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
        runtime.spawn(answer(reader, receiver));
        BoundsOf { questions }
    }

    /// Returns the bounds; `None` when no leader can be reached now.
    pub async fn get(&self, place: &Place) -> Option<Bounds> {
        let (answer, receiver) = oneshot::channel();
        let place = place.clone();
        self.questions.send(Question { place, answer }).await.ok()?;
        receiver.await.ok()?
    }
}

async fn answer(reader: Arc<Reader>, mut questions: mpsc::Receiver<Question>) {
    while let Some(first) = questions.recv().await {
        tokio::time::sleep(GATHER).await;
        let mut asked = vec![first];
        while let Ok(question) = questions.try_recv() {
            asked.push(question);
        }
        let places: Vec<Place> = asked.iter().map(|q| q.place.clone()).collect();
        let reader = reader.clone();
        let found = tokio::task::spawn_blocking(move || find(&reader, &places)).await;
        let found = found.unwrap_or_default();
        for question in asked {
            let _ = question.answer.send(found.get(&question.place).copied());
        }
    }
}

fn find(reader: &Reader, places: &[Place]) -> HashMap<Place, Bounds> {
    if let Ok(found) = ask(reader, places, ALL_TIMEOUT) {
        return found;
    }
    // One partition without a leader spoils the answer for all.
    let single = places
        .iter()
        .filter_map(|place| ask(reader, std::slice::from_ref(place), ONE_TIMEOUT).ok());
    single.flatten().collect()
}

/// First the starts, then the ends: between the two a log can only grow, so an end is never before
/// its start.
fn ask(
    reader: &Reader,
    places: &[Place],
    timeout: Duration,
) -> KafkaResult<HashMap<Place, Bounds>> {
    let starts = offsets(reader, places, Offset::Beginning, timeout)?;
    let ends = offsets(reader, places, Offset::End, timeout)?;
    let found = ends.into_iter().filter_map(|(place, (end, epoch))| {
        let start = starts.get(&place)?.0;
        Some((place, Bounds { start, end, epoch }))
    });
    Ok(found.collect())
}

fn offsets(
    reader: &Reader,
    places: &[Place],
    which: Offset,
    timeout: Duration,
) -> KafkaResult<HashMap<Place, (u64, i32)>> {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for place in places {
        if list.find_partition(&place.topic, place.partition).is_none() {
            list.add_partition_offset(&place.topic, place.partition, which)?;
        }
    }
    let answer = reader.offsets_for_times(list, timeout)?;
    let epochs = raw::leader_epochs(&answer);
    let by_name: HashMap<(String, i32), (u64, i32)> = answer
        .elements()
        .into_iter()
        .zip(epochs)
        .filter(|(entry, _)| entry.error().is_ok())
        .filter_map(|(entry, epoch)| {
            let offset = u64::try_from(entry.offset().to_raw()?).ok()?;
            Some((
                (entry.topic().to_owned(), entry.partition()),
                (offset, epoch),
            ))
        })
        .collect();
    let found = places.iter().filter_map(|place| {
        let key = (place.topic.to_string(), place.partition);
        Some((place.clone(), *by_name.get(&key)?))
    });
    Ok(found.collect())
}
