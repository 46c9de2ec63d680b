//! Weight tables against values worked out by hand.

use super::*;

fn nice(nice: i64) -> Nice {
    Nice::widened(nice).expect("in the widest range")
}

#[test]
fn linux_has_the_kernels_weights_and_inverses() {
    let linux = WeightTable::linux();
    assert_eq!(linux.range(), (nice(-20), nice(19)));
    assert_eq!(linux.weights().len(), 40);
    assert_eq!([-20, -1, 0, 1, 19].map(|n| linux.weight(nice(n))), [88_761, 1_277, 1_024, 820, 15]);
    // 2^32 / 88761 = 48388.0; / 1024 = 4194304; / 335 = 12820797.9; / 15 = 286331153.07.
    assert_eq!([-20, 0, 5, 19].map(|n| linux.inverse(nice(n))), [48_388, 4_194_304, 12_820_798, 286_331_153]);
    for n in 0..39 {
        let step = f64::from(linux.weights()[n]) / f64::from(linux.weights()[n + 1]);
        assert!((1.18..1.32).contains(&step), "a nice value is about a quarter: {step} at {n}");
    }
}

/// (88761 + 71755) / 2 = 80258; (1024 + 820) / 2 = 922; (18 + 15) / 2 = 16.5, up.
#[test]
fn groups_of_two_are_twenty_weights() {
    let kept = WeightTable::grouped(2, Range::Keep).expect("a divisor");
    assert_eq!([-20, -19, 0, 1, 18, 19].map(|n| kept.weight(nice(n))), [80_258, 80_258, 922, 922, 17, 17]);
    assert_eq!(kept.range(), (nice(-20), nice(19)));
    let shrunk = WeightTable::grouped(2, Range::Shrink).expect("a divisor");
    let twenty = [
        80_258, 51_378, 32_723, 20_980, 13_433, 8_584, 5_502, 3_514, 2_246, 1_432, 922, 591, 379, 244, 155,
        99, 63, 41, 26, 17,
    ];
    assert_eq!(shrunk.weights(), twenty);
    assert_eq!(shrunk.range(), (nice(-10), nice(9)));
    assert_eq!(shrunk.weight(nice(0)), 922);
}

/// 299563 / 5 = 59912.6; (1024 + 820 + 655 + 526 + 423) / 5 = 689.6; (36 + 29 + 23 + 18 + 15) / 5 = 24.2.
#[test]
fn groups_of_five_are_eight_weights() {
    let shrunk = WeightTable::grouped(5, Range::Shrink).expect("a divisor");
    assert_eq!(shrunk.weights(), [59_913, 19_596, 6_416, 2_095, 690, 226, 74, 24]);
    assert_eq!(shrunk.range(), (nice(-4), nice(3)));
    let kept = WeightTable::grouped(5, Range::Keep).expect("a divisor");
    assert_eq!(
        [-20, -16, -15, 0, 4, 5].map(|n| kept.weight(nice(n))),
        [59_913, 59_913, 19_596, 690, 690, 226]
    );
}

#[test]
fn any_size_from_one_to_forty_groups() {
    assert_eq!(WeightTable::grouped(1, Range::Keep).expect("one").weights(), WEIGHTS);
    // The sum of Linux's weights, 445,163, over 40.
    assert_eq!(WeightTable::grouped(40, Range::Shrink).expect("all").weights(), [11_129]);
    // Five groups of seven and one of five: nice 15 to 19 again 24.2.
    let seven = WeightTable::grouped(7, Range::Shrink).expect("no divisor");
    assert_eq!(seven.weights(), [50_282, 10_535, 2_201, 464, 97, 24]);
    for size in 1..=40 {
        for range in [Range::Keep, Range::Shrink] {
            let table = WeightTable::grouped(size, range).expect("in range");
            let levels = if range == Range::Keep { 40 } else { 40_usize.div_ceil(size) };
            assert_eq!(table.weights().len(), levels);
            assert!(table.has(nice(0)), "group:{size}");
        }
    }
    for size in [0, 41] {
        assert_eq!(WeightTable::grouped(size, Range::Keep), Err(WeightsError::Group(size.to_string())));
    }
}

/// 1024·1.25^30 = 827180.61; ·1.25^21 = 111022.30; /1.25^20 = 11.806; /1.25^29 = 1.585.
#[test]
fn sixty_levels_keep_linux_and_add_ten_at_each_end() {
    let sixty = WeightTable::refined(60).expect("in range");
    assert_eq!(sixty.range(), (nice(-30), nice(29)));
    assert_eq!([-30, -21, 20, 29].map(|n| sixty.weight(nice(n))), [827_181, 111_022, 12, 2]);
    assert_eq!(sixty.weights()[10..50], WEIGHTS);
    assert_eq!(WeightTable::refined(64).expect("most").weight(nice(31)), 1);
    for count in [40, 65] {
        assert_eq!(WeightTable::refined(count), Err(WeightsError::Refine(count.to_string())));
    }
}

#[test]
fn tables_are_read_by_name_or_from_files() {
    for (text, name) in [
        ("linux", "linux"),
        ("group:5", "group:5"),
        ("group:5:shrink", "group:5:shrink"),
        ("refine:60", "refine:60"),
    ] {
        assert_eq!(WeightTable::parse(text).expect("known").name(), name);
    }
    for text in
        ["", "group", "group:two", "group:2:wide", "refine:", "cubic", "group:0", "group:41", "refine:4000"]
    {
        assert!(WeightTable::parse(text).is_err(), "{text}");
    }
    let own = WeightTable::from_text("own", "# three\n4096, 1024\n 256 # weak\n").expect("three weights");
    assert_eq!((own.weights(), own.range()), (&[4_096, 1_024, 256][..], (nice(-1), nice(1))));
    let first = WeightTable::from_text("own", "first = 0\n1024 512").expect("two weights");
    assert_eq!(first.range(), (nice(0), nice(1)));
}

#[test]
fn bad_files_are_refused_with_the_line() {
    let says = |content: &str| WeightTable::from_text("w", content).expect_err("bad").to_string();
    for (content, wanted) in [
        ("1024\n0", "w:2: '0' is no weight"),
        ("1024 -3", "w:1: '-3' is no weight"),
        ("1024\n\nabc", "w:3: 'abc' is no weight"),
        ("10\n20", "w:2: weight 20 after 10"),
        ("", "w has 0 weights"),
        ("99999999", "is no weight"),
        ("first = 1\n5 4 3", "begins at nice 1"),
        ("first = -3\n5 4 3", "begins between -2 and 0"),
        ("second = 1\n5", "w:1: 'second = 1'"),
    ] {
        assert!(says(content).contains(wanted), "{content:?}: {}", says(content));
    }
    let many = "7 ".repeat(65);
    assert!(says(&many).contains("w has 65 weights: 1 to 64"), "{}", says(&many));
    let missing = WeightTable::parse("/nonexistent/table").expect_err("no such file").to_string();
    assert!(missing.contains("cannot read"), "{missing}");
}

#[test]
fn documents_are_checked_as_files_are() {
    let table = WeightTable::grouped(2, Range::Shrink).expect("fine");
    let json = serde_json::to_string(&table).expect("plain data");
    assert_eq!(serde_json::from_str::<WeightTable>(&json).expect("the same"), table);
    assert!(serde_json::from_str::<WeightTable>(r#"{"name":"x","first":0,"weights":[1,2]}"#).is_err());
}
