//! The frame in a terminal.

use ratatui::Frame as Canvas;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::frame::Frame;
use super::table::{TABS, Tab, head, rows};

/// The displayed data, and the state of the display.
pub struct Screen {
    pub frame: Option<Frame>,
    /// Why there is nothing newer.
    pub error: Option<String>,
    pub is_paused: bool,
    tab: Tab,
    /// The column that each table is sorted by; 0 is its first, by name.
    sorts: [usize; TABS.len()],
    filter: String,
    is_typing: bool,
    first_row: usize,
}

/// The command of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCommand {
    Nothing,
    Quit,
}

impl Screen {
    pub fn new() -> Screen {
        Screen {
            frame: None,
            error: None,
            is_paused: false,
            tab: Tab::Routes,
            // By rate, but databases and views by the time that they take, threads by processor time.
            sorts: [1, 3, 2, 2, 1, 1, 0],
            filter: String::new(),
            is_typing: false,
            first_row: 0,
        }
    }

    fn at(&self) -> usize {
        TABS.iter().position(|tab| *tab == self.tab).unwrap_or(0)
    }

    fn scroll(&mut self, by: usize) {
        let sort = self.sorts[self.at()];
        let count = |frame| rows(self.tab, frame, sort, &self.filter).len();
        let last = self.frame.as_ref().map_or(0, count).saturating_sub(1);
        self.first_row = (self.first_row + by).min(last);
    }

    fn show(&mut self, at: usize) {
        self.tab = TABS[at % TABS.len()];
        self.first_row = 0;
    }

    /// Executes the command of a key.
    pub fn key(&mut self, key: KeyEvent) -> KeyCommand {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return KeyCommand::Quit;
        }
        if self.is_typing {
            match key.code {
                KeyCode::Char(c) => self.filter.push(c),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Esc => {
                    self.filter.clear();
                    self.is_typing = false;
                }
                KeyCode::Enter => self.is_typing = false,
                _ => {}
            }
            return KeyCommand::Nothing;
        }
        let at = self.at();
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return KeyCommand::Quit,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') | KeyCode::Right => {
                self.sorts[at] = (self.sorts[at] + 1) % self.tab.columns().len();
            }
            KeyCode::Left => {
                let columns = self.tab.columns().len();
                self.sorts[at] = (self.sorts[at] + columns - 1) % columns;
            }
            KeyCode::Tab => self.show(at + 1),
            KeyCode::BackTab => self.show(at + TABS.len() - 1),
            KeyCode::Char(digit @ '1'..='7') => self.show(digit as usize - '1' as usize),
            KeyCode::Down => self.scroll(1),
            KeyCode::Up => self.first_row = self.first_row.saturating_sub(1),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.first_row = self.first_row.saturating_sub(10),
            _ => {}
        }
        KeyCommand::Nothing
    }

    /// Draws everything.
    pub fn draw(&self, canvas: &mut Canvas<'_>) {
        let lines = match &self.frame {
            Some(frame) => wrapped(&head(frame), canvas.area().width.into()),
            None => vec![self.error.clone().unwrap_or("asking the server …".into())],
        };
        let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let [top, tabs, body, foot] = Layout::vertical([
            Constraint::Length(height),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(canvas.area());
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        canvas.render_widget(Paragraph::new(lines), top);
        let Some(frame) = &self.frame else { return };
        canvas.render_widget(self.tabs(), tabs);
        self.table(frame, canvas, body);
        canvas.render_widget(self.foot(), foot);
    }

    fn tabs(&self) -> Line<'_> {
        let names = TABS.iter().enumerate().map(|(i, tab)| {
            let name = format!(" {} {} ", i + 1, tab.name());
            match *tab == self.tab {
                true => Span::styled(name, Style::new().add_modifier(Modifier::REVERSED)),
                false => Span::raw(name),
            }
        });
        Line::from_iter(names)
    }

    fn table(&self, frame: &Frame, canvas: &mut Canvas<'_>, area: Rect) {
        let sort = self.sorts[self.at()];
        let rows = rows(self.tab, frame, sort, &self.filter);
        let columns = self.tab.columns();
        let header = columns.iter().enumerate().map(|(i, name)| {
            let name = if i == sort {
                format!("{name}*")
            } else {
                (*name).to_owned()
            };
            cell(i, name)
        });
        let header = Row::new(header).style(Style::new().add_modifier(Modifier::BOLD));
        let first = self.first_row.min(rows.len().saturating_sub(1));
        let shown = rows.into_iter().skip(first).map(|row| {
            Row::new(
                row.cells
                    .into_iter()
                    .enumerate()
                    .map(|(i, text)| cell(i, text)),
            )
        });
        let widths = columns.iter().enumerate().map(|(i, name)| match i {
            0 => Constraint::Min(16),
            _ if name.len() > 12 => Constraint::Length(40),
            _ => Constraint::Length(11),
        });
        canvas.render_widget(Table::new(shown, widths).header(header), area);
    }

    fn foot(&self) -> Line<'_> {
        if self.is_typing {
            return Line::from(format!(
                "filter: {}_   Enter keeps it, Esc drops it",
                self.filter
            ));
        }
        if let Some(error) = &self.error {
            let style = Style::new().add_modifier(Modifier::REVERSED);
            return Line::styled(error.replace(char::is_control, " "), style);
        }
        let mut parts =
            vec!["q quit  space pause  s sort  / filter  Tab next  arrows scroll".to_owned()];
        if self.is_paused {
            parts.push("PAUSED".into());
        }
        if !self.filter.is_empty() {
            parts.push(format!("only {:?}", self.filter));
        }
        Line::from(parts.join("   "))
    }
}

