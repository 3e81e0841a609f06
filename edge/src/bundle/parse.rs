//! From bytes to a [`Bundle`], or one line that says why not.

use std::fmt::{self, Display};

use ipnet::IpNet;
use sha2::{Digest, Sha256};

use super::is_name;
use super::json::{self, Json, Pair};
use super::model::{Brake, Bundle, Congestion, Enforce, Entry, Lift, Live, Otherwise, Trial, Way};
use super::prefix::{destination_problem, parse_prefix};
use crate::error::{Error, Result, code};
use crate::instant;
use crate::text::{hex, printable};

/// 100,000 of the longest IPv6 routes are 7.5 MB.
pub const MAX_BUNDLE_BYTES: usize = 16 * 1024 * 1024;
/// Ten times what a fleet needs; also the largest that the policy can ask for. Of routes, of choices, of entries.
const MAX_ENTRIES: usize = 100_000;
/// 1.4 MB in the first round trip; ten times the largest default of the policy, a slip above it.
const MAX_INITCWND: i64 = 1000;
/// 80 Gbit/s.
const MAX_RATE: i64 = 10_000_000_000;
/// As the policy.
const MAX_OBJECT_BYTES: i64 = 1_000_000_000;
/// An edge whose clock is further off must not judge expiry.
const CLOCK_TOLERANCE_S: i64 = 300;
/// Older rounds are refused, so a round far ahead would lock every later one out.
const MAX_ROUND_AHEAD_S: i64 = 3600;
/// Twice what the policy allows; the expiry is the dead man's switch.
const MAX_LIFETIME_S: i64 = 2 * 86_400;

const COMMON: [&str; 8] = [
    "schema_version",
    "edge",
    "pop",
    "round",
    "policy_version",
    "created_at",
    "expires_at",
    "digest",
];
const RENDER: &str = "render it again with `springtide bundle`";
const UPDATE: &str = "update this edge's Springtide";
const ALTERED: &str = "fetch the bundle again: it was cut or altered on its way";

/// Checks everything that can be known without the kernel. `now`: seconds since the epoch.
///
/// # Errors
///
/// [`Error::Refused`] with `SOURCE: FIELD: PROBLEM; WHAT TO DO`.
pub fn parse(raw: &[u8], source: &str, edge: &str, now: f64) -> Result<Bundle> {
    Reader { source, schema: 1 }.bundle(raw, edge, now)
}

type Object<'a> = [Pair<'a>];

fn get<'o, 'a>(object: &'o Object<'a>, name: &str) -> Option<&'o Json<'a>> {
    object
        .iter()
        .find(|pair| pair.0 == name)
        .map(|pair| &pair.1)
}

/// Which value of the document: written out only where something is wrong with it.
#[derive(Clone, Copy)]
enum Field<'f> {
    Name(&'f str),
    Item(&'f str, usize),
    In(&'f Field<'f>, &'f str),
}

const ENFORCE: Field<'static> = Field::Name("enforce");

impl Display for Field<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Item(list, number) => write!(formatter, "{list}[{number}]"),
            Self::In(field, name) => write!(formatter, "{field}.{name}"),
        }
    }
}

struct Reader<'a> {
    source: &'a str,
    schema: i64,
}

