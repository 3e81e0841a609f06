//! Reading, again and again: the [`poller`] walks over the sockets of every network namespace, [`sockets`] remembers them
//! from poll to poll, [`sampling`] chooses them, the [`schedule`] says when polls are due, and the [`sequence`] numbers
//! them.

pub mod poller;
pub mod sampling;
pub mod schedule;
pub mod sequence;
pub mod sockets;
