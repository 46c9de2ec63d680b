//! What the screen shows and what keys do to it. No terminal here: keys and frames come in, a state comes out.

use super::history::History;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use schedlab_host::top::cgroups_named;
use schedlab_report::top::{Filter, Frame, Sort};
use std::time::Duration;

/// The interval doubles and halves between these.
const INTERVAL_LEAST: Duration = Duration::from_millis(100);
const INTERVAL_MOST: Duration = Duration::from_secs(60);
const PAGE: usize = 20;

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw again.
    Draw,
    /// Draw again, and look at once.
    Look,
    /// End.
    Quit,
}

/// What a line of text is typed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Name or number.
    Name,
    /// Control group.
    Cgroup,
}

/// The state of the screen.
pub struct Screen {
    pub frame: Option<Frame>,
    pub history: History,
    pub sort: Sort,
    pub filter: Filter,
    /// The text that made `filter.cgroups`.
    pub cgroup: Option<String>,
    pub interval: Duration,
    pub paused: bool,
    pub help: bool,
    pub typing: Option<(Field, String)>,
    /// First task shown.
    pub scroll: usize,
}

impl Screen {
    /// Before the first look.
    pub fn new(sort: Sort, filter: Filter, cgroup: Option<String>, interval: Duration) -> Screen {
        Screen {
            frame: None,
            history: History::default(),
            sort,
            filter,
            cgroup,
            interval,
            paused: false,
            help: false,
            typing: None,
            scroll: 0,
        }
    }

    /// Shows what happened in an interval.
    pub fn show(&mut self, frame: Frame) {
        self.history.add(&frame);
        self.frame = Some(frame);
    }

    /// Does what a key asks for.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Action::Quit;
        }
        if let Some((field, text)) = self.typing.take() {
            self.typed(field, text, key.code);
            return Action::Draw;
        }
        self.command(key.code)
    }

    fn command(&mut self, code: KeyCode) -> Action {
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => (self.filter, self.cgroup) = (Filter::default(), None),
            KeyCode::Char('r') => self.sort = Sort::Rank,
            KeyCode::Char('d') => self.sort = Sort::Delay,
            KeyCode::Char('c') => self.sort = Sort::Cpu,
            KeyCode::Char('p') => self.sort = Sort::Pid,
            KeyCode::Char('a') => self.filter.active = !self.filter.active,
            KeyCode::Char('/') => self.typing = Some((Field::Name, self.filter.text.clone())),
            KeyCode::Char('g') => {
                self.typing = Some((Field::Cgroup, self.cgroup.clone().unwrap_or_default()))
            }
            KeyCode::Char('+' | '=') => self.interval = (self.interval * 2).min(INTERVAL_MOST),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(INTERVAL_LEAST),
            KeyCode::Char(' ') => {
                self.paused = !self.paused;
                return if self.paused { Action::Draw } else { Action::Look };
            }
            _ => self.scroll_by(code),
        }
        Action::Draw
    }

    fn scroll_by(&mut self, code: KeyCode) {
        let tasks = self.frame.as_ref().map_or(0, |frame| frame.sorted(self.sort, &self.filter).len());
        let last = tasks.saturating_sub(1);
        self.scroll = match code {
            KeyCode::Up | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll + 1,
            KeyCode::PageUp => self.scroll.saturating_sub(PAGE),
            KeyCode::PageDown => self.scroll + PAGE,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => self.scroll,
        }
        .min(last);
    }

    fn typed(&mut self, field: Field, mut text: String, code: KeyCode) {
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => text.clear(),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(letter) => text.push(letter),
            _ => {}
        }
        match field {
            Field::Name => self.filter.text.clone_from(&text),
            Field::Cgroup => {
                self.filter.cgroups = (!text.is_empty()).then(|| cgroups_named(&text));
                self.cgroup = (!text.is_empty()).then(|| text.clone());
            }
        }
        self.scroll = 0;
        self.typing = (code != KeyCode::Esc).then_some((field, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen() -> Screen {
        Screen::new(Sort::Cpu, Filter::default(), None, Duration::from_secs(1))
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Action {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn q_and_ctrl_c_end_it_and_c_sorts() {
        let mut screen = screen();
        screen.sort = Sort::Pid;
        assert_eq!(press(&mut screen, KeyCode::Char('c')), Action::Draw);
        assert_eq!(screen.sort, Sort::Cpu);
        assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Action::Quit);
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Action::Quit);
    }

    #[test]
    fn letters_typed_into_a_filter_are_no_commands() {
        let mut screen = screen();
        for letter in "/qr".chars() {
            assert_eq!(press(&mut screen, KeyCode::Char(letter)), Action::Draw);
        }
        assert_eq!((screen.filter.text.as_str(), screen.sort), ("qr", Sort::Cpu));
        press(&mut screen, KeyCode::Backspace);
        press(&mut screen, KeyCode::Enter);
        assert_eq!((screen.filter.text.as_str(), screen.typing.is_none()), ("q", true));
        press(&mut screen, KeyCode::Esc);
        assert_eq!(screen.filter, Filter::default());
    }

    #[test]
    fn the_interval_doubles_and_halves_within_bounds_and_pausing_stops() {
        let mut screen = screen();
        for _ in 0..20 {
            press(&mut screen, KeyCode::Char('+'));
        }
        assert_eq!(screen.interval, INTERVAL_MOST);
        for _ in 0..20 {
            press(&mut screen, KeyCode::Char('-'));
        }
        assert_eq!(screen.interval, INTERVAL_LEAST);
        assert_eq!(press(&mut screen, KeyCode::Char(' ')), Action::Draw);
        assert!(screen.paused);
        assert_eq!(press(&mut screen, KeyCode::Char(' ')), Action::Look);
        press(&mut screen, KeyCode::Down);
        assert_eq!(screen.scroll, 0, "there is nothing to scroll");
    }
}
