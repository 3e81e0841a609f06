//! Packets of which parity is to be sent, from the perf rings.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use libbpf_rs::{MapCore, MapHandle, PerfBuffer, PerfBufferBuilder};
use zerocopy::FromBytes;

use super::error::{Result, failed, plain};
use super::pins::{self, Places};
use springtide_core::layout::Sent;

/// Pages of each CPU's ring.
const PAGES: usize = 64;
const MAP: &str = "parity";

/// A packet from its IP header on, and what is to be known of it.
type Packet = (Sent, Vec<u8>);

/// The one reader of the rings.
pub(crate) struct Packets {
    rings: PerfBuffer<'static>,
    read: Rc<RefCell<Vec<Packet>>>,
    /// The kernel takes the rings out as the file closes by which they came in.
    _map: MapHandle,
    number: u32,
}

impl Packets {
    /// Opens the pinned map.
    pub(crate) fn open(places: &Places) -> Result<Self> {
        let path = places.set().join(MAP);
        let wrong = |error: &libbpf_rs::Error| {
            failed("cannot read", &path, plain(error), "apply a bundle again")
        };
        let map = pins::map(&places.set(), MAP)?;
        let number = map.info().map_err(|error| wrong(&error))?.info.id;
        let read = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&read);
        let take = move |_: i32, bytes: &[u8]| {
            if let Ok((sent, packet)) = Sent::read_from_prefix(bytes) {
                // The rings' entries end with padding.
                let packet = packet.get(sent.ip_at.into()..).unwrap_or_default();
                kept.borrow_mut().push((sent, packet.to_vec()));
            }
        };
        let rings = PerfBufferBuilder::new(&map)
            .pages(PAGES)
            .sample_cb(take)
            .build();
        Ok(Self {
            rings: rings.map_err(|error| wrong(&error))?,
            read,
            _map: map,
            number,
        })
    }

    /// Takes out what is there, of each ring: a ring becomes ready once (perf_poll), and a wait for all of them has taken that.
    pub(crate) fn read(&self) -> Result<Vec<Packet>> {
        self.rings.consume().map_err(|error| {
            super::error::Error::Failed(format!(
                "cannot read the packets: {}: open them again",
                plain(&error)
            ))
        })?;
        Ok(self.read.take())
    }

    /// Says whether the pinned map still is the one that was opened.
    pub(crate) fn is_current(&self, places: &Places) -> bool {
        let map = pins::map(&places.set(), MAP).ok();
        let info = map.and_then(|map| map.info().ok());
        info.is_some_and(|info| info.info.id == self.number)
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the rings have it open as long as they are borrowed.
        unsafe { BorrowedFd::borrow_raw(self.rings.epoll_fd()) }
    }
}
