//! One step: what a round's evidence makes of how a path's connections start.
//!
//! A path is a source PoP, a destination (a PoP, or a client prefix) and an IP version. Its decision has parts:
//!
//! - [`start`]: the rate and window with which edges that pace start connections;
//! - [`initcwnd`]: the window for edges that only have routes;
//! - [`congestion`]: BBR or the kernel's default for a client prefix;
//! - [`recovery`]: how long a lost SYN or SYN-ACK waits.
//!
//! Each part is a pure function of what the rounds before left of the path, what this round showed, and the policy. A part
//! names the columns that it reads and writes ([`Part`]); [`Paths`] are a round's rows.

mod chance;
pub mod columns;
pub mod congestion;
mod damping;
pub mod initcwnd;
pub mod recovery;
mod round;
pub mod start;
mod words;

pub use self::damping::Damping;
pub use self::round::{Left, Part, Paths};
