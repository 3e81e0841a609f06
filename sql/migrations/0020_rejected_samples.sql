-- Not only whole messages: single samples that do not fit tcp_samples are kept too, while those beside them are loaded.
alter table rejected_messages$on_cluster
-- 0: `message` is the whole message. Else it is one sample of it, as a JSON object of the contract's names, with
-- addresses in hexadecimal, and this its hash.
add column if not exists sample_hash UInt64 codec (ZSTD(1)), -- noqa: PRS
modify order by (topic, kafka_partition, kafka_offset, sample_hash);
