//! A live view of connections, for people at a terminal.
//!
//! [`looks`] reads the connections, [`model`] keeps and sorts them and handles keys, [`view`] draws; here is what ties
//! them to a terminal.

mod end;
pub(crate) mod looks;
pub(crate) mod model;
mod view;

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::{Value, json};

use self::end::End;
use self::looks::Looker;
use self::model::{Effect, Model};
use crate::kernel::filter::Filter;
use crate::read::poller::settings::Settings;
use crate::read::poller::{PollError, Poller};
use crate::sample::connection::{Column, Connection};

/// Time that a signal may go unseen.
const SIGNAL_LATENCY: Duration = Duration::from_millis(100);

/// Why there is no view.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    /// The sockets could not be read.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// The terminal could not be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Parts of the view.
pub(crate) struct Scene {
    /// Reads the connections.
    pub poller: Poller,
    /// Settings of the poller; the filter can change.
    pub settings: Settings,
    /// State shown at first.
    pub model: Model,
}

impl Scene {
    /// Shows it until the user, a signal or the terminal's end ends it. A terminal that exists is restored, also
    /// after a panic.
    pub(crate) fn live(mut self, colours: bool) -> Result<(), TopError> {
        let end = End::listen()?;
        let mut looker = Looker::default();
        // A first look before the terminal is taken: an error is shown where it can be read.
        self.model.see(looker.look(&mut self.poller)?);
        let mut terminal = ratatui::try_init()?;
        let result = self.show(&mut terminal, &mut looker, &end, colours);
        if end::is_gone() {
            // It would complain to nobody that it cannot show the cursor again.
            std::mem::forget(terminal);
            return Ok(());
        }
        ratatui::try_restore()?;
        result
    }

    fn show(
        &mut self,
        terminal: &mut DefaultTerminal,
        looker: &mut Looker,
        end: &End,
        colours: bool,
    ) -> Result<(), TopError> {
        let mut looked = Instant::now();
        loop {
            terminal.draw(|frame| view::draw(frame, &mut self.model, colours))?;
            let quit = loop {
                if end.is_told() {
                    break true;
                }
                let left = self.model.interval.saturating_sub(looked.elapsed());
                if left.is_zero() && !self.model.paused {
                    self.look(looker);
                    looked = Instant::now();
                    break false;
                }
                let wait = if self.model.paused {
                    SIGNAL_LATENCY
                } else {
                    left.min(SIGNAL_LATENCY)
                };
                if !event::poll(wait)? {
                    continue;
                }
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        self.model.error = None;
                        match self.model.key(key) {
                            Effect::None => {}
                            Effect::Quit => break true,
                            Effect::Filter(text) => {
                                self.filter(text);
                                self.look(looker);
                                looked = Instant::now();
                            }
                        }
                        break false;
                    }
                    Event::Resize(..) => break false,
                    _ => {}
                }
            };
            if quit {
                return Ok(());
            }
        }
    }

    /// Looks again; a failure is shown, and the picture stays.
    fn look(&mut self, looker: &mut Looker) {
        match looker.look(&mut self.poller) {
            Ok(look) => self.model.see(look),
            Err(error) => self.model.error = Some(error.to_string()),
        }
    }

    fn filter(&mut self, text: String) {
        let filter = match text.as_str() {
            "" => Ok(None),
            text => expression(text).parse::<Filter>().map(Some),
        };
        match filter {
            Ok(filter) => {
                let settings = Settings {
                    filter,
                    ..self.settings.clone()
                };
                match self.poller.change(settings.clone()) {
                    Ok(()) => (self.settings, self.model.filter) = (settings, text),
                    Err(error) => self.model.error = Some(error.to_string()),
                }
            }
            Err(error) => self.model.error = Some(format!("filter: {error}")),
        }
    }

    /// Looks twice, an interval apart, and writes what a terminal of any size would show: a table, or a JSON object for
    /// each connection.
    pub(crate) fn once(mut self, json: bool, out: &mut dyn Write) -> Result<(), TopError> {
        let mut looker = Looker::default();
        looker.look(&mut self.poller)?;
        thread::sleep(self.model.interval);
        self.model.see(looker.look(&mut self.poller)?);
        if json {
            for connection in self.model.connections() {
                writeln!(out, "{}", object(connection))?;
            }
        } else {
            write_table(&self.model, out)?;
        }
        Ok(out.flush()?)
    }
}

/// A prefix or a port alone mean either end.
fn expression(text: &str) -> String {
    let numbers = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b','));
    let addresses = text
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':' | b'/' | b','));
    if numbers {
        format!("port {text}")
    } else if addresses && text.contains(['.', ':']) {
        format!("addr {text}")
    } else {
        text.to_owned()
    }
}

fn write_table(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", model.summary())?;
    let lines = model.lines(0, model.len());
    let columns = model.columns();
    let width = |index: usize| {
        let cells = lines.iter().map(|line| line.cells[index].chars().count());
        cells
            .max()
            .unwrap_or(0)
            .max(model.heading(columns[index]).len())
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let headings: Vec<_> = columns
        .iter()
        .map(|&column| model.heading(column).to_owned())
        .collect();
    for cells in std::iter::once(&headings).chain(lines.iter().map(|line| &line.cells)) {
        let aligned: Vec<_> = (cells.iter().zip(&widths).zip(columns))
            .map(|((cell, &width), &column)| view::aligned(cell, width, model.is_left(column)))
            .collect();
        writeln!(out, "{}", aligned.join("  ").trim_end())?;
    }
    Ok(())
}

/// The connection for programs: the units are in the names.
fn object(connection: &Connection) -> Value {
    json!({
        "netns": connection.key.0,
        "cookie": connection.key.1,
        "state": Column::State.cell(connection),
        "local": connection.local,
        "peer": connection.peer,
        "congestion_algorithm": connection.algorithm,
        "rtt_us": connection.rtt_us,
        "min_rtt_us": connection.min_rtt_us,
        "snd_cwnd": connection.cwnd,
        "snd_mss": connection.mss,
        "delivery_rate_bytes_per_s": connection.delivery_rate,
        "bytes_acked": connection.acked,
        "total_retrans": connection.retrans,
        "retrans_per_s": connection.retrans_per_s,
        "rqueue": connection.receive_queue,
        "wqueue": connection.send_queue,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quick_to_type_is_a_filter() {
        for (text, meant) in [
            ("443", "port 443"),
            ("80,8000-8099", "port 80,8000-8099"),
            ("10.0.0.0/8", "addr 10.0.0.0/8"),
            ("2001:db8::/32,::1", "addr 2001:db8::/32,::1"),
            (
                "dst 10.0.0.1 and not sport 22",
                "dst 10.0.0.1 and not sport 22",
            ),
            ("face", "face"),
        ] {
            assert_eq!(expression(text), meant);
            assert_eq!(meant.parse::<Filter>().is_ok(), text != "face");
        }
    }
}
