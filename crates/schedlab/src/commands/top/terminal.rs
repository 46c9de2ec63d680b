//! The loop of the screen: looks when an interval is over, draws, takes keys, and gives the terminal back.
//!
//! Given back in every way out: at the end, after an error, and after a panic (ratatui's hook).

use super::screen::{Action, Screen};
use super::{failure, next, view};
use crate::commands::common::interrupt_flag;
use crate::failure::Failure;
use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use schedlab_host::top::Sampler;
use schedlab_model::tasks_now::MachineNow;
use schedlab_report::top::Frame;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a signal goes unnoticed at most.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Shows the screen until it is ended.
pub fn run(mut sampler: Sampler, screen: Screen) -> Result<(), Failure> {
    let interrupted = interrupt_flag();
    let before = sampler.sample().map_err(failure)?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be used: --plain needs none")?;
    let ended = serve(&mut terminal, sampler, screen, before, &interrupted);
    ratatui::restore();
    ended
}

fn serve(
    terminal: &mut DefaultTerminal,
    mut sampler: Sampler,
    mut screen: Screen,
    mut before: MachineNow,
    interrupted: &AtomicBool,
) -> Result<(), Failure> {
    // The first interval is short, so that there is soon something to see.
    let mut due = Instant::now() + screen.interval.min(LOOK_EVERY);
    let mut stale = true;
    while !interrupted.load(Ordering::Relaxed) {
        if !screen.paused && Instant::now() >= due {
            let now = sampler.sample().map_err(failure)?;
            screen.show(Frame::between(&before, &now));
            (before, due, stale) = (now, next(due, screen.interval), true);
        }
        if stale {
            terminal.draw(|canvas| view::draw(canvas, &screen)).context("drawing")?;
            stale = false;
        }
        let left = due.saturating_duration_since(Instant::now());
        let left = if screen.paused { LOOK_EVERY } else { left.min(LOOK_EVERY) };
        if !event::poll(left).context("waiting for keys")? {
            continue;
        }
        match event::read().context("reading keys")? {
            Event::Key(key) if key.kind == KeyEventKind::Press => match screen.key(key) {
                Action::Quit => return Ok(()),
                Action::Look => due = Instant::now(),
                Action::Draw => due = due.min(Instant::now() + screen.interval),
            },
            _ => {}
        }
        stale = true;
    }
    Ok(())
}
