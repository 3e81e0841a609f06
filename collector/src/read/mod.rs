//! Reading, again and again. The [`poller`] walks over the sockets of every network namespace; [`sockets`] remembers
//! them from poll to poll, and [`sampling`] chooses them. The [`schedule`] decides when polls are due, and the
//! [`sequence`] numbers them.

pub(crate) mod poller;
pub(crate) mod sampling;
pub(crate) mod schedule;
pub(crate) mod sequence;
pub(crate) mod sockets;
