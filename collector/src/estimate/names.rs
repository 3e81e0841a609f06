//! Groups destinations: by PoP, by autonomous system, else by prefix.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use saphyr::{LoadableYamlNode, Yaml};
use saphyr_parser::{Event, Parser};

use crate::sample::connection::peer_prefix;

/// Bytes of the largest file that is read.
const MOST_BYTES: u64 = 256 << 20;
/// Collections in each other: a fleet.yaml has four, and the loader calls itself for each.
const MOST_NESTED: usize = 20;
/// Characters of a name: a table's column holds no more.
const MOST_NAME: usize = 60;

/// Names by prefix, those of PoPs before those of autonomous systems.
#[derive(Debug, Default)]
pub(super) struct Names {
    pops: Prefixes,
    systems: Prefixes,
}

impl Names {
    /// Reads fleet.yaml, and a table of origins as `springtide asn` takes it. The message says what is wrong with which
    /// file.
    pub(super) fn read(fleet: Option<&Path>, origins: Option<&Path>) -> Result<Self, String> {
        let of = |path: Option<&Path>, parse: fn(&str) -> Result<Prefixes, String>| {
            let Some(path) = path else {
                return Ok(Prefixes::default());
            };
            let named = |what: String| format!("{}: {what}", path.display());
            parse(&text(path).map_err(named)?).map_err(named)
        };
        Ok(Self {
            pops: of(fleet, of_fleet)?,
            systems: of(origins, of_origins)?,
        })
    }

    /// The name of a peer.
    pub(super) fn name(&self, peer: IpAddr) -> String {
        self.pops
            .find(peer)
            .or_else(|| self.systems.find(peer))
            .map_or_else(
                || {
                    let (prefix, length) = peer_prefix(peer);
                    format!("{prefix}/{length}")
                },
                str::to_owned,
            )
    }
}

/// Longest match first.
#[derive(Debug, Default)]
struct Prefixes {
    names: HashMap<(u128, u8), String>,
    /// Lengths that there are, longest first; an IPv4 prefix is its mapped one.
    lengths: Vec<u8>,
}

impl Prefixes {
    fn insert(&mut self, prefix: &str, name: &str) -> Result<(), String> {
        let wrong =
            || format!("'{prefix}' is not a prefix: write it as 192.0.2.0/24 or 2001:db8::/32");
        let (address, length) = prefix.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let digits = length.bytes().all(|one| one.is_ascii_digit());
        let length: u8 = length.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
        let (least, most) = if address.is_ipv4() {
            (96, 32)
        } else {
            (0, 128)
        };
        if length > most {
            return Err(wrong());
        }
        let (bits, length) = (bits(address), least + length);
        if network(bits, length) != bits {
            return Err(format!(
                "'{prefix}' has bits set after its length: write the network's own address"
            ));
        }
        if let Some(other) = self.names.insert((bits, length), shown(name)) {
            return Err(format!(
                "'{prefix}' is listed before, for {other}: keep one of the two"
            ));
        }
        if let Err(place) = self.lengths.binary_search_by(|one| length.cmp(one)) {
            self.lengths.insert(place, length);
        }
        Ok(())
    }

    fn find(&self, address: IpAddr) -> Option<&str> {
        let bits = bits(address);
        let found = self
            .lengths
            .iter()
            .find_map(|&length| self.names.get(&(network(bits, length), length)));
        found.map(String::as_str)
    }
}

/// As a terminal takes it: tables of origins come from elsewhere.
fn shown(name: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let clean = |c: char| if steers(c) { '?' } else { c };
    name.chars().take(MOST_NAME).map(clean).collect()
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn network(bits: u128, length: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

fn text(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = File::open(path).map_err(cannot)?;
    let mut text = String::new();
    // A device says nothing of its size.
    let mut bounded = file.take(MOST_BYTES + 1);
    bounded.read_to_string(&mut text).map_err(cannot)?;
    if bounded.limit() == 0 {
        return Err(format!(
            "has more than {MOST_BYTES} bytes: name another file"
        ));
    }
    Ok(text)
}

/// Refuses what a loader that calls itself for each collection must not be given.
fn refuse_depth(text: &str) -> Result<(), String> {
    let mut nested = 0_usize;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| format!("is not YAML: {error}"))?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => nested += 1,
            Event::SequenceEnd | Event::MappingEnd => nested = nested.saturating_sub(1),
            _ => {}
        }
        if nested > MOST_NESTED {
            let line = span.start.line();
            return Err(format!(
                "line {line}: nests deeper than {MOST_NESTED}: it is not a fleet.yaml"
            ));
        }
    }
    Ok(())
}

/// Each PoP's prefixes.
fn of_fleet(text: &str) -> Result<Prefixes, String> {
    refuse_depth(text)?;
    let documents = Yaml::load_from_str(text).map_err(|error| format!("is not YAML: {error}"))?;
    let none = || "has no pops: it is not a fleet.yaml".to_owned();
    let pops = documents
        .first()
        .and_then(|document| document.as_mapping_get("pops"))
        .ok_or_else(none)?;
    let mut found = Prefixes::default();
    for (name, pop) in pops.as_mapping().ok_or_else(none)? {
        let name = name
            .as_str()
            .ok_or_else(|| "pops: has a name that is not text: quote it".to_owned())?;
        let prefixes = pop
            .as_mapping_get("prefixes")
            .and_then(Yaml::as_vec)
            .ok_or_else(|| format!("pops.{name}.prefixes: is not a list: write [192.0.2.0/24]"))?;
        for prefix in prefixes {
            let prefix = prefix
                .as_str()
                .ok_or_else(|| format!("pops.{name}.prefixes: has what is not text"))?;
            found
                .insert(prefix, name)
                .map_err(|what| format!("pops.{name}.prefixes: {what}"))?;
        }
    }
    Ok(found)
}

