alter table start_decisions$on_cluster
-- When first flights with the kernel's default were last seen; of decisions from before that is not known.
add column if not exists default_at Nullable(DateTime('UTC')) after default_resent;
