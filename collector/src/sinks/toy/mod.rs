//! A worked example, part of the tests only: messages, one after another, over a TCP connection (docs/how-to/add-a-sink.md).

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use clap::Args;

use super::driver::{Failure, Remote, Waits};
use super::start::{Opened, Opening, SinkOptions, StartError};
use crate::options::key;
use crate::spool::queue::{Lane, Outcome, Taken};

/// After whatever goes wrong with the connection.
const BROKEN: Waits = Waits {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(30),
};

/// Options of the sink.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Toy")]
pub(crate) struct ToyOptions {
    /// Send messages to this address
    #[arg(long, value_name = "HOST:PORT", add = key("toy.address"))]
    pub toy: Option<String>,
}

impl SinkOptions for ToyOptions {
    fn flag(&self) -> &'static str {
        "--toy"
    }

    fn wanted(&self) -> bool {
        self.toy.is_some()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open(&self, _: &mut Opening<'_>) -> Result<Opened, StartError> {
        let address = self.toy.clone().unwrap_or_default();
        Ok(Opened::Remote("toy", Box::new(Toy { address })))
    }
}

struct Toy {
    address: String,
}

impl Remote for Toy {
    fn deliver(&mut self, lane: &mut Lane) -> Result<(), Failure> {
        self.send(lane).map_err(|error| Failure {
            what: format!("{}: {error}", self.address),
            waits: BROKEN,
            give_back: true,
        })
    }
}

impl Toy {
    /// Sends until the lane is closed.
    fn send(&self, lane: &mut Lane) -> io::Result<()> {
        let mut connection = TcpStream::connect(&self.address)?;
        loop {
            match lane.take(Duration::from_secs(1)) {
                Taken::Record(record) => {
                    connection.write_all(&record.bytes)?;
                    lane.resolve(record.at, Outcome::Delivered);
                }
                Taken::Nothing => {}
                Taken::Closed => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
