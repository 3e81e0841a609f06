//! Options of the sink, and what librdkafka makes of them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use super::{Kafka, explain};
use crate::options::key;
use crate::sinks::start::{Opened, Opening, SinkOptions, StartError};

/// The sink's settings of librdkafka; options given override them, except [`ALONE`].
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
pub(crate) struct KafkaOptions {
    /// Send to Kafka: the brokers to begin with
    #[arg(long, value_name = "HOST:PORT,...", add = key("kafka.brokers"))]
    pub kafka: Option<String>,
    /// Topic; it must exist
    #[arg(long, value_name = "TOPIC", default_value = "springtide.tcp_samples", add = key("kafka.topic"))]
    pub kafka_topic: String,
    /// Set a property of librdkafka, such as security.protocol=ssl; can be repeated
    #[arg(long = "kafka-option", value_name = "KEY=VALUE", value_parser = parse_open_property, add = key("kafka.option"))]
    pub kafka_options: Vec<(String, String)>,
    /// Read properties from a file of KEY=VALUE lines: the place for sasl.password and the like
    #[arg(long, value_name = "FILE", add = key("kafka.options_file"))]
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
        .ok_or_else(|| format!("'{text}' is not a property: use KEY=VALUE"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn read_properties(path: &Path) -> Result<Vec<(String, String)>, String> {
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

impl KafkaOptions {
    /// Configuration of librdkafka.
    fn config(&self) -> Result<ClientConfig, String> {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Warning);
        config.set(
            "bootstrap.servers",
            self.kafka.as_deref().unwrap_or_default(),
        );
        let from_file = self.kafka_options_file.as_deref();
        let from_file = from_file.map(read_properties).transpose()?;
        let given = from_file.iter().flatten().chain(&self.kafka_options);
        let given = given.map(|(key, value)| (key.as_str(), value.as_str()));
        for (key, value) in PROPERTIES.into_iter().chain(given).chain([ALONE]) {
            config.set(key, value);
        }
        Ok(config)
    }
}

impl SinkOptions for KafkaOptions {
    fn flag(&self) -> &'static str {
        "--kafka"
    }

    fn wanted(&self) -> bool {
        self.kafka.is_some()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        match self.config()?.create_native_config() {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("kafka: {}", explain(&error))),
        }
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Opened, StartError> {
        let config = self.config().map_err(StartError::Options)?;
        let (host, reporter) = (opening.host, opening.reporter);
        // Nothing is sent or connected yet, but every property is looked at.
        match Kafka::new(config, &self.kafka_topic, host, reporter) {
            Ok(kafka) => Ok(Opened::Remote("kafka", Box::new(kafka))),
            Err(error) => Err(StartError::Options(format!("kafka: {}", explain(&error)))),
        }
    }
}
