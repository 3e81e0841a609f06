//! JSON that leaves nothing open: a key that occurs twice in one object is an error.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// One key of an object, and its value.
pub(crate) type Pair<'a> = (Cow<'a, str>, Json<'a>);

/// Any JSON value. Objects keep the order of their keys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    /// A number without fraction and exponent that 64 bits hold.
    Whole(i64),
    /// Any other number.
    Number(f64),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Vec<Pair<'a>>),
}

impl Json<'_> {
    /// The value as an error shows it, without what could be long.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Whole(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::Text(value) => crate::text::printable(&format!("'{value}'")),
            Self::List(_) => "a list".to_owned(),
            Self::Object(_) => "an object".to_owned(),
        }
    }

    /// UTF-8, keys sorted, no spaces: what a digest is taken of.
    pub(crate) fn canonical(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Whole(value) => out.push_str(&value.to_string()),
            Self::Number(value) => out.push_str(&value.to_string()),
            Self::Text(value) => quote(value, out),
            Self::List(values) => {
                out.push('[');
                for (place, value) in values.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    value.canonical(out);
                }
                out.push(']');
            }
            Self::Object(pairs) => object(pairs.iter().collect(), out),
        }
    }
}

/// As [`Json::canonical`], of an object's pairs.
pub(crate) fn object(mut pairs: Vec<&Pair<'_>>, out: &mut String) {
    pairs.sort_by(|left, right| left.0.cmp(&right.0));
    out.push('{');
    for (place, (key, value)) in pairs.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        quote(key, out);
        out.push(':');
        value.canonical(out);
    }
    out.push('}');
}

fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Reads one document.
///
/// # Errors
///
/// The parser's own words, for what is not JSON, nested too deeply, or has a key twice.
pub(crate) fn parse(raw: &[u8]) -> Result<Json<'_>, String> {
    serde_json::from_slice(raw).map_err(|error| error.to_string())
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Whole(value))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "above 64 bits with a sign no field takes it, whatever its digits"
    )]
    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(i64::try_from(value).map_or(Json::Number(value as f64), Json::Whole))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(value.to_owned().into()))
    }

    // Most texts of a bundle stand in it as they are: nothing is copied.
    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json<'de>, E> {
        Ok(Json::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element()? {
            found.push(item);
        }
        Ok(Json::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Json<'de>, A::Error> {
        let mut found: Vec<Pair<'de>> = Vec::new();
        // An object of a bundle has a handful of keys; one with very many must not take a quadratic time.
        let mut known = std::collections::HashSet::new();
        while let Some((Key(key), value)) = pairs.next_entry::<Key<'de>, Json<'de>>()? {
            let twice = if found.len() < 16 {
                found.iter().any(|pair| pair.0 == key)
            } else {
                false
            };
            if found.len() == 16 {
                known.extend(found.iter().map(|pair| pair.0.clone()));
            }
            if twice || (found.len() >= 16 && !known.insert(key.clone())) {
                return Err(de::Error::custom("a key occurs twice in one object"));
            }
            found.push((key, value));
        }
        Ok(Json::Object(found))
    }
}

/// A key, which is not copied where it stands in the text as it is: serde copies a `Cow` otherwise.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
