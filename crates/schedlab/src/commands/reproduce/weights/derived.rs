//! Tables 1 to 5 of the paper. Its pages print them as pictures, which are lost: these follow its words.

use super::lab::{LINUX, table};
use schedlab_model::weights::WeightTable;
use serde::Serialize;
use std::fmt::Write;

/// The weight tables as the paper has them, with the title of each.
const PRINTED: [(&str, &str); 4] = [
    (LINUX, "Table 1. Linux's 40 weights"),
    ("group:2:shrink", "Table 2. Groups of 2: 20 weights, each the mean of two"),
    ("group:5:shrink", "Table 3. Groups of 5: 8 weights, each the mean of five"),
    ("refine:60", "Table 4. Refined: 60 weights, Linux's 40 and 1024/1.25^nice for the others"),
];

/// Priorities end here in every table: of the table of 20 the paper says that they are +120 to +139.
const MAX_PRIO: i32 = 140;

/// Table 5 for one weight table: macros of include/linux/sched/prio.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Macros {
    max_nice: i32,
    min_nice: i32,
    nice_width: i32,
    max_rt_prio: i32,
    max_prio: i32,
    default_prio: i32,
}

impl Macros {
    /// Real-time tasks keep what the others leave of [`MAX_PRIO`]; nice 0 lies in the middle of these.
    fn of(table: &WeightTable) -> Macros {
        let (strongest, weakest) = table.range();
        let nice_width = table.weights().len() as i32;
        let max_rt_prio = MAX_PRIO - nice_width;
        Macros {
            max_nice: weakest.get(),
            min_nice: strongest.get(),
            nice_width,
            max_rt_prio,
            max_prio: MAX_PRIO,
            default_prio: max_rt_prio + nice_width / 2,
        }
    }
}

/// One of tables 1 to 4 with its macros.
#[derive(Clone, Debug, Serialize)]
pub struct Printed {
    title: &'static str,
    table: WeightTable,
    macros: Macros,
}

/// All of them.
pub fn all() -> Vec<Printed> {
    let of = |(name, title): (&str, &'static str)| {
        let table = table(name);
        let macros = Macros::of(&table);
        Printed { title, table, macros }
    };
    PRINTED.into_iter().map(of).collect()
}

/// How far a table is off 1024/1.25^nice at most, as a part of it.
pub fn off_formula(table: &WeightTable) -> f64 {
    let (strongest, _) = table.range();
    let off = |(index, &weight): (usize, &u32)| {
        let formula = 1024.0 / 1.25_f64.powi(strongest.get() + index as i32);
        (f64::from(weight) / formula - 1.0).abs()
    };
    table.weights().iter().enumerate().map(off).fold(0.0, f64::max)
}

/// As text.
pub fn render(all: &[Printed]) -> String {
    let mut out = String::new();
    for printed in all {
        writeln!(out, "{}", printed.title).expect("text grows");
        let (strongest, _) = printed.table.range();
        for (row, weights) in printed.table.weights().chunks(5).enumerate() {
            write!(out, "  {:>4}", strongest.get() + 5 * row as i32).expect("text grows");
            weights.iter().for_each(|weight| write!(out, "{weight:>8}").expect("text grows"));
            out.push('\n');
        }
        out.push('\n');
    }
    out + &render_macros(all)
}

/// Reads one of the macros.
type Value = fn(&Macros) -> i32;

fn render_macros(all: &[Printed]) -> String {
    let mut out = "Table 5. Macros of priorities\n".to_owned();
    let head: String = all.iter().map(|printed| format!("{:>16}", printed.table.name())).collect();
    writeln!(out, "  {:<14}{head}", "").expect("text grows");
    let rows: [(&str, Value); 6] = [
        ("MAX_NICE", |macros| macros.max_nice),
        ("MIN_NICE", |macros| macros.min_nice),
        ("NICE_WIDTH", |macros| macros.nice_width),
        ("MAX_RT_PRIO", |macros| macros.max_rt_prio),
        ("MAX_PRIO", |macros| macros.max_prio),
        ("DEFAULT_PRIO", |macros| macros.default_prio),
    ];
    for (name, value) in rows {
        let cells: String = all.iter().map(|printed| format!("{:>16}", value(&printed.macros))).collect();
        writeln!(out, "  {name:<14}{cells}").expect("text grows");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's own are those of the header; of groups of two the paper says +120 to +139.
    #[test]
    fn macros_are_linuxs_and_the_papers() {
        let of = |name: &str| Macros::of(&table(name));
        let macros = |max_nice, min_nice, nice_width, max_rt_prio, default_prio| Macros {
            max_nice,
            min_nice,
            nice_width,
            max_rt_prio,
            max_prio: 140,
            default_prio,
        };
        assert_eq!(of(LINUX), macros(19, -20, 40, 100, 120));
        assert_eq!(of("group:2:shrink"), macros(9, -10, 20, 120, 130));
        assert_eq!(of("group:5:shrink"), macros(3, -4, 8, 132, 136));
        assert_eq!(of("refine:60"), macros(29, -30, 60, 80, 110));
    }

    /// By hand: (88761 + 71755) / 2 = 80258; (423 + 335) / 2 = 379; 299563 / 5 = 59912.6; 121 / 5 = 24.2;
    /// 1024 · 1.25^30 = 827180.6; 1024 · 1.25^21 = 111022.3; 1024 / 1.25^20 = 11.81; 1024 / 1.25^29 = 1.58.
    #[test]
    fn the_tables_have_the_values_worked_out_by_hand() {
        let text = render(&all());
        let table = |title: &str| {
            let from = text.find(title).unwrap_or_else(|| panic!("{title}: {text}"));
            let table = text[from..].split("\n\n").next().expect("a table");
            table.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let row = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        let linux = table("Table 1.");
        assert_eq!((linux.len(), row(&linux[4])), (8, "0 1024 820 655 526 423".to_owned()));
        let twenty = table("Table 2.");
        assert_eq!(row(&twenty[0]), "-10 80258 51378 32723 20980 13433");
        assert_eq!(row(&twenty[2]), "0 922 591 379 244 155");
        let eight = table("Table 3.");
        assert_eq!(row(&eight[0]), "-4 59913 19596 6416 2095 690");
        assert_eq!(row(&eight[1]), "1 226 74 24");
        let sixty = table("Table 4.");
        assert_eq!(sixty.len(), 12);
        assert!(row(&sixty[0]).starts_with("-30 827181 661744"), "{}", sixty[0]);
        assert_eq!(row(&sixty[1]).split(' ').next_back(), Some("111022"), "{}", sixty[1]);
        assert_eq!(row(&sixty[2]), row(&linux[0]), "Linux's 40 stay");
        assert_eq!(row(&sixty[10]), "20 12 9 8 6 5");
        assert_eq!(row(&sixty[11]), "25 4 3 2 2 2");
    }

    /// The largest is that of nice 18: 1024 / 1.25^18 = 18.447, the table has 18.
    #[test]
    fn linuxs_weights_lie_near_the_formula() {
        assert!((off_formula(&table(LINUX)) - (1.0 - 18.0 / 18.446_744_073_709_55)).abs() < 1e-9);
    }
}
