//! Messages into a ClickHouse table, over its HTTP interface: several messages an insert, as one protobuf Envelope.
//!
//! The server names the table's columns, and the statement is made for them: `INSERT INTO table (...) SELECT ... FROM
//! input(...) FORMAT ProtobufList`, where the SELECT turns numbers into the table's enums. The contract travels with
//! each request, so that no file has to be on the server.
//!
//! An insert is repeated until the server has taken it: after whatever passes by itself soon, after a refusal with more
//! patience. Repeats carry the same deduplication token. Nothing is dropped here.

mod answer;
mod statement;

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, http};

use self::answer::Verdict;
use super::registry::Remote;
use crate::config::parse_duration;
use crate::spool::queue::{Lane, Outcome, Position, Record, Taken};

/// Name of the environment variable with the password.
const PASSWORD: &str = "SPRINGTIDE_CLICKHOUSE_PASSWORD";

/// Largest insert before compression, bytes: some 25,000 rows.
const BATCH: usize = 8 << 20;

/// How long to wait for a record.
const IDLE: Duration = Duration::from_secs(1);

/// First and longest wait before an insert is repeated.
const LATER: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// The same after a refusal.
const REFUSED: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];

/// As in the spool.
const LEVEL: i32 = 1;

/// An error's text is cut after this, bytes.
const TEXT: u64 = 64 << 10;

/// Options of the sink.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "ClickHouse")]
pub struct ClickHouseOptions {
    /// Insert into ClickHouse: its HTTP(S) address. The password is taken from the environment's
    /// SPRINGTIDE_CLICKHOUSE_PASSWORD or from a file
    #[arg(long, value_name = "URL")]
    pub clickhouse: Option<String>,
    /// Database
    #[arg(long, value_name = "NAME", default_value = "springtide", value_parser = parse_name)]
    pub clickhouse_database: String,
    /// Table, as `springtide migrate` makes it
    #[arg(long, value_name = "NAME", default_value = "tcp_samples", value_parser = parse_name)]
    pub clickhouse_table: String,
    /// User
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub clickhouse_user: String,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    pub clickhouse_password_file: Option<PathBuf>,
    /// File of certificates (PEM) to trust instead of the public ones
    #[arg(long, value_name = "FILE")]
    pub clickhouse_ca: Option<PathBuf>,
    /// Insert at least this often while there are samples (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub clickhouse_interval: Duration,
}

fn parse_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) || !text.bytes().all(fits)
    {
        return Err("a name has letters, digits and '_'".to_owned());
    }
    Ok(text.to_owned())
}

/// Looks at the options, if they ask for the sink. In an error: what is wrong with them.
pub fn check(options: &ClickHouseOptions) -> Result<(), String> {
    remote(options, "").map(drop)
}

/// The sink that the options ask for, if they do. In an error: what is wrong with them.
pub fn remote(options: &ClickHouseOptions, host: &str) -> Result<Option<Remote>, String> {
    let Some(url) = &options.clickhouse else {
        return Ok(None);
    };
    let clickhouse = ClickHouse {
        url: parse_url(url)?,
        agent: agent(options)?,
        database: options.clickhouse_database.clone(),
        table: options.clickhouse_table.clone(),
        user: options.clickhouse_user.clone(),
        password: password(options)?,
        schema: statement::schema(),
        host: host.to_owned(),
        interval: options.clickhouse_interval,
        statement: None,
        batch_limit: BATCH,
    };
    Ok(Some(Remote {
        name: "clickhouse",
        work: Box::new(move |lane| clickhouse.work(lane)),
    }))
}

fn parse_url(text: &str) -> Result<String, String> {
    let wrong = |what: &str| {
        Err(format!(
            "--clickhouse: {what}: use http://HOST:8123 or https://HOST:8443"
        ))
    };
    let Ok(uri) = text.parse::<http::Uri>() else {
        return wrong("it is no address");
    };
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            wrong("a name or a password in the address can be seen by others")
        }
        (Some("http" | "https"), Some(_)) if uri.query().is_none() => Ok(text.to_owned()),
        _ => wrong("it is no address of a ClickHouse server"),
    }
}

