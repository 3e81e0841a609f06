//! Bundles as this edge takes them, checked as far as they can be without the kernel.

pub use springtide_core::bundle::{
    Brake, Bundle, Congestion, Enforce, Entry, Kind, Live, MAX_BYTES, Otherwise, OwnSide, Prefix,
    Problem, Trial, Way, is_name, parse_prefix,
};

use crate::error::{Error, Result, code};

/// Checks everything that can be known without the kernel. `now`: seconds since the epoch.
///
/// # Errors
///
/// [`Error::Refused`] with `SOURCE: FIELD: PROBLEM; WHAT TO DO`.
pub fn parse(raw: &[u8], source: &str, edge: &str, now: i64) -> Result<Bundle> {
    let refused = |problem: Problem| {
        let code = match problem.kind {
            Kind::Wrong => code::REFUSED,
            Kind::Altered => code::ALTERED,
            Kind::OtherEdge => code::OTHER_EDGE,
            Kind::Expired => code::EXPIRED,
        };
        Error::refused_as(code, format!("{source}: {problem}"))
    };
    let bundle = Bundle::parse(raw).map_err(refused)?;
    if let Some(problem) = bundle.problems().into_iter().next() {
        return Err(refused(problem));
    }
    bundle.check_for(edge, now).map_err(refused)?;
    Ok(bundle)
}

/// The file of the state directory that holds the bundle with this digest.
pub fn file_name(digest: &str) -> String {
    format!("bundle-{}.json", digest.get(7..23).unwrap_or_default())
}
