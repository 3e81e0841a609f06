//! What is generated from the code and checked in: manual pages, the packaged configuration, and the reference. A file that
//! differs is written anew when SPRINGTIDE_UPDATE is set, and is a failure otherwise.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use springtide_collector::parts::Reload;
use springtide_collector::parts::packaged_file;
use springtide_collector::parts::sample_page;
use springtide_collector::parts::{self, Key, keys};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares the file with what it should be.
fn hold(path: &str, expected: &str) {
    let file = root().join(path);
    if fs::read_to_string(&file).is_ok_and(|found| found == expected) {
        return;
    }
    assert!(
        std::env::var_os("SPRINGTIDE_UPDATE").is_some(),
        "{path} does not match the code: run SPRINGTIDE_UPDATE=1 cargo test -p springtide-collector --test suite docs"
    );
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, expected).unwrap();
}

fn program() -> Command {
    let mut program = parts::program().term_width(100);
    program.build();
    program
}

#[test]
fn manual_pages() {
    let program = program();
    let mut pages = vec![(program.get_name().to_owned(), program.clone())];
    for command in program
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        let name = format!("{}-{}", program.get_name(), command.get_name());
        // The page's own name has a dash where the command line has a space.
        pages.push((name.clone(), command.clone().name(&*name.clone().leak())));
    }
    for (name, command) in pages {
        let mut page = Vec::new();
        let date = "Springtide";
        let version = format!("springtide-collector {}", env!("CARGO_PKG_VERSION"));
        clap_mangen::Man::new(command)
            .title(name.to_uppercase())
            .date(date)
            .source(version)
            .manual("Springtide")
            .render(&mut page)
            .unwrap();
        hold(
            &format!("collector/packaging/man/{name}.1"),
            &String::from_utf8(page).unwrap(),
        );
    }
}

#[test]
fn packaged_configuration() {
    hold("collector/packaging/collector.toml", &packaged_file());
}

#[test]
fn reference() {
    let mut text = String::from(
        "# springtide-collector: reference\n\n\
         Generated from the code; a test fails when they differ. How to use it: [run the collector](../how-to/run-the-collector.md).\n\n\
         - [Commands](#commands)\n- [Configuration](#configuration)\n- [HTTP](#http)\n- [Metrics](#metrics)\n- [Signals and exit codes](#signals-and-exit-codes)\n\n\
         ## Commands\n",
    );
    for command in program()
        .get_subcommands_mut()
        .filter(|command| command.get_name() != "help")
    {
        let help = command.render_long_help().to_string();
        let help: Vec<_> = help.lines().map(str::trim_end).collect();
        text += &format!(
            "\n### {}\n\n```text\n{}\n```\n",
            command.get_name(),
            help.join("\n").trim_end()
        );
    }
    text += CONFIGURATION;
    for key in keys() {
        text += &row(&key);
    }
    text += HTTP;
    for (name, kind, help) in described() {
        text += &format!("| `{name}` | {kind} | {} |\n", cell(&help));
    }
    text += SIGNALS;
    hold("docs/reference/collector.md", &text);
}

const CONFIGURATION: &str = "\n## Configuration\n\n\
`run` takes each value from the first of these that has it: the command line, the environment, the configuration file (`--config FILE`,\n\
or `/etc/springtide/collector.toml` if it exists), the default. The file is TOML; `spool.dir` is the key `dir` in the section `[spool]`.\n\
Lists may be written as lists, properties (`kafka.option`) as a table. A variable's name is the option's with `SPRINGTIDE_COLLECTOR_` before it:\n\
`SPRINGTIDE_COLLECTOR_SPOOL_DIR`; `SPRINGTIDE_COLLECTOR_CONFIG` names the file.\n\n\
An unknown key, or an invalid value, is an error with file, line and key, exit code 2. `run --check-config` reports all of\n\
them, or prints what is in force; `config --default` prints a file to begin with.\n\n\
Keys with SIGHUP in the third column change while the collector runs; others wait for a restart, and the collector logs that.\n\n\
| key | option | SIGHUP | default | what |\n|---|---|---|---|---|\n";

const HTTP: &str = "\n## HTTP\n\n\
With `http.listen` set; GET and HEAD, at most 16 connections at a time, each for at most 5 s.\n\n\
| path | answer |\n|---|---|\n\
| `/metrics` | 200, Prometheus' text format |\n\
| `/healthz` | 200 `{\"status\":\"ok\",\"reasons\":[]}`, or 503 `{\"status\":\"failing\",\"reasons\":[{\"check\":...,\"reason\":...}]}` |\n\n\
The collector is healthy when polls succeed, and each sink makes progress or the queue has room for it. So it is failing when\n\
no poll has succeeded for 10 s or three intervals, whichever is longer; and when a sink has taken nothing for 60 s while rows for it were\n\
lost, or the queue is full (85 % of `queue.bytes`) or cannot be written.\n\n\
## Metrics\n\n\
For every sink, at every moment: `rows_read_total + rows_recovered_total = rows_delivered_total + rows_spooled + sum of rows_dropped_total`.\n\n\
| metric | type | what |\n|---|---|---|\n";

const SIGNALS: &str = "\n## Signals and exit codes\n\n\
| signal | effect on `run` |\n|---|---|\n\
| SIGTERM, SIGINT | delivers what it has (remote sinks have 4 s; the rest stays in the queue) and ends with 0; a second one ends it at once, with 1 |\n\
| SIGHUP | reads the configuration again; a bad one is refused and changes nothing |\n\n\
`top` ends with 0 on request (`q`, SIGTERM, SIGINT, SIGHUP), also where its output is blocked, and when its terminal is hung up;\n\
with 1 when the terminal can no longer be read. A terminal that exists is restored. The other commands end as any\n\
program does.\n\n\
| code | meaning |\n|---|---|\n\
| 0 | done |\n| 1 | failed while running; `cat` met a corrupt record |\n| 2 | bad input or usage |\n\n\
It notifies a service manager by sd_notify(3): `READY=1` after the first poll, `RELOADING=1`, `STOPPING=1`, and `WATCHDOG=1` while it runs.\n";

fn row(key: &Key) -> String {
    let default = match key.defaults().join(",") {
        default if default.is_empty() => String::new(),
        default => format!("`{default}`"),
    };
    let mut help = key.help();
    let choices = key.choices();
    if !choices.is_empty() {
        help += &format!("; one of `{}`", choices.join("`, `"));
    }
    let reload = if key.reload() != Reload::Restart {
        "yes"
    } else {
        ""
    };
    format!(
        "| `{}` | `--{}` | {reload} | {default} | {} |\n",
        key.path(),
        key.flag(),
        cell(&help)
    )
}

/// Text for a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Every metric on the page: name, type, description.
fn described() -> Vec<(String, String, String)> {
    let page = sample_page();
    let mut found = Vec::new();
    let mut help = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap().1;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let labels = page.lines().find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix('{')?
                    .split('}')
                    .next()
            });
            let labels = labels.map(names).unwrap_or_default();
            found.push((format!("{name}{labels}"), kind.to_owned(), help.to_owned()));
        }
    }
    found
}

/// `{sink="a",cause="b"}` without the values.
fn names(labels: &str) -> String {
    let names: Vec<_> = labels
        .split(',')
        .filter_map(|label| label.split('=').next())
        .collect();
    format!("{{{}}}", names.join(","))
}
