//! What is pure of the way by routes.

mod ours;
mod plan;
