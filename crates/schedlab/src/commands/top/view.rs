//! The layout of the screen: a line about the machine, its CPUs, its tasks, the keys.

use super::history;
use super::screen::{Field, Screen};
use ratatui::Frame as Canvas;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table};
use schedlab_model::tasks_now::Activity;
use schedlab_report::top::table::{CPU_TITLES, TASK_RIGHT, TASK_TITLES, cpu_cells, headline, task_cells};
use schedlab_report::top::{CpuRow, Frame, Sort, TaskRow};

/// Widths of the columns of tasks, in the order of their titles.
const TASK_WIDTHS: [u16; 14] = [7, 15, 2, 4, 8, 8, 4, 6, 5, 12, 10, 7, 9, 8];
/// Left out, the first first, where the screen is too narrow for all: static, switches, policy, nice, class, slice.
const SPARE_COLUMNS: [usize; 6] = [7, 13, 5, 6, 4, 10];
const CPU_WIDTHS: [u16; 7] = [4, 6, 6, 16, 24, 8, 9];

const HELP: &str = "\
 r d c p      sort by rank, run delay, CPU share, number
 /            show tasks whose name contains a text, or of a number
 g            show tasks of control groups
 a            show only tasks that ran or waited
 Esc          show all again
 space        pause
 + -          longer or shorter intervals
 up down      scroll; also page up and down, home, end
 ? or h       this help
 q or Ctrl-C  end

 st     R runs, W waits for a CPU, S sleeps, D sleeps and
        cannot be interrupted, T is stopped
 prio   dynamic priority: lower is better
 rank   what its scheduler orders it by (see above the
        table); * under EEVDF: it may run now
 CPU    share of one CPU; delay: could run and did not
 line   the last 16 intervals of what tasks are sorted by;
        of ranks, up runs sooner";

/// Draws it.
pub fn draw(canvas: &mut Canvas<'_>, screen: &Screen) {
    let area = canvas.area();
    let Some(frame) = &screen.frame else {
        canvas.render_widget(Paragraph::new("schedlab top: the first interval ..."), area);
        return;
    };
    // A title line, at most a third of the screen, and never fewer than one CPU.
    let cpu_rows = (frame.cpus.len() as u16).min((area.height / 3).max(2).saturating_sub(1)) + 1;
    let parts = [
        Constraint::Length(2),
        Constraint::Length(cpu_rows),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(1),
    ];
    let [head, cpus, _, tasks, foot] = Layout::vertical(parts).areas(area);
    canvas.render_widget(header(screen, frame), head);
    canvas.render_widget(cpu_table(screen, frame, usize::from(cpu_rows - 1)), cpus);
    canvas.render_widget(task_table(screen, frame, tasks), tasks);
    canvas.render_widget(footer(screen), foot);
    if screen.help {
        draw_help(canvas, area);
    }
}

fn header<'a>(screen: &Screen, frame: &Frame) -> Paragraph<'a> {
    let own = frame.tasks.iter().find(|row| row.now.pid as u32 == std::process::id());
    let own = own.map_or(String::new(), |row| format!(", of which this {:.1} %", row.cpu_share * 100.0));
    let busy: f64 = frame.cpus.iter().filter_map(|cpu| cpu.busy_share).sum();
    let state = if screen.paused { "PAUSED" } else { "" };
    let (title, rank) = headline(frame).split_once(". Rank: ").map_or_else(
        || (headline(frame), String::new()),
        |(title, rank)| (title.to_owned(), rank.to_owned()),
    );
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Paragraph::new(vec![
        Line::from(vec![
            Span::styled(title, bold),
            Span::raw(format!(", {:.0} % of a CPU busy{own} ", busy * 100.0)),
            Span::styled(state, bold.fg(Color::Yellow)),
        ]),
        Line::raw(format!("rank: {rank}")),
    ])
}

fn cpu_table<'a>(screen: &Screen, frame: &Frame, rows: usize) -> Table<'a> {
    let mut shown: Vec<&CpuRow> = frame.cpus.iter().collect();
    let mut titles: Vec<String> = CPU_TITLES.map(str::to_owned).to_vec();
    if shown.len() > rows {
        shown.sort_by_key(|row| (std::cmp::Reverse(row.now.queued), row.now.cpu));
        // Of those with the longest queues.
        titles[4] = format!("{rows} of {} CPUs", shown.len());
    }
    titles.push("queue".to_owned());
    let row = |cpu: &CpuRow| {
        let mut cells = cpu_cells(cpu).to_vec();
        align(&mut cells, &[0, 1, 2, 6], &CPU_WIDTHS);
        cells.push(screen.history.of_cpu(cpu.now.cpu.0));
        Row::new(cells)
    };
    align(&mut titles, &[0, 1, 2, 6], &CPU_WIDTHS);
    let widths = CPU_WIDTHS.iter().copied().chain([history::LENGTH as u16]).map(Constraint::Length);
    Table::new(shown.into_iter().take(rows).map(row), widths).header(title_row(titles))
}

