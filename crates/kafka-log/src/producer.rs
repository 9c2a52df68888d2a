//! Appends: one idempotent producer for all slots.

use std::sync::Arc;

use cluster::BoxFuture;
use cluster::log::AppendError;
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::oneshot;

use crate::names::Place;
use crate::options::{OpenError, Options};
use crate::raw;

type Outcome = Result<u64, AppendError>;
type Native = ThreadedProducer<Deliveries>;

/// Records that wait to be sent, in KiB; more are refused.
const WAITING_KIB_MAX: &str = "65536";

/// Writes to all partitions.
pub(crate) struct Producer {
    config: ClientConfig,
    native: Mutex<Arc<Native>>,
}

/// Reports the outcome to the caller that appended.
struct Deliveries;

impl ClientContext for Deliveries {
    fn log(&self, _level: RDKafkaLogLevel, fac: &str, message: &str) {
        tracing::debug!(target: "kafka", "{fac}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", "{error}: {reason}");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<oneshot::Sender<Outcome>>;

    fn delivery(&self, result: &DeliveryResult<'_>, answer: Self::DeliveryOpaque) {
        let outcome = match result {
            Ok(message) => u64::try_from(message.offset())
                .map_err(|_| AppendError::Unknown("Kafka did not say its offset".into())),
            Err((error, message)) => Err(failure(error, raw::may_be_written(message))),
        };
        // The caller may have gone: that is its decision.
        let _ = answer.send(outcome);
    }
}

/// Classifies the error of an undelivered record. Kafka checks these before it writes, and it
/// cannot write what it never received; everything else counts as unknown, in particular time-outs.
fn failure(error: &KafkaError, may_be_written: bool) -> AppendError {
    use RDKafkaErrorCode as Code;
    let is_refusal = matches!(
        error.rdkafka_error_code(),
        Some(
            Code::MessageSizeTooLarge
                | Code::InvalidMessageSize
                | Code::NotEnoughReplicas
                | Code::InvalidTopic
                | Code::UnknownTopic
                | Code::UnknownPartition
                | Code::UnknownTopicOrPartition
                | Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::InvalidRecord
                | Code::PurgeQueue
        )
    );
    match is_refusal && !may_be_written {
        true => AppendError::Refused(error.to_string()),
        false => AppendError::Unknown(error.to_string()),
    }
}

impl Producer {
    pub fn new(options: &Options) -> Result<Producer, OpenError> {
        let mut config = options.common();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("max.in.flight.requests.per.connection", "4")
            .set("compression.codec", "lz4")
            .set("linger.ms", "0")
            .set("batch.size", "921600")
            .set("queue.buffering.max.kbytes", WAITING_KIB_MAX)
            .set("request.timeout.ms", "4000")
            .set("message.timeout.ms", "10000")
            .set("retry.backoff.ms", "50");
        let native = make(&config)?;
        Ok(Producer {
            config,
            native: Mutex::new(native),
        })
    }

    /// Appends a record. It is in the queue when this returns, so that later appends come after it.
    pub fn append(&self, place: &Place, record: &[u8]) -> BoxFuture<'static, Outcome> {
        let answer = self.send(place, record);
        Box::pin(async move {
            let lost = || AppendError::Unknown("the producer was given up".into());
            answer?.await.unwrap_or_else(|_| Err(lost()))
        })
    }

    fn send(
        &self,
        place: &Place,
        record: &[u8],
    ) -> Result<oneshot::Receiver<Outcome>, AppendError> {
        let mut native = self.native.lock().clone();
        if native.client().fatal_error().is_some() {
            native = self.renew(&native)?;
        }
        let (sender, receiver) = oneshot::channel();
        let message: BaseRecord<'_, (), [u8], _> =
            BaseRecord::with_opaque_to(&place.topic, Box::new(sender))
                .partition(place.partition)
                .payload(record);
        match native.send(message) {
            Ok(()) => Ok(receiver),
            // It did not get into the queue.
            Err((error, _)) => Err(AppendError::Refused(error.to_string())),
        }
    }

    /// Replaces a producer that cannot continue; its waiting records are answered with "unknown".
    fn renew(&self, spent: &Arc<Native>) -> Result<Arc<Native>, AppendError> {
        let mut native = self.native.lock();
        if !Arc::ptr_eq(&native, spent) {
            return Ok(native.clone());
        }
        let reason = spent.client().fatal_error();
        tracing::warn!(target: "kafka", "the producer is recreated: {reason:?}");
        let made = make(&self.config).map_err(|e| AppendError::Refused(e.to_string()))?;
        let old = std::mem::replace(&mut *native, made.clone());
        // Dropping waits for its threads.
        std::thread::spawn(move || drop(old));
        Ok(made)
    }
}

fn make(config: &ClientConfig) -> Result<Arc<Native>, OpenError> {
    let native = Native::from_config_and_context(config, Deliveries);
    native
        .map(Arc::new)
        .map_err(|e| OpenError::Property(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: RDKafkaErrorCode, may_be_written: bool) -> AppendError {
        failure(&KafkaError::MessageProduction(code), may_be_written)
    }

    #[test]
    fn only_what_was_surely_not_written_is_refused() {
        use RDKafkaErrorCode as Code;
        for code in [
            Code::MessageSizeTooLarge,
            Code::NotEnoughReplicas,
            Code::PurgeQueue,
        ] {
            assert!(matches!(of(code, false), AppendError::Refused(_)), "{code}");
            assert!(matches!(of(code, true), AppendError::Unknown(_)), "{code}");
        }
        for code in [
            Code::MessageTimedOut,
            Code::PurgeInflight,
            Code::NotEnoughReplicasAfterAppend,
            Code::OutOfOrderSequenceNumber,
            Code::RequestTimedOut,
        ] {
            assert!(matches!(of(code, false), AppendError::Unknown(_)), "{code}");
        }
    }
}
