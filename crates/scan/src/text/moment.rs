//! Days and times, as ISO 8601 writes them.

const DAY_MICROS: i64 = 86_400_000_000;

/// Days since 1970-01-01 of `YYYY-MM-DD`.
pub(crate) fn date(text: &str) -> Option<i32> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return None;
    }
    let (year, month, day) = (number(year)?, number(month)?, number(day)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let in_month = usize::try_from(month - 1).ok().and_then(|month| days.get(month))?;
    if !(1..=*in_month).contains(&day) {
        return None;
    }
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": days_from_civil, for years from 0 on.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    i32::try_from(era * 146_097 + day_of_era - 719_468).ok()
}

/// Microseconds since 1970-01-01 of `YYYY-MM-DD HH:MM:SS.ffffff`; seconds, or all of the time, may be left out.
pub(crate) fn timestamp(text: &str) -> Option<i64> {
    let (day, time) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let day = i64::from(date(day)?) * DAY_MICROS;
    let time = time.strip_suffix('Z').unwrap_or(time);
    if time.is_empty() {
        return Some(day);
    }
    let mut parts = time.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next().unwrap_or("00"));
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    if parts.next().is_some() || [hour, minute, second].iter().any(|part| part.len() != 2) || fraction.len() > 6 {
        return None;
    }
    let (hour, minute, second) = (number(hour)?, number(minute)?, number(second)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = number(fraction)? * 10_i64.pow(6 - fraction.len() as u32);
    Some(day + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction)
}

fn number(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_1970() {
        let days = ["1970-01-01", "1969-12-31", "2000-02-29", "1994-01-01", "0001-01-01", "9999-12-31"].map(date);
        assert_eq!(days, [Some(0), Some(-1), Some(11_016), Some(8_766), Some(-719_162), Some(2_932_896)]);
        assert_eq!(["1900-02-29", "1994-13-01", "94-01-01", "1994-01-01x", "1994-+1-01"].map(date), [None; 5]);
    }

    #[test]
    fn times_are_counted_in_microseconds() {
        let micros = ["1970-01-01 00:00:01.5", "1970-01-02", "1970-01-01T00:01Z", "1969-12-31 23:59:59.999999"];
        assert_eq!(micros.map(timestamp), [Some(1_500_000), Some(DAY_MICROS), Some(60_000_000), Some(-1)]);
        assert_eq!(["1970-01-01 24:00:00", "1970-01-01 1:00", "1970-01-01 00:00:00.1234567"].map(timestamp), [None; 3]);
    }
}
