"""Grafana dashboards as code: one file a dashboard; `python -m dashboards` writes their JSON."""
