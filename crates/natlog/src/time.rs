//! Calendar time as text (RFC 3339, UTC) and back.

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// `2026-03-03T14:03:22.500Z`.
#[must_use]
pub fn format_ms(unix_ms: u64) -> String {
    let (year, month, day) = civil(unix_ms / DAY_MS);
    let ms = unix_ms % DAY_MS;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1_000 % 60,
        ms % 1_000
    )
}

/// Milliseconds since 1970 of `2026-03-03T14:03:22.5Z`, with `Z` or an offset like `+02:00`; fraction and seconds may be
/// missing.
///
/// # Errors
/// What is wrong, and how to write it.
pub fn parse_ms(text: &str) -> Result<u64, String> {
    read(text).ok_or_else(|| {
        format!("`{text}` is no time; write it like 2026-03-03T14:03:22.5Z, or with an offset like +02:00")
    })
}

fn read(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (clock, offset_minutes) = split_offset(rest)?;
    let mut parts = date.split('-');
    let mut number = |digits: usize| {
        let part = parts.next()?;
        (part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))
            .then(|| part.parse::<u64>().ok())?
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    if parts.next().is_some() || year < 1970 || !(1..=12).contains(&month) || day < 1 {
        return None;
    }
    let days = days(year, month, day);
    // A day that the month does not have comes back as another.
    if civil(days) != (year, month, day) {
        return None;
    }
    let ms = (days * DAY_MS).checked_add(clock_ms(clock)?)?;
    ms.checked_add_signed(-offset_minutes * 60_000)
}

fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let (clock, offset) = text.split_at_checked(at)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let minutes = two(hours, 23)? * 60 + two(minutes, 59)?;
    Some((clock, if offset.starts_with('-') { -(minutes as i64) } else { minutes as i64 }))
}

fn clock_ms(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let (hours, minutes) = (two(parts.next()?, 23)?, two(parts.next()?, 59)?);
    let (seconds, fraction) = match parts.next() {
        None => (0, ""),
        Some(text) => {
            let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
            (two(seconds, 59)?, fraction)
        }
    };
    let good = fraction.len() <= 9 && fraction.bytes().all(|b| b.is_ascii_digit());
    let ms = format!("{fraction:0<3}").get(..3)?.parse::<u64>().ok().filter(|_| good)?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000 + ms)
}

fn two(text: &str, most: u64) -> Option<u64> {
    let good = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| good && *number <= most)
}

/// Year, month and day of a day since 1970, by Howard Hinnant's arithmetic on years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    (era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year) - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_reads_as_it_is_written() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_772_546_602_500, "2026-03-03T14:03:22.500Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(format_ms(ms), text);
            assert_eq!(parse_ms(text), Ok(ms));
        }
        assert_eq!(parse_ms("2026-03-03T14:03:22.5Z"), Ok(1_772_546_602_500));
        assert_eq!(parse_ms("2026-03-03T16:03:22.5+02:00"), Ok(1_772_546_602_500));
        assert_eq!(parse_ms("2026-03-03 14:03Z"), Ok(1_772_546_580_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-03-03T24:00:00Z",
            "2026-03-03T14:03:22.5",
            "1969-12-31T23:59:59Z",
            "2026-3-3T14:03:22Z",
            "2026-03-03T14:03:22.-5Z",
            "1970-01-01T00:00:00+01:00",
            "2026-03-03T14:03:22.5+é",
            "é",
        ] {
            assert!(parse_ms(text).is_err(), "{text}");
        }
    }
}
