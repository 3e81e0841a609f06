//! A table for people: aligned columns, units that read at a glance.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use super::{Sink, SinkError, rows};
use crate::batch::Message;
use crate::sample::json::{address, address_text, state_name};
use crate::sample::proto::{TcpSample, TcpState};
use crate::stats::Stats;

const COLUMNS: [&str; 13] = [
    "STATE", "LOCAL", "PEER", "CC", "RTT", "MIN RTT", "CWND", "MSS", "RATE", "ACKED", "RETRANS",
    "RECV-Q", "SEND-Q",
];
const LEFT_ALIGNED: usize = 4;
const RETRANS: usize = 10;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Writes the table to an output, message by message. The columns are as wide as the widest cell so far; where a later
/// message needs them wider, the heading is repeated.
pub struct TableSink<W> {
    out: W,
    colours: bool,
    widths: [usize; COLUMNS.len()],
    header_due: bool,
}

impl<W: Write> TableSink<W> {
    /// Writes to `out`; colours only make sense on a terminal.
    pub fn new(out: W, colours: bool) -> Self {
        Self {
            out,
            colours,
            widths: COLUMNS.map(str::len),
            header_due: true,
        }
    }

    fn line(
        &mut self,
        cells: &[String; COLUMNS.len()],
        style: impl Fn(usize) -> &'static str,
    ) -> io::Result<()> {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let (width, style) = (self.widths[column], style(column));
            if column > 0 {
                line.push_str("  ");
            }
            let text = if column < LEFT_ALIGNED {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            };
            if self.colours && !style.is_empty() {
                line.push_str(&format!("{style}{text}{PLAIN}"));
            } else {
                line.push_str(&text);
            }
        }
        writeln!(self.out, "{}", line.trim_end())
    }
}

impl<W: Write> Sink for TableSink<W> {
    fn write(&mut self, message: Message<'_>, _: &mut Stats) -> Result<(), SinkError> {
        let table: Vec<_> = rows(message)?.row.iter().map(cells).collect();
        for row in &table {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                let needed = cell.chars().count();
                if needed > *width {
                    (*width, self.header_due) = (needed, true);
                }
            }
        }
        if std::mem::take(&mut self.header_due) {
            self.line(&COLUMNS.map(str::to_owned), |_| BOLD)?;
        }
        for row in &table {
            let retransmits = !matches!(row[RETRANS].as_str(), "-" | "0");
            self.line(row, |column| {
                if column == RETRANS && retransmits {
                    RED
                } else {
                    ""
                }
            })?;
        }
        Ok(())
    }

    fn end_poll(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        self.header_due = true;
        Ok(self.out.flush()?)
    }

    fn finish(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(self.out.flush()?)
    }
}

fn cells(sample: &TcpSample) -> [String; COLUMNS.len()] {
    // A listening socket's tcp_info holds defaults that say nothing about a connection.
    let listens = sample.state == TcpState::Listen as i32;
    let number =
        |value: Option<u32>| optional(value.filter(|_| !listens), |value| value.to_string());
    let unmeasured = |rtt: &u32| *rtt != 0 && *rtt != u32::MAX;
    [
        state_name(sample.state.into()).map_or_else(
            || sample.state.to_string(),
            |name| name.trim_start_matches("TCP_STATE_").replace('_', "-"),
        ),
        endpoint(&sample.src_ip, sample.src_port, sample.family),
        endpoint(&sample.dst_ip, sample.dst_port, sample.family),
        sample
            .congestion_algorithm
            .clone()
            .unwrap_or_else(|| "-".to_owned()),
        optional(sample.rtt.filter(|rtt| !listens && unmeasured(rtt)), |us| {
            time(us.into())
        }),
        optional(
            sample.min_rtt.filter(|rtt| !listens && unmeasured(rtt)),
            |us| time(us.into()),
        ),
        number(sample.snd_cwnd),
        number(sample.snd_mss),
        optional(sample.delivery_rate.filter(|rate| *rate > 0), |rate| {
            format!("{}bit/s", decimal(rate as f64 * 8.0))
        }),
        optional(sample.bytes_acked.filter(|_| !listens), |bytes| {
            format!("{}B", decimal(bytes as f64))
        }),
        number(sample.total_retrans),
        sample.rqueue.to_string(),
        sample.wqueue.to_string(),
    ]
}

fn optional<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn endpoint(bytes: &[u8], port: u32, family: u32) -> String {
    let port = u16::try_from(port).unwrap_or(0);
    match address(bytes, family) {
        Some(IpAddr::V4(address)) => SocketAddr::from((address, port)).to_string(),
        Some(IpAddr::V6(address)) => SocketAddr::from((address, port)).to_string(),
        None => address_text(bytes, family),
    }
}

/// Microseconds with a unit.
fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{:.1}ms", us as f64 / 1e3),
        _ => format!("{:.1}s", us as f64 / 1e6),
    }
}

/// A number with three digits and a decimal prefix.
fn decimal(value: f64) -> String {
    let (mut value, mut prefixes) = (value, ["", "k", "M", "G", "T", "P"].iter());
    let mut prefix = prefixes.next();
    while value >= 999.5 {
        let Some(next) = prefixes.next() else { break };
        (value, prefix) = (value / 1000.0, Some(next));
    }
    let prefix = prefix.copied().unwrap_or_default();
    let digits = if prefix.is_empty() || value >= 99.95 {
        0
    } else {
        1
    };
    format!("{value:.digits$}{prefix}")
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::sample::proto::Envelope;

    #[test]
    fn numbers_read_at_a_glance() {
        let shown = [
            0.0, 999.0, 1000.0, 12_345.0, 99_960.0, 999_600.0, 43e9, 1e18, 1e19,
        ]
        .map(decimal);
        assert_eq!(
            shown,
            [
                "0", "999", "1.0k", "12.3k", "100k", "1.0M", "43.0G", "1000P", "10000P"
            ]
        );
        assert_eq!(
            [999, 1_000, 20_150, 3_000_000].map(time),
            ["999us", "1.0ms", "20.1ms", "3.0s"]
        );
    }

    #[test]
    fn colours_are_for_terminals_and_stand_outside_the_width() {
        let sample = TcpSample {
            total_retrans: Some(12),
            state: 1,
            ..TcpSample::default()
        };
        let bytes = Envelope { row: vec![sample] }.encode_length_delimited_to_vec();
        let shown = |colours| {
            let mut out = Vec::new();
            let message = Message {
                rows: 1,
                bytes: &bytes,
            };
            TableSink::new(&mut out, colours)
                .write(message, &mut Stats::default())
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        let (plain, coloured) = (shown(false), shown(true));
        assert!(!plain.contains('\x1b'));
        assert!(coloured.contains("\x1b[31m     12\x1b[0m"), "{coloured}");
        let stripped = [BOLD, RED, PLAIN]
            .iter()
            .fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain);
    }
}