impl Reader<'_> {
    fn bad(&self, field: impl Display, problem: &str, fix: &str) -> Error {
        self.bad_as(code::REFUSED, field, problem, fix)
    }

    fn bad_as(&self, code: u8, field: impl Display, problem: &str, fix: &str) -> Error {
        Error::refused_as(code, format!("{}: {field}: {problem}; {fix}", self.source))
    }

    fn bundle(mut self, raw: &[u8], edge: &str, now: f64) -> Result<Bundle> {
        if raw.len() > MAX_BUNDLE_BYTES {
            let problem = format!("is over {MAX_BUNDLE_BYTES} bytes");
            return Err(self.bad("size", &problem, "lower bundle.max_routes in policy.yaml"));
        }
        let document = match json::parse(raw) {
            Ok(Json::Object(document)) => document,
            Ok(_) => return Err(self.bad("JSON", "is not an object", ALTERED)),
            Err(problem) => return Err(self.bad("JSON", &printable(&problem), ALTERED)),
        };
        self.check_fields(&document)?;
        let named = |name: &str, fits: fn(&str) -> bool| self.text(&document, name, fits);
        let (name, pop) = (named("edge", is_name)?, named("pop", is_name)?);
        let policy_version = named("policy_version", |text| is_hex(text, 12))?;
        let digest = named("digest", |text| {
            text.strip_prefix("sha256:")
                .is_some_and(|hex| is_hex(hex, 64))
        })?;
        let [round, created_at, expires_at] = self.instants(&document)?;
        let (enforce, entries) = if self.schema == 1 {
            self.first(&document)?
        } else {
            self.second(&document)?
        };
        if !digest_matches(raw, &document, &digest) {
            return Err(self.bad_as(
                code::ALTERED,
                "digest",
                "does not match the content",
                ALTERED,
            ));
        }
        if name != edge {
            let fix = format!("push {edge}.json to this edge");
            return Err(self.bad_as(
                code::OTHER_EDGE,
                "edge",
                &format!("is for {name}, this is {edge}"),
                &fix,
            ));
        }
        let bundle = Bundle {
            edge: name,
            pop,
            round,
            policy_version,
            created_at,
            expires_at,
            digest,
            enforce,
            entries,
        };
        self.check_times(&bundle, now)?;
        Ok(bundle)
    }

    /// Which fields there are, and the schema.
    fn check_fields(&mut self, document: &Object<'_>) -> Result<()> {
        let version = get(document, "schema_version");
        self.schema = if version == Some(&Json::Whole(2)) {
            2
        } else {
            1
        };
        let (own, optional): (&[&str], &[&str]) = if self.schema == 1 {
            (&["routes"], &["congestion"])
        } else {
            (&["enforce", "entries"], &[])
        };
        if let Some(field) = COMMON
            .iter()
            .chain(own)
            .find(|field| get(document, field).is_none())
        {
            return Err(self.bad(field, "is missing", RENDER));
        }
        let known = |name: &str| {
            COMMON
                .iter()
                .chain(own)
                .chain(optional)
                .any(|field| *field == name)
        };
        if let Some((field, _)) = document.iter().find(|pair| !known(&pair.0)) {
            let field = printable(&format!("'{}'", field.escape_debug()));
            return Err(self.bad(
                field,
                "is not a field of a bundle",
                &format!("remove it, or {UPDATE}"),
            ));
        }
        match version {
            Some(Json::Whole(1 | 2)) => Ok(()),
            other => {
                let found = other.map(Json::shown).unwrap_or_default();
                Err(self.bad(
                    "schema_version",
                    &format!("is {found}, this edge reads 1 and 2"),
                    UPDATE,
                ))
            }
        }
    }

    fn text(&self, document: &Object<'_>, name: &str, fits: fn(&str) -> bool) -> Result<String> {
        match get(document, name) {
            Some(Json::Text(text)) if fits(text) => Ok(text.to_string()),
            other => {
                let shown = other.map(Json::shown).unwrap_or_default();
                let problem = format!("{shown} does not look like a {}", name.replace('_', " "));
                Err(self.bad(name, &problem, RENDER))
            }
        }
    }

    fn instants(&self, document: &Object<'_>) -> Result<[i64; 3]> {
        let mut found = [0; 3];
        for (slot, field) in found.iter_mut().zip(["round", "created_at", "expires_at"]) {
            let value = get(document, field).unwrap_or(&Json::Null);
            let parsed = if let Json::Text(text) = value {
                instant::parse(text)
            } else {
                None
            };
            let problem = || {
                format!(
                    "{} is not an instant like 2026-01-02T03:05:00Z",
                    value.shown()
                )
            };
            *slot = parsed.ok_or_else(|| self.bad(field, &problem(), RENDER))?;
        }
        Ok(found)
    }

    fn check_times(&self, bundle: &Bundle, now: f64) -> Result<()> {
        let (created, expires) = (bundle.created_at, bundle.expires_at);
        #[expect(clippy::cast_possible_truncation, reason = "seconds since the epoch")]
        let now = now.floor() as i64;
        if expires <= created {
            return Err(self.bad("expires_at", "is not after created_at", RENDER));
        }
        if expires - created > MAX_LIFETIME_S {
            let problem = format!("is more than {MAX_LIFETIME_S} s after created_at");
            return Err(self.bad("expires_at", &problem, "lower bundle.ttl_s in policy.yaml"));
        }
        if created > now + CLOCK_TOLERANCE_S {
            let problem = format!("is {} s in the future of this edge's clock", created - now);
            return Err(self.bad(
                "created_at",
                &problem,
                "set this edge's clock, or render the bundle again",
            ));
        }
        if bundle.round > created + MAX_ROUND_AHEAD_S {
            return Err(self.bad(
                "round",
                &format!("is more than {MAX_ROUND_AHEAD_S} s after created_at"),
                RENDER,
            ));
        }
        if expires <= now {
            let problem = format!("it expired {} s ago", now - expires);
            return Err(self.bad_as(
                code::EXPIRED,
                "expires_at",
                &problem,
                "render a newer round and push that",
            ));
        }
        Ok(())
    }

    /// Schema 1: windows per destination, congestion controls per client prefix.
    fn first(&self, document: &Object<'_>) -> Result<(Enforce, Vec<Entry>)> {
        let mut entries = Vec::new();
        let mut order = Order::default();
        for (number, route) in self.list(document, "routes")?.iter().enumerate() {
            let field = Field::Item("routes", number);
            let [prefix, initcwnd] = self.exactly(field, route, ["prefix", "initcwnd"])?;
            let prefix = self.destination(field, prefix, &mut order)?;
            let initcwnd = self.whole(Field::In(&field, "initcwnd"), initcwnd, 1, MAX_INITCWND)?;
            entries.push(Entry {
                initcwnd: u32::try_from(initcwnd).ok(),
                ..nothing_for(prefix)
            });
        }
        let mut clients = Vec::new();
        let mut order = Order::default();
        let choices = if get(document, "congestion").is_some() {
            self.list(document, "congestion")?
        } else {
            &[]
        };
        for (number, choice) in choices.iter().enumerate() {
            let field = Field::Item("congestion", number);
            let [prefix, algorithm, least] =
                self.exactly(field, choice, ["prefix", "algorithm", "min_object_bytes"])?;
            let prefix = self.client_prefix(field, prefix, &mut order)?;
            let algorithm = self.algorithm(field, algorithm)?;
            let from_bytes = self.whole(
                Field::In(&field, "min_object_bytes"),
                least,
                0,
                MAX_OBJECT_BYTES,
            )?;
            let congestion = Some(Congestion {
                algorithm,
                from_bytes: from_bytes.unsigned_abs(),
                always: false,
            });
            match entries.binary_search_by_key(&prefix, |entry: &Entry| entry.prefix) {
                Ok(place) => entries[place].congestion = congestion,
                Err(_) => clients.push(Entry {
                    congestion,
                    ..nothing_for(prefix)
                }),
            }
        }
        entries.append(&mut clients);
        entries.sort_by_key(|entry| entry.prefix);
        Ok((Enforce::default(), entries))
    }

    fn list<'o, 'a>(&self, document: &'o Object<'a>, name: &'static str) -> Result<&'o [Json<'a>]> {
        let Some(Json::List(items)) = get(document, name) else {
            return Err(self.bad(name, "is not a list", RENDER));
        };
        if items.len() > MAX_ENTRIES {
            let problem = format!(
                "{} are more than the {MAX_ENTRIES} that an edge takes",
                items.len()
            );
            let limit = if name == "congestion" {
                "max_congestion"
            } else {
                "max_routes"
            };
            return Err(self.bad(
                name,
                &problem,
                &format!("lower bundle.{limit} in policy.yaml"),
            ));
        }
        Ok(items)
    }

    /// The values of an object that has exactly these fields.
    fn exactly<'o, 'a, const N: usize>(
        &self,
        field: Field<'_>,
        value: &'o Json<'a>,
        names: [&str; N],
    ) -> Result<[&'o Json<'a>; N]> {
        if let Json::Object(pairs) = value
            && pairs.len() == N
        {
            let found = names.map(|name| get(pairs, name));
            if found.iter().all(Option::is_some) {
                return Ok(found.map(|value| value.unwrap_or(&Json::Null)));
            }
        }
        Err(self.bad(
            field,
            &format!("must have exactly the fields {}", listed(&names)),
            RENDER,
        ))
    }

    fn prefix(&self, field: Field<'_>, value: &Json<'_>, example: &str) -> Result<IpNet> {
        match value {
            Json::Text(text) if text.contains('/') => parse_prefix(text)
                .map_err(|problem| self.bad(Field::In(&field, "prefix"), &problem, RENDER)),
            other => {
                let problem = format!("{} is not a prefix like {example}", other.shown());
                Err(self.bad(Field::In(&field, "prefix"), &problem, RENDER))
            }
        }
    }

    fn destination(&self, field: Field<'_>, value: &Json<'_>, order: &mut Order) -> Result<IpNet> {
        let prefix = self.prefix(field, value, "10.77.2.0/24")?;
        if let Some(problem) = destination_problem(&prefix) {
            let problem = format!("{prefix}: {problem}");
            return Err(self.bad(
                Field::In(&field, "prefix"),
                &problem,
                "narrow the PoP's prefix in fleet.yaml",
            ));
        }
        self.in_order(field, prefix, order)
    }

    /// As far as the controller distinguishes clients: an IPv4 /24 or an IPv6 /56.
    fn client_prefix(
        &self,
        field: Field<'_>,
        value: &Json<'_>,
        order: &mut Order,
    ) -> Result<IpNet> {
        let prefix = self.prefix(field, value, "192.0.2.0/24")?;
        if prefix.prefix_len() != if prefix.addr().is_ipv4() { 24 } else { 56 } {
            let problem = format!("{prefix} is neither an IPv4 /24 nor an IPv6 /56");
            return Err(self.bad(Field::In(&field, "prefix"), &problem, RENDER));
        }
        self.in_order(field, prefix, order)
    }

    fn in_order(&self, field: Field<'_>, prefix: IpNet, order: &mut Order) -> Result<IpNet> {
        let problem = match order.0 {
            Some(previous) if prefix == previous => format!("{prefix} occurs twice"),
            Some(previous) if prefix < previous => {
                format!("{prefix} is out of order (IP version, network, length)")
            }
            _ => {
                order.0 = Some(prefix);
                return Ok(prefix);
            }
        };
        Err(self.bad(Field::In(&field, "prefix"), &problem, RENDER))
    }

    fn whole(&self, field: Field<'_>, value: &Json<'_>, least: i64, most: i64) -> Result<i64> {
        match value {
            Json::Whole(number) if (least..=most).contains(number) => Ok(*number),
            other => {
                let problem = format!("{} is not a whole number in {least}..{most}", other.shown());
                let fix = if matches!(field, Field::In(_, "initcwnd")) {
                    "set initcwnd.cmax in policy.yaml"
                } else {
                    RENDER
                };
                Err(self.bad(field, &problem, fix))
            }
        }
    }

    /// As long as the kernel's TCP_CA_NAME_MAX of 16 allows, its end included.
    fn algorithm(&self, field: Field<'_>, value: &Json<'_>) -> Result<String> {
        let fits = |text: &str| {
            let letters = text.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte)
            });
            letters && (1..=15).contains(&text.len())
        };
        match value {
            Json::Text(text) if fits(text) => Ok(text.to_string()),
            other => {
                let problem = format!("{} is not a name of a congestion control", other.shown());
                Err(self.bad(Field::In(&field, "algorithm"), &problem, RENDER))
            }
        }
    }
}

