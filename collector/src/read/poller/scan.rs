//! Follows the namespaces that come and go.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::epoll;

use super::idle::Idle;
use super::settings::Scope;
use super::wait::LAST_TURNS;
use super::watched::Watched;
use super::{PollError, Poller, system};
use crate::kernel::host;
use crate::kernel::namespaces::{self, DIRECTORIES, Handles, LIMIT};
use crate::sample::encode::Identity;
use crate::sinks::Sink;
use crate::stats::Stats;

impl Poller {
    /// Opens the namespace of this process, unless it is open.
    pub(super) fn open_own(&mut self) -> Result<(), PollError> {
        let netns = self.identity.netns;
        if self.namespaces.contains_key(&netns) {
            return Ok(());
        }
        let handles = Handles::open(self.settings.close_buffer)
            .map_err(system("open a netlink socket in this network namespace"))?;
        self.watch(netns, handles, None)
            .map_err(system("watch for close events"))
    }

    fn watch(&mut self, netns: u64, handles: Handles, idle: Option<Idle>) -> io::Result<()> {
        if let Some(closes) = &handles.closes {
            let inode = epoll::EventData::new_u64(netns);
            epoll::add(&self.epoll, closes.as_fd(), inode, epoll::EventFlags::IN)?;
        }
        let identity = Identity {
            netns,
            ..self.identity.clone()
        };
        self.namespaces
            .insert(netns, Watched::new(identity, handles, idle));
        Ok(())
    }

    /// Looks for namespaces when it is time: opens new ones, and lets go of those that for the second time only our own
    /// descriptors hold.
    pub(super) fn scan_if_due(
        &mut self,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<(), PollError> {
        if self.next_scan.is_none_or(|due| due > Instant::now()) {
            return Ok(());
        }
        let mut found = namespaces::find(DIRECTORIES);
        if found.hidden_processes > 0 {
            let hidden = found.hidden_processes;
            self.notices.once("hidden", || {
                format!("{hidden} processes do not show their network namespace: that needs CAP_SYS_PTRACE")
            });
        }
        found.paths.remove(&self.identity.netns);
        let own = self.identity.netns;
        let mut gone = Vec::new();
        for (&netns, watched) in &mut self.namespaces {
            if netns == own || found.paths.contains_key(&netns) {
                watched.unreferenced = false;
            } else if std::mem::replace(&mut watched.unreferenced, true) {
                gone.push(netns);
            }
        }
        for netns in gone {
            // The last close events can be read by now: the kernel is a moment behind, which is why
            // the first look kept the namespace.
            for _ in 0..LAST_TURNS {
                if self.drain(netns, sink, stats)? == 0 {
                    break;
                }
            }
            self.namespaces.remove(&netns);
            stats.namespaces_left += 1;
        }
        found
            .paths
            .retain(|netns, _| !self.namespaces.contains_key(netns));
        let room = LIMIT.saturating_sub(self.namespaces.len());
        if found.paths.len() > room {
            stats.namespaces_over_limit += (found.paths.len() - room) as u64;
            self.notices.once("limit", || {
                format!("more than {LIMIT} network namespaces: the rest is not read")
            });
        }
        let paths: Vec<_> = found.paths.into_values().take(room).collect();
        if !paths.is_empty() {
            let opened = namespaces::open(paths, self.settings.close_buffer)
                .map_err(system("enter network namespaces"))?;
            for namespace in opened {
                self.take_up(namespace, stats);
            }
        }
        self.next_scan = Some(Instant::now() + self.settings.scan_interval);
        Ok(())
    }

    fn take_up(&mut self, opened: namespaces::Opened, stats: &mut Stats) {
        let idle = Idle::new(self.settings.idle_polls.get());
        let failed = match opened {
            // Its name has come to lead to one that is known.
            Ok((netns, _)) if self.namespaces.contains_key(&netns) => return,
            Ok((netns, handles)) => match self.watch(netns, handles, Some(idle)) {
                Ok(()) => {
                    stats.namespaces_entered += 1;
                    return;
                }
                Err(error) => format!("network namespace {netns}: cannot watch it: {error}"),
            },
            // It has gone since it was found.
            Err((_, error)) if error.kind() == io::ErrorKind::NotFound => return,
            Err((path, error)) => format!(
                "{}: cannot enter this network namespace: {error}",
                path.display()
            ),
        };
        stats.namespaces_failed += 1;
        self.notices.once("enter", || failed);
    }
}

impl Scope {
    /// Whether descriptors for other namespaces may be needed.
    pub fn is_wide(self) -> bool {
        self != Self::Own
    }
}

/// Lets this process open the descriptors that all namespaces may need.
pub(crate) fn make_room(scope: Scope) {
    if scope.is_wide() {
        host::raise_descriptor_limit();
    }
}
