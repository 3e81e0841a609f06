-- What a prefix's decision stands on, beside its duty cycle. Of decisions from before nothing of it is known.
alter table congestion_decisions$on_cluster
-- By how many rounds low ones exceed enter_duty of the measured ones, and fall short of leave_duty of them, over the
-- newest rounds for which they do so most.
add column if not exists low_excess Float64 default 0 codec (ZSTD(1)) after state_changes,
add column if not exists good_excess Float64 default 0 codec (ZSTD(1)) after low_excess,
-- What BBR is expected to make of the prefix's rate, a share: its trial's growth drawn to that of all by what is
-- chance; null before its trial, or where prefixes do not differ by more than chance.
add column if not exists expected_benefit Nullable(Float64) codec (ZSTD(1)) after benefit,
-- The recent rate over the baseline in powers of two, as of its trial's end; kept while it is chosen or given back.
add column if not exists trial_growth Nullable(Float64) codec (ZSTD(1)) after suppressed;
