//! Messages into a Kafka topic: one message each, keyed by host, acknowledged by all replicas before the cursor moves.
//!
//! librdkafka repeats what the network loses, in order and once (idempotent producer), for as long as it takes. What it
//! gives up, such as a topic that does not exist, is taken again from the queue by a fresh producer after a while.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::registry::Remote;
use crate::report::Reporter;
use crate::spool::queue::{Lane, Outcome, Record, Taken};

/// The broker has at most this many messages at a time that it has not acknowledged, each up to 0.5 MiB.
const WINDOW: usize = 16;

/// How long to wait for a record when nothing is in flight; librdkafka's complaints wait as long.
const IDLE: Duration = Duration::from_secs(1);

/// How long to wait for acknowledgements before looking for records again.
const POLL: Duration = Duration::from_millis(5);

/// The same when none came the last time: the broker is slow or away.
const SLOW_POLL: Duration = Duration::from_millis(100);

/// First and longest wait after a failure that librdkafka does not repeat by itself.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// What the sink asks of librdkafka; options given override it, but for [`ALONE`].
const PROPERTIES: [(&str, &str); 9] = [
    ("client.id", "springtide-collector"),
    ("enable.idempotence", "true"),
    ("acks", "all"),
    ("compression.codec", "zstd"),
    // As in the spool: level 1 takes half the time of level 3 for 8 % more bytes.
    ("compression.level", "1"),
    // The queue bounds how long and how much is kept, not librdkafka.
    ("message.timeout.ms", "0"),
    ("queue.buffering.max.kbytes", "65536"),
    ("reconnect.backoff.max.ms", "5000"),
    ("socket.keepalive.enable", "true"),
];

/// Each message travels by itself: it is a batch of rows already, and when a broker refuses a batch for its size there is
/// no telling whose fault that is.
const ALONE: (&str, &str) = ("batch.num.messages", "1");

/// Options of the sink.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Kafka")]
pub struct KafkaOptions {
    /// Send to Kafka: the brokers to begin with
    #[arg(long, value_name = "HOST:PORT,...")]
    pub kafka: Option<String>,
    /// Topic; it must exist
    #[arg(long, value_name = "TOPIC", default_value = "springtide.tcp_samples")]
    pub kafka_topic: String,
    /// Set a property of librdkafka, such as security.protocol=ssl; can be repeated
    #[arg(long = "kafka-option", value_name = "KEY=VALUE", value_parser = parse_open_property)]
    pub kafka_options: Vec<(String, String)>,
    /// Read properties from a file of KEY=VALUE lines: the place for sasl.password and the like
    #[arg(long, value_name = "FILE")]
    pub kafka_options_file: Option<PathBuf>,
}

/// Properties of librdkafka that hold a secret.
const SECRETS: [&str; 7] = [
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "oauthbearer_token",
];

/// A property that everybody may see who sees the command line.
fn parse_open_property(text: &str) -> Result<(String, String), String> {
    let property = parse_property(text)?;
    if SECRETS.contains(&property.0.as_str()) {
        // The value is not repeated.
        let name = property.0;
        return Err(format!(
            "{name} is a secret: put it into the file of --kafka-options-file"
        ));
    }
    Ok(property)
}

fn parse_property(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is no property: use KEY=VALUE"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn read_properties(path: &PathBuf) -> Result<Vec<(String, String)>, String> {
    let named = path.display();
    let text =
        fs::read_to_string(path).map_err(|error| format!("{named}: cannot read it: {error}"))?;
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            // The line may hold a secret: it is not repeated.
            parse_property(line).map_err(|_| format!("{named}: line {}: use KEY=VALUE", number + 1))
        })
        .collect()
}

/// What librdkafka is told, if the options ask for the sink.
fn config(options: &KafkaOptions) -> Result<Option<ClientConfig>, String> {
    let Some(brokers) = &options.kafka else {
        return Ok(None);
    };
    let mut config = ClientConfig::new();
    config.set_log_level(RDKafkaLogLevel::Warning);
    config.set("bootstrap.servers", brokers);
    let from_file = options
        .kafka_options_file
        .as_ref()
        .map(read_properties)
        .transpose()?;
    let given = from_file.iter().flatten().chain(&options.kafka_options);
    let given = given.map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in PROPERTIES.into_iter().chain(given).chain([ALONE]) {
        config.set(key, value);
    }
    Ok(Some(config))
}

/// Looks at the options, if they ask for the sink. In an error: what is wrong with them.
pub fn check(options: &KafkaOptions) -> Result<(), String> {
    let config = config(options)?;
    let made = config
        .map(|config| config.create_native_config())
        .transpose();
    made.map(drop)
        .map_err(|error| format!("kafka: {}", explain(&error)))
}

/// The sink that the options ask for, if they do. In an error: what is wrong with them.
pub fn remote(
    options: &KafkaOptions,
    host: &str,
    reporter: &Arc<Reporter>,
) -> Result<Option<Remote>, String> {
    let Some(config) = config(options)? else {
        return Ok(None);
    };
    let mut kafka = Kafka {
        producer: None,
        config,
        topic: options.kafka_topic.clone(),
        host: host.to_owned(),
        reporter: reporter.clone(),
    };
    // Nothing is sent or connected yet, but every property is looked at.
    kafka.producer = Some(
        kafka
            .connect()
            .map_err(|error| format!("kafka: {}", explain(&error)))?,
    );
    Ok(Some(Remote {
        name: "kafka",
        work: Box::new(move |lane| kafka.work(lane)),
    }))
}

struct Kafka {
    config: ClientConfig,
    topic: String,
    host: String,
    reporter: Arc<Reporter>,
    producer: Option<BaseProducer<Context>>,
}

/// Receives what librdkafka has to say.
struct Context {
    reporter: Arc<Reporter>,
    reports: Mutex<Vec<Report>>,
}

/// What became of a message.
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
            // The log line said so, and more.
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
    /// What has come since the last time.
    fn reports(&self) -> Vec<Report> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Report>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kafka {
    fn connect(&self) -> Result<BaseProducer<Context>, KafkaError> {
        self.config.create_with_context(Context {
            reporter: self.reporter.clone(),
            reports: Mutex::default(),
        })
    }

    /// Delivers until the queue is closed.
    fn work(mut self, mut lane: Lane) {
        let mut back_off = BACK_OFF[0];
        while !lane.expired() {
            let producer = match self.producer.take().map_or_else(|| self.connect(), Ok) {
                Ok(producer) => producer,
                Err(error) => {
                    self.reporter
                        .complain(format!("kafka: {}", explain(&error)));
                    lane.pause(BACK_OFF[1]);
                    continue;
                }
            };
            let mut delivered = false;
            let Err(what) = self.deliver(&producer, &mut lane, &mut delivered) else {
                return;
            };
            // What is in flight is given up with the producer, and taken again.
            drop(producer);
            lane.rewind();
            self.reporter
                .complain(format!("kafka: {what}: rows wait in the queue"));
            if delivered {
                back_off = BACK_OFF[0];
            }
            lane.pause(back_off);
            back_off = BACK_OFF[1].min(back_off * 2);
        }
    }

    /// Delivers with one producer until the queue is closed. In an error: why the producer must be given up.
    fn deliver(
        &self,
        producer: &BaseProducer<Context>,
        lane: &mut Lane,
        delivered: &mut bool,
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
                    None => {
                        lane.resolve(record.at, Outcome::Delivered);
                        *delivered = true;
                    }
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
