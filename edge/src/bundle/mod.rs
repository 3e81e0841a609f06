//! What a publisher wants of this edge: one JSON document, checked as far as it can be without the kernel.

mod entries;
mod json;
mod model;
mod parse;
mod prefix;
mod values;

pub use model::{
    Brake, Bundle, Congestion, Enforce, Entry, Lift, Live, Otherwise, OwnSide, Trial, Way,
};
pub use parse::{MAX_BUNDLE_BYTES, parse};
pub use prefix::parse_prefix;

/// The file of the state directory that holds the bundle with this digest.
pub fn file_name(digest: &str) -> String {
    format!("bundle-{}.json", digest.get(7..23).unwrap_or_default())
}

/// Whether a text can be the name of an edge or of a PoP.
pub fn is_name(text: &str) -> bool {
    let first = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let rest = text
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    first && rest && text.len() <= 63
}
