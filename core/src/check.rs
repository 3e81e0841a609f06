//! Whether a document is a bundle that an edge may take: its bytes, its values, whose it is and when.

use std::fmt::Display;
use std::ops::RangeInclusive;

use sha2::{Digest, Sha256};

use crate::bundle::{
    Bundle, Enforce, Entry, Kind, MAX_BYTES, MAX_DEFAULT_RESENT, MAX_ENTRIES, MAX_OBJECT_BYTES,
    MAX_OPTED_OUT, MAX_RATE, MAX_WINDOW, MIN_RATE, Otherwise, Problem, SCHEMA_VERSION, Way,
};
use crate::prefix::{Prefix, destination_problem};
use crate::text::{hex, printable};

/// An edge whose clock is further off must not judge expiry.
const CLOCK_TOLERANCE_S: i64 = 300;
/// Older rounds are refused, so a round far ahead would lock every later one out.
const MAX_ROUND_AHEAD_S: i64 = 3600;
/// Twice what the policy allows; the expiry is the dead man's switch.
const MAX_LIFETIME_S: i64 = 2 * 86_400;
/// As long as the kernel's TCP_CA_NAME_MAX of 16 allows, its end included.
const MAX_ALGORITHM: usize = 15;

const RENDER: &str = "render it again with `springtide bundle`";
const ALTERED: &str = "fetch the bundle again: it was cut or altered on its way";
const UPDATE: &str = "remove it, or update this edge's Springtide";

impl Bundle {
    /// Reads a document of the right shape.
    ///
    /// # Errors
    ///
    /// What is not JSON in UTF-8 without a mark, or has another shape: the first problem.
    pub fn parse(raw: &[u8]) -> Result<Self, Problem> {
        if raw.len() > MAX_BYTES {
            let what = format!("is over {MAX_BYTES} bytes");
            return Err(Problem::new(
                "size",
                what,
                "lower bundle.max_routes in policy.yaml",
            ));
        }
        match serde_json::from_slice::<Self>(raw) {
            Ok(bundle) if bundle.schema_version == SCHEMA_VERSION => Ok(bundle),
            // A path to each value costs time, so it is looked for only where something is wrong.
            _ => Err(shape_problem(raw)),
        }
    }

    /// UTF-8, keys sorted, no spaces.
    pub fn canonical(&self) -> String {
        // Neither texts nor numbers can fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// `sha256:<hex>` of the canonical form of all other fields than the digest.
    pub fn digest_of_content(&self) -> String {
        let whole = self.canonical();
        // As the second field, behind a time: nothing before it can look like it.
        let own = format!("\"digest\":{},", quoted(&self.digest));
        let rest = whole.replacen(&own, "", 1);
        format!("sha256:{}", hex(&Sha256::digest(rest.as_bytes())))
    }

    /// Everything that is wrong with its values, whichever edge takes it and whenever.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Problems(Vec::new());
        found.head(self);
        found.enforce(&self.enforce);
        found.few(
            "entries",
            self.entries.len(),
            MAX_ENTRIES,
            "lower bundle.max_routes in policy.yaml",
        );
        found.in_order(
            "entries",
            ".prefix",
            self.entries.iter().map(|entry| entry.prefix),
        );
        for (number, entry) in self.entries.iter().enumerate() {
            found.entry(number, entry);
        }
        if self.digest != self.digest_of_content() {
            let altered = Problem::new("digest", "does not match the content", ALTERED);
            found.0.push(altered.of(Kind::Altered));
        }
        found.0
    }

    /// Whether this edge takes it now (seconds since the epoch, by its own clock).
    ///
    /// # Errors
    ///
    /// The first problem.
    pub fn check_for(&self, edge: &str, now: i64) -> Result<(), Problem> {
        let (created, expires) = (self.created_at, self.expires_at);
        if self.edge != edge {
            let what = format!("is for {}, this is {edge}", self.edge);
            return Err(
                Problem::new("edge", what, format!("push {edge}.json to this edge"))
                    .of(Kind::OtherEdge),
            );
        }
        if created > now + CLOCK_TOLERANCE_S {
            let what = format!("is {} s in the future of this edge's clock", created - now);
            let fix = "set this edge's clock, or render the bundle again";
            return Err(Problem::new("created_at", what, fix));
        }
        if expires <= now {
            let what = format!("it expired {} s ago", now - expires);
            let fix = "render a newer round and push that";
            return Err(Problem::new("expires_at", what, fix).of(Kind::Expired));
        }
        Ok(())
    }
}

/// The schema of a document, whatever else it has.
#[derive(serde::Deserialize)]
struct Version {
    schema_version: u32,
}

