//! `apus top`: what a running server does, on a terminal, with keys for what an operator does about it.
//!
//! `reading` asks the server, `tables` make rows of what it says, and `screen` shows them and knows what a key means.

mod reading;
mod screen;
mod tables;

use std::io::{self, IsTerminal, Stdout};
use std::time::{Duration, Instant};

use apus_server::control::{ControlRequest, ControlResponse};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use self::reading::TopReading;
use self::screen::{TopEffect, TopScreen};
use crate::arguments::RunningServer;
use crate::{CommandError, send};

/// The interval in which the server is asked.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// Shows the server until somebody quits.
pub(crate) fn run(running: &RunningServer) -> Result<(), CommandError> {
    let is_able = std::env::var_os("TERM").is_some_and(|name| name != "dumb");
    if !is_able || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let advice = "this needs a terminal that can be drawn on; `apus status --top` prints the busiest clients without one";
        return Err(CommandError::Failed(advice.to_owned()));
    }
    let mut screen = TopScreen::new(TopReading::take(running)?);
    let mut terminal = TakenTerminal::take().map_err(terminal_failure)?;
    let mut read = Instant::now();
    loop {
        terminal.draw(&screen).map_err(terminal_failure)?;
        let rest = REFRESH_INTERVAL.saturating_sub(read.elapsed());
        let key = next_key(rest).map_err(terminal_failure)?;
        match key.map_or(TopEffect::None, |key| screen.press(key)) {
            TopEffect::None => {}
            TopEffect::Quit => return Ok(()),
            TopEffect::Read => read -= REFRESH_INTERVAL,
            TopEffect::Ask(request) => {
                screen.say(outcome(running, &request));
                read -= REFRESH_INTERVAL;
            }
        }
        if read.elapsed() >= REFRESH_INTERVAL {
            match TopReading::take(running) {
                Ok(reading) => screen.update(reading),
                // It may come back, as after a restart.
                Err(error) => screen.lose(message(error)),
            }
            read = Instant::now();
        }
    }
}

/// The key that is pressed within some time. `None`: there is none, or the terminal has another size.
fn next_key(time: Duration) -> io::Result<Option<event::KeyEvent>> {
    if !event::poll(time)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(key),
        _ => None,
    })
}

/// What became of what was asked for.
fn outcome(running: &RunningServer, request: &ControlRequest) -> String {
    match send(running, request) {
        Ok(ControlResponse::Done(value)) => match value.get("responses") {
            Some(count) => format!("done: {count} responses"),
            None => "done".to_owned(),
        },
        Ok(ControlResponse::Failed { message, .. }) => format!("failed: {message}"),
        Err(error) => message(error),
    }
}

fn message(error: CommandError) -> String {
    match error {
        CommandError::Failed(message) | CommandError::Misused(message) => message,
        CommandError::Reported | CommandError::ReportedMisuse => "the server failed".to_owned(),
    }
}

fn terminal_failure(error: io::Error) -> CommandError {
    CommandError::Failed(format!("the terminal cannot be used: {error}"))
}

/// The screen of the terminal, which has its former content again when this is dropped.
struct TakenTerminal(Terminal<CrosstermBackend<Stdout>>);

impl TakenTerminal {
    fn take() -> io::Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        // From here on, dropping it gives the terminal back.
        let taken = Self(terminal);
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(taken)
    }

    fn draw(&mut self, screen: &TopScreen) -> io::Result<()> {
        self.0.draw(|frame| screen.render(frame)).map(|_| ())
    }
}

impl Drop for TakenTerminal {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        let _ = execute!(io::stdout(), LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
