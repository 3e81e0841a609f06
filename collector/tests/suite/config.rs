//! The configuration of `run`: file, environment and command line, and the messages for mistakes.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::common::program;
use springtide_collector::parts::keys;
use tempfile::TempDir;

/// A directory with a configuration file.
struct Configuration {
    _directory: TempDir,
    path: PathBuf,
}

fn configuration(text: &str) -> Configuration {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("collector.toml");
    fs::write(&path, text).unwrap();
    Configuration {
        _directory: directory,
        path,
    }
}

impl Configuration {
    /// `run --check-config` on it.
    fn check(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        program()
            .args(["run", "--check-config", "--config"])
            .arg(&self.path)
            .env("SPRINGTIDE_COLLECTOR_SPOOL_DIR", "/x")
            .args(arguments)
            .envs(environment.iter().copied())
            .output()
            .unwrap()
    }

    /// The configuration in force, as lines.
    fn effective(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
        let output = self.check(arguments, environment);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        stdout.lines().map(str::to_owned).collect()
    }

    /// The errors, without the path.
    fn problems(&self, environment: &[(&str, &str)]) -> Vec<String> {
        let output = self.check(&[], environment);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(output.stdout.is_empty());
        let path = format!("{}: ", self.path.display());
        let lines = stderr.lines().map(|line| {
            let line = line.strip_prefix("springtide-collector: ").unwrap();
            line.strip_prefix(&path).unwrap_or(line).to_owned()
        });
        lines.collect()
    }
}

fn has(lines: &[String], line: &str) {
    assert!(
        lines.iter().any(|has| has == line),
        "{line} is not in {lines:#?}"
    );
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let file = configuration(
        "host = 'file'\npop = 'file'\ninterval = '7s'\n[spool]\nrotate_bytes = 4096\n",
    );
    let environment = [
        ("SPRINGTIDE_COLLECTOR_HOST", "environment"),
        ("SPRINGTIDE_COLLECTOR_POP", "environment"),
    ];
    let lines = file.effective(&["--host", "line"], &environment);
    for line in [
        "host = \"line\"",
        "pop = \"environment\"",
        "interval = \"7s\"",
        "rotate_bytes = \"4096\"",
        "rotate_interval = \"60s\"",
        "states = \"default\"",
    ] {
        has(&lines, line);
    }
}

#[test]
fn a_list_may_be_written_as_one() {
    let file = configuration("states = ['established', 'close-wait']");
    has(
        &file.effective(&[], &[]),
        "states = \"established,close-wait\"",
    );
}

#[test]
fn the_file_may_be_named_by_the_environment() {
    let file = configuration("host = 'named'");
    let output = program()
        .args(["run", "--spool-dir", "/x", "--check-config"])
        .env("SPRINGTIDE_COLLECTOR_CONFIG", &file.path)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("host = \"named\""));
}

