//! Quantities that cannot be out of range, checked where they are read.

use serde::Deserialize;

/// A value outside its range.
#[derive(Debug, thiserror::Error)]
#[error("{value} is outside {least} to {most} {unit}; give a value within")]
pub struct OutOfRange {
    value: f64,
    least: f64,
    most: f64,
    unit: &'static str,
}

fn within(value: f64, least: f64, most: f64, unit: &'static str) -> Result<f64, OutOfRange> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(OutOfRange {
            value,
            least,
            most,
            unit,
        })
    }
}

/// A span of time up to one minute, which is longer than any TCP waits for a first answer.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "f64")]
pub struct Milliseconds(u64);

impl Milliseconds {
    /// From 0 to 60,000 ms.
    pub fn new(value: f64) -> Result<Self, OutOfRange> {
        within(value, 0.0, 60_000.0, "ms").map(|value| Self((value * 1e6).round() as u64))
    }

    /// In nanoseconds.
    pub fn ns(self) -> u64 {
        self.0
    }
}

/// A rate from 1 kbit/s to 100 Gbit/s.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub struct Megabits(u64);

impl Megabits {
    /// In units of a million bits a second.
    pub fn new(value: f64) -> Result<Self, OutOfRange> {
        within(value, 0.001, 100_000.0, "Mbit/s").map(|value| Self((value * 1e6).round() as u64))
    }

    /// In bits a second.
    pub fn bits_per_s(self) -> u64 {
        self.0
    }
}

/// A probability.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "f64")]
pub struct Probability(f64);

impl Probability {
    /// From 0 to 1.
    pub fn new(value: f64) -> Result<Self, OutOfRange> {
        within(value, 0.0, 1.0, "(a probability)").map(Self)
    }

    /// One.
    pub fn certain() -> Self {
        Self(1.0)
    }

    /// As a number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// The length of a queue: at least one whole packet, at most 1 GiB.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub struct QueueBytes(u64);

impl QueueBytes {
    /// In bytes, IP headers included.
    pub fn new(value: f64) -> Result<Self, OutOfRange> {
        within(value, 1500.0, 1_073_741_824.0, "bytes").map(|value| Self(value as u64))
    }

    /// In bytes.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl Default for QueueBytes {
    /// 100 ms at 80 Mbit/s.
    fn default() -> Self {
        Self(1_000_000)
    }
}

/// The length of a queue in packets, at least one.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub struct QueuePackets(usize);

impl QueuePackets {
    /// From 1 to 1,000,000; a part of a packet is left out.
    pub fn new(value: f64) -> Result<Self, OutOfRange> {
        within(value, 1.0, 1e6, "packets").map(|value| Self(value as usize))
    }

    /// In packets of any size.
    pub fn get(self) -> usize {
        self.0
    }
}

macro_rules! try_from_f64 {
    ($($unit:ident),*) => {$(
        impl TryFrom<f64> for $unit {
            type Error = OutOfRange;
            fn try_from(value: f64) -> Result<Self, OutOfRange> {
                Self::new(value)
            }
        }
    )*};
}

try_from_f64!(
    Milliseconds,
    Megabits,
    Probability,
    QueueBytes,
    QueuePackets
);
