//! State of `top`, and what keys do to it. No terminal in here.
//!
//! Longer than 400 lines: keys, order and groups act on one state, and its tests follow it key by key.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::looks::Look;
use crate::sample::connection::{
    Column, Connection, bit_rate, decimal, peer_prefix, per_second, time,
};

/// Intervals that `+` and `-` go through.
const INTERVALS: [Duration; 8] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// Work that remains to be done after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing but to draw.
    None,
    /// To look at the sockets that this filter leaves; an empty one leaves all.
    Filter(String),
    /// To end.
    Quit,
}

/// Connections with the same peer prefix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// The prefix; None for sockets without a peer.
    pub prefix: Option<(IpAddr, u8)>,
    /// Number of connections.
    pub connections: usize,
    /// Their sums and medians, as far as a connection's fields can hold them: RTT and window are medians, the smallest
    /// RTT is the smallest, all else are sums.
    pub sum: Connection,
}

/// A line to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its cells.
    pub cells: Vec<String>,
    /// Whether packets were lost.
    pub loses: bool,
}

/// All that is shown.
pub(crate) struct Model {
    /// Columns sorted by.
    pub sort: Column,
    /// Whether the largest come first.
    pub descending: bool,
    /// Whether connections are put together by peer prefix.
    pub grouped: bool,
    /// Whether the picture stands.
    pub paused: bool,
    /// Time from one look to the next.
    pub interval: Duration,
    /// The filter in force.
    pub filter: String,
    /// The filter that is being typed.
    pub input: Option<String>,
    /// The last error.
    pub error: Option<String>,
    /// Whether the help is open.
    pub help: bool,
    /// Lines above the first that is shown.
    pub offset: usize,
    /// Lines that fit.
    pub page: usize,
    took: Duration,
    connections: Vec<Connection>,
    groups: Vec<Group>,
}

