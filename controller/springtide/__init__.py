"""The controller: fleet, policy and observations become decisions, and decisions become bundles.

The layers, each importing only those before it in this list: `errors`, `document`, `instants`, `metrics`, `shipped`,
`fleet`, `policy`, `store` and `publication` (the publisher's folder) are the ground; then `observe`, `decide`,
`bundles` and `gate`, `learn`; then `jobs`, whole steps that the command line and Airflow's DAGs both call, and
`doctor`, which looks at all of them; `cli` is the door.
"""
