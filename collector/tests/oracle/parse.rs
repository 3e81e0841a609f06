//! Output of `ss`, taken apart: for each socket its values by name. A word that is not known is an
//! error.

use std::collections::BTreeMap;

/// One socket: value texts by name. A word of `ss` with several numbers has several names.
pub type Values = BTreeMap<&'static str, String>;

/// Words of `ss` that stand alone: they are there or not.
const FLAGS: [&str; 6] = ["ts", "sack", "ecn", "ecnseen", "fastopen", "app_limited"];

/// `name:value`.
const SINGLE: [&str; 46] = [
    "uid",
    "ino",
    "sk",
    "fwmark",
    "v6only",
    "tos",
    "tclass",
    "class_id",
    "rto",
    "backoff",
    "ato",
    "mss",
    "pmtu",
    "rcvmss",
    "advmss",
    "cwnd",
    "ssthresh",
    "bytes_sent",
    "bytes_retrans",
    "bytes_acked",
    "bytes_received",
    "segs_out",
    "segs_in",
    "data_segs_out",
    "data_segs_in",
    "lastsnd",
    "lastrcv",
    "lastack",
    "delivered",
    "delivered_ce",
    "busy",
    "unacked",
    "lost",
    "sacked",
    "dsack_dups",
    "fackets",
    "reordering",
    "reord_seen",
    "rcv_rtt",
    "rcv_space",
    "rcv_ssthresh",
    "notsent",
    "minrtt",
    "rcv_ooopack",
    "snd_wnd",
    "rcv_wnd",
];

/// `name:value` that recent kernels have.
const SINGLE_RECENT: [&str; 1] = ["rehash"];

/// `name:a,b`, `name:a/b`, `name:(a,b,c)`.
const SEVERAL: [(&str, &[&str]); 8] = [
    ("timer", &["timer", "timer expires", "timer retrans"]),
    ("wscale", &["snd_wscale", "rcv_wscale"]),
    ("rtt", &["rtt", "rttvar"]),
    ("retrans", &["retrans", "total_retrans"]),
    ("rwnd_limited", &["rwnd_limited", "rwnd_limited share"]),
    (
        "sndbuf_limited",
        &["sndbuf_limited", "sndbuf_limited share"],
    ),
    (
        "dctcp",
        &[
            "dctcp ce_state",
            "dctcp alpha",
            "dctcp ab_ecn",
            "dctcp ab_tot",
        ],
    ),
    (
        "bbr",
        &["bbr bw", "bbr mrtt", "bbr pacing_gain", "bbr cwnd_gain"],
    ),
];

/// `name value`, the value with `bps` at its end.
const RATES: [&str; 3] = ["send", "pacing_rate", "delivery_rate"];

/// skmem's values by their prefixes, in order.
const SKMEM: [(&str, &str); 9] = [
    ("rb", "skmem rb"),
    ("r", "skmem r"),
    ("tb", "skmem tb"),
    ("t", "skmem t"),
    ("f", "skmem f"),
    ("w", "skmem w"),
    ("o", "skmem o"),
    ("bl", "skmem bl"),
    ("d", "skmem d"),
];

/// Every socket of the text.
pub fn sockets(text: &str) -> Result<Vec<Values>, String> {
    let mut joined: Vec<String> = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        match joined.last_mut() {
            Some(last) if line.starts_with(char::is_whitespace) => last.push_str(line),
            None if line.starts_with(char::is_whitespace) => {
                return Err(format!("line {number}: no socket to continue"));
            }
            _ => joined.push(line.to_owned()),
        }
    }
    joined
        .iter()
        .map(|line| socket(line).map_err(|what| format!("{what}, in: {line}")))
        .collect()
}