impl Model {
    /// Before the first look.
    pub(crate) fn new(sort: Column, interval: Duration, filter: String) -> Self {
        Self {
            sort,
            descending: !sort.is_text(),
            grouped: false,
            paused: false,
            interval,
            filter,
            input: None,
            error: None,
            help: false,
            offset: 0,
            page: 1,
            took: Duration::ZERO,
            connections: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Takes a new look.
    pub(crate) fn see(&mut self, look: Look) {
        self.connections = look.connections;
        self.took = look.took;
        self.arrange();
    }

    /// The connections, sorted.
    pub(crate) fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// Number of lines.
    pub(crate) fn len(&self) -> usize {
        if self.grouped {
            self.groups.len()
        } else {
            self.connections.len()
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns of what is shown.
    pub(crate) fn columns(&self) -> &'static [Column] {
        if self.grouped { &GROUPED } else { &Column::ALL }
    }

    /// A column's heading.
    pub(crate) fn heading(&self, column: Column) -> &'static str {
        match column {
            Column::State if self.grouped => "CONNS",
            Column::Peer if self.grouped => "PEER PREFIX",
            column => column.heading(),
        }
    }

    /// Whether a column's cells begin at the left.
    pub(crate) fn is_left(&self, column: Column) -> bool {
        column.is_text() && !(self.grouped && column == Column::State)
    }

    /// `count` lines from the line `from` on.
    pub(crate) fn lines(&self, from: usize, count: usize) -> Vec<Line> {
        let line = |connection: &Connection, group: Option<&Group>| Line {
            cells: self
                .columns()
                .iter()
                .map(|&column| cell(column, connection, group))
                .collect(),
            loses: connection.retrans_per_s.is_some_and(|rate| rate > 0.0),
        };
        if self.grouped {
            self.groups
                .iter()
                .skip(from)
                .take(count)
                .map(|group| line(&group.sum, Some(group)))
                .collect()
        } else {
            self.connections
                .iter()
                .skip(from)
                .take(count)
                .map(|connection| line(connection, None))
                .collect()
        }
    }

    /// The sums above the table.
    pub(crate) fn summary(&self) -> String {
        let all = &self.connections;
        let rate: u64 = all
            .iter()
            .filter_map(|connection| connection.delivery_rate)
            .sum();
        let again: f64 = all
            .iter()
            .filter_map(|connection| connection.retrans_per_s)
            .fold(0.0, |sum, rate| sum + rate);
        let rtt = median(
            all.iter()
                .filter_map(|connection| connection.rtt_us)
                .collect(),
        );
        format!(
            "{} connections, median RTT {}, {} retransmissions/s, delivery rates {} in all; read in {}",
            all.len(),
            rtt.map_or_else(|| "-".to_owned(), |us| time(us.into())),
            per_second(again),
            bit_rate(rate),
            time(self.took.as_micros().try_into().unwrap_or(u64::MAX)),
        )
    }

    /// Settings that the keys have made, in a line.
    pub(crate) fn setting(&self) -> String {
        let direction = if self.descending { "down" } else { "up" };
        let filter = if self.filter.is_empty() {
            String::new()
        } else {
            format!("  filter: {}", self.filter)
        };
        let paused = if self.paused { "  PAUSED" } else { "" };
        let interval = self.interval.as_secs_f64();
        format!(
            "every {interval} s  sort: {} {direction}{filter}{paused}",
            self.heading(self.sort)
        )
    }

    /// Applies a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Effect {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Effect::Quit;
        }
        if self.input.is_some() {
            return self.typed(key.code);
        }
        if std::mem::take(&mut self.help) {
            return Effect::None;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Effect::Quit,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('/' | 'f') => self.input = Some(self.filter.clone()),
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Char('g') => {
                self.grouped = !self.grouped;
                self.offset = 0;
                if !self.columns().contains(&self.sort) {
                    self.sort_by(Column::RetransPerSecond);
                }
                self.arrange();
            }
            KeyCode::Char('r') => {
                self.descending = !self.descending;
                self.arrange();
            }
            KeyCode::Right | KeyCode::Char('>') => self.sort_beside(1),
            KeyCode::Left | KeyCode::Char('<') => self.sort_beside(self.columns().len() - 1),
            KeyCode::Char('+') => self.pace(1),
            KeyCode::Char('-') => self.pace(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(self.page.cast_signed()),
            KeyCode::PageUp => self.scroll(-self.page.cast_signed()),
            KeyCode::Home => self.scroll(isize::MIN),
            KeyCode::End => self.scroll(isize::MAX),
            KeyCode::Char(letter) => {
                if let Some((_, column, _)) = SORT_KEYS.iter().find(|(key, ..)| *key == letter) {
                    self.sort_by(*column);
                }
            }
            _ => {}
        }
        Effect::None
    }

    fn typed(&mut self, code: KeyCode) -> Effect {
        let Some(input) = &mut self.input else {
            return Effect::None;
        };
        match code {
            KeyCode::Enter => {
                let filter = input.trim().to_owned();
                self.input = None;
                return Effect::Filter(filter);
            }
            KeyCode::Esc => self.input = None,
            KeyCode::Backspace => {
                input.pop();
            }
            KeyCode::Char(c) => input.push(c),
            _ => {}
        }
        Effect::None
    }

    fn sort_by(&mut self, column: Column) {
        if self.sort == column {
            self.descending = !self.descending;
        } else {
            self.sort = column;
            self.descending = !column.is_text();
        }
        self.offset = 0;
        self.arrange();
    }

    fn sort_beside(&mut self, steps: usize) {
        let columns = self.columns();
        let at = columns
            .iter()
            .position(|&column| column == self.sort)
            .unwrap_or(0);
        self.sort_by(columns[(at + steps) % columns.len()]);
    }

    fn pace(&mut self, by: isize) {
        let at = INTERVALS.partition_point(|&interval| interval < self.interval);
        let exact = INTERVALS.get(at) == Some(&self.interval);
        let to = if by < 0 || exact {
            at.saturating_add_signed(by)
        } else {
            at
        };
        self.interval = INTERVALS[to.min(INTERVALS.len() - 1)];
    }

    fn scroll(&mut self, by: isize) {
        let last = self.len().saturating_sub(self.page);
        self.offset = self.offset.saturating_add_signed(by).min(last);
    }

    fn arrange(&mut self) {
        let (column, descending) = (self.sort, self.descending);
        let by_key = |a: &Connection, b: &Connection| a.key.cmp(&b.key);
        self.connections
            .sort_unstable_by(|a, b| column.compare(a, b, descending).then_with(|| by_key(a, b)));
        self.groups = if self.grouped {
            groups(&self.connections)
        } else {
            Vec::new()
        };
        self.groups
            .sort_unstable_by(|a, b| compare(column, a, b, descending));
        self.scroll(0);
    }
}

/// Columns of a group.
const GROUPED: [Column; 11] = [
    Column::Peer,
    Column::State,
    Column::Rtt,
    Column::MinRtt,
    Column::Cwnd,
    Column::Rate,
    Column::Acked,
    Column::Retrans,
    Column::RetransPerSecond,
    Column::ReceiveQueue,
    Column::SendQueue,
];

/// Keys that sort, with their help texts.
pub(crate) const SORT_KEYS: [(char, Column, &str); 8] = [
    ('s', Column::RetransPerSecond, "retransmissions per second"),
    ('x', Column::Retrans, "retransmissions"),
    ('t', Column::Rtt, "RTT"),
    ('m', Column::MinRtt, "smallest RTT"),
    ('w', Column::Cwnd, "congestion window"),
    ('d', Column::Rate, "delivery rate"),
    ('a', Column::Acked, "bytes acknowledged"),
    ('n', Column::Peer, "peer"),
];

fn cell(column: Column, connection: &Connection, group: Option<&Group>) -> String {
    match (column, group) {
        (Column::State, Some(group)) => decimal(group.connections as f64),
        (Column::Peer, Some(group)) => match group.prefix {
            Some((network, length)) => format!("{network}/{length}"),
            None => "-".to_owned(),
        },
        (column, _) => column.cell(connection),
    }
}

fn compare(column: Column, a: &Group, b: &Group, descending: bool) -> Ordering {
    let by = |order: Ordering| if descending { order.reverse() } else { order };
    let first = match column {
        Column::State => by(a.connections.cmp(&b.connections)),
        Column::Peer => by(a.prefix.cmp(&b.prefix)),
        column => column.compare(&a.sum, &b.sum, descending),
    };
    first.then_with(|| a.prefix.cmp(&b.prefix))
}

/// The connections by peer prefix.
fn groups(connections: &[Connection]) -> Vec<Group> {
    let mut by_prefix: HashMap<_, Vec<&Connection>> = HashMap::new();
    for connection in connections {
        // A listener's peer is the address of nobody.
        let peer = connection
            .peer
            .filter(|peer| !peer.ip().to_canonical().is_unspecified());
        by_prefix
            .entry(peer.map(|peer| peer_prefix(peer.ip())))
            .or_default()
            .push(connection);
    }
    by_prefix
        .into_iter()
        .map(|(prefix, members)| group(prefix, &members))
        .collect()
}

fn group(prefix: Option<(IpAddr, u8)>, members: &[&Connection]) -> Group {
    let numbers = |column: Column| {
        members
            .iter()
            .filter_map(move |member| column.number(member))
    };
    let sum = |column| numbers(column).reduce(|a, b| a + b);
    let whole = |value: Option<f64>| value.map(|value| value as u64);
    let narrow = |value: Option<f64>| value.map(|value| value as u32);
    let sum = Connection {
        rtt_us: median(members.iter().filter_map(|member| member.rtt_us).collect()),
        min_rtt_us: members.iter().filter_map(|member| member.min_rtt_us).min(),
        cwnd: median(members.iter().filter_map(|member| member.cwnd).collect()),
        delivery_rate: whole(sum(Column::Rate)),
        acked: whole(sum(Column::Acked)),
        retrans: narrow(sum(Column::Retrans)),
        retrans_per_s: sum(Column::RetransPerSecond),
        receive_queue: narrow(sum(Column::ReceiveQueue)).unwrap_or(0),
        send_queue: narrow(sum(Column::SendQueue)).unwrap_or(0),
        ..Connection::default()
    };
    Group {
        prefix,
        connections: members.len(),
        sum,
    }
}

/// The upper median.
fn median(mut values: Vec<u32>) -> Option<u32> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests;
