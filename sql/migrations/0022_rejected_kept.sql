-- How long a rejected message is kept counts from here: the time that it bears is its sender's to choose.
alter table rejected_messages$on_cluster
add column if not exists kept_at DateTime('UTC') default now() codec (Delta, ZSTD(1));
