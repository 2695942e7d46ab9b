//! The view of a load on a terminal while it goes on: rate, percentiles, failures, and a heat map of latencies.

use std::io::{self, IsTerminal, Stderr};

use crate::load_course::LoadCourse;
use apus_bench::{LoadProgress, format_rate, latency_band_start_ms};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Sparkline, Widget};
use ratatui::{Frame, Terminal};

/// The colours of the heat map, from few responses to many: they differ in lightness, too.
const HEAT: [Color; 6] = [
    Color::Indexed(17),
    Color::Indexed(19),
    Color::Indexed(26),
    Color::Indexed(39),
    Color::Indexed(87),
    Color::Indexed(230),
];

/// What is shown.
struct Screen {
    title: String,
    course: LoadCourse,
}

/// The screen of a terminal, which has its former content again when this is dropped.
pub(crate) struct LiveView {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    screen: Screen,
}

impl LiveView {
    /// Takes the screen, if standard error is a terminal that can show this.
    pub(crate) fn open(title: String) -> Option<Self> {
        let is_able = std::env::var_os("TERM").is_some_and(|name| name != "dumb");
        if !is_able || !io::stderr().is_terminal() {
            return None;
        }
        execute!(io::stderr(), EnterAlternateScreen).ok()?;
        match Terminal::new(CrosstermBackend::new(io::stderr())) {
            Ok(terminal) => Some(Self {
                terminal,
                screen: Screen::new(title),
            }),
            Err(_) => {
                let _ = execute!(io::stderr(), LeaveAlternateScreen);
                None
            }
        }
    }

    /// Shows another interval.
    pub(crate) fn show(&mut self, progress: &LoadProgress) {
        self.screen.course.add(progress.clone());
        draw(&mut self.terminal, &self.screen);
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        let _ = execute!(io::stderr(), LeaveAlternateScreen);
    }
}

/// A terminal that cannot be written to shows nothing; the load goes on.
fn draw<B: Backend>(terminal: &mut Terminal<B>, screen: &Screen) {
    let _ = terminal.draw(|frame| screen.render(frame));
}

impl Screen {
    fn new(title: String) -> Self {
        Self {
            title,
            course: LoadCourse::default(),
        }
    }

    fn render(&self, frame: &mut Frame<'_>) {
        let [head, rate, heat] = Layout::vertical([
            Constraint::Length(4),
            Constraint::Length(7),
            Constraint::Min(5),
        ])
        .areas(frame.area());
        frame.render_widget(self.head(), head);
        self.render_rate(frame, rate);
        let block = Block::bordered().title(" latency ");
        let inside = block.inner(heat);
        frame.render_widget(block, heat);
        frame.render_widget(LatencyHeat(self), inside);
    }

    fn head(&self) -> Paragraph<'_> {
        let course = &self.course;
        let Some(last) = course.intervals.back() else {
            return Paragraph::new(self.title.as_str());
        };
        let failed = format!("{} failed", course.failed);
        let failed = match course.failed {
            0 => failed.into(),
            _ => failed.bold().red(),
        };
        Paragraph::new(vec![
            Line::from(self.title.as_str().bold()),
            Line::from(format!(
                "{:.1} s    {} responses    {}/s",
                last.seconds,
                course.good,
                format_rate(course.rate())
            )),
            Line::from(vec![format!("{}    ", course.percentiles()).into(), failed]),
        ])
    }

    fn render_rate(&self, frame: &mut Frame<'_>, area: Rect) {
        let columns = usize::from(area.width.saturating_sub(2));
        // Counts, as rates below 1 would be columns without height: the intervals of a load have one length.
        let counts = self.last(columns).map(|interval| interval.good);
        let rates = self
            .last(columns)
            .map(|interval| interval.good as f64 / interval.interval);
        let most = format_rate(rates.fold(0.0, f64::max));
        let sparkline = Sparkline::default()
            .block(Block::bordered().title(format!(" responses per second, at most {most} ")))
            .style(Style::new().cyan())
            .data(counts.collect::<Vec<u64>>());
        frame.render_widget(sparkline, area);
    }

    fn last(&self, columns: usize) -> impl Iterator<Item = &LoadProgress> {
        let intervals = &self.course.intervals;
        intervals
            .iter()
            .skip(intervals.len().saturating_sub(columns))
    }
}

/// How many responses had which latency in each interval.
struct LatencyHeat<'a>(&'a Screen);

/// The width of the labels.
const LABELS: u16 = 9;