/// Schema 2: everything per destination.
impl Reader<'_> {
    fn second(&self, document: &Object<'_>) -> Result<(Enforce, Vec<Entry>)> {
        let enforce = self.enforce(get(document, "enforce").unwrap_or(&Json::Null))?;
        let mut order = Order::default();
        let mut entries = Vec::new();
        for (number, entry) in self.list(document, "entries")?.iter().enumerate() {
            entries.push(self.entry(Field::Item("entries", number), entry, &mut order)?);
        }
        Ok((enforce, entries))
    }

    /// An object with no other fields than these.
    fn object<'o, 'a>(
        &self,
        field: Field<'_>,
        value: &'o Json<'a>,
        names: &[&str],
    ) -> Result<&'o Object<'a>> {
        let Json::Object(pairs) = value else {
            return Err(self.bad(field, "is not an object", RENDER));
        };
        match pairs.iter().find(|pair| !names.contains(&pair.0.as_ref())) {
            None => Ok(pairs),
            Some((name, _)) => {
                let problem = format!(
                    "has {}, which is not one of {}",
                    Json::Text(name.clone()).shown(),
                    listed(names)
                );
                Err(self.bad(field, &problem, &format!("remove it, or {UPDATE}")))
            }
        }
    }

    fn one_of<T: Copy>(
        &self,
        field: Field<'_>,
        value: Option<&Json<'_>>,
        choices: &[(&str, T)],
    ) -> Result<Option<T>> {
        let Some(value) = value else { return Ok(None) };
        let found = choices
            .iter()
            .find(|choice| *value == Json::Text(choice.0.into()));
        let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
        let problem = || format!("{} is not one of {}", value.shown(), listed(&names));
        found
            .map(|choice| Some(choice.1))
            .ok_or_else(|| self.bad(field, &problem(), RENDER))
    }

    fn number(
        &self,
        field: Field<'_>,
        value: Option<&Json<'_>>,
        least: i64,
        most: i64,
    ) -> Result<Option<u32>> {
        let Some(value) = value else { return Ok(None) };
        Ok(u32::try_from(self.whole(field, value, least, most)?).ok())
    }

    fn enforce(&self, value: &Json<'_>) -> Result<Enforce> {
        let names = [
            "by",
            "otherwise",
            "live",
            "excluded",
            "lift_bytes",
            "lift_round_trips",
            "brake",
            "record_permille",
        ];
        let pairs = self.object(ENFORCE, value, &names)?;
        let default = Enforce::default();
        let ways = [("routes", Way::Routes), ("bpf", Way::Bpf)];
        let otherwise = [
            ("routes", Otherwise::Routes),
            ("default", Otherwise::Default),
        ];
        let live = [("leave", Live::Leave), ("restore", Live::Restore)];
        let number = |name: &str, least, most| {
            self.number(Field::In(&ENFORCE, name), get(pairs, name), least, most)
        };
        Ok(Enforce {
            by: self
                .one_of(Field::In(&ENFORCE, "by"), get(pairs, "by"), &ways)?
                .unwrap_or(default.by),
            otherwise: self
                .one_of(
                    Field::In(&ENFORCE, "otherwise"),
                    get(pairs, "otherwise"),
                    &otherwise,
                )?
                .unwrap_or(default.otherwise),
            live: self
                .one_of(Field::In(&ENFORCE, "live"), get(pairs, "live"), &live)?
                .unwrap_or(default.live),
            excluded: self.excluded(get(pairs, "excluded"))?,
            lift: Lift {
                bytes: number("lift_bytes", 1, MAX_OBJECT_BYTES)?.unwrap_or(default.lift.bytes),
                round_trips: number("lift_round_trips", 1, 1000)?,
            },
            brake: get(pairs, "brake")
                .map(|brake| self.brake(brake))
                .transpose()?,
            record_permille: number("record_permille", 0, 1000)?.unwrap_or(0),
        })
    }

    fn excluded(&self, value: Option<&Json<'_>>) -> Result<Vec<IpNet>> {
        let Some(value) = value else {
            return Ok(Vec::new());
        };
        let Json::List(items) = value else {
            return Err(self.bad("enforce.excluded", "is not a list", RENDER));
        };
        if items.len() > MAX_ENTRIES {
            let problem = format!(
                "{} are more than the {MAX_ENTRIES} that an edge takes",
                items.len()
            );
            return Err(self.bad("enforce.excluded", &problem, RENDER));
        }
        let mut order = Order::default();
        let read = |(number, item)| {
            let field = Field::Item("enforce.excluded", number);
            let prefix = self.prefix(field, item, "10.0.0.0/8")?;
            self.in_order(field, prefix, &mut order)
        };
        items.iter().enumerate().map(read).collect()
    }

    fn brake(&self, value: &Json<'_>) -> Result<Brake> {
        let names = ["lost_permille", "connections", "half_life_s"];
        let found = self.exactly(Field::Name("enforce.brake"), value, names)?;
        let number = |place: usize, most: i64| {
            let field = Field::In(&Field::Name("enforce.brake"), names[place]);
            self.number(field, Some(found[place]), 1, most)
                .map(Option::unwrap_or_default)
        };
        Ok(Brake {
            lost_permille: number(0, 1000)?,
            connections: number(1, 1_000_000)?,
            half_life_s: number(2, 86_400)?,
        })
    }

    fn entry(&self, field: Field<'_>, value: &Json<'_>, order: &mut Order) -> Result<Entry> {
        let names = [
            "prefix",
            "initcwnd",
            "start_rate",
            "congestion",
            "receive_window",
            "trial",
        ];
        let pairs = self.object(field, value, &names)?;
        let Some(prefix) = get(pairs, "prefix") else {
            return Err(self.bad(Field::In(&field, "prefix"), "is missing", RENDER));
        };
        let prefix = self.destination(field, prefix, order)?;
        if pairs.len() == 1 {
            return Err(self.bad(field, &format!("{prefix} has no value"), RENDER));
        }
        let window =
            |name: &str| self.number(Field::In(&field, name), get(pairs, name), 1, MAX_INITCWND);
        Ok(Entry {
            prefix,
            initcwnd: window("initcwnd")?,
            start_rate: self.rate(field, get(pairs, "start_rate"))?,
            congestion: get(pairs, "congestion")
                .map(|value| self.congestion(field, value))
                .transpose()?,
            receive_window: window("receive_window")?,
            trial: get(pairs, "trial")
                .map(|value| self.trial(field, value))
                .transpose()?,
        })
    }

    fn rate(&self, field: Field<'_>, value: Option<&Json<'_>>) -> Result<Option<u64>> {
        let Some(value) = value else { return Ok(None) };
        let field = Field::In(&field, "start_rate");
        Ok(Some(
            self.whole(field, value, 1000, MAX_RATE)?.unsigned_abs(),
        ))
    }

    fn congestion(&self, entry: Field<'_>, value: &Json<'_>) -> Result<Congestion> {
        let field = Field::In(&entry, "congestion");
        let pairs = self.object(field, value, &["algorithm", "from_bytes", "always"])?;
        let required = |name: &str| {
            get(pairs, name).ok_or_else(|| self.bad(Field::In(&field, name), "is missing", RENDER))
        };
        let from_bytes = self.whole(
            Field::In(&field, "from_bytes"),
            required("from_bytes")?,
            0,
            MAX_OBJECT_BYTES,
        )?;
        let always = match get(pairs, "always") {
            None => false,
            Some(Json::Bool(value)) => *value,
            Some(other) => {
                let problem = format!("{} is neither true nor false", other.shown());
                return Err(self.bad(Field::In(&field, "always"), &problem, RENDER));
            }
        };
        let algorithm = self.algorithm(field, required("algorithm")?)?;
        Ok(Congestion {
            algorithm,
            from_bytes: from_bytes.unsigned_abs(),
            always,
        })
    }

    fn trial(&self, entry: Field<'_>, value: &Json<'_>) -> Result<Trial> {
        let field = Field::In(&entry, "trial");
        let pairs = self.object(field, value, &["permille", "initcwnd", "start_rate"])?;
        let number =
            |name: &str, most| self.number(Field::In(&field, name), get(pairs, name), 1, most);
        let Some(permille) = number("permille", 1000)? else {
            return Err(self.bad(Field::In(&field, "permille"), "is missing", RENDER));
        };
        Ok(Trial {
            permille,
            initcwnd: number("initcwnd", MAX_INITCWND)?,
            start_rate: self.rate(field, get(pairs, "start_rate"))?,
        })
    }
}

