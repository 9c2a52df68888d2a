//! Tables of text that fit a terminal: columns that do not fit follow in further tables, each of which begins with the first
//! column.

use std::io::IsTerminal as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// The spaces around a cell.
const PADDING: usize = 2;

/// Returns the number of columns of the terminal that standard output is; `None` for a file or a pipe, whose lines may have any
/// length.
pub fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Rows of cells below a header.
pub struct Grid {
    /// The header first. All rows are of the same length.
    rows: Vec<Vec<String>>,
    /// Columns of text, which is left aligned; numbers are right aligned.
    texts: Vec<usize>,
}

impl Grid {
    /// Makes an empty one, in which the columns at `texts` have texts.
    pub fn new(header: &[&str], texts: &[usize]) -> Grid {
        let header = header.iter().map(|name| (*name).to_owned());
        Grid {
            rows: vec![header.collect()],
            texts: texts.to_vec(),
        }
    }

    /// Appends a row.
    pub fn add_row(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    /// Returns the lines, of at most `width_max` characters if there is a maximum and two columns fit.
    pub fn text(&self, width_max: Option<usize>) -> String {
        let groups = groups(&self.widths(), width_max.unwrap_or(usize::MAX));
        let tables = groups.iter().map(|columns| self.table(columns).trim_fmt());
        tables.collect::<Vec<_>>().join("\n\n")
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max()
        };
        (0..columns).map(|at| width(at).unwrap_or(0)).collect()
    }

    fn table(&self, columns: &[usize]) -> Table {
        let mut table = Table::new();
        table.load_style(NOTHING);
        let cells = |row: &Vec<String>| -> Vec<String> {
            let cells = columns.iter().filter_map(|at| row.get(*at));
            cells.cloned().collect()
        };
        let mut rows = self.rows.iter().map(cells);
        if let Some(header) = rows.next() {
            table.set_header(header);
        }
        for row in rows {
            table.add_row(row);
        }
        for (column, at) in table.column_iter_mut().zip(columns) {
            if !self.texts.contains(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

/// Divides columns of these widths into groups that fit. Each begins with the first column.
fn groups(widths: &[usize], width_max: usize) -> Vec<Vec<usize>> {
    let first = widths.first().map_or(0, |width| width + PADDING);
    let mut groups = vec![];
    let (mut group, mut width) = (vec![0], first);
    for (at, own) in widths.iter().enumerate().skip(1) {
        let own = own + PADDING;
        // The last space of a line is trimmed. A column that is too wide beside the first one has a group of its own.
        if width + own > width_max.saturating_add(1) && group.len() > 1 {
            groups.push(std::mem::replace(&mut group, vec![0]));
            width = first;
        }
        group.push(at);
        width += own;
    }
    groups.push(group);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_fit_and_have_each_column_once() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let widths: Vec<usize> = (0..random.usize(1..20))
                .map(|_| random.usize(0..40))
                .collect();
            let width_max = random.usize(1..200);
            let groups = groups(&widths, width_max);
            let others: Vec<usize> = groups
                .iter()
                .flat_map(|group| group[1..].to_vec())
                .collect();
            assert_eq!(others, (1..widths.len()).collect::<Vec<_>>());
            for group in &groups {
                assert_eq!(group[0], 0, "{groups:?}");
                let width: usize = group.iter().map(|at| widths[*at] + PADDING).sum();
                assert!(width <= width_max + 1 || group.len() <= 2, "{groups:?}");
            }
        }
    }

    #[test]
    fn lines_are_not_longer_than_the_terminal() {
        let header = ["workload", "rate", "unit/s", "p50", "p99", "errors"];
        let mut grid = Grid::new(&header, &[0, 2]);
        grid.add_row(["get", "12345", "docs", "0.12", "1.5", "0"].map(str::to_owned));
        grid.add_row(["bulk_300", "9", "docs", "10.01", "20", "100"].map(str::to_owned));
        let whole = grid.text(None);
        assert_eq!(whole.lines().count(), 3);
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        let narrow = grid.text(Some(30));
        assert!(
            longest(&whole) > Some(30) && longest(&narrow) <= Some(30),
            "{narrow}"
        );
        assert_eq!(
            narrow
                .lines()
                .filter(|line| line.contains("bulk_300"))
                .count(),
            2
        );
        let line = narrow
            .lines()
            .next()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(line, Some(vec!["workload", "rate", "unit/s"]));
        let words = |text: &str| {
            let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            words.sort();
            words.dedup();
            words
        };
        assert_eq!(words(&narrow), words(&whole));
    }
}
