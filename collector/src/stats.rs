//! Counters of the collector. Every counter starts at zero and only rises.

use crate::accounting::Books;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// The counters of one run.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl Stats {
            /// Every counter with its name and its meaning.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+).trim_start(), self.$name),)*].into_iter()
            }
        }

        impl Stats {
            /// All counters as one JSON object.
            pub fn to_json(&self) -> String {
                self.to_json_with(&Books::default())
            }

            /// All counters, and where the rows went, as one JSON object.
            pub fn to_json_with(&self, books: &Books) -> String {
                let mut fields = vec![$(format!("\"{}\":{}", stringify!($name), self.$name),)*];
                if !books.sinks.is_empty() {
                    fields.push(format!("\"rows_read\":{}", books.rows_read));
                    fields.push(format!("\"sinks\":{}", books.sinks_json()));
                }
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
    /// Polls whose number could not be written down: after a restart it may be used again.
    polls_unnumbered,
    /// Samples made.
    rows,
    /// Samples made of sockets that closed.
    close_rows,
    /// Sockets that were left out because they have not changed.
    rows_unchanged,
    /// Sockets and close events that were left out because they are not in the sample.
    sockets_sampled_out,
    /// Sockets that a walk gave twice: the second was left out.
    sockets_duplicate,
    /// Sockets that a repeated walk gave again: they were left out.
    sockets_reread,
    /// Walks over the kernel's hash table.
    walks,
    /// Walks that were repeated because they were disturbed.
    walks_repeated,
    /// Walks that were not needed because nothing happens in their namespace.
    walks_saved,
    /// Close events read.
    close_events,
    /// Close events of sockets without a peer: they make no sample.
    close_events_unconnected,
    /// Close events that the filter left out.
    close_events_filtered,
    /// Times that the kernel dropped close events because its buffer was full.
    close_overruns,
    /// Other network namespaces that were entered.
    namespaces_entered,
    /// Other network namespaces that were left because nothing else refers to them.
    namespaces_left,
    /// Times that a network namespace could not be entered or read.
    namespaces_failed,
    /// Times that a network namespace was not entered because there are too many.
    namespaces_over_limit,
    /// Netlink datagrams read.
    datagrams,
    /// Netlink bytes read.
    bytes_read,
    /// Datagrams that were longer than the buffer: their last sockets are missing.
    datagrams_truncated,
    /// Datagrams that another process sent in the kernel's place: they were left out.
    datagrams_forged,
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
    /// Samples that have what their connection started with.
    start_values,
    /// Sockets whose storage does not hold start values as this collector knows them.
    start_values_unreadable,
    /// Polls without start values, though there may be some: they may not be read, or another map is pinned in their place.
    start_values_refused,
    /// Samples made of records of first flights.
    flight_rows,
    /// Records of first flights that are not as this collector knows them.
    flights_unreadable,
    /// Records of first flights that the filter left out, or that are of another network namespace than the one that is read.
    flights_filtered,
    /// Sockets whose tcp_info is longer than any that is known.
    tcp_info_longer,
    /// Messages (spool records, Kafka messages) made.
    messages_written,
    /// Bytes of messages before compression.
    message_bytes,
    /// Bytes written to the spool.
    spool_bytes,
    /// Spool files completed.
    spool_files,
    /// Spool files of a dead process that were completed.
    spool_files_recovered,
    /// Bytes at recovered files' ends that were no complete record, and were cut.
    spool_bytes_cut,
    /// Stretches of a spool that hold no valid record.
    spool_stretches_corrupt,
    /// Bytes of a spool that are not a valid record.
    spool_bytes_corrupt,
}
