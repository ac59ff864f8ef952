//! Numbers and times for people.

pub use carrack_base::text::{grouped as number, grouped_signed as signed};

/// So many of them: `1 worker`, `2,000 workers`.
pub fn plural(n: u64, word: &str) -> String {
    format!("{} {word}{}", number(n), if n == 1 { "" } else { "s" })
}

/// Seconds as the two largest units: `59s`, `2m04s`, `3h00m`, `12d05h`.
pub fn duration(s: u64) -> String {
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s % 3_600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3_600),
    }
}

/// Bytes with a binary unit: `512 B`, `1.5 KiB`, `96.0 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1_024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1_024.0;
    let mut unit = 0;
    while value >= 1_024.0 && unit + 1 < UNITS.len() {
        value /= 1_024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS.get(unit).unwrap_or(&"PiB"))
}

/// A share of a whole: `12.5%`, `-` of nothing.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

/// Microseconds since 1970 as `2024-05-06 07:08:09.123456` (UTC).
pub fn utc(unix_us: u64) -> String {
    let (days, s, us) = (unix_us / 86_400_000_000, unix_us / 1_000_000 % 86_400, unix_us % 1_000_000);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {}.{us:06}", clock(s))
}

/// Nanoseconds since 1970 as the time of day: `07:08:09.123456789` (UTC).
pub fn time_of_day(unix_ns: u64) -> String {
    format!("{}.{:09}", clock(unix_ns / 1_000_000_000 % 86_400), unix_ns % 1_000_000_000)
}

fn clock(s: u64) -> String {
    format!("{:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60)
}

/// Year, month and day of a day number since 1970-01-01, in the proleptic Gregorian calendar. Years are counted from
/// March in eras of 400 years, so that the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(n), text);
        }
        assert_eq!(signed(-12_345), "-12,345");
    }

    #[test]
    fn times_show_two_units() {
        for (s, text) in [(59, "59s"), (124, "2m04s"), (10_800, "3h00m"), (1_054_800, "12d05h")] {
            assert_eq!(duration(s), text);
        }
    }

    #[test]
    fn dates_hold_over_leap_days_and_centuries() {
        for (s, text) in [
            (0, "1970-01-01 00:00:00.000000"),
            (951_782_400, "2000-02-29 00:00:00.000000"),
            (1_709_251_199, "2024-02-29 23:59:59.000000"),
            (4_107_542_400, "2100-03-01 00:00:00.000000"),
        ] {
            assert_eq!(utc(s * 1_000_000), text);
        }
    }

    #[test]
    fn bytes_take_the_largest_unit() {
        for (n, text) in [(1_023, "1023 B"), (1_536, "1.5 KiB"), (96 << 20, "96.0 MiB"), (3 << 30, "3.0 GiB")]
        {
            assert_eq!(bytes(n), text);
        }
    }
}
