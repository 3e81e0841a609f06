//! Checks of a document: its bytes, its values, whose it is and when. What passes is a bundle that an edge may take.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use sha2::{Digest, Sha256};

use crate::bundle::{
    Bundle, Enforce, Entry, Kind, MAX_BYTES, MAX_ENTRIES, MAX_OPTED_OUT, Otherwise, Problem,
    SCHEMA_VERSION, Way,
};
use crate::part::Value;
use crate::prefix::{Prefix, destination_problem};
use crate::text::{hex, printable};

/// An edge whose clock is further off must not judge expiry.
const CLOCK_TOLERANCE_S: i64 = 300;
/// Older rounds are refused, so a round far ahead would lock every later one out.
const MAX_ROUND_AHEAD_S: i64 = 3600;
/// Twice what the policy allows; the expiry is the dead man's switch.
const MAX_LIFETIME_S: i64 = 2 * 86_400;
/// A document of many wrong values must not take a host's memory.
const MAX_PROBLEMS: usize = 100;
/// Longest name of a congestion control: the kernel's TCP_CA_NAME_MAX is 16, its end included.
const MAX_ALGORITHM: usize = 15;

const RENDER: &str = "render it again with `springtide bundle`";
const ALTERED: &str = "fetch the bundle again: it was cut or altered on its way";
const UPDATE: &str = "remove it, or update this edge's Springtide";

impl Bundle {
    /// Reads a document of the right shape.
    ///
    /// # Errors
    ///
    /// The first problem, where it is not JSON in UTF-8 without a mark, or has another shape.
    pub fn parse(raw: &[u8]) -> Result<Self, Problem> {
        if raw.len() > MAX_BYTES {
            let what = format!("is over {MAX_BYTES} bytes");
            return Err(Problem::new(
                "size",
                what,
                "lower bundle.max_routes in policy.yaml",
            ));
        }
        Self::read(raw)
    }

    /// As [`Self::parse`], whatever its size: for what is rendered, and made smaller where it is too large.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn read(raw: &[u8]) -> Result<Self, Problem> {
        match serde_json::from_slice::<Self>(raw) {
            Ok(bundle) if bundle.schema_version == SCHEMA_VERSION => Ok(bundle),
            // A path to each value costs time, so it is looked for only where something is wrong.
            _ => Err(shape_problem(raw)),
        }
    }

    /// Writes it as UTF-8, keys sorted, without spaces.
    pub fn canonical(&self) -> String {
        // Neither texts nor numbers can fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Writes it with the digest of its content, which is the second text.
    pub fn seal(mut self) -> (String, String) {
        self.digest = self.digest_of_content();
        (self.canonical(), self.digest)
    }

    /// Digests the canonical form of all other fields than the digest: `sha256:<hex>`.
    pub fn digest_of_content(&self) -> String {
        let whole = self.canonical();
        // As the second field, behind a time: nothing before it can look like it.
        let own = format!("\"digest\":{},", quoted(&self.digest));
        let rest = whole.replacen(&own, "", 1);
        format!("sha256:{}", hex(&Sha256::digest(rest.as_bytes())))
    }

    /// Lists what is wrong with its values, whichever edge takes it and whenever: the first hundred, and a digest that is
    /// not of them.
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

    /// Checks whether this edge takes it now (seconds since the epoch, by its own clock).
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

/// Finds the value that has another shape.
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
        // Text after the document.
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

/// Problems as they are found, at most [`MAX_PROBLEMS`]. A field is written out only where something is wrong with it.
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: impl Display, what: impl Display, fix: &str) {
        if self.0.len() < MAX_PROBLEMS {
            self.0
                .push(Problem::new(field.to_string(), what.to_string(), fix));
        }
    }

    pub(crate) fn within(
        &mut self,
        field: impl Display,
        value: Option<u64>,
        bounds: RangeInclusive<u64>,
    ) {
        if let Some(value) = value.filter(|value| !bounds.contains(value)) {
            let (least, most) = bounds.into_inner();
            self.add(
                field,
                format_args!("{value} is outside {least} to {most}"),
                RENDER,
            );
        }
    }

    fn few(&mut self, field: &str, count: usize, most: usize, fix: &str) {
        if count > most {
            let what = format_args!("{count} are more than the {most} that an edge takes");
            self.add(field, what, fix);
        }
    }

    fn in_order(&mut self, list: &str, part: &str, prefixes: impl Iterator<Item = Prefix>) {
        let mut last = None;
        for (number, prefix) in prefixes.enumerate() {
            let field = format_args!("{list}[{number}]{part}");
            match last {
                Some(last) if prefix == last => {
                    self.add(field, format_args!("{} occurs twice", prefix.0), RENDER);
                }
                Some(last) if prefix < last => {
                    let order = "is out of order (IP version, network, length)";
                    self.add(field, format_args!("{} {order}", prefix.0), RENDER);
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
        enforce.check(&"enforce", self);
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
            let field = format_args!("enforce.opted_out[{number}]");
            if side.port.is_none() && side.prefix.is_none() {
                self.add(field, "has neither a port nor a prefix", RENDER);
            }
            if number > 0 && found[number - 1] >= *side {
                self.add(field, "is out of order (port, prefix), or twice", RENDER);
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
        if let Some(what) = destination_problem(&entry.prefix) {
            self.add(
                At(number, "prefix"),
                format_args!("{} {what}", entry.prefix.0),
                "narrow the PoP's prefix in fleet.yaml",
            );
        }
        if *entry == Entry::of(entry.prefix) {
            self.add(
                format_args!("entries[{number}]"),
                format_args!("{} has no value", entry.prefix.0),
                RENDER,
            );
        }
        entry.check(&format_args!("entries[{number}]"), self);
        self.rates(
            At(number, "connection_rate"),
            entry.start_rate,
            entry.connection_rate,
        );
        if let Some(trial) = &entry.trial {
            self.rates(
                At(number, "trial.connection_rate"),
                trial.start_rate,
                trial.connection_rate,
            );
        }
        if let Some(congestion) = &entry.congestion {
            let name = &congestion.algorithm;
            let letter = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte)
            };
            if !(1..=MAX_ALGORITHM).contains(&name.len()) || !name.bytes().all(letter) {
                let what = format!(
                    "{} is not a name of a congestion control",
                    printable(&format!("'{name}'"))
                );
                self.add(At(number, "congestion.algorithm"), what, RENDER);
            }
        }
    }

    /// Checks what one connection gets of the rate that all share.
    fn rates(&mut self, field: At, all: Option<u64>, one: Option<u64>) {
        if all.is_none() && one.is_some() {
            self.add(
                field,
                "is there without start_rate, of which it is a part",
                RENDER,
            );
        }
    }
}

/// Names a field of the entry with this number.
#[derive(Clone, Copy)]
struct At(usize, &'static str);

impl Display for At {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "entries[{}].{}", self.0, self.1)
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Says whether a text can be the name of an edge or of a PoP.
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
mod tests;
