//! Sockets of the service: what arrives of connections and of parity, and what it sends.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, Object};
use nix::libc;
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, sendto,
    socket_with,
};
use rustix::time::Timespec;

use super::packet::{self, Ends, Segment, octets};
use crate::clock;
use crate::enforce::bpf::{self, Packets};
use crate::error::{Error, Result};
use crate::text::reason;

/// linux/if_ether.h
const PROTOCOLS: [u16; 2] = [0x0800, 0x86dd];
/// netinet/in.h: the packet comes with its IP header.
const IPPROTO_RAW: u32 = 255;
/// linux/netlink.h, linux/sock_diag.h, netinet/in.h
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
/// A header (linux/netlink.h) and a request (struct inet_diag_req_v2).
const ASK_BYTES: usize = 16 + 56;
/// ESTABLISHED, FIN_WAIT1 and FIN_WAIT2 (net/tcp_states.h): more data may come.
const TAKING: [u8; 3] = [1, 4, 5];
/// The loopback device's number in every network namespace.
const LOOPBACK: u32 = 1;
const BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// The largest packet that a device hands over, of GRO.
const LARGEST: usize = 256 * 1024;
/// Reads of one socket before the others have their turn.
const AT_ONCE: usize = 256;
/// A host that has sent parity is listened to for so long.
const LISTEN: Duration = Duration::from_secs(600);

pub(super) struct Sockets {
    filter: Object,
    /// Sockets of IPv4 and IPv6.
    arriving: Vec<OwnedFd>,
    parity: UdpSocket,
    four: OwnedFd,
    /// None where the host has no IPv6.
    six: Option<OwnedFd>,
    /// Questions about connections (sock_diag).
    sockets: OwnedFd,
    buffer: Vec<u8>,
}

