//! Samples on standard output.

pub(crate) mod json;
pub(crate) mod null;
pub(crate) mod table;

use clap::{Args, ValueEnum};

use self::json::JsonSink;
use self::null::NullSink;
use self::table::TableSink;
use super::start::{Opened, Opening, SinkOptions, StartError};
use super::stdout;
use crate::options::key;

/// Form in which `run` prints samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Print {
    /// Aligned columns for people
    Table,
    /// One JSON object a line
    Json,
    /// Not at all: for measuring what reading and encoding cost
    Null,
}

/// Options of the sink.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sinks")]
pub(crate) struct PrintOptions {
    /// Print the samples on standard output
    #[arg(long, value_enum, add = key("print"))]
    pub print: Option<Print>,
}

impl SinkOptions for PrintOptions {
    fn flag(&self) -> &'static str {
        "--print"
    }

    fn wanted(&self) -> bool {
        self.print.is_some()
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn open(&self, _: &mut Opening<'_>) -> Result<Opened, StartError> {
        Ok(match self.print {
            Some(Print::Table) => {
                Opened::Direct("stdout", Box::new(TableSink::new(stdout(), false)))
            }
            Some(Print::Json) => Opened::Direct("stdout", Box::new(JsonSink::new(stdout()))),
            Some(Print::Null) | None => Opened::Direct("null", Box::new(NullSink)),
        })
    }
}
