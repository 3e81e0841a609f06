//! The eBPF enforcement alone, for tests and benches: a bundle's values as plain JSON, without signature or state.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use ipnet::IpNet;
use serde_json::Value;
use springtide_edge::bundle::{
    Brake, Bundle, Congestion, Enforce, Entry, Lift, Live, Otherwise, OwnSide, Trial, Way,
};
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
    Probe,
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
            let bundle = bundle(&serde_json::from_str(&text)?, text)?;
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
        Task::Probe => {
            bpf::probe(&places)?;
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

fn number<T: TryFrom<u64>>(value: &Value) -> Option<T> {
    value.as_u64().and_then(|number| T::try_from(number).ok())
}

fn net(value: &Value) -> Result<IpNet, Box<dyn Error>> {
    Ok(value.as_str().unwrap_or_default().parse()?)
}

fn all<T>(
    value: &Value,
    read: impl Fn(&Value) -> Result<T, Box<dyn Error>>,
) -> Result<Vec<T>, Box<dyn Error>> {
    value
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .map(read)
        .collect()
}

fn bundle(value: &Value, digest: String) -> Result<Bundle, Box<dyn Error>> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    let lift = &value["lift"];
    let brake = &value["brake"];
    let enforce = Enforce {
        by: Way::Bpf,
        otherwise: Otherwise::Default,
        live: Live::Leave,
        excluded: all(&value["excluded"], net)?,
        opted_out: all(&value["opted_out"], |own| {
            Ok(OwnSide {
                port: number(&own["port"]),
                prefix: own["prefix"].as_str().map(str::parse).transpose()?,
            })
        })?,
        lift: Lift {
            bytes: number(&lift["bytes"]).unwrap_or(60_000),
            round_trips: number(&lift["round_trips"]),
        },
        brake: number(&brake["lost_permille"]).map(|lost_permille| Brake {
            lost_permille,
            connections: number(&brake["connections"]).unwrap_or(1),
            half_life_s: number(&brake["half_life_s"]).unwrap_or(60),
        }),
        record_permille: number(&value["record_permille"]).unwrap_or(0),
    };
    Ok(Bundle {
        edge: "edge".to_owned(),
        pop: "pop".to_owned(),
        round: value["round"].as_i64().unwrap_or(1),
        policy_version: "0".to_owned(),
        created_at: now,
        expires_at: now + value["expires_in_s"].as_i64().unwrap_or(3600),
        digest,
        enforce,
        entries: all(&value["entries"], entry)?,
    })
}

fn entry(value: &Value) -> Result<Entry, Box<dyn Error>> {
    let congestion = &value["congestion"];
    let trial = &value["trial"];
    Ok(Entry {
        prefix: net(&value["prefix"])?,
        initcwnd: number(&value["initcwnd"]),
        start_rate: number(&value["start_rate"]),
        connection_rate: number(&value["connection_rate"]),
        congestion: congestion["algorithm"]
            .as_str()
            .map(|algorithm| Congestion {
                algorithm: algorithm.to_owned(),
                from_bytes: number(&congestion["from_bytes"]).unwrap_or(0),
                always: false,
            }),
        receive_window: number(&value["receive_window"]),
        default_resent: number(&value["default_resent"]),
        trial: number(&trial["permille"]).map(|permille| Trial {
            permille,
            initcwnd: number(&trial["initcwnd"]),
            start_rate: number(&trial["start_rate"]),
            connection_rate: number(&trial["connection_rate"]),
        }),
    })
}
