//! `decode` and `cat`: what files hold, as JSON lines.

use std::fs::File;
use std::io::{self, BufReader};

use super::{Failure, Outcome, complain, sink_failure, unusable};
use crate::config::{Cat, Decode};
use crate::replay::{ReplayError, replay};
use crate::sample::encode::{AccEcn, Identity};
use crate::sinks::print::json::JsonSink;
use crate::sinks::{SinkError, stdout};
use crate::spool::reader::{Item, SpoolReader};
use crate::stats::Stats;

pub(super) fn decode(options: &Decode, stats: &mut Stats) -> Outcome {
    let path = &options.file;
    let file = File::open(path).map_err(|error| unusable(path, "open it", &error))?;
    let identity = Identity {
        host: options.host.clone(),
        pop: options.pop.clone(),
        ..Identity::default()
    };
    let accecn = options
        .kernel
        .as_deref()
        .map_or(AccEcn::Unknown, AccEcn::of_release);
    let mut sink = JsonSink::new(stdout());
    let report =
        |offset: u64, what: &str| complain(&format!("{}: offset {offset}: {what}", path.display()));
    match replay(
        BufReader::new(file),
        &identity,
        accecn,
        &mut sink,
        stats,
        report,
    ) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Failure::Reported(2)),
        Err(ReplayError::Sink(error)) => Err(sink_failure(error)),
        Err(ReplayError::Pcap(error)) => {
            Err(Failure::Input(format!("{}: {error}", path.display())))
        }
    }
}

pub(super) fn cat(options: &Cat, stats: &mut Stats) -> Outcome {
    let mut sink = JsonSink::new(stdout());
    let output = |error: io::Error| sink_failure(SinkError::Output(error));
    // The worst of all files; none stops the others.
    let mut code = 0;
    for path in &options.files {
        let mut reader = match SpoolReader::open(path) {
            Ok(reader) => reader,
            Err(error) => {
                complain(&error);
                code = 2;
                continue;
            }
        };
        loop {
            match reader.next_item() {
                Ok(None) => break,
                Err(error) => {
                    complain(&error);
                    code = code.max(1);
                    break;
                }
                Ok(Some(Item::Record { envelope, .. })) => {
                    for sample in &envelope.row {
                        sink.sample(sample).map_err(output)?;
                        stats.rows += 1;
                    }
                }
                Ok(Some(Item::Corrupt {
                    offset,
                    bytes,
                    reason,
                })) => {
                    code = code.max(1);
                    stats.spool_stretches_corrupt += 1;
                    stats.spool_bytes_corrupt += bytes;
                    let path = path.display();
                    complain(&format!(
                        "{path}: offset {offset}: {bytes} bytes are not a valid record: {reason}"
                    ));
                }
            }
        }
    }
    sink.flush().map_err(output)?;
    match code {
        0 => Ok(()),
        code => Err(Failure::Reported(code)),
    }
}
