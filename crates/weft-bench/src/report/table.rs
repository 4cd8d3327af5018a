//! Points as tables for a terminal: one table per experiment, only the columns that vary or were
//! measured, shared settings in the caption. On a narrow terminal the least important columns are left
//! out and named below the table; without a terminal the output is plain text of any width.

use comfy_table::{Attribute, Cell, CellAlignment, LineStyle, Table, presets};

use super::columns::{self, Column};
use super::{Point, figures};

/// How wide and how decorated the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Columns of the terminal, `None` for no limit.
    pub width: Option<usize>,
    /// Bold headers and rules, for a terminal.
    pub styled: bool,
}

impl Layout {
    /// The layout for standard output: styled and as wide as the terminal, or plain without one.
    pub fn of_stdout() -> Layout {
        let probe = Table::new();
        Layout { width: probe.width().map(usize::from), styled: probe.is_tty() }
    }
}

/// One table per experiment, in the order in which the experiments first appear.
pub fn render(points: &[Point], layout: Layout) -> String {
    let mut text = String::new();
    for (experiment, members) in by_experiment(points) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&render_one(experiment, &members, layout));
    }
    text
}

/// The points of each experiment, in the order in which the experiments first appear.
pub(super) fn by_experiment(points: &[Point]) -> Vec<(&str, Vec<&Point>)> {
    let mut groups: Vec<(&str, Vec<&Point>)> = Vec::new();
    for point in points {
        match groups.iter_mut().find(|(name, _)| *name == point.experiment) {
            Some((_, members)) => members.push(point),
            None => groups.push((&point.experiment, vec![point])),
        }
    }
    groups
}

fn render_one(experiment: &str, points: &[&Point], layout: Layout) -> String {
    let selection = columns::select(points);
    let (kept, hidden) = fit(&selection.columns, points, layout.width);
    let title = figures::experiment_title(experiment);
    let caption = columns::caption(&selection.shared);
    let mut text = String::new();
    for line in wrap(&title, layout.width) {
        text.push_str(&if layout.styled {
            format!("\x1b[1m{line}\x1b[0m\n")
        } else {
            format!("{line}\n")
        });
    }
    let below = match hidden.iter().map(|column| header(column)).collect::<Vec<_>>() {
        names if names.is_empty() => String::new(),
        names => format!("not shown for lack of width: {}", names.join(", ")),
    };
    let lines = |words: &str| {
        wrap(words, layout.width).into_iter().map(|line| line + "\n").collect::<String>()
    };
    text.push_str(&lines(&caption));
    text.push_str(&table(&kept, points, layout.styled));
    text.push_str(&lines(&below));
    text
}

/// Breaks `words` at spaces into lines of at most `width` characters, where words permit.
fn wrap(words: &str, width: Option<usize>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        let length = |line: &str| line.chars().count() + 1 + word.chars().count();
        match lines.last_mut() {
            Some(line) if width.is_none_or(|width| length(line) <= width) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

fn table(kept: &[&Column], points: &[&Point], styled: bool) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─');
    table.load_style(if styled {
        presets::NOTHING.header_separator(rule)
    } else {
        presets::NOTHING
    });
    if styled {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let alignment =
        |column: &Column| if column.numeric { CellAlignment::Right } else { CellAlignment::Left };
    table.set_header(kept.iter().map(|column| {
        let cell = Cell::new(header(column)).set_alignment(alignment(column));
        if styled { cell.add_attribute(Attribute::Bold) } else { cell }
    }));
    for point in points {
        table.add_row(kept.iter().map(|column| {
            let text = (column.cell)(point).unwrap_or_else(|| "–".to_string());
            Cell::new(text).set_alignment(alignment(column))
        }));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The header of a column with its unit: `throughput GB/s`.
pub(super) fn header(column: &Column) -> String {
    if column.unit.is_empty() {
        column.name.to_string()
    } else {
        format!("{} {}", column.name, column.unit)
    }
}

/// Splits the columns into those that fit into `width` and those left out, least important first.
fn fit<'a>(
    columns: &[&'a Column],
    points: &[&Point],
    width: Option<usize>,
) -> (Vec<&'a Column>, Vec<&'a Column>) {
    let mut kept = columns.to_vec();
    let mut hidden = Vec::new();
    let wide = |column: &Column| {
        let cells = points.iter().filter_map(|point| (column.cell)(point));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(1);
        widest.max(header(column).chars().count()) + 2
    };
    while let Some(limit) = width {
        let total: usize = kept.iter().map(|column| wide(column)).sum();
        if total <= limit || kept.len() <= 1 {
            break;
        }
        let least = kept.iter().enumerate().max_by_key(|(index, column)| (column.rank, *index));
        let (index, _) = least.expect("more than one column is kept");
        hidden.push(kept.remove(index));
    }
    (kept, hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    const PLAIN: Layout = Layout { width: None, styled: false };

    #[test]
    fn plain_output_has_no_escapes_and_every_experiment() {
        let text = render(&synthetic::paper_points(), PLAIN);
        assert!(!text.contains('\x1b'));
        for experiment in ["io", "scan", "lookup", "prefetch"] {
            assert!(text.contains(&figures::experiment_title(experiment)), "{experiment}");
        }
        assert!(text.contains("throughput GB/s") && text.contains("vs blocking"));
    }

    #[test]
    fn narrow_terminals_are_respected() {
        for (width, styled) in [(40, false), (60, true), (80, false), (120, true)] {
            let text = render(&synthetic::paper_points(), Layout { width: Some(width), styled });
            assert_eq!(text.contains('\x1b'), styled);
            let text = text.replace("\x1b[1m", "").replace("\x1b[0m", "");
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert!(text.contains("not shown for lack of width"));
        }
    }

    #[test]
    fn numbers_line_up_on_the_right() {
        let point = |gb_per_s| Point {
            experiment: "scan".into(),
            gb_per_s: Some(gb_per_s),
            ..Point::default()
        };
        let text = render(&[point(1.5), point(1234.0)], PLAIN);
        let ends: Vec<_> = text.lines().skip(2).map(|line| line.chars().count()).collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }

    #[test]
    fn no_points_is_no_text() {
        assert_eq!(render(&[], PLAIN), "");
    }
}
