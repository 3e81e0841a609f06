//! A table for people: aligned columns, units that read at a glance.

use std::io::{self, Write};

use crate::sample::batch::Message;
use crate::sample::connection::{Column, Connection};
use crate::sample::proto::TcpSample;
use crate::sinks::{Sink, SinkError, rows};
use crate::stats::Stats;

/// The columns: all that a single look at a connection fills.
const COLUMNS: [Column; 13] = [
    Column::State,
    Column::Local,
    Column::Peer,
    Column::Algorithm,
    Column::Rtt,
    Column::MinRtt,
    Column::Cwnd,
    Column::Mss,
    Column::Rate,
    Column::Acked,
    Column::Retrans,
    Column::ReceiveQueue,
    Column::SendQueue,
];
const RETRANS: usize = 10;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Writes the table to an output, message by message. The columns are as wide as the widest cell so far; where a later
/// message needs them wider, the heading is repeated.
pub(crate) struct TableSink<W> {
    out: W,
    colours: bool,
    widths: [usize; COLUMNS.len()],
    header_due: bool,
}

impl<W: Write> TableSink<W> {
    /// Writes to `out`; colours only make sense on a terminal.
    pub(crate) fn new(out: W, colours: bool) -> Self {
        Self {
            out,
            colours,
            widths: COLUMNS.map(|column| column.heading().len()),
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
            let text = if COLUMNS[column].is_text() {
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
            self.line(&COLUMNS.map(|column| column.heading().to_owned()), |_| BOLD)?;
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
    let connection = Connection::from(sample);
    COLUMNS.map(|column| column.cell(&connection))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::sample::proto::Envelope;

    #[test]
    fn colours_are_for_terminals_and_do_not_count_into_the_width() {
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
