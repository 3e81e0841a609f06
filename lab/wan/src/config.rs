//! The JSON file: nodes, the paths between their PoPs, and what is wrong with it.
//!
//! Longer than 400 lines: a quarter of it is the table of faults that its tests go through.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::loss::LossModel;
use crate::units::{Megabits, Milliseconds, Probability, QueueBytes, QueuePackets};

/// A topology of 1,000 PoPs has a million paths; its file is smaller than this.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// A file that cannot be used: which, where in it, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot be read: {source}; give a readable file", .file.display())]
    Unreadable {
        file: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: is larger than {MAX_FILE_BYTES} bytes; describe a smaller network", .file.display())]
    TooLarge { file: PathBuf },
    #[error("{}: {field}: {message}", .file.display())]
    Field {
        file: PathBuf,
        field: String,
        message: String,
    },
}

/// A checked network: names and addresses are unique, and every ordered pair of PoPs has one path.
#[derive(Debug)]
pub struct Network {
    pub seed: u64,
    /// Bytes that all paths together may hold; beyond it packets are dropped.
    pub max_in_flight_bytes: u64,
    pub nodes: Vec<Node>,
    pub pops: Vec<String>,
    /// Row by source PoP, column by destination PoP, in the order of `pops`; the diagonal is the path inside a PoP.
    pub paths: Vec<Shape>,
}

/// One namespace and its device.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    /// The name of a namespace under /run/netns, or a path.
    pub netns: String,
    pub tun: String,
    /// Its place in `Network::pops`.
    pub pop: usize,
    pub addresses: Vec<IpAddr>,
}

/// Effects of a path on packets. Its one-way delay is `delay` plus a uniform draw from 0 to `jitter`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    #[serde(rename = "delay_ms")]
    pub delay: Milliseconds,
    #[serde(rename = "jitter_ms", default)]
    pub jitter: Milliseconds,
    #[serde(default)]
    pub loss: Option<LossModel>,
    /// Without a rate nothing queues.
    #[serde(rename = "rate_mbit", default)]
    pub rate: Option<Megabits>,
    /// Packets leave the link at random: the times that they take are exponential, with the rate as their mean.
    #[serde(default)]
    pub poisson: bool,
    /// Packets that exceed it are dropped before they come to the queue.
    #[serde(default)]
    pub policer: Option<Policer>,
    #[serde(default)]
    pub queue_bytes: QueueBytes,
    /// Beside `queue_bytes`: a packet that finds either full is dropped.
    #[serde(default)]
    pub queue_packets: Option<QueuePackets>,
    #[serde(default)]
    pub duplicate: Probability,
}

/// A token bucket without a queue (the single rate of RFC 2697).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policer {
    #[serde(rename = "rate_mbit")]
    pub rate: Megabits,
    /// Depth of the bucket; it begins full.
    pub burst_bytes: QueueBytes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    seed: u64,
    #[serde(default = "default_in_flight")]
    max_in_flight_bytes: u64,
    nodes: Vec<NodeEntry>,
    intra: Shape,
    paths: Vec<PathEntry>,
}

/// One second at 2 Gbit/s, which is more than one thread forwards.
fn default_in_flight() -> u64 {
    256 << 20
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    name: String,
    netns: String,
    tun: String,
    pop: String,
    addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathEntry {
    src: String,
    dst: String,
    shape: Shape,
}

/// Reads and checks a file.
pub fn load(file: &Path) -> Result<Network, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        file: file.into(),
        source,
    };
    if fs::metadata(file).map_err(unreadable)?.len() > MAX_FILE_BYTES {
        return Err(ConfigError::TooLarge { file: file.into() });
    }
    let text = fs::read(file).map_err(unreadable)?;
    parse(&text).map_err(|(field, message)| ConfigError::Field {
        file: file.into(),
        field,
        message,
    })
}

type Fault = (String, String);

fn parse(text: &[u8]) -> Result<Network, Fault> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let entries: File = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| (error.path().to_string(), error.inner().to_string()))?;
    json.end()
        .map_err(|error| ("end of file".to_string(), error.to_string()))?;
    check(entries)
}