/// Lines that are not wider than this, broken where two spaces are.
fn wrapped(lines: &[String], width: usize) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for line in lines {
        let mut parts = line.split("  ");
        out.extend(parts.next().map(str::to_owned));
        for part in parts {
            match out.last_mut() {
                Some(last) if last.chars().count() + 2 + part.chars().count() <= width => {
                    *last += "  ";
                    *last += part;
                }
                _ => out.push(part.to_owned()),
            }
        }
    }
    out
}

/// Text on the left, numbers on the right.
fn cell(column: usize, text: String) -> Cell<'static> {
    let line = Line::from(text);
    Cell::from(match column {
        0 => line,
        _ => line.right_aligned(),
    })
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::commands::top::frame::UseRates;

    fn text(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|canvas| screen.draw(canvas)).unwrap();
        terminal.backend().to_string()
    }

    fn press(screen: &mut Screen, keys: &str) {
        for c in keys.chars() {
            let code = if c == '\n' {
                KeyCode::Enter
            } else {
                KeyCode::Char(c)
            };
            screen.key(KeyEvent::from(code));
        }
    }

    fn with_databases() -> Screen {
        let of = |name: &str, busy| UseRates {
            name: name.into(),
            per_s: 1.0,
            writes_per_s: 0.0,
            busy,
            bytes_per_s: 0.0,
        };
        let mut screen = Screen::new();
        screen.frame = Some(Frame {
            databases: vec![of("quiet", 0.1), of("busy", 2.0)],
            ..Frame::default()
        });
        screen
    }

    #[test]
    fn keys_show_sort_and_filter() {
        let mut screen = with_databases();
        press(&mut screen, "2");
        let shown = text(&screen);
        assert!(
            shown.find("busy ").unwrap() < shown.find("quiet").unwrap(),
            "{shown}"
        );
        assert!(shown.contains("busy*"), "{shown}");
        press(&mut screen, "/qui\n");
        let shown = text(&screen);
        assert!(
            shown.contains("quiet") && !shown.contains("2.00"),
            "{shown}"
        );
        press(&mut screen, " ");
        assert!(screen.is_paused && text(&screen).contains("PAUSED"));
        assert_eq!(
            screen.key(KeyEvent::from(KeyCode::Char('q'))),
            KeyCommand::Quit
        );
    }

    #[test]
    fn the_whole_head_is_there_on_a_small_terminal() {
        let mut screen = with_databases();
        let frame = screen.frame.as_mut().unwrap();
        let states = ["idle", "sync", "write", "answer", "network", "javascript"];
        frame.states_percent = states.map(|name| (name.to_owned(), 16.6)).into();
        let queues = ["accept", "commit", "index", "replication"];
        frame.queues = queues
            .map(|name| (name.to_owned(), Default::default()))
            .into();
        let shown = text(&screen);
        let wanted = [
            " crash",
            "threads %",
            "javascript 16.6",
            "requests a batch",
            "req/s",
        ];
        for part in wanted {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
    }

    #[test]
    fn errors_are_seen_first() {
        let mut screen = with_databases();
        screen.error = Some("http://127.0.0.1:5984: it does not answer".into());
        assert!(text(&screen).contains("it does not answer"));
    }

    #[test]
    fn any_size_is_drawn() {
        for (width, height) in [(1, 1), (10, 3), (80, 24), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            for tab in 0..TABS.len() {
                let mut screen = with_databases();
                screen.show(tab);
                terminal.draw(|canvas| screen.draw(canvas)).unwrap();
            }
        }
    }
}
