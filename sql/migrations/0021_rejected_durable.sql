-- A consumer commits its offsets once these rows are written: like samples, they must survive a power cut.
alter table rejected_messages$on_cluster modify setting fsync_after_insert = 1, fsync_part_directory = 1; -- noqa: PRS
