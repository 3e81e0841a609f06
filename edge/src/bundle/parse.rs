//! From bytes to a [`Bundle`], or one line that says why not.

use sha2::{Digest, Sha256};

use super::is_name;
use super::json::{self, Json};
use super::model::Bundle;
use super::values::{ALTERED, Object, RENDER, Reader, UPDATE, get};
use crate::error::{Result, code};
use crate::instant;
use crate::text::{hex, printable};

/// 100,000 of the longest IPv6 routes are 7.5 MB.
pub const MAX_BUNDLE_BYTES: usize = 16 * 1024 * 1024;
/// An edge whose clock is further off must not judge expiry.
const CLOCK_TOLERANCE_S: i64 = 300;
/// Older rounds are refused, so a round far ahead would lock every later one out.
const MAX_ROUND_AHEAD_S: i64 = 3600;
/// Twice what the policy allows; the expiry is the dead man's switch.
const MAX_LIFETIME_S: i64 = 2 * 86_400;

/// The schema that this edge reads.
const SCHEMA_VERSION: i64 = 1;

const FIELDS: [&str; 10] = [
    "schema_version",
    "edge",
    "pop",
    "round",
    "policy_version",
    "created_at",
    "expires_at",
    "digest",
    "enforce",
    "entries",
];

/// Checks everything that can be known without the kernel. `now`: seconds since the epoch.
///
/// # Errors
///
/// [`Error::Refused`] with `SOURCE: FIELD: PROBLEM; WHAT TO DO`.
pub fn parse(raw: &[u8], source: &str, edge: &str, now: f64) -> Result<Bundle> {
    Reader { source }.bundle(raw, edge, now)
}

impl Reader<'_> {
    fn bundle(&self, raw: &[u8], edge: &str, now: f64) -> Result<Bundle> {
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
        let (enforce, entries) = self.content(&document)?;
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
    fn check_fields(&self, document: &Object<'_>) -> Result<()> {
        if let Some(field) = FIELDS.iter().find(|field| get(document, field).is_none()) {
            return Err(self.bad(field, "is missing", RENDER));
        }
        let known = |name: &str| FIELDS.contains(&name);
        if let Some((field, _)) = document.iter().find(|pair| !known(&pair.0)) {
            let field = printable(&format!("'{}'", field.escape_debug()));
            return Err(self.bad(
                field,
                "is not a field of a bundle",
                &format!("remove it, or {UPDATE}"),
            ));
        }
        match get(document, "schema_version") {
            Some(Json::Whole(SCHEMA_VERSION)) => Ok(()),
            other => {
                let found = other.map(Json::shown).unwrap_or_default();
                let problem = format!("is {found}, this edge reads {SCHEMA_VERSION}");
                Err(self.bad("schema_version", &problem, UPDATE))
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
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
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

#[cfg(test)]
mod tests {
    use super::parse;

    fn refusal(raw: &[u8]) -> String {
        parse(raw, "ams-1.json", "ams-1", 0.0)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn only_utf_8_without_a_mark_is_read() {
        // As UTF-8 it is read, and misses fields.
        let text = r#"{"edge":"ams-1"}"#;
        assert!(!refusal(text.as_bytes()).contains("JSON: "), "{text}");
        let wide: Vec<u16> = text.encode_utf16().collect();
        let points: Vec<u32> = text.chars().map(u32::from).collect();
        let forms: [(&str, Vec<u8>, Vec<u8>); 5] = [
            (
                "UTF-16LE",
                vec![0xff, 0xfe],
                wide.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
            ),
            (
                "UTF-16BE",
                vec![0xfe, 0xff],
                wide.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
            ),
            (
                "UTF-32LE",
                vec![0xff, 0xfe, 0, 0],
                points
                    .iter()
                    .flat_map(|point| point.to_le_bytes())
                    .collect(),
            ),
            (
                "UTF-32BE",
                vec![0, 0, 0xfe, 0xff],
                points
                    .iter()
                    .flat_map(|point| point.to_be_bytes())
                    .collect(),
            ),
            ("UTF-8", vec![0xef, 0xbb, 0xbf], text.into()),
        ];
        for (name, mark, body) in forms {
            let marked = [mark, body.clone()].concat();
            // Without its mark UTF-8 is as above.
            let bodies = if name == "UTF-8" {
                vec![marked]
            } else {
                vec![marked, body]
            };
            for raw in bodies {
                let said = refusal(&raw);
                assert!(said.starts_with("ams-1.json: JSON: "), "{name}: {said}");
                assert_eq!(said.lines().count(), 1, "{name}: {said}");
                assert!(!said.contains(char::is_control), "{name}: {said}");
            }
        }
        // A text within the document that is none.
        let latin = [b"{\"edge\":\"".as_slice(), &[0xe9], b"\"}"].concat();
        assert!(refusal(&latin).starts_with("ams-1.json: JSON: "));
        // Half of a pair of surrogates, written out.
        assert!(refusal(br#"{"edge":"\ud800"}"#).starts_with("ams-1.json: JSON: "));
    }

    #[test]
    fn depth_is_refused() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = [open.repeat(20_000), "1".into(), close.repeat(20_000)].concat();
            assert!(refusal(deep.as_bytes()).starts_with("ams-1.json: JSON: "));
        }
    }
}