fn task_table<'a>(screen: &Screen, frame: &Frame, area: Rect) -> Table<'a> {
    let columns = columns_for(area.width);
    let chosen = |cells: Vec<String>| columns.iter().map(|&column| cells[column].clone()).collect::<Vec<_>>();
    let mut titles = TASK_TITLES.map(str::to_owned).to_vec();
    let sorted = match screen.sort {
        Sort::Rank => 9,
        Sort::Delay => 12,
        Sort::Cpu => 11,
        Sort::Pid => 0,
    };
    titles[sorted].insert(0, '>');
    align(&mut titles, &TASK_RIGHT, &TASK_WIDTHS);
    let mut titles = chosen(titles);
    titles.push("line".to_owned());
    let rows = frame.sorted(screen.sort, &screen.filter);
    let row = |row: &TaskRow| {
        let mut cells = task_cells(row).to_vec();
        align(&mut cells, &TASK_RIGHT, &TASK_WIDTHS);
        let mut cells = chosen(cells);
        cells.push(screen.history.of_task(row, screen.sort));
        Row::new(cells).style(style_of(row.now.activity))
    };
    let height = usize::from(area.height.saturating_sub(1));
    let scroll = screen.scroll.min(rows.len().saturating_sub(1));
    let shown = rows.into_iter().skip(scroll).take(height).map(row);
    let widths = columns.iter().map(|&column| TASK_WIDTHS[column]).chain([history::LENGTH as u16]);
    Table::new(shown.collect::<Vec<_>>(), widths.map(Constraint::Length)).header(title_row(titles))
}

/// The columns of tasks that fit, with the line.
fn columns_for(width: u16) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..TASK_TITLES.len()).collect();
    let needed = |columns: &[usize]| {
        columns.iter().map(|&column| TASK_WIDTHS[column] + 1).sum::<u16>() + history::LENGTH as u16
    };
    for spare in SPARE_COLUMNS {
        if needed(&columns) <= width {
            break;
        }
        columns.retain(|&column| column != spare);
    }
    columns
}

/// Sets cells flush right in their column.
fn align(cells: &mut [String], right: &[usize], widths: &[u16]) {
    for &column in right {
        let width = usize::from(widths[column]);
        cells[column] = format!("{:>width$}", cells[column]);
    }
}

fn title_row<'a>(titles: Vec<String>) -> Row<'a> {
    Row::new(titles).style(Style::new().add_modifier(Modifier::REVERSED))
}

fn style_of(activity: Activity) -> Style {
    match activity {
        Activity::Running => Style::new().fg(Color::Green),
        Activity::Waiting => Style::new().fg(Color::Yellow),
        Activity::Blocked => Style::new().fg(Color::Red),
        _ => Style::new(),
    }
}

fn footer<'a>(screen: &Screen) -> Paragraph<'a> {
    if let Some((field, text)) = &screen.typing {
        let what = match field {
            Field::Name => "name or number",
            Field::Cgroup => "control group",
        };
        return Paragraph::new(format!("{what}: {text}_   (Enter keeps it, Esc shows all)"));
    }
    let mut text = format!(
        "q end  ? help  r d c p sort  / name  g group  a active  space pause  +- {:?}",
        screen.interval
    );
    if !screen.filter.text.is_empty() {
        text += &format!("  [name: {}]", screen.filter.text);
    }
    if let Some(cgroup) = &screen.cgroup {
        text += &format!("  [group: {cgroup}]");
    }
    if screen.filter.active {
        text += "  [active]";
    }
    Paragraph::new(text)
}

