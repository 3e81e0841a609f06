//! A pass of `follow` whenever the host's routing changes.

use std::time::{Duration, Instant};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, recv};

use super::follow::{Followed, follow};
use super::report::lines;
use super::run::Places;
use crate::error::{Error, Result};
use crate::text::one_line;

/// Also without an event: what expired goes, and what a killed run left is repaired. Seconds.
pub const WATCH_INTERVAL_S: u64 = 20;
/// A routing daemon's changes come in bursts: wait until it is quiet, but not so long that a copy
/// is stale for 2 s.
const QUIET: Duration = Duration::from_millis(100);
const BURST: Duration = Duration::from_millis(500);
/// linux/rtnetlink.h, RTNLGRP_*: links, IPv4 and IPv6 addresses, routes and rules, nexthop objects.
const GROUPS: [u32; 8] = [1, 5, 9, 7, 11, 8, 19, 32];

/// `follow` at the start, after each change of the host's routing, when a route of the host's runs out, and every
/// `interval`; never returns a value.
///
/// A pass that fails goes to `complain`, and is tried again at the next event or after a second, then two, then four.
/// `passed` gets one line after every pass, and whether it succeeded.
///
/// # Errors
///
/// Those of the first pass.
pub fn watch(
    places: &Places,
    interval: Duration,
    report: &mut dyn FnMut(&Followed),
    complain: &mut dyn FnMut(&str),
    passed: &mut dyn FnMut(&str, bool),
) -> Result<std::convert::Infallible> {
    // Without an address of its own a socket misses what the kernel itself says.
    let mut events = Socket::new(NETLINK_ROUTE)?;
    events.bind_auto()?;
    for group in GROUPS {
        events.add_membership(group)?;
    }
    let mut last = follow(places)?;
    report(&last);
    passed(&lines(&last), true);
    let mut pause: Option<Duration> = None;
    loop {
        let next = last.next_look_s().map_or(interval, |left| {
            interval.min(Duration::from_secs_f64(left.max(0.01)))
        });
        await_change(&events, pause.unwrap_or(next))?;
        match follow(places) {
            Ok(found) => {
                pause = None;
                if found.changed() || found.refused() != last.refused() {
                    report(&found);
                }
                passed(&lines(&found), true);
                last = found;
            }
            Err(error) => {
                let wrong = format!("watch: {}; trying again", one_line(&error.to_string()));
                complain(&wrong);
                passed(&wrong, false);
                let longest = interval.min(Duration::from_secs(WATCH_INTERVAL_S));
                pause = Some(
                    pause
                        .map_or(Duration::from_secs(1), |before| 2 * before)
                        .min(longest),
                );
            }
        }
    }
}

/// Returns when the routing has changed and then been quiet, or changed for a while; or after `longest`.
///
/// The messages' contents do not matter: the tables are read anew, so a lost one costs nothing.
fn await_change(events: &Socket, longest: Duration) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let (begin, mut end) = (Instant::now(), None);
    loop {
        let deadline = end.map_or(begin + longest, |end: Instant| {
            end.min(Instant::now() + QUIET)
        });
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        set_socket_timeout(events, Timeout::Recv, Some(left)).map_err(std::io::Error::from)?;
        match recv(events, &mut buffer[..], RecvFlags::empty()) {
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Ok(_) | Err(Errno::NOBUFS) => {
                end.get_or_insert_with(|| Instant::now() + BURST);
            }
            Err(error) => return Err(Error::from(std::io::Error::from(error))),
        }
    }
}
