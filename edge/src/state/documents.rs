//! Documents of the state directory about a bundle.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::enforce::routes::{Routes, Snapshot};
use crate::instant;
use crate::kernel::{Family, Way};

/// The schema of state and intent.
pub const SCHEMA_VERSION: u32 = 1;

/// Says until when routes of ours may stand: in the state once applied, in the intent while that is
/// tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name of the run.
    pub transaction: String,
    /// The bundle's edge.
    pub edge: String,
    /// The bundle's PoP.
    pub pop: String,
    /// The bundle's round, seconds since the epoch.
    pub round: i64,
    /// When the bundle was made, seconds since the epoch.
    pub created_at: i64,
    /// When the bundle expires, seconds since the epoch.
    pub expires_at: i64,
    /// The bundle's policy.
    pub policy_version: String,
    /// The bundle's file in the state directory.
    pub bundle: String,
    /// The bundle's digest.
    pub bundle_digest: String,
    /// Seconds since the epoch.
    pub applied_at: i64,
    /// In which boot.
    pub boot_id: String,
    /// Seconds since that boot.
    pub boottime_expires: f64,
    /// Bundles that were created up to then stay refused: seconds since the epoch.
    #[serde(default)]
    pub created_after: Option<i64>,
    /// The mark in the run directory that stood when the run began; any other mark came later, and counts.
    #[serde(default)]
    pub withdrawal_seen: Option<String>,
    /// Everything of it was taken back.
    pub withdrawn: Option<Withdrawn>,
}

impl Claim {
    /// Whether its time is over.
    pub fn expired(&self, clock: &Clock) -> bool {
        clock.is_past(self.expires_at, &self.boot_id, self.boottime_expires)
    }
}

/// When everything was taken back, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Withdrawn {
    /// An instant, or words where it is not known.
    pub at: String,
    /// In words.
    pub reason: String,
}

/// Way by which values reach connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnforcedBy {
    /// Routes in a table of ours.
    #[default]
    Routes,
    /// The eBPF program.
    Bpf,
    /// Not at all: the host cannot run the program, and the bundle asks for nothing in its place.
    Nothing,
}

/// State that is applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The bundle, and until when it may stand.
    #[serde(flatten)]
    pub claim: Claim,
    /// Destination -> way in hexadecimal digits.
    pub routes: BTreeMap<String, String>,
    /// Destination -> reason.
    pub refused: BTreeMap<String, String>,
    /// By what.
    #[serde(default)]
    pub enforced_by: EnforcedBy,
}

impl State {
    /// The IP versions that need our rule.
    pub fn families(&self) -> Vec<Family> {
        let has = |family: &Family| {
            self.routes
                .keys()
                .any(|prefix| prefix.contains(':') == (*family == Family::V6))
        };
        Family::BOTH.into_iter().filter(has).collect()
    }

    /// As it is after everything was taken back. Keeps round and creation time: what was refused as too old stays refused.
    ///
    /// With `forget_round` any round is new, of bundles that are created from now on; older ones stay refused.
    #[must_use]
    pub fn withdrawn(mut self, clock: &Clock, reason: &str, forget_round: bool) -> Self {
        self.routes.clear();
        self.refused.clear();
        self.claim.withdrawn = Some(Withdrawn {
            at: instant::show(clock.now()),
            reason: reason.to_owned(),
        });
        if forget_round {
            (
                self.claim.round,
                self.claim.created_at,
                self.claim.created_after,
            ) = (0, 0, Some(clock.now()));
        }
        self
    }
}

/// Change that a run is about to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "lowercase")]
pub enum Intent {
    /// Routes come.
    Apply {
        /// The bundle, and until when it may stand.
        #[serde(flatten)]
        claim: Box<Claim>,
        /// State of the kernel before.
        before: Before,
    },
    /// Everything goes.
    Withdraw {
        /// [`SCHEMA_VERSION`].
        schema_version: u32,
        /// In words.
        reason: String,
    },
}

/// A [`Snapshot`] on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// As in [`State`].
    pub routes: BTreeMap<String, String>,
    /// 4 and 6.
    pub rules: Vec<u8>,
}

impl Before {
    /// As it is written.
    pub fn of(snapshot: &Snapshot) -> Self {
        let rules = snapshot
            .rules
            .iter()
            .map(|family| family.version())
            .collect();
        Self {
            routes: written(&snapshot.routes),
            rules,
        }
    }

    /// As it was; None where it cannot be read.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let read = |(prefix, way): (&String, &String)| {
            Some((prefix.parse::<IpNet>().ok()?, Way::from_hex(way)?))
        };
        let routes = self.routes.iter().map(read).collect::<Option<Routes>>()?;
        let rules = Family::BOTH
            .into_iter()
            .filter(|family| self.rules.contains(&family.version()))
            .collect();
        Some(Snapshot { routes, rules })
    }
}

/// Routes as a state keeps them.
pub fn written(routes: &Routes) -> BTreeMap<String, String> {
    routes
        .iter()
        .map(|(prefix, way)| (prefix.to_string(), way.to_hex()))
        .collect()
}
