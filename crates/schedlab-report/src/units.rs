//! How values read: times with their unit, counts with separators, shares in percent.
//!
//! Only formatting; what the values mean is in `schedlab_model::metric`.

use schedlab_model::time::Nanos;

/// A metric's value as people read it.
pub fn value(key: &str, unit: &str, value: f64) -> String {
    match (key, unit) {
        ("deadlines_met", _) => percent(value, 2),
        ("fairness", _) => format!("{value:.4}"),
        ("queue_length_mean", _) => format!("{value:.2}"),
        (_, "ns") => time(value),
        (_, "1/s") => format!("{}/s", short(value)),
        _ => short(value),
    }
}

/// Nanoseconds with the unit that suits.
pub fn time(ns: f64) -> String {
    Nanos(ns.max(0.0).round() as u64).to_string()
}

/// A share in percent.
pub fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$} %", share * 100.0)
}

/// A change with its sign: `+3.1 %`, `-0.4 %`.
pub fn change(share: f64) -> String {
    let percent = share * 100.0;
    let digits = usize::from(percent.abs() < 99.95);
    let shown = format!("{percent:+.digits$} %");
    if shown.trim_start_matches(['-', '+', '0', '.', ' ']) == "%" { format!("{:.1} %", 0.0) } else { shown }
}

/// A ratio: three digits, at least two behind the point below ten.
pub fn ratio(ratio: f64) -> String {
    match ratio {
        _ if !ratio.is_finite() || ratio >= 9_999.0 => "∞".to_owned(),
        _ if ratio >= 100.0 => format!("{ratio:.0}"),
        _ if ratio >= 10.0 => format!("{ratio:.1}"),
        _ if ratio >= 0.1 => format!("{ratio:.2}"),
        _ if ratio >= 0.01 => format!("{ratio:.3}"),
        _ => format!("{ratio:.4}"),
    }
}

/// A count: exact with separators up to six digits, then with a suffix.
pub fn short(number: f64) -> String {
    let magnitude = number.abs();
    match magnitude {
        _ if magnitude >= 1e9 => format!("{:.2} G", number / 1e9),
        _ if magnitude >= 1e6 => format!("{:.2} M", number / 1e6),
        _ if magnitude >= 100.0 || number.fract() == 0.0 => grouped(number.round() as i64),
        _ => format!("{number:.2}"),
    }
}

/// A whole number in groups of three.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::from(if number < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_people_write_them() {
        assert_eq!(value("makespan", "ns", 1.25e9), "1.25 s");
        assert_eq!(value("throughput", "1/s", 46_123.4), "46,123/s");
        assert_eq!(value("switches", "1", 1_234.0), "1,234");
        assert_eq!(value("deadlines_met", "1", 0.9995), "99.95 %");
        assert_eq!(
            [change(0.0312), change(-0.5), change(12.0), change(-0.0001)],
            ["+3.1 %", "-50.0 %", "+1200 %", "0.0 %"]
        );
        assert_eq!(
            [ratio(0.523), ratio(12.34), ratio(0.0123), ratio(f64::MAX)],
            ["0.52", "12.3", "0.012", "∞"]
        );
        assert_eq!(grouped(-1_234_567), "-1,234,567");
    }
}
