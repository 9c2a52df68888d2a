//! Features of librdkafka that its Rust library lacks: reading partitions without a consumer group,
//! leaders' epochs, and whether a failed record may have been written.
//!
//! librdkafka's handles may be used from any thread concurrently. The proofs here rely on this: a
//! handle is destroyed after everything created from it, which the owners' fields ensure
//! ([`Reading`] has its [`Topic`], and that its client).

use std::ffi::{CString, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka_sys as sys;
use tokio::sync::Notify;

use crate::client::Reader;

/// A topic as a client knows it. The client's knowledge of its partitions' leaders is kept as long
/// as this lives.
pub(crate) struct Topic {
    client: Arc<Reader>,
    handle: NonNull<sys::rd_kafka_topic_t>,
    name: CString,
}

// SAFETY: librdkafka's handles may be used from any thread, also concurrently.
unsafe impl Send for Topic {}
// SAFETY: as above.
unsafe impl Sync for Topic {}

impl Topic {
    /// `None` when it is not a topic's name.
    pub fn new(client: &Arc<Reader>, name: &str) -> Option<Arc<Topic>> {
        let name = CString::new(name).ok()?;
        let native = client.client().native_ptr();
        // SAFETY: the client lives, the name is a C string, and without a configuration the
        // client's own is taken.
        let handle = unsafe { sys::rd_kafka_topic_new(native, name.as_ptr(), ptr::null_mut()) };
        Some(Arc::new(Topic {
            client: client.clone(),
            handle: NonNull::new(handle)?,
            name,
        }))
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: it was created by rd_kafka_topic_new, has no other owner, and the client still
        // lives.
        unsafe { sys::rd_kafka_topic_destroy(self.handle.as_ptr()) }
    }
}

/// An event of a partition.
#[derive(Debug)]
pub(crate) enum Event {
    /// A record.
    Record {
        offset: u64,
        epoch: i32,
        bytes: Vec<u8>,
    },
    /// The end was reached.
    End { offset: u64 },
    /// Reading stopped, permanently or for now.
    Failed(RDKafkaErrorCode),
}

/// A partition being read, until this is dropped. A topic's partition has only one reader at a
/// time.
pub(crate) struct Reading {
    topic: Arc<Topic>,
    partition: i32,
    queue: NonNull<sys::rd_kafka_queue_t>,
    ready: Arc<Notify>,
}

// SAFETY: librdkafka's handles may be used from any thread, also concurrently.
unsafe impl Send for Reading {}
// SAFETY: as above.
unsafe impl Sync for Reading {}

impl Reading {
    /// Reads a partition from this offset on. The partition's client must have no other reader of
    /// it.
    pub fn start(
        topic: &Arc<Topic>,
        partition: i32,
        offset: u64,
    ) -> Result<Reading, RDKafkaErrorCode> {
        let offset = i64::try_from(offset).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
        let native = topic.client.client().native_ptr();
        // SAFETY: the client lives.
        let queue = unsafe { sys::rd_kafka_queue_new(native) };
        let queue = NonNull::new(queue).ok_or(RDKafkaErrorCode::CriticalSystemResource)?;
        let ready = Arc::new(Notify::new());
        let opaque = Arc::as_ptr(&ready).cast::<c_void>().cast_mut();
        // SAFETY: the queue was just created; `ready` exists until `close` has removed the
        // callback.
        unsafe { sys::rd_kafka_queue_cb_event_enable(queue.as_ptr(), Some(wake), opaque) };
        let handle = topic.handle.as_ptr();
        // SAFETY: topic and queue live.
        let answer =
            unsafe { sys::rd_kafka_consume_start_queue(handle, partition, offset, queue.as_ptr()) };
        if answer != 0 {
            // SAFETY: it reads the error of this thread's last call.
            let error = unsafe { sys::rd_kafka_last_error() };
            close(queue);
            return Err(error.into());
        }
        Ok(Reading {
            topic: topic.clone(),
            partition,
            queue,
            ready,
        })
    }

    /// Returns the next event; `None` before one arrives.
    pub fn take(&self) -> Option<Event> {
        let mut message = ptr::null_mut();
        // SAFETY: the queue lives, and there is room for one message.
        let count = unsafe {
            sys::rd_kafka_consume_batch_queue(self.queue.as_ptr(), 0, &raw mut message, 1)
        };
        if count < 1 {
            return None;
        }
        let message = NonNull::new(message)?;
        // SAFETY: librdkafka gave it to us, and it is destroyed once, after it was read.
        let event = unsafe { event(message.as_ref()) };
        // SAFETY: as above.
        unsafe { sys::rd_kafka_message_destroy(message.as_ptr()) };
        Some(event)
    }

    /// Waits until something may have come.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Returns the partition's first offset, according to the last response to a fetch.
    pub fn first_offset(&self) -> Option<u64> {
        let (mut low, mut high) = (-1, -1);
        let client = self.topic.client.client().native_ptr();
        let name = self.topic.name.as_ptr();
        // SAFETY: the client lives, the name is a C string, and both numbers are ours.
        let error = unsafe {
            sys::rd_kafka_get_watermark_offsets(
                client,
                name,
                self.partition,
                &raw mut low,
                &raw mut high,
            )
        };
        let is_known = error == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        is_known.then(|| u64::try_from(low).ok()).flatten()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: the topic lives, and `start` started this partition.
        unsafe { sys::rd_kafka_consume_stop(self.topic.handle.as_ptr(), self.partition) };
        close(self.queue);
    }
}

fn close(queue: NonNull<sys::rd_kafka_queue_t>) {
    // SAFETY: the queue lives and is not used after this. The callback is called with the queue's
    // lock held and set under the same lock, so it is over when the first call returns.
    unsafe {
        sys::rd_kafka_queue_cb_event_enable(queue.as_ptr(), None, ptr::null_mut());
        sys::rd_kafka_queue_destroy(queue.as_ptr());
    }
}

/// librdkafka's threads call it when something comes into a queue.
unsafe extern "C" fn wake(_client: *mut sys::rd_kafka_t, ready: *mut c_void) {
    // SAFETY: it is the `Notify` that `Reading::start` gave, which lives until the callback was
    // taken away.
    let ready = unsafe { &*ready.cast::<Notify>() };
    ready.notify_one();
}

/// # Safety
/// It is a consumer's message that was not destroyed.
unsafe fn event(message: &sys::rd_kafka_message_t) -> Event {
    let code = RDKafkaErrorCode::from(message.err);
    let offset = u64::try_from(message.offset);
    match (code, offset) {
        (RDKafkaErrorCode::NoError, Ok(offset)) => {
            let mut bytes = vec![];
            if let Some(payload) = NonNull::new(message.payload.cast::<u8>()) {
                // SAFETY: the payload has this length, and lives as long as the message.
                let payload = unsafe { std::slice::from_raw_parts(payload.as_ptr(), message.len) };
                bytes.extend_from_slice(payload);
            }
            // SAFETY: the message lives.
            let epoch = unsafe { sys::rd_kafka_message_leader_epoch(message) };
            Event::Record {
                offset,
                epoch,
                bytes,
            }
        }
        (RDKafkaErrorCode::PartitionEOF, Ok(offset)) => Event::End { offset },
        (code, _) => Event::Failed(code),
    }
}

/// Returns the leader's epoch of each entry of a list, in its order; -1 where it is not known.
pub(crate) fn leader_epochs(list: &TopicPartitionList) -> Vec<i32> {
    let native = list.ptr();
    (0..list.count())
        // SAFETY: the list lives, and has `count` entries.
        .map(|at| unsafe {
            sys::rd_kafka_topic_partition_get_leader_epoch((*native).elems.add(at))
        })
        .collect()
}

/// Returns whether an undelivered record may have been written anyway: librdkafka tracks sent and
/// answered requests.
pub(crate) fn may_be_written(message: &BorrowedMessage<'_>) -> bool {
    // SAFETY: the message lives.
    let status = unsafe { sys::rd_kafka_message_status(message.ptr()) };
    status != sys::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED
}