#[test]
fn the_printed_configuration_is_equivalent() {
    let environment = [("SPRINGTIDE_COLLECTOR_SPOOL_DIR", "/x \"y\" \\z")];
    let file = configuration("host = 'a'\ninterval = '250ms'\n");
    let lines = file.effective(&["--pop", "ams"], &environment);
    has(&lines, "[spool]");
    has(&lines, r#"dir = "/x \"y\" \\z""#);
    let again = configuration(&lines.join("\n")).effective(&[], &environment);
    assert_eq!(lines[1..], again[1..]);
}

#[test]
fn the_default_file_changes_nothing_and_names_every_key() {
    let output = program().args(["config", "--default"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let defaults = configuration("").effective(&[], &[]);
    assert_eq!(configuration(&text).effective(&[], &[])[1..], defaults[1..]);
    // With its comments taken away every key that has a default is there as it is in force.
    let set: String = text
        .lines()
        .filter(|line| !line.starts_with("# ") && !line.ends_with('='))
        .map(|line| format!("{}\n", line.trim_start_matches('#')))
        .collect();
    assert_eq!(configuration(&set).effective(&[], &[])[1..], defaults[1..]);
    for key in keys() {
        let line = format!("\n#{} =", key.name());
        assert!(text.contains(&line), "{line} is not in {text}");
        assert!(!key.help().is_empty(), "{} has no description", key.path());
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn every_mistake_is_one_line_with_its_place_and_what_to_do() {
    for (text, message) in [
        (
            "intervall = '1s'",
            "line 1: unknown key 'intervall': did you mean 'interval'?",
        ),
        ("\n\n[spol]\ndir = 'x'", "line 3: unknown section [spol]: "),
        (
            "dir = 'x'",
            "line 1: unknown key 'dir': did you mean 'dir' in [spool]?",
        ),
        (
            "[spool]\nhost = 'x'",
            "line 2: unknown key 'host' in [spool]: did you mean 'host'?",
        ),
        (
            "frobnicate = true",
            "line 1: unknown key 'frobnicate': remove it, or see `springtide-collector config --default` for all keys",
        ),
        (
            "spool = 3",
            "line 1: spool is a section: write [spool] and its keys below",
        ),
        ("host = true", "line 1: host: must be text in quotes"),
        (
            "interval = 5",
            "line 1: interval: '5' is not a valid time: use a number with ms, s, m, h or d, from 1ms to 24h",
        ),
        (
            "# x\ninterval = '25h'",
            "line 2: interval: '25h' is not a valid time: use a number with ms, s, m, h or d, from 1ms to 24h",
        ),
        (
            "pop = 'AMS'",
            "line 1: pop: a PoP's name has at most 63 lower-case letters, digits and '-'",
        ),
        (
            "[spool]\nrotate_bytes = -1",
            "line 2: spool.rotate_bytes: '-1' is not a valid size: ",
        ),
        (
            "spool.rotate_bytes = 0x10",
            "line 1: spool.rotate_bytes: must be a decimal number",
        ),
        ("host = 1979-05-27", "line 1: host: must be text in quotes"),
        (
            "host = [['a']]",
            "line 1: host: cannot hold a list or a table here",
        ),
        (
            "host = 'a'\nhost = 'b'",
            "line 2: not valid TOML: duplicate key",
        ),
        ("host = ", "line 1: not valid TOML: "),
        ("polls = 3", "line 1: unknown key 'polls': "),
    ] {
        let problems = configuration(text).problems(&[]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with(message),
            "{message} is not the start of {problems:?}"
        );
    }
}

#[test]
fn a_configuration_that_sends_nowhere_is_refused() {
    let file = configuration("host = 'a'");
    let output = program()
        .args(["run", "--check-config", "--config"])
        .arg(&file.path)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("no sink is given: use one or more of --spool-dir"),
        "{stderr}"
    );
}

#[cfg(feature = "kafka")]
#[test]
fn secrets_are_refused_where_others_can_see_them() {
    let file = configuration("kafka.brokers = 'k:9092'\nkafka.option = ['client.id=x']");
    let output = file.check(&["--kafka-option", "sasl.password=hunter2"], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("sasl.password is a secret: put it into the file"),
        "{stderr}"
    );

    // Dotted names are allowed.
    let text = "[kafka]\nbrokers = 'k:9092'\n[kafka.option]\nsecurity.protocol = 'ssl'\n'ssl.ca.location' = 'ca.pem'";
    let lines = configuration(text).effective(&[], &[]);
    let option = lines
        .iter()
        .find(|line| line.starts_with("option = "))
        .unwrap();
    assert!(
        option.contains("\"security.protocol=ssl\"")
            && option.contains("\"ssl.ca.location=ca.pem\""),
        "{option}"
    );
}

#[test]
fn all_mistakes_are_reported_at_once_in_their_order() {
    let problems = configuration("zzz = 1\ninterval = 'x'\nhost = ''\n").problems(&[]);
    let lines: Vec<_> = problems
        .iter()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert_eq!(lines, ["line 1", "line 2", "line 3"]);
}

#[test]
fn the_environment_is_checked_as_the_file_is() {
    let file = configuration("");
    for (variable, value, message) in [
        (
            "SPRINGTIDE_COLLECTOR_INTERVAL",
            "x",
            "SPRINGTIDE_COLLECTOR_INTERVAL: 'x' is not a valid time: ",
        ),
        (
            "SPRINGTIDE_COLLECTOR_INTERVALL",
            "1s",
            "SPRINGTIDE_COLLECTOR_INTERVALL: no such variable: did you mean SPRINGTIDE_COLLECTOR_INTERVAL?",
        ),
        (
            "SPRINGTIDE_COLLECTOR_X",
            "1",
            "SPRINGTIDE_COLLECTOR_X: no such variable: unset it, ",
        ),
    ] {
        let problems = file.problems(&[(variable, value)]);
        assert!(
            problems[0].starts_with(message),
            "{message} is not the start of {problems:?}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_reported() {
    let long = configuration(&"#".repeat((1 << 20) + 1));
    for (path, message) in [
        (
            "/nonexistent/x.toml",
            "/nonexistent/x.toml: cannot read the configuration: No such file",
        ),
        ("/", "/: cannot read the configuration: Is a directory"),
        (
            long.path.to_str().unwrap(),
            "cannot read the configuration: it is longer than 1048576 bytes",
        ),
    ] {
        let output = program().args(["run", "--config", path]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.starts_with("springtide-collector: ") && stderr.contains(message),
            "{stderr}"
        );
    }
}
