//! The configuration as text: what is in force, and a file to begin with.

use super::keys::{Form, Key, keys};
use super::resolve::Resolved;
use crate::options::Reload;

/// The configuration in force, as a file that gives the same.
pub(crate) fn effective(resolved: &Resolved) -> String {
    let mut out = match &resolved.file {
        Some(file) => format!(
            "# from {}, the environment and the command line\n",
            file.display()
        ),
        None => "# from the environment and the command line: there is no configuration file\n"
            .to_owned(),
    };
    let mut section = "";
    for setting in &resolved.settings {
        head(&setting.key, &mut section, &mut out);
        line(&setting.key, &setting.values, &mut out);
    }
    out
}

/// Values of the Debian package: directories that its unit may write, and metrics for this host.
const PACKAGED: [(&str, &str); 3] = [
    ("spool.dir", "/var/lib/springtide-collector/spool"),
    ("queue.dir", "/var/lib/springtide-collector/queue"),
    ("http.listen", "127.0.0.1:9462"),
];

/// A file in which every key stands with its meaning and its default, which is not set.
pub(crate) fn default_file() -> String {
    file(&[])
}

/// The same as the Debian package brings it.
pub fn packaged_file() -> String {
    file(&PACKAGED)
}

fn file(set: &[(&str, &str)]) -> String {
    let mut out = String::from(
        "# Configuration of springtide-collector.\n\
         # Values behind a '#' are the defaults. Options and the environment go before this file:\n\
         # see springtide-collector-run(1). SIGHUP reads it again; a file with a mistake changes nothing.\n",
    );
    let mut section = "";
    for key in keys() {
        head(&key, &mut section, &mut out);
        out.push('\n');
        for line in wrap(&key.help(), 110) {
            out.push_str(&format!("# {line}\n"));
        }
        let choices = key.choices();
        if !choices.is_empty() {
            out.push_str(&format!("# One of: {}\n", choices.join(", ")));
        }
        if key.reload() != Reload::Restart {
            out.push_str("# Changes by SIGHUP.\n");
        }
        let path = key.path();
        if let Some((_, value)) = set.iter().find(|(set, _)| *set == path) {
            line(&key, &[(*value).to_owned()], &mut out);
            continue;
        }
        let mut default = String::new();
        line(&key, &key.defaults(), &mut default);
        out.push_str(if default.starts_with('#') { "" } else { "#" });
        out.push_str(&default);
    }
    out
}

fn head(key: &Key, section: &mut &'static str, out: &mut String) {
    if key.section() != *section {
        *section = key.section();
        out.push_str(&format!("\n[{section}]\n"));
    }
}

/// `key = value`; a key that is not set as a comment.
fn line(key: &Key, values: &[String], out: &mut String) {
    let name = key.name();
    let text = match (key.form(), values) {
        (Form::Truth, values) => format!("{name} = {}", values == ["true"]),
        (Form::List, values) if !values.is_empty() => {
            let items: Vec<_> = values
                .iter()
                .map(|value| quoted(&redacted(value)))
                .collect();
            format!("{name} = [{}]", items.join(", "))
        }
        (Form::Number, [value]) => format!("{name} = {value}"),
        (_, [value]) => format!("{name} = {}", quoted(value)),
        (Form::List, _) => format!("#{name} = []"),
        _ => format!("#{name} ="),
    };
    out.push_str(&text);
    out.push('\n');
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// An option NAME=VALUE whose name is that of a secret, without the value.
fn redacted(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _))
            if ["password", "secret", "token"]
                .iter()
                .any(|word| name.contains(word)) =>
        {
            format!("{name}=<redacted>")
        }
        _ => pair.to_owned(),
    }
}

/// The text in lines of at most `width` characters, where its words allow that.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