fn password(options: &ClickHouseOptions) -> Result<String, String> {
    let Some(path) = &options.clickhouse_password_file else {
        return Ok(std::env::var(PASSWORD).unwrap_or_default());
    };
    let text = fs::read_to_string(path)
        .map_err(|error| format!("{}: cannot read the password: {error}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn agent(options: &ClickHouseOptions) -> Result<Agent, String> {
    let mut tls = TlsConfig::builder();
    if let Some(path) = &options.clickhouse_ca {
        let named = path.display();
        let pem = fs::read(path).map_err(|error| format!("{named}: cannot read it: {error}"))?;
        let certificates: Vec<_> = parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if certificates.is_empty() {
            return Err(format!(
                "{named}: there is no certificate in it: give a PEM file"
            ));
        }
        tls = tls.root_certs(RootCerts::from(certificates));
    }
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(Duration::from_secs(10)))
        .timeout_send_body(Some(Duration::from_secs(60)))
        .timeout_recv_response(Some(Duration::from_secs(300)))
        .user_agent(concat!("springtide-collector/", env!("CARGO_PKG_VERSION")))
        .build();
    Ok(config.new_agent())
}

struct ClickHouse {
    url: String,
    agent: Agent,
    database: String,
    table: String,
    user: String,
    password: String,
    schema: String,
    host: String,
    interval: Duration,
    /// The INSERT for the table as it was last seen.
    statement: Option<String>,
    batch_limit: usize,
}

/// Records as one insert.
struct Batch {
    records: Vec<Position>,
    token: String,
    body: Vec<u8>,
}

/// Why the server does not have the rows.
struct Failure {
    verdict: Verdict,
    what: String,
}

impl Failure {
    fn later(what: impl ToString) -> Self {
        Self {
            verdict: Verdict::Later,
            what: what.to_string(),
        }
    }
}

impl ClickHouse {
    /// Inserts until the queue is closed.
    fn work(mut self, mut lane: Lane) {
        while let Some(records) = self.gather(&mut lane) {
            if records.is_empty() {
                continue;
            }
            let batch = match batch(&self.host, records) {
                Ok(batch) => batch,
                Err(error) => {
                    // Only for want of memory.
                    lane.reporter()
                        .complain(format!("clickhouse: cannot compress: {error}"));
                    lane.rewind();
                    lane.pause(LATER[1]);
                    continue;
                }
            };
            if !self.deliver(&mut lane, &batch) {
                lane.rewind();
            }
            if lane.expired() {
                return;
            }
        }
    }

    /// Records for an insert; None when none will come.
    fn gather(&self, lane: &mut Lane) -> Option<Vec<Record>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut wait = IDLE;
        let mut due = Instant::now();
        loop {
            match lane.take(wait) {
                Taken::Record(record) => {
                    if records.is_empty() {
                        due = Instant::now() + self.interval;
                    }
                    bytes += record.bytes.len();
                    records.push(record);
                }
                Taken::Closed if records.is_empty() => return None,
                Taken::Nothing | Taken::Closed => return Some(records),
            }
            // The next may be as large as the last.
            if bytes + bytes / records.len().max(1) > self.batch_limit {
                return Some(records);
            }
            wait = due.saturating_duration_since(Instant::now());
        }
    }

    /// Inserts the batch, however long it takes. False when its records are to be taken again, in other batches.
    fn deliver(&mut self, lane: &mut Lane, batch: &Batch) -> bool {
        let mut waits = [LATER[0], REFUSED[0]];
        loop {
            let Err(failure) = self.insert(batch) else {
                for &at in &batch.records {
                    lane.resolve(at, Outcome::Delivered);
                }
                self.batch_limit = BATCH.min(self.batch_limit * 2);
                return true;
            };
            lane.reporter().complain(format!(
                "clickhouse: {}: rows wait in the queue",
                failure.what
            ));
            let (wait, most) = match failure.verdict {
                Verdict::Refused => {
                    // The table may be another one when somebody has done something about it.
                    self.statement = None;
                    (&mut waits[1], REFUSED[1])
                }
                _ => (&mut waits[0], LATER[1]),
            };
            lane.pause(jitter(*wait));
            *wait = most.min(*wait * 2);
            if lane.expired() {
                return false;
            }
            if failure.verdict == Verdict::Fewer && batch.records.len() > 1 {
                self.batch_limit = (self.batch_limit / 2).max(1);
                return false;
            }
        }
    }

    fn insert(&mut self, batch: &Batch) -> Result<(), Failure> {
        let statement = match self.statement.take() {
            Some(statement) => statement,
            None => self.describe()?,
        };
        let request = self
            .request()
            .query("query", &statement)
            .query("format_schema_source", "string")
            .query("format_schema", &self.schema)
            .query("format_schema_message_name", "TcpSample")
            .query("insert_deduplication_token", &batch.token)
            // Without it an exception could come after the answer has begun.
            .query("wait_end_of_query", "1")
            .header("Content-Encoding", "zstd");
        self.statement = Some(statement);
        self.judge(request.send(&batch.body[..])).map(drop)
    }

    /// Makes the statement for the table as it is now.
    fn describe(&self) -> Result<String, Failure> {
        let ask = |query: String| self.judge(self.request().send(query));
        let lines = ask(statement::columns_query(&self.table))?;
        let columns = lines
            .lines()
            .map(statement::Column::parse)
            .collect::<Result<Vec<_>, _>>();
        let columns = columns
            .map_err(|error| Failure::later(format!("the columns of {}: {error}", self.table)))?;
        statement::insert(&self.table, &columns).ok_or_else(|| Failure {
            verdict: Verdict::Refused,
            what: format!(
                "{}: there is no table {} of samples in database {}: make it with `springtide migrate`",
                self.url, self.table, self.database
            ),
        })
    }

    fn request(&self) -> ureq::RequestBuilder<ureq::typestate::WithBody> {
        self.agent
            .post(&self.url)
            .query("database", &self.database)
            .header("X-ClickHouse-User", &self.user)
            .header("X-ClickHouse-Key", &self.password)
    }

    /// The answer's text, if it is a good one.
    fn judge(&self, answer: Result<http::Response<Body>, ureq::Error>) -> Result<String, Failure> {
        let mut answer =
            answer.map_err(|error| Failure::later(format!("{}: {error}", self.url)))?;
        let status = answer.status().as_u16();
        let header = answer.headers().get("X-ClickHouse-Exception-Code");
        let header = header
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let text = answer
            .body_mut()
            .with_config()
            .limit(TEXT)
            .lossy_utf8(true)
            .read_to_string();
        let text = text.map_err(|error| {
            Failure::later(format!("{}: the answer breaks off: {error}", self.url))
        })?;
        let exception = answer::exception(header.as_deref(), &text);
        match answer::verdict(status, exception) {
            Verdict::Taken => Ok(text),
            verdict => {
                let first: String = text
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(300)
                    .collect();
                let what = format!("{}: status {status}: {}", self.url, first.trim());
                Err(Failure { verdict, what })
            }
        }
    }
}

