//! Expected output of `ss` for a decoded sample, by the rules that its output and its manual page
//! show. Works on the JSON that `decode` prints, so that the whole way from the capture to the
//! reader is under test.
//!
//! Longer than 400 lines: a rule for each of the words that `ss` prints.

use serde_json::Value;

use crate::parse::Values;

/// The values that `ss` prints for the sample; what it hides is not there.
pub fn values(sample: &Value) -> Values {
    let mut shown = Shown {
        sample,
        values: Values::new(),
    };
    shown.addresses();
    shown.timer();
    shown.details();
    shown.memory();
    if sample.get("tcp_info_length").is_some() {
        shown.options();
        shown.path();
        shown.traffic();
        shown.algorithms();
        shown.rates();
        shown.recovery();
        shown.receiver();
    }
    shown.values
}

struct Shown<'a> {
    sample: &'a Value,
    values: Values,
}

impl Shown<'_> {
    fn number(&self, field: &str) -> Option<u64> {
        self.sample.get(field).map(|value| {
            value
                .as_u64()
                .unwrap_or_else(|| panic!("{field} is not a number: {value}"))
        })
    }

    /// The field's value; 0 when the kernel did not give it, as `ss` takes it.
    fn zeroed(&self, field: &str) -> u64 {
        self.number(field).unwrap_or(0)
    }

    fn text(&self, field: &str) -> &str {
        self.sample[field]
            .as_str()
            .unwrap_or_else(|| panic!("{field} is not text"))
    }

    fn put(&mut self, name: &'static str, value: impl Into<String>) {
        self.values.insert(name, value.into());
    }

    /// Printed as it is, unless it is zero.
    fn unless_zero(&mut self, name: &'static str, field: &str) {
        if let value @ 1.. = self.zeroed(field) {
            self.put(name, value.to_string());
        }
    }

    /// Microseconds, printed as milliseconds unless zero.
    fn milliseconds(&mut self, name: &'static str, field: &str) {
        if let value @ 1.. = self.zeroed(field) {
            self.put(name, general(value as f64 / 1000.0));
        }
    }

    /// A number for which zero differs from absent, in hexadecimal.
    fn hexadecimal(&mut self, name: &'static str, field: &str) {
        match self.number(field) {
            None => {}
            Some(0) => self.put(name, "0"),
            Some(value) => self.put(name, format!("{value:#x}")),
        }
    }

    fn addresses(&mut self) {
        let state = match self.text("state").trim_start_matches("TCP_STATE_") {
            "ESTABLISHED" => "ESTAB".to_owned(),
            "CLOSE" => "UNCONN".to_owned(),
            "FIN_WAIT1" => "FIN-WAIT-1".to_owned(),
            "FIN_WAIT2" => "FIN-WAIT-2".to_owned(),
            other => other.replace('_', "-"),
        };
        self.put("state", state);
        self.put("recv-q", self.zeroed("rqueue").to_string());
        self.put("send-q", self.zeroed("wqueue").to_string());
        // A socket that takes IPv4 too has "*" for any address.
        let both =
            self.sample["family"] == 10 && self.sample.get("v6only") != Some(&Value::Bool(true));
        for (ip, port, address_name, port_name) in [
            ("src_ip", "src_port", "local address", "local port"),
            ("dst_ip", "dst_port", "peer address", "peer port"),
        ] {
            let address = match (self.text(ip), self.sample["family"].as_u64()) {
                ("::", _) if both => "*".to_owned(),
                (address, Some(10)) => format!("[{address}]"),
                (address, _) => address.to_owned(),
            };
            self.put(address_name, address);
            let port = self.zeroed(port);
            self.put(
                port_name,
                if port == 0 {
                    "*".to_owned()
                } else {
                    port.to_string()
                },
            );
        }
    }

    fn timer(&mut self) {
        let name = match self.zeroed("timer") {
            0 => return,
            1 => "on",
            2 => "keepalive",
            3 => "timewait",
            4 => "persist",
            _ => "unknown",
        };
        self.put("timer", name);
        self.put("timer expires", expiry(self.zeroed("timer_expires_ms")));
        self.put("timer retrans", self.zeroed("timer_retrans").to_string());
    }

    fn details(&mut self) {
        self.unless_zero("uid", "uid");
        self.put("ino", self.zeroed("inode").to_string());
        self.put("sk", format!("{:x}", self.zeroed("cookie")));
        if self.zeroed("mark") != 0 {
            self.put("fwmark", format!("{:#x}", self.zeroed("mark")));
        }
        if self.number("cgroup_id").is_some() {
            self.put("cgroup", "path");
        }
        if let Some(only) = self.sample.get("v6only") {
            self.put("v6only", if only == &Value::Bool(true) { "1" } else { "0" });
        }
        if let Some(bits) = self.number("shutdown") {
            let (receive, send) = (
                if bits & 1 == 0 { '<' } else { '-' },
                if bits & 2 == 0 { '>' } else { '-' },
            );
            self.put("shutdown", format!("{receive}-{send}"));
        }
        self.hexadecimal("tos", "tos");
        self.hexadecimal("tclass", "tclass");
        self.hexadecimal("class_id", "class_id");
    }

    fn memory(&mut self) {
        for (name, field) in [
            ("skmem r", "skmem_rmem_alloc"),
            ("skmem rb", "skmem_rcvbuf"),
            ("skmem t", "skmem_wmem_alloc"),
            ("skmem tb", "skmem_sndbuf"),
            ("skmem f", "skmem_fwd_alloc"),
            ("skmem w", "skmem_wmem_queued"),
            ("skmem o", "skmem_optmem"),
            ("skmem bl", "skmem_backlog"),
            ("skmem d", "skmem_drops"),
        ] {
            if let Some(value) = self.number(field) {
                self.put(name, value.to_string());
            }
        }
    }

    fn options(&mut self) {
        let options = self.zeroed("options");
        for (bit, name) in [
            (1, "ts"),
            (2, "sack"),
            (8, "ecn"),
            (16, "ecnseen"),
            (32, "fastopen"),
        ] {
            if options & bit != 0 {
                self.put(name, name);
            }
        }
        if let Some(name) = self.sample.get("congestion_algorithm") {
            self.put("congestion_algorithm", name.as_str().unwrap());
        }
        if options & 4 != 0 {
            self.put("snd_wscale", self.zeroed("snd_wscale").to_string());
            self.put("rcv_wscale", self.zeroed("rcv_wscale").to_string());
        }
    }

    fn path(&mut self) {
        if self.zeroed("rto") != 3_000_000 {
            self.milliseconds("rto", "rto");
        }
        self.unless_zero("backoff", "backoff");
        if self.zeroed("rtt") != 0 {
            self.milliseconds("rtt", "rtt");
            self.put("rttvar", general(self.zeroed("rttvar") as f64 / 1000.0));
        }
        self.milliseconds("ato", "ato");
        for (name, field) in [
            ("mss", "snd_mss"),
            ("pmtu", "pmtu"),
            ("rcvmss", "rcv_mss"),
            ("advmss", "advmss"),
            ("cwnd", "snd_cwnd"),
        ] {
            self.unless_zero(name, field);
        }
        if self.zeroed("snd_ssthresh") < 0xffff {
            self.unless_zero("ssthresh", "snd_ssthresh");
        }
    }

    fn traffic(&mut self) {
        for name in [
            "bytes_sent",
            "bytes_retrans",
            "bytes_acked",
            "bytes_received",
            "segs_out",
            "segs_in",
            "data_segs_out",
            "data_segs_in",
            "delivered",
            "delivered_ce",
        ] {
            self.unless_zero(name, name);
        }
        for (name, field) in [
            ("lastsnd", "last_data_sent"),
            ("lastrcv", "last_data_recv"),
            ("lastack", "last_ack_recv"),
        ] {
            self.unless_zero(name, field);
        }
    }

    fn algorithms(&mut self) {
        if self
            .number("dctcp_enabled")
            .is_some_and(|enabled| enabled != 0)
        {
            for (name, field) in [
                ("dctcp ce_state", "dctcp_ce_state"),
                ("dctcp alpha", "dctcp_alpha"),
                ("dctcp ab_ecn", "dctcp_ab_ecn"),
                ("dctcp ab_tot", "dctcp_ab_tot"),
            ] {
                self.put(name, self.zeroed(field).to_string());
            }
        } else if self.number("dctcp_enabled").is_some() {
            self.put("dctcp fallback", "fallback_mode");
        }
        if self.number("bbr_bw").is_some() {
            self.put(
                "bbr bw",
                bits_per_second(self.zeroed("bbr_bw") as f64 * 8.0),
            );
            self.put(
                "bbr mrtt",
                general(self.zeroed("bbr_min_rtt") as f64 / 1000.0),
            );
            for (name, field) in [
                ("bbr pacing_gain", "bbr_pacing_gain"),
                ("bbr cwnd_gain", "bbr_cwnd_gain"),
            ] {
                if let gain @ 1.. = self.zeroed(field) {
                    self.put(name, general(gain as f64 / 256.0));
                }
            }
        }
    }

    fn rates(&mut self) {
        let (cwnd, mss, mut rtt) = (
            self.zeroed("snd_cwnd"),
            self.zeroed("snd_mss"),
            self.zeroed("rtt"),
        );
        let vegas = self.zeroed("vegas_rtt");
        if self.zeroed("vegas_enabled") != 0 && vegas != 0 && vegas != 0x7fff_ffff {
            rtt = vegas;
        }
        if cwnd != 0 && mss != 0 && rtt != 0 {
            self.put(
                "send",
                bits_per_second(cwnd as f64 * mss as f64 * 8_000_000.0 / rtt as f64),
            );
        }
        let (pacing, limit) = (self.zeroed("pacing_rate"), self.zeroed("max_pacing_rate"));
        if !matches!(pacing, 0 | u64::MAX) {
            let mut rate = bits_per_second(pacing as f64 * 8.0);
            if !matches!(limit, 0 | u64::MAX) {
                rate.push('/');
                rate.push_str(&bits_per_second(limit as f64 * 8.0));
            }
            self.put("pacing_rate", rate);
        }
        if let rate @ 1.. = self.zeroed("delivery_rate") {
            self.put("delivery_rate", bits_per_second(rate as f64 * 8.0));
        }
        if self.sample["delivery_rate_app_limited"] == Value::Bool(true) {
            self.put("app_limited", "app_limited");
        }
        let busy = self.zeroed("busy_time");
        if busy == 0 {
            return;
        }
        self.put("busy", format!("{}ms", busy / 1000));
        for (name, share_name, field) in [
            ("rwnd_limited", "rwnd_limited share", "rwnd_limited"),
            ("sndbuf_limited", "sndbuf_limited share", "sndbuf_limited"),
        ] {
            if let limited @ 1.. = self.zeroed(field) {
                self.put(name, format!("{}ms", limited / 1000));
                self.put(
                    share_name,
                    format!("{:.1}%", 100.0 * limited as f64 / busy as f64),
                );
            }
        }
    }

    fn recovery(&mut self) {
        self.unless_zero("unacked", "unacked");
        if self.zeroed("retrans") != 0 || self.zeroed("total_retrans") != 0 {
            self.put("retrans", self.zeroed("retrans").to_string());
            self.put("total_retrans", self.zeroed("total_retrans").to_string());
        }
        for name in ["lost", "dsack_dups", "fackets", "reord_seen"] {
            self.unless_zero(name, name);
        }
        if self.text("state") != "TCP_STATE_LISTEN" {
            self.unless_zero("sacked", "sacked");
        }
        if self.zeroed("reordering") != 3 {
            self.put("reordering", self.zeroed("reordering").to_string());
        }
    }

    fn receiver(&mut self) {
        self.milliseconds("rcv_rtt", "rcv_rtt");
        if self.zeroed("min_rtt") != u64::from(u32::MAX) {
            self.milliseconds("minrtt", "min_rtt");
        }
        self.unless_zero("notsent", "notsent_bytes");
        for name in [
            "rcv_space",
            "rcv_ssthresh",
            "rcv_ooopack",
            "snd_wnd",
            "rcv_wnd",
            "rehash",
        ] {
            self.unless_zero(name, name);
        }
    }
}

fn bits_per_second(rate: f64) -> String {
    format!("{rate:.0}bps")
}

/// A time in milliseconds as `ss` writes it: the two largest of minutes, seconds and milliseconds that matter.
fn expiry(ms: u64) -> String {
    let (minutes, seconds, milliseconds) = (ms / 60_000, ms / 1000 % 60, ms % 1000);
    match (minutes, seconds, milliseconds) {
        (10.., _, _) | (1.., 0, _) => format!("{minutes}min"),
        (1.., _, _) => format!("{minutes}min{seconds}sec"),
        (0, 0, 0) => String::new(),
        (0, 0, _) => format!("{milliseconds:03}ms"),
        (0, 10.., _) | (0, _, 0) => format!("{seconds}sec"),
        (0, _, _) => format!("{seconds}.{milliseconds:03}ms"),
    }
}

/// C's `%g`: six significant digits without trailing zeros.
fn general(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    if !(-4..6).contains(&exponent) {
        let digits = trimmed(digits);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    trimmed(&format!(
        "{value:.*}",
        usize::try_from(5 - exponent).unwrap()
    ))
    .to_owned()
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}