/// CSV with the header `prefix,asn,name`.
fn of_origins(text: &str) -> Result<Prefixes, String> {
    let mut lines = text.lines();
    if lines.next() != Some("prefix,asn,name") {
        return Err(
            "does not begin with prefix,asn,name: give the table that `springtide asn` takes"
                .to_owned(),
        );
    }
    let mut found = Prefixes::default();
    for (number, line) in lines.enumerate() {
        let mut columns = line.splitn(3, ',');
        let (prefix, asn, name) = (columns.next(), columns.next(), columns.next());
        let number_of = asn.and_then(|asn| asn.trim().parse::<u32>().ok());
        let (Some(prefix), Some(asn)) = (prefix, number_of) else {
            return Err(format!("line {}: is not prefix,asn,name", number + 2));
        };
        let name = name.unwrap_or_default().trim().trim_matches('"');
        let shown = format!("AS{asn} {name}");
        found
            .insert(prefix.trim(), shown.trim())
            .map_err(|what| format!("line {}: {what}", number + 2))?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Names, of_fleet, of_origins};

    const FLEET: &str = "
version: 1
pops:
  ams: {region: europe, prefixes: [10.77.1.0/24, \"fd77:1::/48\"]}
  nyc: {region: america, prefixes: [10.77.0.0/16]}
";

    #[test]
    fn the_longest_prefix_names_and_pops_go_first() {
        let names = Names {
            pops: of_fleet(FLEET).unwrap(),
            systems: of_origins(
                "prefix,asn,name\n10.0.0.0/8,64500,Ten\n192.0.2.0/24,64501,\"Test, net\"\n",
            )
            .unwrap(),
        };
        for (peer, name) in [
            ("10.77.1.9", "ams"),
            ("10.77.2.9", "nyc"),
            ("fd77:1::9", "ams"),
            ("10.1.2.3", "AS64500 Ten"),
            ("192.0.2.1", "AS64501 Test, net"),
            ("198.51.100.7", "198.51.100.0/24"),
            ("2001:db8:0:1234::1", "2001:db8:0:1200::/56"),
        ] {
            assert_eq!(names.name(peer.parse().unwrap()), name);
        }
    }

    #[test]
    fn a_name_is_text_on_one_short_line() {
        let of = |name: &str| {
            let systems = of_origins(&format!("prefix,asn,name\n10.0.0.0/8,64500,{name}\n"));
            let names = Names {
                systems: systems.unwrap(),
                ..Names::default()
            };
            names.name("10.1.2.3".parse().unwrap())
        };
        assert_eq!(of("Telefónica"), "AS64500 Telefónica");
        assert_eq!(
            of("\x1b]0;x\x07\u{85}\u{202e}y\u{2066}"),
            "AS64500 ?]0;x???y?"
        );
        assert_eq!(of(&"x".repeat(100_000)).chars().count(), 60);
    }

    #[test]
    fn a_deep_document_is_refused() {
        let deep = |open: &str, close: &str| {
            format!("pops:\n{}1{}\n", open.repeat(20_000), close.repeat(20_000))
        };
        for text in [
            deep("- ", ""),
            deep("? ", ""),
            deep("[", "]"),
            deep("[", ""),
            deep("{a: ", "}"),
        ] {
            let problem = of_fleet(&text).map(|_| ()).unwrap_err();
            let said = ["nests deeper than 20", "recursion limit exceeded"];
            assert!(said.iter().any(|one| problem.contains(one)), "{problem}");
        }
    }

    #[test]
    fn no_file_is_read_without_end() {
        let endless = std::path::Path::new("/dev/zero");
        let problem = Names::read(Some(endless), None).unwrap_err();
        assert_eq!(
            problem,
            "/dev/zero: has more than 268435456 bytes: name another file"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("- 1", "has no pops"),
            (
                "pops: {ams: {prefixes: [10.0.0.0]}}",
                "pops.ams.prefixes: '10.0.0.0' is not a prefix",
            ),
            (
                "pops: {ams: {prefixes: [10.0.0.0/33]}}",
                "'10.0.0.0/33' is not a prefix",
            ),
            ("pops: [", "is not YAML"),
            (
                "pops: {ams: {prefixes: 10.0.0.0/8}}",
                "pops.ams.prefixes: is not a list: write [",
            ),
            ("pops: {ams: {}}", "pops.ams.prefixes: is not a list"),
            (
                "pops: {1: {prefixes: [10.0.0.0/8]}}",
                "pops: has a name that is not text: quote it",
            ),
            (
                "pops: {ams: {prefixes: [10.0.0.1/8]}}",
                "'10.0.0.1/8' has bits set after its length",
            ),
            (
                "pops: {ams: {prefixes: [10.0.0.0/+8]}}",
                "'10.0.0.0/+8' is not a prefix",
            ),
            (
                "pops: {ams: {prefixes: [10.0.0.0/8]}, nyc: {prefixes: [10.0.0.0/8]}}",
                "pops.nyc.prefixes: '10.0.0.0/8' is listed before, for ams",
            ),
        ] {
            let problem = of_fleet(text).map(|_| ()).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
        for (text, said) in [
            ("asn\n", "does not begin with"),
            ("prefix,asn,name\n10.0.0.0/8,x,y\n", "line 2"),
            (
                "prefix,asn,name\n10.0.0.0/8,1,y\n10.0.0.0/8,2,z\n",
                "line 3: '10.0.0.0/8' is listed before, for AS1 y",
            ),
        ] {
            let problem = of_origins(text).unwrap_err();
            assert!(problem.contains(said), "{problem}");
        }
    }
}
