//! Draws the model.

use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::model::{Line, Model, SORT_KEYS};
use crate::sample::connection::Column;

/// Columns that go first when the terminal is too narrow for all.
const LEAVE_FIRST: [Column; 12] = [
    Column::Mss,
    Column::ReceiveQueue,
    Column::MinRtt,
    Column::SendQueue,
    Column::Algorithm,
    Column::State,
    Column::Acked,
    Column::Local,
    Column::Cwnd,
    Column::Retrans,
    Column::Rate,
    Column::Rtt,
];

const GAP: usize = 2;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, colours: bool) {
    let rows = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [head, heading, body, foot] = rows.areas(frame.area());
    model.page = usize::from(body.height);
    let lines = model.lines(model.offset, model.page);
    let shown = shown(model, &lines, usize::from(body.width));

    frame.render_widget(
        Paragraph::new(vec![model.summary().into(), model.setting().into()]),
        head,
    );
    let bar = style(colours, Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Paragraph::new(headings(model, &shown)).style(bar), heading);
    let text: Vec<_> = lines
        .iter()
        .map(|line| row(model, line, &shown, colours))
        .collect();
    frame.render_widget(Paragraph::new(text), body);
    frame.render_widget(Paragraph::new(footer(model, colours)), foot);
    if model.help {
        help(frame);
    }
}

fn style(colours: bool, with: Style) -> Style {
    // Without colours the attributes help.
    if colours { with } else { with.fg(Color::Reset) }
}

/// The columns that fit, by index, with their widths.
fn shown(model: &Model, lines: &[Line], width: usize) -> Vec<(usize, usize)> {
    let mut shown: Vec<_> = (model.columns().iter().enumerate())
        .map(|(index, &column)| {
            let cells = lines.iter().map(|line| line.cells[index].chars().count());
            (
                index,
                cells.max().unwrap_or(0).max(model.heading(column).len()),
            )
        })
        .collect();
    let needed =
        |shown: &[(usize, usize)]| shown.iter().map(|(_, width)| width + GAP).sum::<usize>();
    for column in LEAVE_FIRST {
        if needed(&shown) <= width + GAP {
            break;
        }
        let keep = column == model.sort;
        shown.retain(|&(index, _)| keep || model.columns()[index] != column);
    }
    shown
}

fn headings(model: &Model, shown: &[(usize, usize)]) -> TextLine<'static> {
    let spans = shown.iter().map(|&(index, width)| {
        let column = model.columns()[index];
        let text = aligned(model.heading(column), width, model.is_left(column));
        if column == model.sort {
            Span::styled(
                text,
                Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            )
        } else {
            Span::raw(text)
        }
    });
    spaced(spans.collect())
}

fn row(model: &Model, line: &Line, shown: &[(usize, usize)], colours: bool) -> TextLine<'static> {
    let spans = shown.iter().map(|&(index, width)| {
        let column = model.columns()[index];
        let text = aligned(&line.cells[index], width, model.is_left(column));
        let alarming = line.loses && matches!(column, Column::Retrans | Column::RetransPerSecond);
        if alarming && colours {
            Span::styled(text, Style::new().fg(Color::Red))
        } else {
            Span::raw(text)
        }
    });
    spaced(spans.collect())
}

fn spaced(spans: Vec<Span<'static>>) -> TextLine<'static> {
    let mut all = Vec::with_capacity(2 * spans.len());
    for span in spans {
        if !all.is_empty() {
            all.push(Span::raw(" ".repeat(GAP)));
        }
        all.push(span);
    }
    TextLine::from(all)
}

pub(super) fn aligned(text: &str, width: usize, left: bool) -> String {
    if left {
        format!("{text:<width$}")
    } else {
        format!("{text:>width$}")
    }
}

fn footer(model: &Model, colours: bool) -> TextLine<'static> {
    if let Some(input) = &model.input {
        let what = "filter (a prefix, a port, or an expression): ";
        return TextLine::from(vec![
            Span::raw(what),
            Span::raw(input.clone()),
            Span::styled(" ", Modifier::REVERSED),
        ]);
    }
    if let Some(error) = &model.error {
        return TextLine::styled(error.clone(), style(colours, Style::new().fg(Color::Red)));
    }
    let last = (model.offset + model.page).min(model.len());
    let first = if model.is_empty() {
        0
    } else {
        model.offset + 1
    };
    TextLine::from(format!(
        "{first}-{last} of {}   q quit  ? help  / filter  space pause  g group  \u{2190}\u{2192} sort  r reverse",
        model.len()
    ))
}

fn help(frame: &mut Frame<'_>) {
    let mut text = vec![
        "Left, Right   sort by the column beside".to_owned(),
        "r             the other way round".to_owned(),
    ];
    text.extend(SORT_KEYS.map(|(key, _, what)| format!("{key}             sort by {what}")));
    text.extend(
        [
            "",
            "/             filter: 10.0.0.0/8, 443, or an expression such as",
            "              dst 10.77.0.0/16 and not dport 22",
            "g             group by peer prefix (/24, /56)",
            "space         pause and go on",
            "+ -           slower, faster",
            "Up, Down, Page Up, Page Down, Home, End   scroll",
            "q             quit",
            "",
            "RETR/s and red: packets sent again since the last look.",
            "RATE is the kernel's delivery rate. A group shows the",
            "medians of RTT and CWND, the smallest MIN RTT, and sums.",
        ]
        .map(str::to_owned),
    );
    let width = text.iter().map(String::len).max().unwrap_or(0) + 4;
    let height = text.len() + 2;
    let area = centred(frame.area(), width, height);
    frame.render_widget(Clear, area);
    let lines: Vec<TextLine<'_>> = text
        .into_iter()
        .map(|line| format!(" {line}").into())
        .collect();
    let block = Block::bordered().title(" any key closes this ");
    frame.render_widget(Paragraph::new(Text::from(lines)).block(block), area);
}

fn centred(area: Rect, width: usize, height: usize) -> Rect {
    let length = |length: usize| Constraint::Length(u16::try_from(length).unwrap_or(u16::MAX));
    let [column] = Layout::horizontal([length(width)])
        .flex(Flex::Center)
        .areas(area);
    let [cell] = Layout::vertical([length(height)])
        .flex(Flex::Center)
        .areas(column);
    cell
}
