-- Which views and tables are there to read?
-- Views come first: they show committed rounds only. `springtide sql "describe NAME"` lists the columns of one. Tables
-- that only the roll-up and other jobs use are left out.
--
-- Parameters:
--   pattern String = %: names, as `like` takes them
with
column_counts as (
    select
        columns.table as of,
        count() as amount
    from system.columns
    where columns.database = currentDatabase() and columns.table like {pattern:String}
    group by columns.table
)

select
    multiIf(tables.engine = 'View', 'view', tables.engine = 'Dictionary', 'dictionary', 'table') as kind,
    tables.name as name,
    column_counts.amount as columns,
    $descriptions[tables.name] as description
from system.tables
inner join column_counts on tables.name = column_counts.of
where
    tables.database = currentDatabase()
    and tables.engine not in ('Kafka', 'MaterializedView')
    and not match(tables.name, '^(rollup_|schema_|kafka_)|_(revisions|local|tenancy)$')
order by indexOf(['view', 'table', 'dictionary'], kind), tables.name
