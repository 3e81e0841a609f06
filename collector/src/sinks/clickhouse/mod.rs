//! Messages into a ClickHouse table, over its HTTP interface: several messages an insert, as one protobuf Envelope.
//!
//! The server names the table's columns, and the statement is made for them: `INSERT INTO table (...) SELECT ... FROM
//! input(...) FORMAT ProtobufList`, where the SELECT turns numbers into the table's enums. The contract travels with
//! each request, so that no file has to be on the server.
//!
//! An insert is repeated until the server has taken it: after whatever passes by itself soon, after a refusal with more
//! patience. Repeats carry the same deduplication token. Nothing is dropped here.

mod answer;
mod batch;
mod options;
mod statement;

use std::time::{Duration, Instant};

use ureq::{Agent, Body, http};

use self::answer::Verdict;
use self::batch::{Batch, batch};
pub(super) use self::options::ClickHouseOptions;
use super::driver::{Failure, Remote, Waits};
use crate::spool::queue::{Lane, Outcome, Record, Taken};

/// Largest insert before compression, bytes: some 25,000 rows.
const BATCH: usize = 8 << 20;

/// Time to wait for a record.
const IDLE: Duration = Duration::from_secs(1);

/// After what passes by itself.
const PASSING: Waits = Waits {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(30),
};

/// After a refusal.
const REFUSED: Waits = Waits {
    first: Duration::from_secs(5),
    longest: Duration::from_secs(60),
};

/// When an insert cannot be compressed, which is for want of memory.
const NO_MEMORY: Waits = Waits {
    first: Duration::from_secs(30),
    longest: Duration::from_secs(30),
};

/// An error's text is cut after this, bytes.
const TEXT: u64 = 64 << 10;

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
    /// An insert that the server has not taken yet: it is repeated as it is, with its token.
    pending: Option<Batch>,
}

/// Why the server did not do what was requested.
struct Refusal {
    verdict: Verdict,
    what: String,
}

impl Refusal {
    fn later(what: impl ToString) -> Self {
        Self {
            verdict: Verdict::Later,
            what: what.to_string(),
        }
    }
}

impl Remote for ClickHouse {
    fn deliver(&mut self, lane: &mut Lane) -> Result<(), Failure> {
        if let Some(batch) = self.pending.take() {
            self.try_insert(batch, lane)?;
        }
        while let Some(records) = self.gather(lane) {
            if records.is_empty() {
                continue;
            }
            let batch = batch(&self.host, records).map_err(|error| Failure {
                what: format!("cannot compress: {error}"),
                waits: NO_MEMORY,
                give_back: true,
            })?;
            self.try_insert(batch, lane)?;
            if lane.expired() {
                break;
            }
        }
        Ok(())
    }
}

impl ClickHouse {
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

    /// Inserts the batch. After a failure it is kept to be repeated, unless its records are to be taken again in smaller
    /// ones.
    fn try_insert(&mut self, batch: Batch, lane: &mut Lane) -> Result<(), Failure> {
        let Err(Refusal { verdict, what }) = self.insert(&batch) else {
            for &at in &batch.records {
                lane.resolve(at, Outcome::Delivered);
            }
            self.batch_limit = BATCH.min(self.batch_limit * 2);
            return Ok(());
        };
        let waits = if verdict == Verdict::Refused {
            // The table may be another one when somebody has done something about it.
            self.statement = None;
            REFUSED
        } else {
            PASSING
        };
        let give_back = verdict == Verdict::Fewer && batch.records.len() > 1;
        if give_back {
            self.batch_limit = (self.batch_limit / 2).max(1);
        } else {
            self.pending = Some(batch);
        }
        Err(Failure {
            what,
            waits,
            give_back,
        })
    }

    fn insert(&mut self, batch: &Batch) -> Result<(), Refusal> {
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
    fn describe(&self) -> Result<String, Refusal> {
        let query_server = |query: String| self.judge(self.request().send(query));
        let lines = query_server(statement::columns_query(&self.table))?;
        let columns = lines
            .lines()
            .map(statement::Column::parse)
            .collect::<Result<Vec<_>, _>>();
        let columns = columns
            .map_err(|error| Refusal::later(format!("the columns of {}: {error}", self.table)))?;
        statement::insert(&self.table, &columns).ok_or_else(|| Refusal {
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
    fn judge(&self, answer: Result<http::Response<Body>, ureq::Error>) -> Result<String, Refusal> {
        let mut answer =
            answer.map_err(|error| Refusal::later(format!("{}: {error}", self.url)))?;
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
            Refusal::later(format!("{}: the answer breaks off: {error}", self.url))
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
                Err(Refusal { verdict, what })
            }
        }
    }
}
