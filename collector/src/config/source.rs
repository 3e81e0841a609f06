//! Options for what is read, and how much of it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::states::{States, parse_states};
use crate::kernel::dump;
use crate::kernel::filter::Filter;
use crate::options::names::{parse_host, parse_pop};
use crate::options::units::{parse_bytes, parse_duration};
use crate::options::{Reload, key};
use crate::read::poller::settings::{Scope, Settings};
use crate::read::sampling::Sampling;

/// Options of what is read, and under which name.
#[derive(Debug, Args)]
pub struct Source {
    /// Name of this host in the samples: the edge's name in fleet.yaml [default: the host's name]
    #[arg(long, value_parser = parse_host,
          add = key("host"))]
    pub host: Option<String>,
    /// Name of this host's PoP
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_pop,
          add = key("pop"))]
    pub pop: String,
    /// Network namespaces to read: `own` is that of this process, `all` is every one with a name (/run/netns, Docker) or a
    /// process, which needs CAP_SYS_ADMIN and CAP_SYS_PTRACE; `auto` is all when that is allowed, else own
    #[arg(long, value_enum, default_value = "auto",
          add = key("netns").on_reload(Reload::Poller))]
    pub netns: Netns,
    /// States to read in polls: a list such as established,close-wait; `default` is every state in which a socket has a
    /// tcp_info and a history; `all` adds time-wait, new-syn-recv and bound-inactive
    #[arg(long, default_value = "default", value_parser = parse_states,
          add = key("states").on_reload(Reload::Poller))]
    pub states: States,
    /// Sockets to read, by port and address: sport, dport or port with ports and ranges, src, dst or addr with addresses
    /// and prefixes, as lists with commas; joined by not, and, or and parentheses. The kernel leaves out the others
    #[arg(long, value_name = "EXPRESSION",
          add = key("filter").on_reload(Reload::Poller))]
    pub filter: Option<Filter>,
    /// Read one socket in N, chosen by its cookie: a connection is always in the sample or never, and each sample
    /// carries its weight N (1 to 4294967295)
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_sampling,
          add = key("sample").on_reload(Reload::Poller))]
    pub sample: Sampling,
    /// Data read from the kernel per socket: `minimal` is tcp_info; `default` adds the congestion
    /// control algorithm with its own state, and memory; `all` adds TOS, traffic class and priority
    #[arg(long, value_enum, default_value = "default",
          add = key("attributes").on_reload(Reload::Poller))]
    pub attributes: AttributeSet,
    /// Where springtide-edge pins its eBPF program, which knows what each connection started with; to read that needs
    /// CAP_BPF, and CAP_DAC_READ_SEARCH for a user other than root. Empty for not at all
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/springtide", value_parser = parse_pins,
          add = key("start_values").on_reload(Reload::Poller))]
    pub start_values: PathBuf,
}

/// Network namespaces to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the option's own help would be written twice")]
pub enum Netns {
    Auto,
    Own,
    All,
}

/// Attributes to request from the kernel for each socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the option's own help would be written twice")]
pub enum AttributeSet {
    Minimal,
    Default,
    All,
}

/// Options for following sockets from poll to poll.
#[derive(Debug, Args)]
pub struct Following {
    /// Leave out the last tcp_info of each connection that closes
    #[arg(long,
          add = key("no_closes").on_reload(Reload::Poller))]
    pub no_closes: bool,
    /// The kernel's buffer for closing connections, in each network namespace; one takes 1.3 KB until it is read. More
    /// than net.core.rmem_max needs CAP_NET_ADMIN (1 to 1GiB)
    #[arg(long, value_name = "BYTES", default_value = "8MiB", value_parser = parse_close_buffer,
          add = key("close_buffer").on_reload(Reload::Poller))]
    pub close_buffer: usize,
    /// Leave out a socket that has not changed since it was last exported, but for times that pass by themselves
    #[arg(long,
          add = key("changes_only").on_reload(Reload::Poller))]
    pub changes_only: bool,
    /// With --changes-only: export every socket at least this often (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration,
          add = key("full_interval").on_reload(Reload::Poller))]
    pub full_interval: Duration,
    /// Time from one look for network namespaces to the next (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration,
          add = key("netns_interval").on_reload(Reload::Poller))]
    pub netns_interval: Duration,
    /// Read another network namespace in which nothing happens at least this often (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration,
          add = key("idle_interval").on_reload(Reload::Poller))]
    pub idle_interval: Duration,
}

impl Source {
    /// The settings of a single poll.
    pub fn settings(&self) -> Settings {
        Settings {
            attributes: match self.attributes {
                AttributeSet::Minimal => dump::Extensions::MINIMAL,
                AttributeSet::Default => dump::Extensions::DEFAULT,
                AttributeSet::All => dump::Extensions::ALL,
            },
            filter: self.filter.clone(),
            sampling: self.sample,
            start_values: self.start_values.clone(),
            scope: match self.netns {
                Netns::Auto => Scope::AsAllowed,
                Netns::Own => Scope::Own,
                Netns::All => Scope::All,
            },
            ..Settings::own(self.states.0)
        }
    }
}

impl Following {
    /// The settings of polls that are `interval` apart.
    pub fn settings(&self, source: &Source, interval: Duration) -> Settings {
        Settings {
            close_buffer: (!self.no_closes).then_some(self.close_buffer),
            full_every: self
                .changes_only
                .then(|| polls(self.full_interval, interval)),
            scan_interval: self.netns_interval,
            idle_polls: polls(self.idle_interval, interval),
            ..source.settings()
        }
    }
}

/// Number of polls in a time, at least one.
fn polls(time: Duration, interval: Duration) -> NonZeroU32 {
    let polls = time.as_millis() / interval.as_millis().max(1);
    u32::try_from(polls)
        .ok()
        .and_then(NonZeroU32::new)
        .unwrap_or(NonZeroU32::MIN)
}

/// Empty is a value too, which clap's own parser of paths refuses.
fn parse_pins(text: &str) -> Result<PathBuf, String> {
    Ok(text.into())
}

fn parse_sampling(text: &str) -> Result<Sampling, String> {
    let number = text.parse().ok().and_then(Sampling::one_in);
    number.ok_or_else(|| {
        format!("'{text}' is not a valid sample: use N for one socket in N, from 1 to 4294967295")
    })
}

/// The kernel counts buffers in 32 bits with a sign.
const LARGEST_CLOSE_BUFFER: u64 = 1 << 30;

pub(super) fn parse_close_buffer(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    match usize::try_from(bytes) {
        Ok(size) if bytes <= LARGEST_CLOSE_BUFFER => Ok(size),
        _ => Err(format!("'{text}' is too large: at most 1GiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_polls() {
        let polls = |time, interval| {
            polls(Duration::from_millis(time), Duration::from_millis(interval)).get()
        };
        assert_eq!(polls(60_000, 1_000), 60);
        assert_eq!(polls(500, 1_000), 1);
        assert_eq!(polls(86_400_000, 1), 86_400_000);
    }

    #[test]
    fn samples_and_buffers_have_limits() {
        assert_eq!(parse_sampling("10").map(Sampling::weight), Ok(10));
        for wrong in ["0", "-1", "1/10", "", "4294967296"] {
            assert!(parse_sampling(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_close_buffer("8MiB"), Ok(8 << 20));
        assert!(parse_close_buffer("2GiB").is_err());
    }
}
