//! The values of a document, each with its line for where it is wrong.

use std::fmt::{self, Display};

use ipnet::IpNet;

use super::json::{Json, Pair};
use super::prefix::{destination_problem, parse_prefix};
use crate::error::{Error, Result, code};

/// Ten times what a fleet needs; also the largest that the policy can ask for. Of entries.
pub(super) const MAX_ENTRIES: usize = 100_000;
/// 1.4 MB in the first round trip; ten times the largest default of the policy, a slip above it.
pub(super) const MAX_INITCWND: i64 = 1000;
/// 80 Gbit/s.
pub(super) const MAX_RATE: i64 = 10_000_000_000;
/// Segments of a thousand first flights.
pub(super) const MAX_DEFAULT_RESENT: i64 = 4_000_000;
/// As the policy.
pub(super) const MAX_OBJECT_BYTES: i64 = 1_000_000_000;

pub(super) const RENDER: &str = "render it again with `springtide bundle`";
pub(super) const UPDATE: &str = "update this edge's Springtide";
pub(super) const ALTERED: &str = "fetch the bundle again: it was cut or altered on its way";

pub(super) type Object<'a> = [Pair<'a>];

pub(super) fn get<'o, 'a>(object: &'o Object<'a>, name: &str) -> Option<&'o Json<'a>> {
    object
        .iter()
        .find(|pair| pair.0 == name)
        .map(|pair| &pair.1)
}

/// Which value of the document: written out only where something is wrong with it.
#[derive(Clone, Copy)]
pub(super) enum Field<'f> {
    Name(&'f str),
    Item(&'f str, usize),
    In(&'f Field<'f>, &'f str),
}

impl Display for Field<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Item(list, number) => write!(formatter, "{list}[{number}]"),
            Self::In(field, name) => write!(formatter, "{field}.{name}"),
        }
    }
}

pub(super) struct Reader<'a> {
    pub(super) source: &'a str,
}

impl Reader<'_> {
    pub(super) fn bad(&self, field: impl Display, problem: &str, fix: &str) -> Error {
        self.bad_as(code::REFUSED, field, problem, fix)
    }

    pub(super) fn bad_as(&self, code: u8, field: impl Display, problem: &str, fix: &str) -> Error {
        Error::refused_as(code, format!("{}: {field}: {problem}; {fix}", self.source))
    }

    pub(super) fn text(
        &self,
        document: &Object<'_>,
        name: &str,
        fits: fn(&str) -> bool,
    ) -> Result<String> {
        match get(document, name) {
            Some(Json::Text(text)) if fits(text) => Ok(text.to_string()),
            other => {
                let shown = other.map(Json::shown).unwrap_or_default();
                let problem = format!("{shown} does not look like a {}", name.replace('_', " "));
                Err(self.bad(name, &problem, RENDER))
            }
        }
    }

    pub(super) fn list<'o, 'a>(
        &self,
        document: &'o Object<'a>,
        name: &'static str,
    ) -> Result<&'o [Json<'a>]> {
        let Some(Json::List(items)) = get(document, name) else {
            return Err(self.bad(name, "is not a list", RENDER));
        };
        if items.len() > MAX_ENTRIES {
            let problem = format!(
                "{} are more than the {MAX_ENTRIES} that an edge takes",
                items.len()
            );
            return Err(self.bad(name, &problem, "lower bundle.max_routes in policy.yaml"));
        }
        Ok(items)
    }

    /// The values of an object that has exactly these fields.
    pub(super) fn exactly<'o, 'a, const N: usize>(
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

    pub(super) fn prefix(
        &self,
        field: Field<'_>,
        value: &Json<'_>,
        example: &str,
    ) -> Result<IpNet> {
        let found = match value {
            Json::Text(text) if text.contains('/') => parse_prefix(text),
            other => Err(format!("{} is not a prefix like {example}", other.shown())),
        };
        // The controller knows one form of each: an IPv4-mapped prefix is none.
        let mapped = |prefix: &IpNet| prefix.addr().to_canonical() != prefix.addr();
        found
            .and_then(|prefix| {
                if mapped(&prefix) {
                    return Err(format!("{prefix} is IPv4-mapped: write the IPv4 prefix"));
                }
                Ok(prefix)
            })
            .map_err(|problem| self.bad(Field::In(&field, "prefix"), &problem, RENDER))
    }

    pub(super) fn destination(
        &self,
        field: Field<'_>,
        value: &Json<'_>,
        order: &mut Order,
    ) -> Result<IpNet> {
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

    pub(super) fn in_order(
        &self,
        field: Field<'_>,
        prefix: IpNet,
        order: &mut Order,
    ) -> Result<IpNet> {
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

    pub(super) fn whole(
        &self,
        field: Field<'_>,
        value: &Json<'_>,
        least: i64,
        most: i64,
    ) -> Result<i64> {
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
    pub(super) fn algorithm(&self, field: Field<'_>, value: &Json<'_>) -> Result<String> {
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

    /// An object with no other fields than these.
    pub(super) fn object<'o, 'a>(
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

    pub(super) fn one_of<T: Copy>(
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

    pub(super) fn number(
        &self,
        field: Field<'_>,
        value: Option<&Json<'_>>,
        least: i64,
        most: i64,
    ) -> Result<Option<u32>> {
        let Some(value) = value else { return Ok(None) };
        Ok(u32::try_from(self.whole(field, value, least, most)?).ok())
    }
}

/// The last prefix of a list that must be sorted and unique.
#[derive(Default)]
pub(super) struct Order(Option<IpNet>);

pub(super) fn listed(names: &[&str]) -> String {
    match names {
        [head @ .., last] if !head.is_empty() => format!("{} and {last}", head.join(", ")),
        _ => names.concat(),
    }
}
