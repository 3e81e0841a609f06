//! One configuration from all its layers: the command line over the environment over the file over the defaults.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command as ClapCommand, CommandFactory, FromArgMatches};

use super::Cli;
use super::file::{self, Given};
use super::keys::{self, ENVIRONMENT, Key};

/// Read when no other file is named, if it exists.
pub(crate) const DEFAULT_FILE: &str = "/etc/springtide/collector.toml";

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The command line is wrong, or requests help or the version.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The file or the environment is wrong: a line each.
    #[error("{}", .0.join("\n"))]
    Problems(Vec<String>),
}

/// A key's values.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The key.
    pub key: Key,
    /// Its values as on the command line; none when it is not set.
    pub values: Vec<String>,
}

/// The command, and where its options come from.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The command with its options; those of `run` are the configuration's.
    pub cli: Cli,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Every key, for `run`.
    pub settings: Vec<Setting>,
}

/// The configuration that the command line `arguments` selects; the file and the environment are for `run` only.
pub(crate) fn resolve(
    arguments: &[OsString],
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Resolved, ConfigError> {
    // Options that `run` needs may be in the file.
    let relaxed =
        Cli::command().mut_subcommand("run", |run| run.mut_args(|arg| arg.required(false)));
    let matches = relaxed.try_get_matches_from(arguments)?;
    let Some(given) = matches.subcommand_matches("run") else {
        return Ok(Resolved {
            cli: Cli::from_arg_matches(&matches)?,
            file: None,
            settings: Vec::new(),
        });
    };
    let (keys, command) = (keys::keys(), keys::command());
    let (environment, named) = from_environment(environment, &keys, &command)?;
    let named = given.get_one::<PathBuf>("config").cloned().or(named);
    let (file, from_file) = from_file(named, &keys, &command)?;

    let mut words: Vec<OsString> = arguments.iter().take(2).cloned().collect();
    for key in &keys {
        if given.value_source(key.id()) == Some(ValueSource::CommandLine) {
            continue;
        }
        let find = |all: &[Given]| all.iter().find(|given| given.flag == key.flag()).cloned();
        if let Some(given) = find(&environment).or_else(|| find(&from_file)) {
            words.extend(key.arguments(&given.values).into_iter().map(OsString::from));
        }
    }
    words.extend(arguments.iter().skip(2).cloned());
    let matches = Cli::command().try_get_matches_from(words)?;
    Ok(Resolved {
        cli: Cli::from_arg_matches(&matches)?,
        file,
        settings: settings(&matches, keys),
    })
}

/// The keys that differ.
pub(crate) fn changes<'a>(old: &'a [Setting], new: &'a [Setting]) -> impl Iterator<Item = &'a Key> {
    old.iter()
        .zip(new)
        .filter(|(old, new)| old.values != new.values)
        .map(|(_, new)| &new.key)
}

fn settings(matches: &ArgMatches, keys: Vec<Key>) -> Vec<Setting> {
    let run = matches.subcommand_matches("run");
    let values = |key: &Key| match run.and_then(|run| run.get_raw(key.id())) {
        Some(values) => values
            .map(|value| value.to_string_lossy().into_owned())
            .collect(),
        None => Vec::new(),
    };
    keys.into_iter()
        .map(|key| Setting {
            values: values(&key),
            key,
        })
        .collect()
}

/// Values that the variables give, and the file that they name.
fn from_environment(
    environment: impl Iterator<Item = (OsString, OsString)>,
    keys: &[Key],
    command: &ClapCommand,
) -> Result<(Vec<Given>, Option<PathBuf>), ConfigError> {
    let (mut all, mut file, mut problems) = (Vec::new(), None, Vec::new());
    for (variable, value) in environment {
        let Some(variable) = variable
            .to_str()
            .filter(|name| name.starts_with(ENVIRONMENT))
        else {
            continue;
        };
        if &variable[ENVIRONMENT.len()..] == "CONFIG" {
            file = Some(value.into());
            continue;
        }
        let result = match keys.iter().find(|key| key.variable() == variable) {
            Some(key) => from_variable(key, &value, command).map(|given| all.push(given)),
            None => Err(format!("no such variable{}", meant(variable, keys))),
        };
        problems.extend(result.err().map(|what| format!("{variable}: {what}")));
    }
    if problems.is_empty() {
        Ok((all, file))
    } else {
        problems.sort();
        Err(ConfigError::Problems(problems))
    }
}

fn from_variable(key: &Key, value: &OsStr, command: &ClapCommand) -> Result<Given, String> {
    let value = value.to_str().ok_or("is not UTF-8")?;
    let values = match key.form() {
        keys::Form::List => value.split(',').map(str::to_owned).collect(),
        _ => vec![value.to_owned()],
    };
    key.check(command, &values)?;
    Ok(Given {
        flag: key.flag().to_owned(),
        values,
    })
}

fn meant(variable: &str, keys: &[Key]) -> String {
    let name = |variable: &str| variable[ENVIRONMENT.len()..].to_owned();
    let likeness = |known: &String| strsim::jaro_winkler(&name(variable), &name(known));
    let known = keys.iter().map(Key::variable);
    match known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))) {
        Some(best) if likeness(&best) > 0.8 => format!(": did you mean {best}?"),
        _ => ": unset it, or see `springtide-collector config --default` for all keys".to_owned(),
    }
}

fn from_file(
    named: Option<PathBuf>,
    keys: &[Key],
    command: &ClapCommand,
) -> Result<(Option<PathBuf>, Vec<Given>), ConfigError> {
    let path = named.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
    let text = match file::text(path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok((None, Vec::new()));
        }
        Err(error) => {
            let what = format!("{}: cannot read the configuration: {error}", path.display());
            return Err(ConfigError::Problems(vec![what]));
        }
    };
    let given = file::parse(path, &text, keys, command).map_err(ConfigError::Problems)?;
    Ok((Some(path.to_owned()), given))
}