/// Which value has another shape.
fn shape_problem(raw: &[u8]) -> Problem {
    if let Ok(Version { schema_version }) = serde_json::from_slice(raw)
        && schema_version != SCHEMA_VERSION
    {
        let what = format!("is {schema_version}, this Springtide reads {SCHEMA_VERSION}");
        return Problem::new("schema_version", what, "update this edge's Springtide");
    }
    let mut reader = serde_json::Deserializer::from_slice(raw);
    let found: Result<Bundle, _> = serde_path_to_error::deserialize(&mut reader);
    let error = match found {
        Err(error) => error,
        // What comes after the document.
        Ok(_) => return Problem::new("JSON", "goes on after its end", ALTERED),
    };
    let (path, inner) = (printable(&error.path().to_string()), error.inner());
    let what = printable(&inner.to_string());
    if !inner.is_data() {
        return Problem::new("JSON", what, ALTERED);
    }
    let fix = if what.starts_with("unknown field") {
        UPDATE
    } else {
        RENDER
    };
    Problem::new(
        if path == "." {
            "document".to_owned()
        } else {
            path
        },
        what,
        fix,
    )
}

/// Problems as they are found.
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: impl Display, what: impl Into<String>, fix: &str) {
        self.0.push(Problem::new(field.to_string(), what, fix));
    }

    fn within<T>(&mut self, field: impl Display, value: Option<T>, bounds: RangeInclusive<T>)
    where
        T: PartialOrd + Display,
    {
        if let Some(value) = value.filter(|value| !bounds.contains(value)) {
            let what = format!("{value} is outside {} to {}", bounds.start(), bounds.end());
            self.add(field, what, RENDER);
        }
    }

    fn few(&mut self, field: &str, count: usize, most: usize, fix: &str) {
        if count > most {
            self.add(
                field,
                format!("{count} are more than the {most} that an edge takes"),
                fix,
            );
        }
    }

    fn in_order(&mut self, list: &str, part: &str, prefixes: impl Iterator<Item = Prefix>) {
        let mut last = None;
        for (number, prefix) in prefixes.enumerate() {
            let field = format_args!("{list}[{number}]{part}").to_string();
            match last {
                Some(last) if prefix == last => {
                    self.add(field, format!("{} occurs twice", prefix.0), RENDER)
                }
                Some(last) if prefix < last => {
                    let what =
                        format!("{} is out of order (IP version, network, length)", prefix.0);
                    self.add(field, what, RENDER);
                }
                _ => {}
            }
            last = Some(prefix);
        }
    }

    fn head(&mut self, bundle: &Bundle) {
        for (field, text, fits) in [
            ("edge", &bundle.edge, is_name(&bundle.edge)),
            ("pop", &bundle.pop, is_name(&bundle.pop)),
            (
                "policy_version",
                &bundle.policy_version,
                is_hex(&bundle.policy_version, 12),
            ),
        ] {
            if !fits {
                let what = format!(
                    "{} does not look like a {}",
                    printable(&format!("'{text}'")),
                    field.replace('_', " ")
                );
                self.add(field, what, RENDER);
            }
        }
        let lifetime = bundle.expires_at - bundle.created_at;
        if lifetime <= 0 {
            self.add(
                "expires_at",
                "is not after created_at",
                "publish a newer round",
            );
        }
        if lifetime > MAX_LIFETIME_S {
            let what = format!("is more than {MAX_LIFETIME_S} s after created_at");
            self.add("expires_at", what, "lower bundle.ttl_s in policy.yaml");
        }
        if bundle.round > bundle.created_at + MAX_ROUND_AHEAD_S {
            let what = format!("is more than {MAX_ROUND_AHEAD_S} s after created_at");
            self.add("round", what, RENDER);
        }
    }

    fn enforce(&mut self, enforce: &Enforce) {
        self.within(
            "enforce.lift_bytes",
            enforce.lift_bytes.map(u64::from),
            1..=MAX_OBJECT_BYTES,
        );
        self.within(
            "enforce.lift_round_trips",
            enforce.lift_round_trips,
            1..=1000,
        );
        self.within("enforce.record_permille", enforce.record_permille, 0..=1000);
        if let Some(brake) = &enforce.brake {
            self.within(
                "enforce.brake.lost_permille",
                Some(brake.lost_permille),
                1..=1000,
            );
            self.within(
                "enforce.brake.connections",
                Some(brake.connections),
                1..=1_000_000,
            );
            self.within(
                "enforce.brake.half_life_s",
                Some(brake.half_life_s),
                1..=86_400,
            );
        }
        self.few(
            "enforce.excluded",
            enforce.excluded.len(),
            MAX_ENTRIES,
            "exclude wider prefixes",
        );
        self.in_order("enforce.excluded", "", enforce.excluded.iter().copied());
        self.opted_out(enforce);
    }

    fn opted_out(&mut self, enforce: &Enforce) {
        let found = &enforce.opted_out;
        self.few(
            "enforce.opted_out",
            found.len(),
            MAX_OPTED_OUT,
            "name wider prefixes, or fewer ports, in fleet.yaml",
        );
        for (number, side) in found.iter().enumerate() {
            let field = format!("enforce.opted_out[{number}]");
            if side.port.is_none() && side.prefix.is_none() {
                self.add(&field, "has neither a port nor a prefix", RENDER);
            }
            self.within(format!("{field}.port"), side.port, 1..=u16::MAX);
            if number > 0 && found[number - 1] >= *side {
                self.add(&field, "is out of order (port, prefix), or twice", RENDER);
            }
        }
        if !found.is_empty() && (enforce.by, enforce.otherwise) != (Way::Bpf, Otherwise::Default) {
            let what =
                "is there by routes, which know destinations only: they cannot leave it alone";
            let fix = "set enforce.by: bpf and enforce.otherwise: default in policy.yaml";
            self.add("enforce.opted_out", what, fix);
        }
    }

    fn entry(&mut self, number: usize, entry: &Entry) {
        let at = |field: &str| format!("entries[{number}].{field}");
        if let Some(what) = destination_problem(&entry.prefix) {
            self.add(
                at("prefix"),
                format!("{} {what}", entry.prefix.0),
                "narrow the PoP's prefix in fleet.yaml",
            );
        }
        if *entry == Entry::of(entry.prefix) {
            self.add(
                format!("entries[{number}]"),
                format!("{} has no value", entry.prefix.0),
                RENDER,
            );
        }
        self.within(at("initcwnd"), entry.initcwnd, 1..=MAX_WINDOW);
        self.within(at("receive_window"), entry.receive_window, 1..=MAX_WINDOW);
        self.within(
            at("default_resent"),
            entry.default_resent,
            1..=MAX_DEFAULT_RESENT,
        );
        self.rates(&at(""), entry.start_rate, entry.connection_rate);
        if let Some(trial) = &entry.trial {
            self.within(at("trial.permille"), Some(trial.permille), 1..=1000);
            self.within(at("trial.initcwnd"), trial.initcwnd, 1..=MAX_WINDOW);
            self.rates(&at("trial."), trial.start_rate, trial.connection_rate);
        }
        if let Some(congestion) = &entry.congestion {
            self.within(
                at("congestion.from_bytes"),
                Some(congestion.from_bytes),
                0..=MAX_OBJECT_BYTES,
            );
            let name = &congestion.algorithm;
            let letter = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte)
            };
            if !(1..=MAX_ALGORITHM).contains(&name.len()) || !name.bytes().all(letter) {
                let what = format!(
                    "{} is not a name of a congestion control",
                    printable(&format!("'{name}'"))
                );
                self.add(at("congestion.algorithm"), what, RENDER);
            }
        }
    }

    fn rates(&mut self, at: &str, all: Option<u64>, one: Option<u64>) {
        self.within(format!("{at}start_rate"), all, MIN_RATE..=MAX_RATE);
        self.within(format!("{at}connection_rate"), one, MIN_RATE..=MAX_RATE);
        if all.is_none() && one.is_some() {
            let what = "is there without start_rate, of which it is a part";
            self.add(format!("{at}connection_rate"), what, RENDER);
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether a text can be the name of an edge or of a PoP.
pub fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(fits)
        && text.len() <= 63
        && text.bytes().all(|byte| fits(byte) || byte == b'-')
}

fn is_hex(text: &str, length: usize) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == length && text.bytes().all(digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{Congestion, Trial};

    fn good() -> Bundle {
        let text = |prefix: &str| Prefix(prefix.parse().unwrap());
        let mut bundle = Bundle {
            created_at: 1_767_323_222,
            digest: String::new(),
            edge: "ams-1".into(),
            enforce: Enforce {
                by: Way::Bpf,
                ..Enforce::default()
            },
            entries: vec![
                Entry {
                    congestion: Some(Congestion {
                        algorithm: "bbr".into(),
                        always: true,
                        from_bytes: 0,
                    }),
                    initcwnd: Some(83),
                    start_rate: Some(5000),
                    trial: Some(Trial {
                        connection_rate: None,
                        initcwnd: Some(10),
                        permille: 100,
                        start_rate: None,
                    }),
                    ..Entry::of(text("10.77.2.0/24"))
                },
                Entry {
                    receive_window: Some(40),
                    ..Entry::of(text("fd77:2::/48"))
                },
            ],
            expires_at: 1_767_323_822,
            policy_version: "0123456789ab".into(),
            pop: "ams".into(),
            round: 1_767_323_100,
            schema_version: SCHEMA_VERSION,
        };
        bundle.digest = bundle.digest_of_content();
        bundle
    }

    #[test]
    fn a_document_is_what_was_written() {
        let bundle = good();
        let text = bundle.canonical();
        assert_eq!(Bundle::parse(text.as_bytes()), Ok(bundle.clone()));
        assert_eq!(bundle.problems(), []);
        assert_eq!(bundle.check_for("ams-1", 1_767_323_300), Ok(()));
        // An object of serde_json sorts its keys.
        let sorted: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text, sorted.to_string());
        // Python's json, of all fields but the digest: sort_keys=True, separators=(",", ":").
        assert_eq!(
            bundle.digest,
            "sha256:4566c7e0b6edc1d8bfa231845b6d2c019f8c663f5dc0756221f48f80bd6ea005"
        );
    }

    #[test]
    fn only_utf_8_without_a_mark_is_read() {
        let text = good().canonical();
        let wide: Vec<u16> = text.encode_utf16().collect();
        let units = |order: fn(u16) -> [u8; 2]| {
            wide.iter()
                .flat_map(|unit| order(*unit))
                .collect::<Vec<u8>>()
        };
        let points = |order: fn(u32) -> [u8; 4]| {
            text.chars()
                .flat_map(|c| order(c.into()))
                .collect::<Vec<u8>>()
        };
        let utf8 = text.clone().into_bytes();
        let bodies = [
            units(u16::to_le_bytes),
            units(u16::to_be_bytes),
            points(u32::to_le_bytes),
            points(u32::to_be_bytes),
        ];
        let marks: [&[u8]; 5] = [
            b"\xff\xfe",
            b"\xfe\xff",
            b"\xff\xfe\0\0",
            b"\0\0\xfe\xff",
            b"\xef\xbb\xbf",
        ];
        let marked = marks.iter().zip(bodies.iter().chain([&utf8]));
        let all = marked
            .map(|(mark, body)| [mark, body.as_slice()].concat())
            .chain(bodies.clone());
        for raw in all {
            let problem = Bundle::parse(&raw).unwrap_err();
            assert_eq!(problem.field, "JSON", "{problem}");
            assert!(problem.to_string().is_ascii());
        }
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        let text = good().canonical();
        for (from, to, field) in [
            (
                "\"initcwnd\":83",
                "\"initcwnd\":83.0",
                "entries[0].initcwnd",
            ),
            (
                "\"initcwnd\":83",
                "\"initcwnd\":8.3e1",
                "entries[0].initcwnd",
            ),
            (
                "\"initcwnd\":83",
                "\"initcwnd\":true",
                "entries[0].initcwnd",
            ),
            (
                "\"initcwnd\":83",
                "\"initcwnd\":null",
                "entries[0].initcwnd",
            ),
            ("\"initcwnd\":83", "\"initcwnd\":-1", "entries[0].initcwnd"),
            (
                "\"initcwnd\":83",
                "\"initcwnd\":4294967296",
                "entries[0].initcwnd",
            ),
            (
                "\"initcwnd\":83",
                "\"initcwnd\":83,\"initcwnd\":83",
                "entries[0]",
            ),
            ("\"initcwnd\":83", "\"initcwnd\":083", "JSON"),
            ("10.77.2.0/24", "10.77.2.1/24", "entries[0].prefix"),
            ("10.77.2.0/24", "10.77.2.0/024", "entries[0].prefix"),
            ("fd77:2::/48", "fd77:2:0::/48", "entries[1].prefix"),
            ("\"pop\":", "\"via\":1,\"pop\":", "via"),
            ("\"pop\":\"ams\",", "", "document"),
        ] {
            assert!(text.contains(from));
            let problem = Bundle::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert_eq!(problem.field, field, "{to}: {problem}");
        }
        let twice = format!("{text}{text}");
        assert_eq!(Bundle::parse(twice.as_bytes()).unwrap_err().field, "JSON");
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = [open.repeat(20_000), "1".into(), close.repeat(20_000)].concat();
            assert!(Bundle::parse(deep.as_bytes()).is_err());
        }
    }

    #[test]
    fn a_value_that_was_changed_is_found() {
        let text = good().canonical().replacen("83", "84", 1);
        let changed = Bundle::parse(text.as_bytes()).unwrap();
        let kinds: Vec<Kind> = changed.problems().iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [Kind::Altered]);
    }
}