fn draw_help(canvas: &mut Canvas<'_>, area: Rect) {
    let (width, height) = (62.min(area.width), (HELP.lines().count() as u16 + 2).min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let place = Rect { x, y, width, height };
    canvas.render_widget(Clear, place);
    let block = Block::new().borders(Borders::ALL).title(" keys ").title_alignment(Alignment::Center);
    canvas.render_widget(Paragraph::new(HELP).block(block), place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use schedlab_model::tasks_now::{Class, CpuNow, MachineNow, Rank, SchedulerNow, TaskNow};
    use schedlab_model::{CpuId, Nanos};
    use schedlab_report::top::Filter;
    use std::time::Duration;

    fn machine(ms: u64, cpus: u32) -> MachineNow {
        let task = |pid: i32| TaskNow {
            pid,
            tgid: pid,
            start_ns: 1,
            name: format!("worker{pid}"),
            kernel: false,
            cgroup: 1,
            class: Class::Ext,
            policy: 0,
            nice: 0,
            prio_static: 120,
            prio: 120,
            activity: if pid == 1 { Activity::Running } else { Activity::Waiting },
            cpu: CpuId(0),
            rank: Some(Rank::Level { level: 114 + pid as u32, level_static: 120 }),
            slice_left: Some(Nanos(100_000_000)),
            ran: Nanos(ms * 1_000_000 / pid as u64),
            delay: Some(Nanos(ms * 100_000)),
            switches: [ms, 0],
        };
        let cpu = |cpu: u32| CpuNow {
            cpu: CpuId(cpu),
            queued: cpu,
            by_class: [0, 0, 0, cpu],
            current: 1,
            current_name: "worker1".into(),
            class: Class::Ext,
            switches: ms,
            idle: Some((Nanos(ms * 500_000), Nanos(ms * 1_000_000))),
        };
        MachineNow {
            time: Nanos(ms * 1_000_000),
            tasks: (1..=30).map(task).collect(),
            cpus: (0..cpus).map(cpu).collect(),
            scheduler: SchedulerNow { name: "ingosched".into(), rank_words: "dynamic priority".into() },
        }
    }

    fn screen(cpus: u32) -> Screen {
        let mut screen = Screen::new(Sort::Cpu, Filter::default(), None, Duration::from_secs(1));
        for second in 1..=3 {
            screen
                .show(Frame::between(&machine(second * 1_000, cpus), &machine(second * 1_000 + 1_000, cpus)));
        }
        screen
    }

    fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal is needed");
        terminal.draw(|canvas| draw(canvas, screen)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn a_wide_screen_has_every_column() {
        let lines = drawn(&screen(2), 140, 20);
        assert!(
            lines[0].starts_with("ingosched over 1.00 s: 30 tasks, 1 runnable, 100 % of a CPU busy"),
            "{lines:#?}"
        );
        assert_eq!(lines[1], "rank: dynamic priority");
        let titles = lines.iter().find(|line| line.contains(">CPU")).expect("titles of tasks");
        for title in TASK_TITLES.iter().filter(|title| **title != "CPU") {
            assert!(titles.contains(title), "{title} in {titles}");
        }
        let first = lines.iter().find(|line| line.contains("worker1 ")).expect("the first task");
        let task = lines.iter().find(|line| line.trim_start().starts_with("1 worker1")).expect("a row");
        assert!(
            first.contains("worker1") && task.contains("115 (-5)") && task.ends_with("███"),
            "{lines:#?}"
        );
        assert!(lines[19].starts_with("q end"), "{lines:#?}");
    }

    #[test]
    fn small_screens_lose_columns_and_cpus_but_not_the_order() {
        let lines = drawn(&screen(64), 80, 24);
        assert!(lines.iter().any(|line| line.contains("7 of 64 CPUs")), "{lines:#?}");
        assert!(lines[3].trim_start().starts_with("63 "), "the longest queue first: {lines:#?}");
        let titles = lines.iter().find(|line| line.contains(">CPU")).expect("titles of tasks");
        assert!(
            !titles.contains("static") && titles.contains("rank") && titles.contains("delay"),
            "{titles}"
        );
        for (width, height) in [(20, 5), (1, 1), (300, 100)] {
            drawn(&screen(3), width, height);
        }
    }

    #[test]
    fn help_and_filters_are_shown() {
        let mut screen = screen(1);
        screen.filter.text = "worker7".into();
        let lines = drawn(&screen, 140, 20);
        assert_eq!(lines[5..19].iter().filter(|line| line.contains(" worker")).count(), 1);
        assert!(lines[19].contains("[name: worker7]"), "{lines:#?}");
        screen.help = true;
        assert!(drawn(&screen, 140, 30).iter().any(|line| line.contains("sort by rank, run delay")));
    }
}