fn check(file: File) -> Result<Network, Fault> {
    if file.nodes.is_empty() {
        return Err(("nodes".into(), "is empty; give at least one node".into()));
    }
    let pops = pops_of(&file.nodes);
    let paths = matrix(&pops, file.intra, &file.paths)?;
    Ok(Network {
        seed: file.seed,
        max_in_flight_bytes: file.max_in_flight_bytes,
        nodes: nodes(file.nodes, &pops)?,
        pops,
        paths,
    })
}

/// PoPs in the order in which the nodes name them.
fn pops_of(nodes: &[NodeEntry]) -> Vec<String> {
    let mut pops: Vec<String> = Vec::new();
    for node in nodes {
        if !pops.contains(&node.pop) {
            pops.push(node.pop.clone());
        }
    }
    pops
}

fn nodes(entries: Vec<NodeEntry>, pops: &[String]) -> Result<Vec<Node>, Fault> {
    let mut names = HashMap::new();
    let mut addresses = HashMap::new();
    let mut nodes = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        // IFNAMSIZ in linux/if.h, less the final zero.
        if entry.tun.is_empty() || entry.tun.len() > 15 || entry.tun.contains(['/', '%', ' ']) {
            let message = format!(
                "'{}' is not a device name; use 1 to 15 letters and digits",
                entry.tun
            );
            return Err((format!("nodes[{index}].tun"), message));
        }
        if entry.addresses.is_empty() {
            let message = "is empty; a node without an address gets no packets".to_string();
            return Err((format!("nodes[{index}].addresses"), message));
        }
        if let Some(first) = names.insert(entry.name.clone(), index) {
            let message = format!(
                "'{}' is also nodes[{first}]; give each node a name of its own",
                entry.name
            );
            return Err((format!("nodes[{index}].name"), message));
        }
        for (place, address) in entry.addresses.iter().enumerate() {
            if let Some(first) = addresses.insert(*address, index) {
                let message =
                    format!("{address} is also at nodes[{first}]; an address belongs to one node");
                return Err((format!("nodes[{index}].addresses[{place}]"), message));
            }
        }
        nodes.push(Node {
            pop: pops
                .iter()
                .position(|pop| *pop == entry.pop)
                .unwrap_or_default(),
            name: entry.name,
            netns: entry.netns,
            tun: entry.tun,
            addresses: entry.addresses,
        });
    }
    Ok(nodes)
}

