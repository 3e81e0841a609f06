//! Looks at all connections: one poll each, and what has changed since the one before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::read::poller::{PollError, Poller};
use crate::read::sequence;
use crate::sample::batch::Message;
use crate::sample::connection::Connection;
use crate::sinks::{Sink, SinkError, rows};
use crate::stats::Stats;

/// All connections at one moment.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// In the kernel's order.
    pub connections: Vec<Connection>,
    /// Duration of the poll.
    pub took: Duration,
}

/// Looks again and again.
#[derive(Default)]
pub(crate) struct Looker {
    before: HashMap<(u64, u64), u32>,
    at: Option<Instant>,
}

impl Looker {
    /// Looks now. Rates are those since the last look, for connections that were there.
    pub(crate) fn look(&mut self, poller: &mut Poller) -> Result<Look, PollError> {
        let begun = Instant::now();
        let mut gathered = Gathered(Vec::new());
        poller.poll(
            sequence::of_single_poll(),
            &mut gathered,
            &mut Stats::default(),
        )?;
        let mut connections = gathered.0;
        let since = self.at.map(|at| begun - at);
        self.rate(&mut connections, since);
        self.at = Some(begun);
        Ok(Look {
            connections,
            took: begun.elapsed(),
        })
    }

    fn rate(&mut self, connections: &mut [Connection], since: Option<Duration>) {
        let seconds = since.unwrap_or_default().as_secs_f64();
        let mut now = HashMap::with_capacity(connections.len());
        for connection in connections {
            let Some(retrans) = connection.retrans else {
                continue;
            };
            now.insert(connection.key, retrans);
            if let Some(before) = self.before.get(&connection.key).filter(|_| seconds > 0.0) {
                let again = retrans.saturating_sub(*before);
                connection.retrans_per_s = Some(f64::from(again) / seconds);
            }
        }
        self.before = now;
    }
}

/// Keeps what is shown of each sample.
struct Gathered(Vec<Connection>);

impl Sink for Gathered {
    fn write(&mut self, message: Message<'_>, _: &mut Stats) -> Result<(), SinkError> {
        let samples = rows(message)?.row;
        self.0.extend(samples.iter().map(Connection::from));
        Ok(())
    }

    fn end_poll(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_connections_that_were_there() {
        let connection = |cookie, retrans| Connection {
            key: (1, cookie),
            retrans,
            ..Connection::default()
        };
        let mut looker = Looker::default();
        let mut rates = |mut connections: Vec<Connection>, seconds: Option<u64>| {
            looker.rate(&mut connections, seconds.map(Duration::from_secs));
            connections
                .iter()
                .map(|connection| connection.retrans_per_s)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            rates(vec![connection(1, Some(5)), connection(2, None)], None),
            [None, None]
        );
        let second = vec![
            connection(1, Some(9)),
            connection(2, Some(7)),
            connection(3, Some(1)),
        ];
        assert_eq!(rates(second, Some(2)), [Some(2.0), None, None]);
        // A counter that goes back belongs to another socket than it seems.
        assert_eq!(rates(vec![connection(1, Some(3))], Some(1)), [Some(0.0)]);
    }
}
