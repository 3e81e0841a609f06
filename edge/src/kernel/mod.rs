//! The rim to the kernel: its routing tables, rules and congestion controls, in and out. It decides nothing.

mod family;
mod host;
mod netlink;
mod route;
mod rtnetlink;
mod rule;
mod tables;
#[cfg(test)]
mod tests;
mod way;

pub use family::Family;
pub use host::show;
pub(crate) use host::{congestion_problem, families};
#[cfg(test)]
pub(crate) use netlink::{attributes, messages, push_attribute};
pub use route::KernelRoute;
pub(crate) use route::{Key, LOCAL, MAIN, addition, deletion, origin, removal, replacement};
pub(crate) use rtnetlink::Rtnetlink;
pub use rule::Rule;
pub(crate) use rule::{RuleKey, add as rule_addition, remove as rule_removal};
pub(crate) use tables::{answering, each_route, each_rule, routes, rules};
pub use way::{Values, Way};
