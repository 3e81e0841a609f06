//! Pure parts of the way by routes.

mod ours;
mod plan;
