//! Charts as SVG: lines over the last hour, and bars of latencies. Colours come from the page's styles.

use std::fmt::Write as _;

use diskside_volume::stats::{LATENCY_BOUNDS_US, LatencyStats};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 110.0;
/// Room for the scale at the left and the words below.
const LEFT: f64 = 76.0;
const BELOW: f64 = 18.0;
const ABOVE: f64 = 6.0;

/// A line of values, the newest at the right; `window` of them are the whole width.
pub(crate) fn line(title: &str, values: &[f64], window: usize, shown: impl Fn(f64) -> String) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let top = if most > 0.0 { most } else { 1.0 };
    let (bottom, across) = (HEIGHT - BELOW, WIDTH - LEFT);
    let at = |index: usize| LEFT + across * (window - values.len() + index) as f64 / (window - 1) as f64;
    let up = |value: f64| bottom - (bottom - ABOVE) * value / top;
    let mut points = String::new();
    for (index, value) in values.iter().enumerate() {
        let _ = write!(points, "{:.1},{:.1} ", at(index), up(*value));
    }
    let now = values.last().map_or("nothing yet".to_owned(), |value| shown(*value));
    let mut svg = opening(&format!("{title}: {now} now, at most {} in the last hour", shown(most)));
    let _ = write!(
        svg,
        "<path class=\"grid\" d=\"M{LEFT} {ABOVE}H{WIDTH}M{LEFT} {bottom}H{WIDTH}\"/>\
         <text x=\"{x}\" y=\"{y}\" class=\"scale\">{most}</text><text x=\"{x}\" y=\"{bottom}\" class=\"scale\">0</text>\
         <text x=\"{LEFT}\" y=\"{words}\">an hour ago</text><text x=\"{WIDTH}\" y=\"{words}\" class=\"scale\">now</text>\
         <polyline class=\"line\" points=\"{points}\"/></svg>",
        x = LEFT - 6.0,
        y = ABOVE + 8.0,
        most = if most > 0.0 { shown(most) } else { String::new() },
        words = HEIGHT - 4.0,
    );
    svg
}

/// Bars of how many took how long, from the shortest to the longest that there are.
pub(crate) fn bars(title: &str, latencies: &LatencyStats) -> String {
    let counts = &latencies.counts;
    let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let width = WIDTH / counts.len() as f64;
    let bottom = HEIGHT - BELOW;
    let words: Vec<String> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(at, count)| format!("{count} {}", bound(at)))
        .collect();
    let mut svg = opening(&format!("{title}: {}", if words.is_empty() { "none".into() } else { words.join(", ") }));
    for (at, count) in counts.iter().enumerate() {
        // What there is can be seen, however little it is.
        let height = if *count == 0 { 0.0 } else { ((bottom - ABOVE) * *count as f64 / most).max(2.0) };
        let _ = write!(
            svg,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            width * at as f64 + 1.0,
            bottom - height,
            width - 2.0
        );
        if at % 3 == 2 && at < LATENCY_BOUNDS_US.len() {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" class=\"scale\">{}</text>",
                width * (at + 1) as f64,
                HEIGHT - 4.0,
                time(LATENCY_BOUNDS_US[at])
            );
        }
    }
    let _ = write!(svg, "<path class=\"grid\" d=\"M0 {bottom}H{WIDTH}\"/></svg>");
    svg
}

fn opening(words: &str) -> String {
    let words = escaped(words);
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{words}\"><title>{words}</title>")
}

/// A bucket in words.
fn bound(at: usize) -> String {
    match LATENCY_BOUNDS_US.get(at) {
        Some(bound) => format!("within {}", time(*bound)),
        None => format!("longer than {}", time(LATENCY_BOUNDS_US[LATENCY_BOUNDS_US.len() - 1])),
    }
}

/// Microseconds as people read them.
pub(crate) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{} ms", number(us as f64 / 1e3)),
        _ => format!("{} s", number(us as f64 / 1e6)),
    }
}

/// Up to three digits that count.
pub(crate) fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 || v == v.trunc() => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Text that cannot be read as markup, in an attribute neither.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_the_right_and_says_its_values() {
        let svg = line("Calls", &[0.0, 5.0, 10.0], 720, |v| format!("{v}/s"));
        assert!(svg.contains("aria-label=\"Calls: 10/s now, at most 10/s in the last hour\""), "{svg}");
        assert!(svg.contains(" 360.0,6.0 \""), "the newest is at the right, the highest at the top: {svg}");
        assert!(line("Calls", &[], 720, |v| format!("{v}/s")).contains("nothing yet now"));
        assert!(!line("Calls", &[0.0], 720, |v| format!("{v}/s")).contains("NaN"));
    }

    #[test]
    fn bars_say_how_many_took_how_long() {
        let mut times = LatencyStats::default();
        [3, 3, 70_000, 90_000_000].into_iter().for_each(|us| times.count(us));
        let svg = bars("grep", &times);
        assert!(svg.contains("grep: 2 within 10 us, 1 within 100 ms, 1 longer than 60 s"), "{svg}");
        assert_eq!(svg.matches("class=\"bar\"").count(), LATENCY_BOUNDS_US.len() + 1);
    }
}
