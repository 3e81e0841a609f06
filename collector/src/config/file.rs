//! The configuration file: TOML, every complaint with its line.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{Form, Key};

/// Longer files are refused, bytes.
const LIMIT: u64 = 1 << 20;

/// A key with what somebody has given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The key's option.
    pub flag: String,
    /// Its values as on the command line.
    pub values: Vec<String>,
}

/// Reads the file's text, at most [`LIMIT`] bytes of it.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > LIMIT {
        let what = format!("it is longer than {LIMIT} bytes, so no configuration");
        return Err(io::Error::other(what));
    }
    fs::read_to_string(path)
}

/// Values that the file's text gives, or all its mistakes: for each a line that names `path`, the
/// line, the key and what to do.
pub(crate) fn parse(
    path: &Path,
    text: &str,
    keys: &[Key],
    command: &Command,
) -> Result<Vec<Given>, Vec<String>> {
    let mut reader = Reader {
        path,
        text,
        keys,
        command,
        given: Vec::new(),
        problems: Vec::new(),
    };
    match DeTable::parse(text) {
        Ok(table) => reader.top(table.get_ref()),
        Err(error) => {
            let what = error
                .message()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            reader.problem(
                error.span().unwrap_or_default().start,
                &format!("not valid TOML: {what}"),
            );
        }
    }
    if reader.problems.is_empty() {
        return Ok(reader.given);
    }
    reader.problems.sort_by_key(|(offset, _)| *offset);
    Err(reader
        .problems
        .into_iter()
        .map(|(_, problem)| problem)
        .collect())
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    keys: &'a [Key],
    command: &'a Command,
    given: Vec<Given>,
    problems: Vec<(usize, String)>,
}

impl Reader<'_> {
    fn problem(&mut self, offset: usize, what: &str) {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let path = self.path.display();
        self.problems
            .push((offset, format!("{path}: line {line}: {what}")));
    }

    fn top(&mut self, table: &DeTable<'_>) {
        for (name, value) in table {
            let section = self
                .keys
                .iter()
                .map(Key::section)
                .find(|section| !section.is_empty() && section == name.get_ref());
            match (section, value.get_ref()) {
                (Some(section), DeValue::Table(table)) => {
                    for (name, value) in table {
                        self.key(section, name, value);
                    }
                }
                (Some(section), _) => {
                    let what =
                        format!("{section} is a section: write [{section}] and its keys below");
                    self.problem(name.span().start, &what);
                }
                (None, _) => self.key("", name, value),
            }
        }
    }

    fn key(
        &mut self,
        section: &str,
        name: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let (offset, name) = (name.span().start, name.get_ref().as_ref());
        let keys = self.keys;
        let Some(key) = keys
            .iter()
            .find(|key| key.section() == section && key.name() == name)
        else {
            let what = match value.get_ref() {
                DeValue::Table(_) if section.is_empty() => format!("unknown section [{name}]"),
                _ => format!("unknown key '{name}'{}", within(section)),
            };
            let fix = advice(section, name, keys);
            return self.problem(offset, &format!("{what}: {fix}"));
        };
        let checked = values(key, value.get_ref())
            .and_then(|values| key.check(self.command, &values).map(|()| values));
        match checked {
            Ok(values) => self.given.push(Given {
                flag: key.flag().to_owned(),
                values,
            }),
            Err(what) => self.problem(offset, &format!("{}: {what}", key.path())),
        }
    }
}

fn within(section: &str) -> String {
    if section.is_empty() {
        String::new()
    } else {
        format!(" in [{section}]")
    }
}

/// Suggests what somebody may have meant.
fn advice(section: &str, name: &str, keys: &[Key]) -> String {
    let likeness = |key: &Key| {
        let elsewhere = if key.section() == section { 0.0 } else { 0.05 };
        strsim::jaro_winkler(name, key.name()) - elsewhere
    };
    // The first of several keys that are equally alike.
    let best = keys
        .iter()
        .rev()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match best {
        Some(key) if likeness(key) > 0.8 => {
            format!("did you mean '{}'{}?", key.name(), within(key.section()))
        }
        _ => "remove it, or see `springtide-collector config --default` for all keys".to_owned(),
    }
}

/// A TOML value as the command line's words.
fn values(key: &Key, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let example = || {
        let defaults = key.defaults();
        defaults
            .first()
            .map_or_else(String::new, |default| format!(", such as {default}"))
    };
    match (key.form(), value) {
        (Form::Truth, DeValue::Boolean(truth)) => Ok(vec![truth.to_string()]),
        (Form::Truth, _) => Err("must be true or false, without quotes".to_owned()),
        (Form::Number, DeValue::Integer(_) | DeValue::Float(_)) => Ok(vec![scalar(value)?]),
        (Form::Number, _) => Err(format!("must be a number, without quotes{}", example())),
        (Form::List, DeValue::Array(array)) => {
            array.iter().map(|item| scalar(item.get_ref())).collect()
        }
        (Form::List, DeValue::Table(table)) => {
            let mut pairs = Vec::new();
            flatten("", table, &mut pairs)?;
            Ok(pairs)
        }
        (Form::List, _) => Ok(vec![scalar(value)?]),
        (Form::Text, DeValue::Array(array)) => {
            let items: Result<Vec<_>, _> =
                array.iter().map(|item| scalar(item.get_ref())).collect();
            Ok(vec![items?.join(",")])
        }
        (Form::Text, DeValue::String(_) | DeValue::Integer(_)) => Ok(vec![scalar(value)?]),
        (Form::Text, _) => Err("must be text in quotes".to_owned()),
    }
}

fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Integer(_) => Err("must be a decimal number".to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Ok(truth.to_string()),
        DeValue::Datetime(_) => Err("cannot be a date".to_owned()),
        DeValue::Array(_) | DeValue::Table(_) => {
            Err("cannot hold a list or a table here".to_owned())
        }
    }
}

/// A table of options as NAME=VALUE; dotted names come as tables within tables.
fn flatten(prefix: &str, table: &DeTable<'_>, pairs: &mut Vec<String>) -> Result<(), String> {
    for (name, value) in table {
        let name = format!("{prefix}{}", name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => flatten(&format!("{name}."), inner, pairs)?,
            value => pairs.push(format!("{name}={}", scalar(value)?)),
        }
    }
    Ok(())
}
