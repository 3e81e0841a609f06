//! The keys of the configuration are the options of `run`: `--queue-bytes` is the key `bytes` of the section `[queue]` and
//! the environment's SPRINGTIDE_COLLECTOR_QUEUE_BYTES. Each is declared, described and checked where the option is: here
//! is only what can be done with all of them.

use std::any::TypeId;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Cli;
use crate::options::{self, Reload};

/// Prefix of the environment's variables.
pub(crate) const ENVIRONMENT: &str = "SPRINGTIDE_COLLECTOR_";

/// Form of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// true or false.
    Truth,
    /// A number.
    Number,
    /// Text.
    Text,
    /// Any number of texts.
    List,
}

/// One key.
#[derive(Clone, Debug)]
pub struct Key {
    arg: Arg,
    flag: String,
    section: &'static str,
    name: &'static str,
    reload: Reload,
}

/// All keys: those of the top first, then section by section, all in the order of the options.
pub fn keys() -> Vec<Key> {
    let command = command();
    let mut keys: Vec<_> = command.get_arguments().filter_map(Key::of).collect();
    let sections: Vec<_> = keys.iter().map(Key::section).collect();
    keys.sort_by_key(|key| match key.section {
        "" => None,
        section => sections.iter().position(|&known| known == section),
    });
    keys
}

/// The command `run`, in which nothing is required.
pub(crate) fn command() -> Command {
    let mut cli = Cli::command();
    cli.build();
    let Some(run) = cli.find_subcommand("run") else {
        unreachable!("there is a command run")
    };
    run.clone().mut_args(|arg| arg.required(false))
}

impl Key {
    fn of(arg: &Arg) -> Option<Self> {
        let declared = arg.get::<options::Key>()?;
        let (section, name) = declared.path.split_once('.').unwrap_or(("", declared.path));
        Some(Self {
            flag: arg.get_long()?.to_owned(),
            arg: arg.clone(),
            section,
            name,
            reload: declared.reload,
        })
    }

    /// Its section; empty at the top.
    pub fn section(&self) -> &'static str {
        self.section
    }

    /// Its name within the section.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its name with the section's.
    pub fn path(&self) -> String {
        match self.section {
            "" => self.name.to_owned(),
            section => format!("{section}.{}", self.name),
        }
    }

    /// Its option on the command line, without the dashes.
    pub fn flag(&self) -> &str {
        &self.flag
    }

    /// Its variable in the environment.
    pub fn variable(&self) -> String {
        ENVIRONMENT.to_owned() + &self.flag.replace('-', "_").to_ascii_uppercase()
    }

    /// Its name among clap's matches.
    pub fn id(&self) -> &str {
        self.arg.get_id().as_str()
    }

    /// Form of its value. A size or a time, which people write with a unit, is text.
    pub fn form(&self) -> Form {
        let numbers = [
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<f64>(),
        ];
        let kind = self.arg.get_value_parser().type_id();
        let number = || match self.arg.get_default_values() {
            [default] => default
                .to_str()
                .is_some_and(|text| text.parse::<f64>().is_ok()),
            _ => numbers.iter().any(|number| kind == *number),
        };
        match self.arg.get_action() {
            ArgAction::SetTrue => Form::Truth,
            ArgAction::Append => Form::List,
            _ if self.placeholder() != "BYTES" && number() => Form::Number,
            _ => Form::Text,
        }
    }

    /// Its meaning, in one line.
    pub fn help(&self) -> String {
        let help = self.arg.get_help().map(ToString::to_string);
        help.unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The placeholder of a value in the help.
    pub fn placeholder(&self) -> &str {
        match self.arg.get_value_names() {
            Some([name, ..]) => name,
            _ => "",
        }
    }

    /// The values that can be chosen, if only some can.
    pub fn choices(&self) -> Vec<String> {
        let choices = self.arg.get_possible_values();
        choices
            .iter()
            .filter(|_| self.form() != Form::Truth)
            .map(|value| value.get_name().to_owned())
            .collect()
    }

    /// Its values when nobody gives any.
    pub fn defaults(&self) -> Vec<String> {
        let defaults = self.arg.get_default_values().iter();
        defaults
            .map(|value| value.to_string_lossy().into_owned())
            .filter(|value| !value.is_empty())
            .collect()
    }

    /// Effect of SIGHUP on it.
    pub fn reload(&self) -> Reload {
        self.reload
    }

    /// The command line's words for the values.
    pub fn arguments(&self, values: &[String]) -> Vec<String> {
        match self.form() {
            Form::Truth if values == ["true"] => vec![format!("--{}", self.flag)],
            Form::Truth => Vec::new(),
            _ => values
                .iter()
                .map(|value| format!("--{}={value}", self.flag))
                .collect(),
        }
    }

    /// Checks the values by themselves.
    pub fn check(&self, command: &Command, values: &[String]) -> Result<(), String> {
        if self.form() == Form::Truth
            && values
                .iter()
                .any(|value| value != "true" && value != "false")
        {
            return Err("must be true or false".to_owned());
        }
        let words = std::iter::once("run".to_owned()).chain(self.arguments(values));
        match command.clone().try_get_matches_from(words) {
            Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => Err(reason(&error)),
            _ => Ok(()),
        }
    }
}

/// Clap's error for a value, without the text around it.
fn reason(error: &clap::Error) -> String {
    use std::error::Error as _;
    if let Some(source) = error.source() {
        return source.to_string();
    }
    match (
        error.get(ContextKind::InvalidValue),
        error.get(ContextKind::ValidValue),
    ) {
        (Some(ContextValue::String(value)), Some(ContextValue::Strings(valid))) => {
            format!("'{value}' is none of {}", valid.join(", "))
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        }
    }
}
