//! TUN devices inside network namespaces.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::OFlags;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::config::Node;

/// A device that cannot be had: which step failed, on what, for which node.
#[derive(Debug, thiserror::Error)]
#[error("nodes.{node}: cannot {step} {}: {source}; {fix}", .subject.display())]
pub struct TunError {
    node: String,
    step: &'static str,
    subject: PathBuf,
    fix: &'static str,
    source: io::Error,
}

// linux/if_tun.h: _IOW('T', 202, int), though the kernel reads a struct ifreq.
const TUNSETIFF: Opcode = 0x4004_54ca;
const IFF_TUN: i16 = 0x0001;
/// Packets begin with their IP header. Without IFF_VNET_HDR the kernel hands over every segment on its own, checksummed.
const IFF_NO_PI: i16 = 0x1000;

/// struct ifreq of linux/if.h: the name, then a union of 24 bytes of which the flags come first.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// Makes the node's device in its namespace, non-blocking. It lives as long as the file is open.
pub fn open(node: &Node) -> Result<File, TunError> {
    let namespace = match node.netns.contains('/') {
        true => PathBuf::from(&node.netns),
        false => Path::new("/run/netns").join(&node.netns),
    };
    let fail = |step, subject: &Path, fix| {
        let (node, subject) = (node.name.clone(), subject.to_path_buf());
        move |source: io::Error| TunError {
            node,
            step,
            subject,
            fix,
            source,
        }
    };
    let inside = || {
        let handle =
            File::open(&namespace).map_err(fail("open", &namespace, "make the namespace first"))?;
        move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| fail("enter", &namespace, "run as root")(error.into()))?;
        let device = Path::new("/dev/net/tun");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags((OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32)
            .open(device)
            .map_err(fail(
                "open",
                device,
                "load the tun module, or give this container the device",
            ))?;
        attach(&file, &node.tun).map_err(fail(
            "make device",
            Path::new(&node.tun),
            "run as root, and see that the name is free there",
        ))?;
        Ok(file)
    };
    // Only a thread can be in another namespace: the device stays behind with its file when the thread is gone.
    thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn attach(file: &File, name: &str) -> io::Result<()> {
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TUN | IFF_NO_PI,
        rest: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one struct ifreq, whose 40 bytes InterfaceRequest lays out, and the Setter
    // owns it for the whole call.
    unsafe { ioctl(file, Setter::<TUNSETIFF, InterfaceRequest>::new(request)) }
        .map_err(io::Error::from)
}