/// The last prefix of a list that must be sorted and unique.
#[derive(Default)]
struct Order(Option<IpNet>);

fn nothing_for(prefix: IpNet) -> Entry {
    Entry {
        prefix,
        initcwnd: None,
        start_rate: None,
        congestion: None,
        receive_window: None,
        trial: None,
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn listed(names: &[&str]) -> String {
    match names {
        [head @ .., last] if !head.is_empty() => format!("{} and {last}", head.join(", ")),
        _ => names.concat(),
    }
}

/// Whether the digest is of the content; as bundles are rendered, the bytes beside it are what was digested.
fn digest_matches(raw: &[u8], document: &Object<'_>, digest: &str) -> bool {
    let field = format!("\"digest\":\"{digest}\",");
    let found = raw
        .windows(field.len())
        .position(|window| window == field.as_bytes());
    if let Some(at) = found {
        let mut hash = Sha256::new();
        hash.update(&raw[..at]);
        hash.update(&raw[at + field.len()..]);
        if hex(&hash.finalize()) == digest[7..] {
            return true;
        }
    }
    let mut canonical = String::with_capacity(raw.len());
    json::object(
        document.iter().filter(|pair| pair.0 != "digest").collect(),
        &mut canonical,
    );
    hex(&Sha256::digest(canonical.as_bytes())) == digest[7..]
}
