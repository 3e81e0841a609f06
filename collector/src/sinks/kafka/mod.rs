//! Messages into a Kafka topic: one message each, keyed by host, acknowledged by all replicas before the cursor moves.
//!
//! librdkafka repeats what the network loses, in order and once (idempotent producer), for as long as it takes. What it
//! gives up, such as a topic that does not exist, is taken again from the queue by a fresh producer after a while.

mod options;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

pub(super) use self::options::KafkaOptions;
use super::driver::{Failure, Remote, Waits};
use crate::report::Reporter;
use crate::spool::queue::{Lane, Outcome, Record, Taken};

/// The broker has at most this many messages at a time that it has not acknowledged, each up to 0.5 MiB.
const WINDOW: usize = 16;

/// Time to wait for a record when nothing is in flight; librdkafka's complaints wait as long.
const IDLE: Duration = Duration::from_secs(1);

/// Time to wait for acknowledgements before looking for records again.
const POLL: Duration = Duration::from_millis(5);

/// The same when none came the last time: the broker is slow or away.
const SLOW_POLL: Duration = Duration::from_millis(100);

/// After a failure that librdkafka does not repeat by itself.
const GIVEN_UP: Waits = Waits {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};

/// When there is no producer, which is for lack of memory or threads.
const NO_PRODUCER: Waits = Waits {
    first: Duration::from_secs(60),
    longest: Duration::from_secs(60),
};

struct Kafka {
    config: ClientConfig,
    topic: String,
    host: String,
    reporter: Arc<Reporter>,
    producer: Option<BaseProducer<Context>>,
}

/// Receives librdkafka's logs, errors and delivery reports.
struct Context {
    reporter: Arc<Reporter>,
    reports: Mutex<Vec<Report>>,
}

/// Outcome of a message.
struct Report {
    /// Without its bytes, unless they are needed again.
    record: Record,
    error: Option<RDKafkaErrorCode>,
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, _: &str, message: &str) {
        // It begins with the name of a thread and may end with times, which would make every line a new one.
        let text = message.split_once("]: ").map_or(message, |(_, text)| text);
        let text = text.split_once(" (after ").map_or(text, |(text, _)| text);
        self.reporter.complain(format!("kafka: {text}"));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match error {
            // The log line has that, and more.
            KafkaError::Global(RDKafkaErrorCode::BrokerTransportFailure) => {}
            _ => self.reporter.complain(format!("kafka: {reason}")),
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Record>;

    fn delivery(&self, result: &DeliveryResult<'_>, mut record: Box<Record>) {
        let error = match result {
            Ok(_) => None,
            Err((error, message)) => {
                record.bytes = message.payload().unwrap_or_default().to_vec();
                error
                    .rdkafka_error_code()
                    .or(Some(RDKafkaErrorCode::Unknown))
            }
        };
        self.lock().push(Report {
            record: *record,
            error,
        });
    }
}

impl Context {
    /// Takes the reports since the last time.
    fn reports(&self) -> Vec<Report> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Report>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kafka {
    /// With a producer that has not connected yet.
    fn new(
        config: ClientConfig,
        topic: &str,
        host: &str,
        reporter: &Arc<Reporter>,
    ) -> Result<Self, KafkaError> {
        let mut kafka = Self {
            producer: None,
            config,
            topic: topic.to_owned(),
            host: host.to_owned(),
            reporter: reporter.clone(),
        };
        kafka.producer = Some(kafka.connect()?);
        Ok(kafka)
    }

    fn connect(&self) -> Result<BaseProducer<Context>, KafkaError> {
        self.config.create_with_context(Context {
            reporter: self.reporter.clone(),
            reports: Mutex::default(),
        })
    }

    /// Delivers with one producer until the queue is closed. In an error: why the producer must be given up.
    fn deliver_with(
        &self,
        producer: &BaseProducer<Context>,
        lane: &mut Lane,
    ) -> Result<(), String> {
        let (mut in_flight, mut closed, mut wait) = (0, false, POLL);
        loop {
            while in_flight < WINDOW && !closed {
                match lane.take(if in_flight == 0 { IDLE } else { Duration::ZERO }) {
                    Taken::Record(record) => in_flight += self.send(producer, lane, record)?,
                    Taken::Nothing => break,
                    Taken::Closed => closed = true,
                }
            }
            if lane.expired() || (closed && in_flight == 0) {
                return Ok(());
            }
            producer.poll(if in_flight == 0 { Duration::ZERO } else { wait });
            let reports = producer.context().reports();
            wait = if reports.is_empty() { SLOW_POLL } else { POLL };
            for Report { record, error } in reports {
                in_flight -= 1;
                match error {
                    None => lane.resolve(record.at, Outcome::Delivered),
                    Some(
                        RDKafkaErrorCode::MessageSizeTooLarge
                        | RDKafkaErrorCode::InvalidMessageSize,
                    ) => {
                        lane.set_aside(&record);
                    }
                    Some(code) => {
                        return Err(format!(
                            "topic {} does not take messages: {code}",
                            self.topic
                        ));
                    }
                }
            }
        }
    }

    /// Hands a record to librdkafka; how many are in flight for it.
    fn send(
        &self,
        producer: &BaseProducer<Context>,
        lane: &mut Lane,
        mut record: Record,
    ) -> Result<usize, String> {
        let bytes = std::mem::take(&mut record.bytes);
        let message = BaseRecord::with_opaque_to(&self.topic, Box::new(record))
            .key(&self.host)
            .payload(&bytes);
        let Err((error, message)) = producer.send(message) else {
            return Ok(1);
        };
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge) {
            let mut record = *message.delivery_opaque;
            record.bytes = bytes;
            lane.set_aside(&record);
            return Ok(0);
        }
        Err(explain(&error))
    }
}

impl Remote for Kafka {
    fn deliver(&mut self, lane: &mut Lane) -> Result<(), Failure> {
        let producer = match self.producer.take().map_or_else(|| self.connect(), Ok) {
            Ok(producer) => producer,
            Err(error) => {
                return Err(Failure {
                    what: explain(&error),
                    waits: NO_PRODUCER,
                    give_back: true,
                });
            }
        };
        // After an error what is in flight is given up with the producer, and taken again.
        self.deliver_with(&producer, lane).map_err(|what| Failure {
            what,
            waits: GIVEN_UP,
            give_back: true,
        })
    }
}

/// The error in librdkafka's own words.
fn explain(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, what, key, value)
            if !key.contains("password") && !key.contains("secret") =>
        {
            format!("property {key}={value}: {what}")
        }
        KafkaError::ClientConfig(_, what, key, _) => format!("property {key}: {what}"),
        KafkaError::ClientCreation(what) => what.clone(),
        error => error
            .rdkafka_error_code()
            .map_or_else(|| error.to_string(), |code| code.to_string()),
    }
}
