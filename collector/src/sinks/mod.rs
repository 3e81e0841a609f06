//! Where messages go. A sink is one folder, with its options, and one line in the registry below.
//!
//! A direct [`Sink`] takes messages in the reader's thread; a [`Remote`](driver::Remote) one in a thread of its own from
//! the queue, and the [`driver`] tries again for it. [`start`](start::start) opens what the options select, and the
//! [`fanout`] gives every message to all of them.

pub(crate) mod driver;
pub(crate) mod fanout;
pub(crate) mod queue;
mod sink;
pub(crate) mod start;

#[cfg(feature = "clickhouse")]
mod clickhouse;
#[cfg(feature = "kafka")]
mod kafka;
pub(crate) mod print;
pub(crate) mod spool;
#[cfg(test)]
mod toy;

use clap::Args;

pub(crate) use self::sink::rows;
pub(crate) use self::sink::{Sink, SinkError, pass_on, stdout};
use self::start::SinkOptions;

/// Makes [`AllOptions`], with a field for each sink, and the list of them.
macro_rules! registry {
    ($($(#[$attribute:meta])* $name:ident: $options:ty,)*) => {
        /// Where samples go: any of these together.
        #[derive(Clone, Debug, Args)]
        pub(crate) struct AllOptions {
            $($(#[$attribute])* #[command(flatten)] pub(crate) $name: $options,)*
            /// The queue of the remote ones.
            #[command(flatten)]
            pub(crate) queue: queue::QueueOptions,
        }

        impl AllOptions {
            /// Every sink that there is, in the order in which they are opened.
            fn each(&self) -> Vec<&dyn SinkOptions> {
                Vec::from([$($(#[$attribute])* (&self.$name as &dyn SinkOptions),)*])
            }
        }
    };
}

registry! {
    spool: spool::SpoolOptions,
    print: print::PrintOptions,
    #[cfg(feature = "kafka")]
    kafka: kafka::KafkaOptions,
    #[cfg(feature = "clickhouse")]
    clickhouse: clickhouse::ClickHouseOptions,
    #[cfg(test)]
    toy: toy::ToyOptions,
}