impl Sockets {
    /// Opens all; parity comes to this port of UDP.
    pub(super) fn open(port: u16) -> Result<Self> {
        let filter = bpf::load_listen()?;
        let arriving = PROTOCOLS.into_iter().map(|kind| arriving(&filter, kind));
        let arriving = arriving
            .collect::<io::Result<_>>()
            .map_err(|error| wrong("a packet socket", &error))?;
        let raw = |family| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let protocol = Protocol::from_raw(IPPROTO_RAW.try_into().ok()?);
            Some(socket_with(family, SocketType::RAW, flags, Some(protocol)))
        };
        let four = raw(AddressFamily::INET).unwrap_or(Err(Errno::INVAL));
        let parity = UdpSocket::bind(("::", port)).or_else(|_| UdpSocket::bind(("0.0.0.0", port)));
        let parity = parity.map_err(|error| {
            let fix = "end what has it, or name another with --port on all edges";
            Error::refused(format!("port {port} of UDP: {}; {fix}", reason(&error)))
        })?;
        // The address that a datagram came to: of both families, or of IPv4 where that is all.
        setsockopt(&parity, Ipv6RecvPacketInfo, &true)
            .or_else(|_| setsockopt(&parity, Ipv4PacketInfo, &true))
            .map_err(|error| wrong("the port of parity", &error.into()))?;
        Ok(Self {
            filter,
            arriving,
            parity,
            four: four.map_err(|error| wrong("a raw socket", &error.into()))?,
            six: raw(AddressFamily::INET6).and_then(std::result::Result::ok),
            sockets: socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                Some(SOCK_DIAG),
            )
            .map_err(|error| wrong("a socket of sock_diag", &error.into()))?,
            buffer: vec![0; LARGEST],
        })
    }

    /// Waits until there is something to read, but not for longer than `patience`.
    pub(super) fn wait(&self, packets: Option<&Packets>, patience: Duration) {
        let mut all: Vec<PollFd<'_>> = self
            .arriving
            .iter()
            .map(|one| PollFd::new(one, PollFlags::IN))
            .collect();
        all.push(PollFd::new(&self.parity, PollFlags::IN));
        all.extend(packets.map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)));
        let patience = Timespec::try_from(patience).ok();
        // A signal ends the process, or changes nothing.
        let _ = poll(&mut all, patience.as_ref());
    }

    /// Gives each segment that has arrived.
    pub(super) fn segments(&mut self, mut take: impl FnMut(&Segment<'_>)) {
        for one in &self.arriving {
            for _ in 0..AT_ONCE {
                let Ok((length, _)) = recv(one, &mut self.buffer[..], RecvFlags::DONTWAIT) else {
                    break;
                };
                if let Some(found) = packet::read(&self.buffer[..length]) {
                    take(&found);
                }
            }
        }
    }

    /// Gives each datagram that has arrived, with the addresses of both ends. Who has sent one that `take` accepts is listened to
    /// from now on.
    pub(super) fn datagrams(&mut self, mut take: impl FnMut(Ends, &[u8]) -> bool) {
        for _ in 0..AT_ONCE {
            let Some((ends, length)) = self.datagram() else {
                return;
            };
            if take(ends, &self.buffer[..length]) {
                self.listen_to(ends.0);
            }
        }
    }

    fn datagram(&mut self) -> Option<(Ends, usize)> {
        let mut room = nix::cmsg_space!(libc::in6_pktinfo);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let handle = self.parity.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let found = recvmsg::<SockaddrStorage>(handle, &mut parts, Some(&mut room), flags).ok()?;
        let from = found.address?;
        let from: IpAddr = match (from.as_sockaddr_in6(), from.as_sockaddr_in()) {
            (Some(six), _) => six.ip().to_canonical(),
            (_, Some(four)) => four.ip().into(),
            _ => return None,
        };
        let to: IpAddr = found.cmsgs().ok()?.find_map(|one| match one {
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical())
            }
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into())
            }
            _ => None,
        })?;
        Some(((from, to), found.bytes))
    }

    fn listen_to(&self, from: IpAddr) {
        let until = clock::second().1 + LISTEN.as_nanos() as u64;
        let map = self.filter.maps().find(|map| map.name() == "senders");
        if let Some(map) = map {
            // Without room for it, its connections are not repaired.
            let _ = map.update(&octets(from), &until.to_ne_bytes(), MapFlags::ANY);
        }
    }

    /// Gives a segment to this host's TCP, where a socket takes it: one that is bound to a device does not, and the host would
    /// reset the connection.
    pub(super) fn give(&self, packet: &[u8]) -> bool {
        let found = packet::read(packet).filter(|found| self.takes(found).unwrap_or(false));
        found.is_some_and(|found| self.send(found.ends.1, packet))
    }

    /// Asks whether the kernel finds an open connection for a segment from the loopback device (sock_diag(7)).
    fn takes(&self, found: &Segment<'_>) -> io::Result<bool> {
        let (from, to) = found.ends;
        // IPv4 stands in the first word.
        let (family, first) = if to.is_ipv4() { (2, 12) } else { (10, 0) };
        let words = |address| {
            let mut all = octets(address);
            all.rotate_left(first);
            all
        };
        let tcp = &found.tcp;
        let mut ask = Vec::with_capacity(ASK_BYTES);
        ask.extend((ASK_BYTES as u32).to_ne_bytes());
        ask.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        ask.extend(NLM_F_REQUEST.to_ne_bytes());
        ask.extend([0; 8]);
        ask.extend([family, IPPROTO_TCP, 0, 0]);
        ask.extend(u32::MAX.to_ne_bytes());
        ask.extend(tcp.destination_port.to_be_bytes());
        ask.extend(tcp.source_port.to_be_bytes());
        ask.extend(words(to));
        ask.extend(words(from));
        ask.extend(LOOPBACK.to_ne_bytes());
        // INET_DIAG_NOCOOKIE
        ask.extend([0xff; 8]);
        send(&self.sockets, &ask, SendFlags::empty())?;
        let mut answer = [0u8; 1024];
        let (length, _) = recv(&self.sockets, &mut answer[..], RecvFlags::DONTWAIT)?;
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        Ok(length > 17 && kind == SOCK_DIAG_BY_FAMILY && TAKING.contains(&answer[17]))
    }

    /// Sends a packet with its IP header, to another host or to this one; whether the kernel took it.
    pub(super) fn send(&self, to: IpAddr, packet: &[u8]) -> bool {
        let socket = match to {
            IpAddr::V4(_) => Some(&self.four),
            IpAddr::V6(_) => self.six.as_ref(),
        };
        socket.is_some_and(|socket| {
            sendto(socket, packet, SendFlags::empty(), &SocketAddr::new(to, 0)).is_ok()
        })
    }
}

/// A socket that gets what the filter lets through, of all devices.
fn arriving(filter: &Object, kind: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Protocol::from_raw(
        u32::from(kind.to_be())
            .try_into()
            .map_err(|_| Errno::INVAL)?,
    );
    let socket = socket_with(
        AddressFamily::PACKET,
        SocketType::DGRAM,
        flags,
        Some(protocol),
    )?;
    let _ = set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
    let program = filter.progs().next().ok_or(Errno::NOENT)?;
    let handle = program.as_fd().as_raw_fd();
    let length = size_of_val(&handle) as libc::socklen_t;
    // SAFETY: `handle` outlives the call, and is as long as it says.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            (&raw const handle).cast(),
            length,
        )
    };
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    // Packets that came before the filter did.
    while recv(&socket, &mut [0u8; 1][..], RecvFlags::DONTWAIT).is_ok() {}
    Ok(socket)
}

fn wrong(what: &str, error: &io::Error) -> Error {
    let fix = "it takes CAP_NET_RAW and CAP_BPF; run it as root";
    Error::failed(format!("{what}: {}; {fix}", reason(error)))
}
