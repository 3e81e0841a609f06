//! `once`, `top` and `estimate`: connections as they are now, for people.

use std::io::{self, IsTerminal};

use super::{Failure, Outcome, identity, poller, runtime, sink_failure};
use crate::config::states::States;
use crate::config::{Estimate, Format, Once, Top};
use crate::estimate::{EstimateError, estimate as watch};
use crate::kernel::filter::Filter;
use crate::read::poller::PollError;
use crate::read::poller::settings::Settings;
use crate::read::sequence;
use crate::sample::proto::TcpState;
use crate::sinks::print::json::JsonSink;
use crate::sinks::print::null::NullSink;
use crate::sinks::print::table::TableSink;
use crate::sinks::spool::RecordSink;
use crate::sinks::{Sink, SinkError, stdout};
use crate::stats::Stats;
use crate::top::model::Model;
use crate::top::{Scene, TopError};

pub(super) fn once(options: &Once, stats: &mut Stats) -> Outcome {
    let mut poller = poller(identity(&options.source)?, options.source.settings())?;
    let terminal = io::stdout().is_terminal();
    let mut sink: Box<dyn Sink> = match options.format {
        Format::Table => Box::new(TableSink::new(stdout(), terminal && colours())),
        Format::Json => Box::new(JsonSink::new(stdout())),
        Format::Spool if terminal => {
            let what =
                "--format spool writes bytes that are not for a terminal: redirect them to a file";
            return Err(Failure::Input(what.to_owned()));
        }
        Format::Null => Box::new(NullSink),
        Format::Spool => Box::new(RecordSink::new(stdout()).map_err(runtime)?),
    };
    poller
        .poll(sequence::of_single_poll(), &mut *sink, stats)
        .map_err(|error| match error {
            PollError::Sink(error) => sink_failure(error),
            error => runtime(error),
        })?;
    sink.finish(stats).map_err(sink_failure)
}

pub(super) fn top(options: &Top) -> Outcome {
    let mut settings = options.source.settings();
    if options.source.states == States::default_set() {
        // Listeners are not connections.
        settings.states &= !(1 << TcpState::Listen as u32);
    }
    let filter = options.source.filter.as_ref().map(Filter::text);
    let mut model = Model::new(
        options.sort.column(),
        options.interval,
        filter.unwrap_or_default().to_owned(),
    );
    model.grouped = options.group;
    let scene = Scene {
        poller: poller(identity(&options.source)?, settings.clone())?,
        settings,
        model,
    };
    let result = if options.once || options.json || !io::stdout().is_terminal() {
        scene.once(options.json, &mut stdout())
    } else {
        scene.live(colours())
    };
    result.map_err(|error| match error {
        TopError::Terminal(error) => sink_failure(SinkError::Output(error)),
        error => runtime(error),
    })
}

pub(super) fn estimate(options: &Estimate, stats: &mut Stats) -> Outcome {
    let settings = Settings {
        // Most connections of most hosts begin and end between two looks.
        close_buffer: Some(options.close_buffer),
        ..options.source.settings()
    };
    let poller = poller(identity(&options.source)?, settings)?;
    watch(poller, options, stats, &mut stdout()).map_err(|error| match error {
        EstimateError::Names(what) => Failure::Input(what),
        EstimateError::Nothing { .. } => Failure::Thin(error.to_string()),
        EstimateError::Output(error) => sink_failure(SinkError::Output(error)),
        error => runtime(error),
    })
}

/// Whether colours are wanted where they make sense (no-color.org).
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
