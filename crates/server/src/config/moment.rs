//! A moment as a configuration has it: `2026-12-01`, or `2026-12-01T18:30:00Z`.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, NaiveDate, NaiveTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment, to the second. It is written as in RFC 3339; a day alone is its beginning, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(DateTime<Utc>);

impl Moment {
    /// So long from now.
    pub fn after(from_now: Duration) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(from_now);
        let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
        Self(DateTime::from_timestamp(seconds, 0).unwrap_or(DateTime::<Utc>::MAX_UTC))
    }

    /// Whether it is over.
    pub fn is_past(self) -> bool {
        self.is_over_at(SystemTime::now())
    }

    /// Whether it is over when a clock shows this.
    pub fn is_over_at(self, clock: SystemTime) -> bool {
        let since_1970 = clock.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.timestamp() <= since_1970.as_secs() as i64
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
            return Ok(Self(moment.to_utc()));
        }
        let day = NaiveDate::parse_from_str(text, "%Y-%m-%d");
        day.map(|day| Self(day.and_time(NaiveTime::MIN).and_utc())).map_err(|_| {
            let shown: String = text.escape_debug().take(40).collect();
            if has_impossible_day(text) {
                return format!("`{shown}` is not a moment: there is no such day");
            }
            format!("`{shown}` is not a moment: write 2026-12-01, or 2026-12-01T18:30:00Z")
        })
    }
}

/// Whether it begins with a day in the right form that no calendar has.
fn has_impossible_day(text: &str) -> bool {
    let Some((day, rest)) = text.split_at_checked("2026-12-01".len()) else { return false };
    let is_form = day.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    is_form
        && (rest.is_empty() || rest.starts_with(['T', 't', ' ']))
        && NaiveDate::parse_from_str(day, "%Y-%m-%d").is_err()
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_rfc3339_opts(SecondsFormat::Secs, true))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_and_written() {
        for (text, want) in [
            ("2026-12-01", "2026-12-01T00:00:00Z"),
            ("2026-12-01T18:30:00Z", "2026-12-01T18:30:00Z"),
            ("2026-12-01T18:30:00.5+02:00", "2026-12-01T16:30:00Z"),
            ("2028-02-29", "2028-02-29T00:00:00Z"),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap().to_string(), want);
        }
        for text in ["", "tomorrow", "2026-13-01", "2026-02-30", "2026-12-01T18:30", "7d", &"9".repeat(1000)] {
            let error = text.parse::<Moment>().unwrap_err();
            assert!(error.contains("is not a moment") && error.len() < 120, "{error}");
        }
        // The form is right, and the message gave the same form again.
        for text in ["2026-02-30", "2026-13-01", "2026-02-29T18:30:00Z", "2026-00-10"] {
            let error = text.parse::<Moment>().unwrap_err();
            assert_eq!(error, format!("`{text}` is not a moment: there is no such day"));
        }
        for text in ["2026-12-01T25:00:00Z", "2026-02-30x"] {
            assert!(text.parse::<Moment>().unwrap_err().contains(": write 2026-12-01"), "{text}");
        }
        assert!("1999-12-31".parse::<Moment>().unwrap().is_past());
        assert!(Moment::after(Duration::ZERO).is_past() && !Moment::after(Duration::from_secs(60)).is_past());
        assert!(!Moment::after(Duration::MAX).is_past());
    }
}
