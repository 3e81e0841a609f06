//! The service of parity (gentle aggression's corrective part): between two edges that run it, data that was lost is back
//! without being sent again.
//!
//! It stands beside connections, never in them. On the edge that sends, the program at the devices' egress hands over the
//! beginnings of connections whose entries say so, and parity goes to the other end's port of UDP. On the edge that gets
//! them, a packet socket sees what comes. Where one block of a group has not come, it is rebuilt, and given to this host's
//! own TCP as if it had arrived. If a service ends, connections recover as before.
//!
//! ```text
//! datagram.rs   groups, and the datagram that stands for one
//! send.rs       parity of what is sent
//! receive.rs    blocks from parity and from what came
//! packet.rs     IP, TCP and UDP, read and written
//! sockets.rs    the kernel
//! ```

mod datagram;
mod packet;
mod receive;
mod send;
mod sockets;

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::enforce::bpf::{self, Packets};
use crate::error::{Error, Result};
use crate::files::read_regular;
use crate::text::reason;
use datagram::Key;
use receive::{Fate, Receiver};
use send::Sender;
use sockets::Sockets;

/// Default of `parity --port`.
pub const PORT: u16 = 4747;
/// The program's map is looked for anew, connections are forgotten, and counts are reported.
const LOOK: Duration = Duration::from_secs(1);
const LEAST_KEY_BYTES: usize = 32;
const MOST_KEY_BYTES: usize = 4096;

/// Numbers since the service began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Counts {
    /// Datagrams of parity that were sent.
    pub sent: u64,
    /// Bytes of these, with their headers.
    pub sent_bytes: u64,
    /// Datagrams of parity that came.
    pub received: u64,
    /// Blocks that were lost and given to this host's TCP.
    pub repaired: u64,
    /// Groups of which more was lost than one block, or too little is known.
    pub lost: u64,
    /// Datagrams that are not the fleet's.
    pub refused: u64,
}

/// Runs the service; never returns without an error. `tell` gets the counts every second.
pub(crate) fn serve(
    places: &bpf::Places,
    secret: &Path,
    port: u16,
    tell: &mut dyn FnMut(Counts),
) -> Result<Infallible> {
    let key = read_key(secret)?;
    let mut sockets = Sockets::open(port)?;
    let (mut sender, mut receiver) = (Sender::new(key.clone(), port), Receiver::new(key));
    let (mut counts, mut packets) = (Counts::default(), None::<Packets>);
    let mut look = Instant::now();
    loop {
        let now = Instant::now();
        if look <= now {
            packets = packets
                .filter(|one| one.is_current(places))
                .or_else(|| Packets::open(places).ok());
            receiver.forget(now);
            tell(counts);
            look = now + LOOK;
        }
        let next = [Some(look), sender.next(), receiver.next()]
            .into_iter()
            .flatten()
            .min();
        let patience = next.map_or(LOOK, |next| next.saturating_duration_since(now));
        sockets.wait(packets.as_ref(), patience);
        let now = Instant::now();
        sockets.segments(|found| receiver.segment(now, found));
        sockets.datagrams(|ends, bytes| {
            let is_ours = receiver.datagram(now, ends, bytes);
            counts.received += u64::from(is_ours);
            counts.refused += u64::from(!is_ours);
            is_ours
        });
        if let Some(rings) = &packets {
            let monotonic_ns = monotonic_ns();
            for (sent, packet) in rings.read()? {
                sender.packet(now, monotonic_ns, &sent, &packet);
            }
        }
        let now = Instant::now();
        for (to, packet) in sender.due(now) {
            if sockets.send(to, &packet) {
                counts.sent += 1;
                counts.sent_bytes += packet.len() as u64;
            }
        }
        for fate in receiver.due(now) {
            match fate {
                Fate::Repaired(packet) if sockets.give(&packet) => counts.repaired += 1,
                Fate::Repaired(_) | Fate::Lost => counts.lost += 1,
                Fate::Whole => {}
            }
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn read_key(path: &Path) -> Result<Key> {
    let shown = path.display();
    let fix = "write 32 random bytes or more there, the same on all edges: openssl rand -hex 32";
    let (_, content) = read_regular(path, MOST_KEY_BYTES)
        .map_err(|error| Error::refused(format!("{shown}: {}; {fix}", reason(&error))))?;
    let secret = content.trim_ascii();
    if secret.len() < LEAST_KEY_BYTES {
        let message = format!("{shown}: is a key of {} bytes; {fix}", secret.len());
        return Err(Error::refused(message));
    }
    Ok(Key::new(Sha256::digest(secret).into()))
}
