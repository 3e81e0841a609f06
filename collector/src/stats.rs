//! What the collector counts. Every counter starts at zero and only rises.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one run.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// All counters as one JSON object.
            pub fn to_json(&self) -> String {
                let fields = [$(format!("\"{}\":{}", stringify!($name), self.$name),)*];
                format!("{{{}}}", fields.join(","))
            }
        }
    };
}

counters! {
    /// Polls done.
    polls,
    /// Polls that broke off: some of their sockets may be missing.
    polls_failed,
    /// Polls that were left out because the one before them took too long.
    polls_skipped,
    /// Samples made.
    rows,
    /// Netlink datagrams read.
    datagrams,
    /// Netlink bytes read.
    bytes_read,
    /// Datagrams that were longer than the buffer: their last sockets are missing.
    datagrams_truncated,
    /// Messages that the kernel marked NLM_F_DUMP_INTR: sockets may be missing or double.
    dump_messages_interrupted,
    /// Messages that could not be read.
    messages_malformed,
    /// Messages that are not about a TCP socket of ours.
    messages_other,
    /// Attributes that the contract does not carry.
    attributes_skipped,
    /// Attributes that could not be read or came twice.
    attributes_malformed,
    /// Sockets whose tcp_info is longer than any that is known.
    tcp_info_longer,
    /// Messages (spool records, Kafka messages) made.
    messages_written,
    /// Their bytes before compression.
    message_bytes,
    /// Bytes written to the spool.
    spool_bytes,
    /// Spool files completed.
    spool_files,
    /// Spool files of a dead process that were completed.
    spool_files_recovered,
    /// Bytes at such files' ends that were no complete record, and were cut.
    spool_bytes_cut,
    /// Stretches of a spool that hold no valid record.
    spool_stretches_corrupt,
    /// Their bytes.
    spool_bytes_corrupt,
}