fn matrix(pops: &[String], intra: Shape, entries: &[PathEntry]) -> Result<Vec<Shape>, Fault> {
    let place = |index: usize, field: &str, name: &str| {
        pops.iter().position(|pop| pop == name).ok_or_else(|| {
            (
                format!("paths[{index}].{field}"),
                format!("no node stands in PoP '{name}'; name a node's pop"),
            )
        })
    };
    let mut cells: Vec<Option<Shape>> = vec![None; pops.len() * pops.len()];
    for (index, entry) in entries.iter().enumerate() {
        let (src, dst) = (
            place(index, "src", &entry.src)?,
            place(index, "dst", &entry.dst)?,
        );
        if src == dst {
            let message = format!(
                "is '{}' as its src; the path inside a PoP is called intra",
                entry.dst
            );
            return Err((format!("paths[{index}].dst"), message));
        }
        if cells[src * pops.len() + dst].replace(entry.shape).is_some() {
            let message = format!("{} to {} is given twice; keep one", entry.src, entry.dst);
            return Err((format!("paths[{index}]"), message));
        }
    }
    for pop in 0..pops.len() {
        cells[pop * pops.len() + pop] = Some(intra);
    }
    let missing = |cell: usize| {
        let (src, dst) = (&pops[cell / pops.len()], &pops[cell % pops.len()]);
        (
            "paths".to_string(),
            format!("has no path from {src} to {dst}; add it"),
        )
    };
    cells
        .into_iter()
        .enumerate()
        .map(|(cell, shape)| shape.ok_or_else(|| missing(cell)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn network() -> Value {
        let node = |name: &str, pop: &str, addresses: &[&str]| json!({"name": name, "netns": name, "tun": "wan0", "pop": pop, "addresses": addresses});
        let path = |src: &str, dst: &str, delay: f64| json!({"src": src, "dst": dst, "shape": {"delay_ms": delay}});
        json!({
            "seed": 1,
            "nodes": [node("a-1", "a", &["10.0.1.1", "fd00:1::1"]), node("b-1", "b", &["10.0.2.1"])],
            "intra": {"delay_ms": 0.1},
            "paths": [path("a", "b", 10.0), path("b", "a", 12.5)],
        })
    }

    fn read(value: &Value) -> Result<Network, Fault> {
        parse(&serde_json::to_vec(value).unwrap())
    }

    #[test]
    fn a_whole_file_is_read() {
        let network = read(&network()).unwrap();
        assert_eq!(network.pops, ["a", "b"]);
        let delays: Vec<_> = network.paths.iter().map(|path| path.delay.ns()).collect();
        assert_eq!(delays, [100_000, 10_000_000, 12_500_000, 100_000]);
        assert_eq!(network.nodes[1].pop, 1);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table of cases")]
    fn every_fault_names_its_field() {
        let cases: &[(&str, Value, &str, &str)] = &[
            ("/nodes", json!([]), "nodes", "at least one node"),
            (
                "/nodes/1/tun",
                json!("name-longer-than-15"),
                "nodes[1].tun",
                "1 to 15",
            ),
            (
                "/nodes/1/name",
                json!("a-1"),
                "nodes[1].name",
                "also nodes[0]",
            ),
            (
                "/nodes/1/addresses",
                json!([]),
                "nodes[1].addresses",
                "gets no packets",
            ),
            (
                "/nodes/1/addresses/0",
                json!("10.0.1.1"),
                "nodes[1].addresses[0]",
                "also at nodes[0]",
            ),
            (
                "/nodes/1/addresses/0",
                json!("10.0.1"),
                "nodes[1].addresses[0]",
                "invalid IP address",
            ),
            (
                "/nodes/1/pop",
                json!("c"),
                "paths[0].dst",
                "no node stands in PoP 'b'",
            ),
            ("/paths/0/dst", json!("a"), "paths[0].dst", "intra"),
            (
                "/paths/1",
                network()["paths"][0].clone(),
                "paths[1]",
                "given twice",
            ),
            ("/paths", json!([]), "paths", "no path from a to b"),
            (
                "/paths/0/shape/delay_ms",
                json!(-1),
                "paths[0].shape.delay_ms",
                "0 to 60000",
            ),
            (
                "/paths/0/shape",
                json!({}),
                "paths[0].shape",
                "missing field `delay_ms`",
            ),
            (
                "/intra",
                json!({"delay_ms": 1, "rate_mbit": 0}),
                "intra.rate_mbit",
                "0.001 to 100000",
            ),
            (
                "/intra",
                json!({"delay_ms": 1, "queue_bytes": 10}),
                "intra.queue_bytes",
                "1500 to",
            ),
            (
                "/intra",
                json!({"delay_ms": 1, "queue_packets": 0}),
                "intra.queue_packets",
                "1 to",
            ),
            (
                "/intra",
                json!({"delay_ms": 1, "policer": {"rate_mbit": 1}}),
                "intra.policer",
                "missing field `burst_bytes`",
            ),
            (
                "/intra",
                json!({"delay_ms": 1, "loss": {"bernoulli": 2}}),
                "intra.loss.bernoulli",
                "0 to 1",
            ),
            (
                "/intra",
                json!({"delay_ms": 1, "lost": 2}),
                "intra.lost",
                "unknown field `lost`",
            ),
        ];
        for (pointer, value, field, message) in cases {
            let mut network = network();
            *network.pointer_mut(pointer).unwrap() = value.clone();
            let (found, error) = read(&network).unwrap_err();
            assert_eq!(&found, field, "{error}");
            assert!(error.contains(message), "{field}: {error}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        assert!(parse(b"{").is_err());
        assert!(parse(b"{} {}").is_err());
        let mut twice = serde_json::to_vec(&network()).unwrap();
        twice.extend(b"{}");
        assert_eq!(parse(&twice).unwrap_err().0, "end of file");
    }
}
