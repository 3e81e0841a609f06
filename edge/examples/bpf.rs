//! The eBPF enforcement alone, for tests and benches: a bundle's values as plain JSON, without signature or state.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use serde_json::Value;
use springtide_edge::bundle::{Bundle, Live};
use springtide_edge::enforce::bpf::{self, Places, Reader};

#[derive(Parser)]
struct Options {
    /// A directory of cgroup2.
    #[arg(long, global = true, default_value = "/sys/fs/cgroup")]
    cgroup: PathBuf,
    /// A directory of a BPF file system.
    #[arg(long, global = true, default_value = "/sys/fs/bpf/springtide")]
    pins: PathBuf,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Puts the values of a file in force.
    Apply { file: PathBuf },
    /// Prints what there is.
    Status,
    /// Removes everything.
    Withdraw {
        /// Switched connections get the host's congestion control back.
        #[arg(long)]
        restore: bool,
    },
    /// Says whether this host can.
    Support,
    /// Prints first-flight records, one JSON a line.
    Records {
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    let places = Places {
        cgroup: options.cgroup.clone(),
        pins: options.pins.clone(),
    };
    Ok(match &options.task {
        Task::Apply { file } => {
            let text = fs::read_to_string(file)?;
            let bundle = bundle(serde_json::from_str(&text)?, text)?;
            let begin = Instant::now();
            let applied = bpf::apply(&bundle, &places)?;
            let mut value = serde_json::to_value(applied)?;
            value["seconds"] = begin.elapsed().as_secs_f64().into();
            format!("{value}\n")
        }
        Task::Status => format!("{}\n", serde_json::to_string(&bpf::status(&places)?)?),
        Task::Withdraw { restore } => {
            let live = if *restore { Live::Restore } else { Live::Leave };
            format!(
                "{}\n",
                serde_json::to_string(&bpf::withdraw(&places, live)?)?
            )
        }
        Task::Support => {
            bpf::supported(&places)?;
            "this host can run the program\n".to_owned()
        }
        Task::Records { seconds } => {
            let reader = Reader::open(&places)?;
            let end = Instant::now() + Duration::from_secs_f64(*seconds);
            let mut text = String::new();
            while Instant::now() < end {
                for record in reader.read(Duration::from_millis(50))? {
                    text += &format!("{}\n", serde_json::to_string(&record)?);
                }
            }
            text
        }
    })
}

/// `entries` and, beside them, what `enforce` has; `round` and `expires_in_s`.
fn bundle(mut value: Value, digest: String) -> Result<Bundle, Box<dyn Error>> {
    let given = value.as_object_mut().ok_or("is not an object")?;
    let mut take = |name: &str| given.remove(name).unwrap_or_default();
    let (round, ends) = (take("round"), take("expires_in_s"));
    let entries = match take("entries") {
        Value::Null => Vec::new(),
        entries => serde_json::from_value(entries)?,
    };
    for (name, value) in [("by", "bpf"), ("live", "leave"), ("otherwise", "default")] {
        given.insert(name.to_owned(), value.into());
    }
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    Ok(Bundle {
        edge: "edge".to_owned(),
        pop: "pop".to_owned(),
        round: round.as_i64().unwrap_or(1),
        policy_version: "0".to_owned(),
        created_at: now,
        expires_at: now + ends.as_i64().unwrap_or(3600),
        digest,
        enforce: serde_json::from_value(value)?,
        entries,
        schema_version: 1,
    })
}
