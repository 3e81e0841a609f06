-- fleet.yaml's edges, each fleet that differs from the one before it under a revision of its own: one insert is one
-- revision, so that no reader sees half a fleet.
create table if not exists fleet_edge_revisions$on_cluster (
    revision UInt64,
    -- Empty in a revision of a fleet without edges.
    edge String,
    pop LowCardinality(String)
)
engine = ${replicated}MergeTree$replica
order by (revision, edge);

-- The hosts that have a say, each with its PoP: those that fleet.yaml names.
create view if not exists fleet_edges$on_cluster as
select distinct
    edge,
    pop
from fleet_edge_revisions
where edge != '' and revision = (select max(newest.revision) from fleet_edge_revisions as newest);
