//! The loop: read from every device, look up the path, deliver when due.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::path::Path as FilePath;
use std::rc::Rc;

use crate::config::{self, Network};
use crate::flows::Flows;
use crate::packet;
use crate::path::{Fate, Path};
use crate::report::{PathReport, Report, Strays};
use crate::schedule::Schedule;
use crate::tun::{self, TunError};
use crate::wake::{Cause, Wake, now, wall_clock};

/// Packets taken from one device before the others, and what is due, get their turn.
const BURST: usize = 32;
/// The largest packet that a device can hand over.
const MAX_PACKET: usize = 65_536;

/// Errors that end the emulator before its time.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Tun(#[from] TunError),
    #[error("cannot wait for packets: {0}")]
    Wait(io::Error),
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    #[error("cannot write the flows: {0}")]
    Flows(io::Error),
    #[error("every device is gone: the namespaces were deleted")]
    Deserted,
}

struct Packet {
    node: usize,
    bytes: Rc<[u8]>,
}

struct Engine {
    network: Network,
    devices: Vec<File>,
    node_of: HashMap<IpAddr, usize>,
    paths: Vec<Path>,
    schedule: Schedule<Packet>,
    held_bytes: u64,
    strays: Strays,
    buffer: Vec<u8>,
    /// With the file that their records go to.
    flows: Option<(Flows, File)>,
    /// Time by which the wall clock is ahead of `now`, nanoseconds.
    wall_ahead: u64,
}

/// Runs until SIGTERM or SIGINT. SIGHUP reads `file` again: paths may change, nodes and PoPs not.
pub fn run(
    network: Network,
    file: &FilePath,
    flows: Option<(Flows, File)>,
) -> Result<(), EngineError> {
    let devices = network
        .nodes
        .iter()
        .map(tun::open)
        .collect::<Result<Vec<_>, _>>()?;
    let mut alive = devices.len();
    let mut wake = Wake::new(&devices).map_err(EngineError::Wait)?;
    let mut engine = Engine::new(network, devices, flows);
    let mut out = io::stdout();
    writeln!(out, "ready")
        .and_then(|()| out.flush())
        .map_err(EngineError::Output)?;
    loop {
        for cause in wake.wait().map_err(EngineError::Wait)? {
            match cause {
                Cause::Readable(index) => engine.read(index),
                Cause::Gone(index) => {
                    wake.forget(&engine.devices[index])
                        .map_err(EngineError::Wait)?;
                    alive -= 1;
                }
                Cause::Timer => {}
                Cause::Report => engine.print()?,
                Cause::Reload => {
                    // An unreadable file changes nothing; the sender of the signal sees the reason.
                    if let Err(error) = engine.reload(file) {
                        eprintln!("springtide-wan: {error}");
                    }
                    engine.print()?;
                }
                Cause::Stop => return engine.print(),
            }
        }
        if alive == 0 {
            return Err(EngineError::Deserted);
        }
        engine.deliver();
        wake.wake_at(engine.schedule.next_due())
            .map_err(EngineError::Wait)?;
    }
}

impl Engine {
    fn new(network: Network, devices: Vec<File>, flows: Option<(Flows, File)>) -> Self {
        let mut node_of = HashMap::new();
        for (index, node) in network.nodes.iter().enumerate() {
            node_of.extend(node.addresses.iter().map(|address| (*address, index)));
        }
        let numbered = network.paths.iter().zip(0..);
        let paths = numbered
            .map(|(shape, stream)| Path::new(*shape, network.seed, stream))
            .collect();
        Self {
            network,
            devices,
            node_of,
            paths,
            schedule: Schedule::new(),
            held_bytes: 0,
            strays: Strays::default(),
            buffer: vec![0; MAX_PACKET],
            flows,
            wall_ahead: wall_clock() - now(),
        }
    }

    fn read(&mut self, source: usize) {
        for _ in 0..BURST {
            // Empty, or down for now: epoll reports when there is more, or when it is gone for good.
            let Ok(length) = self.devices[source].read(&mut self.buffer) else {
                return;
            };
            self.forward(source, length);
        }
    }

    fn forward(&mut self, source: usize, length: usize) {
        let Some(address) = packet::destination(&self.buffer[..length]) else {
            self.strays.malformed += 1;
            return;
        };
        let Some(&node) = self.node_of.get(&address) else {
            self.strays.no_route += 1;
            return;
        };
        let (src, dst) = (self.network.nodes[source].pop, self.network.nodes[node].pop);
        let pops = self.network.pops.len();
        let back_ns = self.paths[dst * pops + src].delay_ns();
        let path = &mut self.paths[src * pops + dst];
        let base_rtt_ns = path.delay_ns() + back_ns;
        let now = now();
        let fate = path.offer(now, length);
        if let Some((flows, _)) = &mut self.flows
            && let Some((flow, payload)) = packet::segment(&self.buffer[..length])
            && payload > 0
        {
            match fate {
                Fate::Arrives { left, .. } => {
                    flows.carried(flow, left + self.wall_ahead, payload, base_rtt_ns);
                }
                Fate::Dropped | Fate::Lost => flows.lost(flow, now + self.wall_ahead),
            }
        }
        let Fate::Arrives { at, twice, .. } = fate else {
            return;
        };
        let copies = if twice { 2 } else { 1 };
        if self.held_bytes + copies * length as u64 > self.network.max_in_flight_bytes {
            path.overflowed();
            return;
        }
        let bytes: Rc<[u8]> = self.buffer[..length].into();
        for _ in 0..copies {
            self.held_bytes += length as u64;
            self.schedule.push(
                at,
                Packet {
                    node,
                    bytes: Rc::clone(&bytes),
                },
            );
        }
    }

    fn deliver(&mut self) {
        let now = now();
        while let Some(packet) = self.schedule.pop_due(now) {
            self.held_bytes -= packet.bytes.len() as u64;
            loop {
                match self.devices[packet.node].write(&packet.bytes) {
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        self.strays.undelivered += 1;
                        break;
                    }
                }
            }
        }
    }

    fn reload(&mut self, file: &FilePath) -> Result<(), config::ConfigError> {
        let network = config::load(file)?;
        if network.pops != self.network.pops {
            let message = "names other PoPs than at the start; only paths can change";
            return Err(config::ConfigError::Field {
                file: file.into(),
                field: "nodes".into(),
                message: message.into(),
            });
        }
        for (path, shape) in self.paths.iter_mut().zip(network.paths) {
            path.reshape(shape);
        }
        Ok(())
    }

    fn print(&mut self) -> Result<(), EngineError> {
        if let Some((flows, file)) = &mut self.flows {
            let mut out = io::BufWriter::new(file);
            flows.write(&mut out).map_err(EngineError::Flows)?;
        }
        self.report().print().map_err(EngineError::Output)
    }

    fn report(&self) -> Report<'_> {
        let pops = &self.network.pops;
        let pairs = pops
            .iter()
            .flat_map(|src| pops.iter().map(move |dst| (src, dst)));
        let paths = pairs.zip(&self.paths);
        Report {
            paths: paths
                .map(|((src, dst), path)| PathReport {
                    src,
                    dst,
                    counters: path.counters(),
                })
                .collect(),
            strays: self.strays,
            in_flight_bytes: self.held_bytes,
        }
    }
}