impl Widget for LatencyHeat<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let columns = usize::from(area.width.saturating_sub(LABELS));
        let shown: Vec<_> = self.0.last(columns).collect();
        let used = |band: &usize| {
            let count = |one: &&&LoadProgress| one.bands.get(*band).is_some_and(|count| *count > 0);
            shown.iter().any(|one| count(&one))
        };
        let bands = shown.first().map_or(0, |one| one.bands.len());
        let (Some(first), Some(last)) = ((0..bands).find(used), (0..bands).rev().find(used)) else {
            return;
        };
        let rows = usize::from(area.height).max(1);
        // Several bands are one row if there are more than rows.
        let per_row = (last - first + 1).div_ceil(rows).max(1);
        let cell = |one: &LoadProgress, row: usize| -> u64 {
            let from = first + row * per_row;
            let counts = one.bands.iter().skip(from).take(per_row);
            counts.map(|count| u64::from(*count)).sum()
        };
        let used_rows = (last - first + 1).div_ceil(per_row);
        let most = shown
            .iter()
            .flat_map(|one| (0..used_rows).map(|row| cell(one, row)))
            .max()
            .unwrap_or(0)
            .max(1) as f64;
        for (row, y) in (0..used_rows).zip((area.y..area.bottom()).rev()) {
            let start = latency_band_start_ms(first + row * per_row);
            let label = format!("{start:>6.2} ms");
            buffer.set_stringn(area.x, y, label, usize::from(LABELS), Style::new().dim());
            for (one, x) in shown
                .iter()
                .zip(area.x.saturating_add(LABELS)..area.right())
            {
                let count = cell(one, row);
                if count == 0 {
                    continue;
                }
                // Few responses are visible beside many: the scale is logarithmic.
                let share = (count as f64).ln_1p() / most.ln_1p();
                let shade = ((share * HEAT.len() as f64) as usize).min(HEAT.len() - 1);
                if let (Some(colour), Some(cell)) = (HEAT.get(shade), buffer.cell_mut((x, y))) {
                    cell.set_char('\u{2588}').set_fg(*colour);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_course::MAX_INTERVALS;
    use ratatui::backend::TestBackend;

    fn interval(number: u64, failed: u64) -> LoadProgress {
        let mut bands = vec![0; 128];
        bands[40] = 5;
        bands[41 + number as usize % 2] = 300;
        LoadProgress {
            seconds: number as f64 / 10.0,
            good: 305,
            failed,
            interval: 0.1,
            p50_ms: 1.25,
            p99_ms: 3.5,
            bands,
        }
    }

    fn shown(width: u16, height: u16, screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        draw(&mut terminal, screen);
        terminal.backend().to_string()
    }

    #[test]
    fn the_view_has_rate_percentiles_failures_and_a_heat_map() {
        let mut screen = Screen::new("GET http://127.0.0.1:8080/".to_owned());
        for number in 1..=20 {
            screen
                .course
                .add(interval(number, u64::from(number == 20) * 7));
        }
        let text = shown(80, 24, &screen);
        for part in [
            "GET http://127.0.0.1:8080/",
            "2.0 s    6100 responses    3,050/s",
            "p50 1.25 ms  p99 3.50 ms    7 failed",
            "responses per second, at most 3,050",
            "latency",
            "ms",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        // Two rows with a full block in each column, and one with half of them.
        assert!(text.matches('\u{2588}').count() >= 40, "{text}");
    }

    #[test]
    fn rates_below_one_per_second_are_shown() {
        let mut screen = Screen::new("GET /".to_owned());
        for number in 1..=20 {
            screen.course.add(LoadProgress {
                good: number % 2 + 1,
                interval: 4.0,
                ..interval(number, 0)
            });
        }
        let text = shown(80, 24, &screen);
        for part in [
            "30 responses    0.357/s",
            "responses per second, at most 0.5 ",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        // The columns of the rate, of which none was shown: two columns of two responses each are as high as five rows.
        let rows: Vec<_> = text.lines().skip(5).take(5).collect();
        let full = rows.iter().map(|row| row.matches('\u{2588}').count());
        assert!(full.sum::<usize>() >= 50, "{text}");
    }

    #[test]
    fn small_screens_and_empty_loads_are_shown() {
        let mut screen = Screen::new("GET /".to_owned());
        assert!(shown(80, 24, &screen).contains("GET /"));
        for number in 0..2000 {
            screen.course.add(interval(number, 0));
        }
        assert_eq!(screen.course.intervals.len(), MAX_INTERVALS);
        for (width, height) in [(1, 1), (12, 3), (20, 14), (300, 100)] {
            shown(width, height, &screen);
        }
    }
}