fn socket(line: &str) -> Result<Values, String> {
    let mut values = Values::new();
    let mut words = line.split_whitespace();
    for name in ["state", "recv-q", "send-q"] {
        put(&mut values, name, words.next().ok_or("too few columns")?)?;
    }
    for (address, port) in [
        ("local address", "local port"),
        ("peer address", "peer port"),
    ] {
        let word = words.next().ok_or("too few columns")?;
        let (a, p) = word
            .rsplit_once(':')
            .ok_or_else(|| format!("'{word}' has no port"))?;
        put(&mut values, address, a)?;
        put(&mut values, port, p)?;
    }
    while let Some(word) = words.next() {
        if FLAGS.contains(&word) || RATES.contains(&word) || is_shutdown(word) {
            let value = if RATES.contains(&word) {
                words.next().ok_or("a rate without a value")?
            } else {
                word
            };
            let name = if is_shutdown(word) {
                "shutdown"
            } else {
                known(&FLAGS, word).or(known(&RATES, word)).unwrap()
            };
            put(&mut values, name, value)?;
            continue;
        }
        let Some((name, value)) = word.split_once(':') else {
            // The one word without a name is the algorithm's, which stands between flags and numbers.
            put(&mut values, "congestion_algorithm", word)?;
            continue;
        };
        // The process and the cgroup's path are not in the netlink messages; that there is a cgroup is.
        match name {
            "users" => continue,
            "cgroup" => {
                values.insert("cgroup", "path".to_owned());
                continue;
            }
            "skmem" => {
                skmem(value, &mut values)?;
                continue;
            }
            _ => {}
        }
        if let Some(name) = known(&SINGLE, name).or(known(&SINGLE_RECENT, name)) {
            put(&mut values, name, value)?;
        } else if let Some((_, names)) = SEVERAL.iter().find(|(key, _)| *key == name) {
            several(name, names, value, &mut values)?;
        } else {
            return Err(format!("'{word}' is not known"));
        }
    }
    Ok(values)
}

/// `r0,rb1000,...`: the prefix of each number is its meaning.
fn skmem(value: &str, values: &mut Values) -> Result<(), String> {
    for item in inside(value).split(',') {
        let prefix = item.trim_end_matches(|c: char| c.is_ascii_digit());
        let (_, name) = SKMEM
            .iter()
            .find(|(key, _)| *key == prefix)
            .ok_or_else(|| format!("skmem has '{item}'"))?;
        put(values, name, &item[prefix.len()..])?;
    }
    Ok(())
}

fn several(
    key: &str,
    names: &[&'static str],
    value: &str,
    values: &mut Values,
) -> Result<(), String> {
    if (key, value) == ("dctcp", "fallback_mode") {
        return put(values, "dctcp fallback", value);
    }
    let parts: Vec<&str> = match key {
        "rwnd_limited" | "sndbuf_limited" => value.trim_end_matches(')').split('(').collect(),
        _ => inside(value).split([',', '/']).collect(),
    };
    // bbr's and dctcp's parts carry their names: bw:1bps.
    if matches!(key, "bbr" | "dctcp") {
        for part in parts {
            let (field, text) = part
                .split_once(':')
                .ok_or_else(|| format!("'{part}' has no name"))?;
            let full = format!("{key} {field}");
            let name = names
                .iter()
                .find(|name| **name == full)
                .ok_or_else(|| format!("'{part}' is not known"))?;
            put(values, name, text)?;
        }
        return Ok(());
    }
    if parts.len() != names.len() {
        return Err(format!("{key} has {} parts", parts.len()));
    }
    names
        .iter()
        .zip(parts)
        .try_for_each(|(name, part)| put(values, name, part))
}

fn inside(value: &str) -> &str {
    value.trim_start_matches('(').trim_end_matches(')')
}

fn is_shutdown(word: &str) -> bool {
    matches!(word, "<->" | "-->" | "<--" | "---")
}

fn known(names: &[&'static str], word: &str) -> Option<&'static str> {
    names.iter().find(|name| **name == word).copied()
}

fn put(values: &mut Values, name: &'static str, value: &str) -> Result<(), String> {
    match values.insert(name, value.to_owned()) {
        None => Ok(()),
        Some(other) => Err(format!("{name} is both '{other}' and '{value}'")),
    }
}
