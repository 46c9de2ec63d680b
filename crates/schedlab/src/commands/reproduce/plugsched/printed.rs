//! What the slides of 2006 print (papers: plugsched-2006), digits joined again.

/// A row of the wake-up tables, us: mean, least, most, deviation.
pub type Spread = [f64; 4];

/// One scheduler.
pub struct OfPaper {
    /// Its name there and here.
    pub name: &'static str,
    /// hackbench 30, s.
    pub hackbench_s: f64,
    /// Wake-ups of the real-time thread: raw, and filtered at six deviations.
    pub rt: [Spread; 2],
    /// Wake-ups of the ordinary thread.
    pub normal: [Spread; 2],
}

/// The four, in the order of the slides.
pub const PLUGSCHED: [OfPaper; 4] = [
    OfPaper {
        name: "ingosched",
        hackbench_s: 38.620,
        rt: [[575.03, 37.0, 448_262.0, 14_171.0], [126.38, 37.0, 410.0, 125.0]],
        normal: [[1_840.22, 38.0, 129_328.0, 11_304.0], [776.66, 38.0, 45_828.0, 3_742.0]],
    },
    OfPaper {
        name: "ingo_ll",
        hackbench_s: 78.689,
        rt: [[386.66, 33.0, 82_750.0, 4_000.0], [169.79, 33.0, 468.0, 142.0]],
        normal: [[214_211.99, 152.0, 1_554_755.0, 192_334.0], [212_868.76, 152.0, 968_781.0, 187_688.0]],
    },
    OfPaper {
        name: "nicksched",
        hackbench_s: 45.717,
        rt: [[119.31, 34.0, 1_013.0, 120.0], [116.09, 34.0, 473.0, 110.0]],
        normal: [[117.19, 34.0, 1_183.0, 115.0], [116.12, 34.0, 406.0, 110.0]],
    },
    OfPaper {
        name: "staircase",
        hackbench_s: 43.845,
        rt: [[167.15, 36.0, 66_277.0, 2_095.0], [101.03, 36.0, 1_092.0, 117.0]],
        normal: [[162.75, 38.0, 1_849.0, 177.0], [155.49, 38.0, 1_221.0, 145.0]],
    },
];

/// Names from the least value to the most, of values in the order of [`PLUGSCHED`].
pub fn order(values: &[f64; 4]) -> [&'static str; 4] {
    let mut names = [0, 1, 2, 3];
    names.sort_by(|a: &usize, b| values[*a].total_cmp(&values[*b]));
    names.map(|index| PLUGSCHED[index].name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slides' own numbers: what is filtered has a smaller mean and the same least, and one outlier explains the raw
    /// deviation of two rows.
    #[test]
    fn the_printed_tables_agree_with_themselves() {
        for paper in &PLUGSCHED {
            for [raw, filtered] in [paper.rt, paper.normal] {
                assert!(filtered[0] < raw[0] && filtered[2] < raw[2], "{}", paper.name);
                assert_eq!(filtered[1].to_bits(), raw[1].to_bits(), "{}", paper.name);
                assert!(filtered[2] <= raw[0] + 6.0 * raw[3], "{}", paper.name);
            }
        }
        for (row, most) in [(0, 448_262.0_f64), (3, 66_277.0)] {
            let alone = most / 1000.0_f64.sqrt();
            assert!((alone / PLUGSCHED[row].rt[0][3] - 1.0).abs() < 0.001, "{alone}");
        }
        let seconds = PLUGSCHED.each_ref().map(|paper| paper.hackbench_s);
        assert_eq!(order(&seconds), ["ingosched", "staircase", "nicksched", "ingo_ll"]);
    }
}
