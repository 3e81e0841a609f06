"""Parts that all dashboards share: variables, links, annotations, and a panel of each kind with one way to look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models

from dashboards.query import CLICKHOUSE, PROMETHEUS, ClickhouseQuery

TAG = "springtide"
# A client_prefix as people write it.
PREFIX = "springtide_prefix_text(ip_version, client_prefix)"
# From the least value on; named colours, which Grafana fits to its light and its dark theme.
Steps = Sequence[tuple[float, str]]
Panel = timeseries.Panel | stat.Panel | table.Panel
Variable = dashboard.QueryVariable | dashboard.TextBoxVariable | dashboard.DatasourceVariable


def start(uid: str, title: str, description: str, *variables: Variable) -> dashboard.Dashboard:
    """A dashboard with its links to the others and a mark at each push."""
    made = (
        dashboard.Dashboard(title)
        .uid(f"springtide-{uid}")
        .description(description)
        .tags([TAG])
        .readonly()
        .refresh("1m")
        .time("now-24h", "now")
        .timezone("utc")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Springtide")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("clickhouse").label("ClickHouse").type(str(CLICKHOUSE.type_val)))
        .with_variable(dashboard.DatasourceVariable("prometheus").label("Prometheus").type("prometheus"))
        .annotation(_marks("Pushes", "blue", "'publish', 'rollout', 'wave'"))
        .annotation(_marks("Stops", "red", "'rollback', 'withdraw', 'force', 'pause', 'resume'"))
    )
    for variable in variables:
        made.with_variable(variable)
    return made


def _marks(name: str, colour: str, events: str) -> dashboard.AnnotationQuery:
    sql = f"""
        select at as time, concat(event, if(verdict = '', '', concat(': ', verdict))) as title,
            concat(publication, ' ', reason) as text, event as tags
        from audit final
        where $__timeFilter(at) and event in ({events})
        order by time
    """
    target = ClickhouseQuery(dedent(sql).strip())
    return dashboard.AnnotationQuery().name(name).datasource(CLICKHOUSE).enable(True).icon_color(colour).target(target)


def choice(name: str, label: str, sql: str, description: str) -> dashboard.QueryVariable:
    """Any of what the SQL gives; all of it at first."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(CLICKHOUSE)
        .query(dedent(sql).strip())
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def text(name: str, label: str, value: str, description: str) -> dashboard.TextBoxVariable:
    option = models.VariableOption(selected=True, text=value, value=value)
    return (
        dashboard.TextBoxVariable(name)
        .label(label)
        .description(description)
        .default_value(value)
        .current(option)
        .options([option])
    )


def _steps(steps: Steps) -> dashboard.ThresholdsConfig:
    first, *others = steps
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(None, first[1]), *(models.Threshold(value, colour) for value, colour in others)])
    )


def _lines(title: str, description: str, unit: str, span: int, height: int) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .span(span)
        .height(height)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
        .fill_opacity(5)
        .line_width(2)
        .axis_soft_min(0)
        # A round that is missing does not break the line; an hour does.
        .span_nulls(3_600_000)
        .legend(
            common.VizLegendOptions()
            .display_mode(kinds.LegendDisplayMode.LIST)
            .placement(kinds.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs([])
        )
        .tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
    )


def _limit(panel: timeseries.Panel, steps: Steps | None) -> timeseries.Panel:
    if steps is None:
        return panel
    style = common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED)
    return panel.thresholds(_steps(steps)).thresholds_style(style)


def lines(
    title: str,
    description: str,
    sql: str,
    unit: str,
    *,
    span: int = 12,
    height: int = 8,
    steps: Steps | None = None,
    stacked: bool = False,
) -> timeseries.Panel:
    """Lines over time: columns `time`, then numbers, or `series` and one number."""
    query = dedent(sql).strip()
    panel = _limit(_lines(title, description, unit, span, height), steps).datasource(CLICKHOUSE)
    panel.with_target(ClickhouseQuery(query, series=True))
    if " as series" in query:
        panel.display_name("${__field.labels.series}")
    if stacked:
        panel.draw_style(kinds.GraphDrawStyle.BARS).fill_opacity(60)
        panel.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))
    return panel


def percentiles(
    title: str,
    description: str,
    value: str,
    among: str,
    unit: str,
    *,
    shares: Sequence[float] = (0.1, 0.5, 0.9),
    steps: Steps | None = None,
) -> timeseries.Panel:
    """Lines over time: percentiles of a value in each round; `among` is what stands behind `from`."""
    columns = ",\n    ".join(f"quantile({share})({value}) as p{100 * share:.0f}" for share in shares)
    query = f"select round as time,\n    {columns}\nfrom {among}\ngroup by round\norder by time"
    return lines(title, description, query, unit, span=8, steps=steps)


def paths_by(title: str, description: str, series: str, among: str) -> timeseries.Panel:
    """Bars over time: how many paths each round has of every value of a series."""
    query = f"""
    select round as time, {series} as series, count() as paths
    from {among}
    group by time, series
    order by time, series
    """
    return lines(title, description, query, "short", span=8, stacked=True)


def metric_lines(
    title: str,
    description: str,
    expressions: Mapping[str, str],
    unit: str,
    *,
    span: int = 12,
    height: int = 8,
    steps: Steps | None = None,
) -> timeseries.Panel:
    """Lines over time from Prometheus: PromQL by legend."""
    panel = _limit(_lines(title, description, unit, span, height), steps).datasource(PROMETHEUS)
    for number, (legend, expression) in enumerate(expressions.items()):
        target = prometheus.Dataquery().ref_id(chr(ord("A") + number)).datasource(PROMETHEUS)
        panel.with_target(target.expr(expression).legend_format(legend).range())
    return panel


def number(
    title: str,
    description: str,
    sql: str,
    unit: str,
    *,
    span: int = 4,
    steps: Steps = ((0, "text"),),
) -> stat.Panel:
    """One row, one column."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(CLICKHOUSE)
        .unit(unit)
        .span(span)
        .height(4)
        .thresholds(_steps(steps))
        .color_mode(kinds.BigValueColorMode.VALUE)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("/.*/"))
        .no_value("none")
        .with_target(ClickhouseQuery(dedent(sql).strip()))
    )


def rows(
    title: str,
    description: str,
    sql: str,
    units: Mapping[str, str],
    *,
    span: int = 24,
    height: int = 9,
    links: Mapping[str, tuple[str, str]] | None = None,
) -> table.Panel:
    """A table: units of its numbers by column; links by column: what it is called, and the path."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(CLICKHOUSE)
        .span(span)
        .height(height)
        .filterable(True)
        .with_target(ClickhouseQuery(dedent(sql).strip()))
    )
    for column, unit in units.items():
        panel.override_by_name(column, [models.DynamicConfigValue("unit", unit)])
    for column, (name, path) in (links or {}).items():
        panel.override_by_name(column, [models.DynamicConfigValue("links", [{"title": name, "url": path}])])
    return panel


def row(title: str) -> dashboard.Row:
    return dashboard.Row(title)