/// The body of the insert: the length of all Envelopes together, then the Envelopes, which in protobuf is their merge.
fn batch(host: &str, records: Vec<Record>) -> io::Result<Batch> {
    let envelopes: Vec<_> = records
        .iter()
        .map(|record| envelope(&record.bytes))
        .collect();
    let mut length = Vec::new();
    prost::encoding::encode_varint(
        envelopes.iter().map(|part| part.len() as u64).sum(),
        &mut length,
    );
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.write_all(&length)?;
    for part in envelopes {
        encoder.write_all(part)?;
    }
    Ok(Batch {
        token: token(host, &records),
        records: records.iter().map(|record| record.at).collect(),
        body: encoder.finish()?,
    })
}

/// A message without its length.
fn envelope(mut message: &[u8]) -> &[u8] {
    // What does not begin with a length fails to parse on the server, with the rest of the insert.
    let _ = prost::encoding::decode_varint(&mut message);
    message
}

/// The same for the same records, and for no others: their place in the queue is not used again, unless the queue was
/// removed, and then the checksums differ.
fn token(host: &str, records: &[Record]) -> String {
    let place = |record: Option<&Record>| {
        record.map_or_else(String::new, |record| {
            format!("{}-{}", record.at.segment, record.at.offset)
        })
    };
    let mut sums = crc32fast::Hasher::new();
    for record in records {
        sums.update(&record.checksum.to_le_bytes());
    }
    let (first, last) = (place(records.first()), place(records.last()));
    format!("{host}:{first}:{last}:{:08x}", sums.finalize())
}

/// Between half of the time and all of it, so that collectors do not come back together.
fn jitter(time: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1024;
    time / 2 + time / 2 * random as u32 / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64, bytes: &[u8]) -> Record {
        Record {
            at: Position { segment: 7, offset },
            checksum: bytes.len() as u32,
            rows: 1,
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn messages_become_one_with_one_length() {
        let long = [&[200, 1][..], &[b'x'; 200]].concat();
        let batch = batch("h", vec![record(0, b"\x03abc"), record(23, &long)]).unwrap();
        let body = zstd::decode_all(&batch.body[..]).unwrap();
        assert_eq!(body[..5], [203, 1, b'a', b'b', b'c']);
        assert_eq!(body.len(), 2 + 203);
        assert_eq!(batch.records.len(), 2);
    }

    #[test]
    fn a_token_names_the_records() {
        let records = |sizes: &[usize]| -> Vec<_> {
            (0..)
                .zip(sizes)
                .map(|(at, &size)| record(at * 100, &vec![0; size]))
                .collect()
        };
        assert_eq!(token("h", &records(&[1, 2])), token("h", &records(&[1, 2])));
        let tokens = [
            token("h", &records(&[1, 2])),
            token("h", &records(&[1, 3])),
            token("h", &records(&[1, 2, 3])),
            token("i", &records(&[1, 2])),
        ];
        assert!(
            (1..4).all(|index| !tokens[..index].contains(&tokens[index])),
            "{tokens:?}"
        );
    }

    #[test]
    fn an_address_holds_no_secret() {
        assert!(parse_url("http://localhost:8123").is_ok());
        assert!(parse_url("https://ch.example/proxied/").is_ok());
        for wrong in [
            "localhost:8123",
            "tcp://h:9000",
            "http://u:p@h:8123",
            "http://h/?user=u",
            "",
            "http://",
        ] {
            assert!(
                parse_url(wrong).unwrap_err().starts_with("--clickhouse: "),
                "{wrong}"
            );
        }
    }

    #[test]
    fn waits_are_spread_over_half_of_their_time() {
        for _ in 0..100 {
            let wait = jitter(Duration::from_secs(8));
            assert!((Duration::from_secs(4)..=Duration::from_secs(8)).contains(&wait));
        }
    }
}
