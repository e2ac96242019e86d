//! A look and the last hour as a page: tables, and charts as SVG. No script; the browser loads it again every few seconds.

use std::fmt::Write as _;

use diskside_dispatch::Reason;
use diskside_server::stats::IoStats;
use diskside_volume::stats::AccessStats;
use diskside_wire::function::{StatisticsEntry, statistics_kind};

use crate::history::{History, PERIOD, Sample};
use crate::picture::{bars, escaped, line, number, time};
use crate::seen::{Inside, Quota, Seen, entry_name, entry_program, held, kind_name, quotas};

/// The media type.
pub const HTML: &str = "text/html; charset=utf-8";

/// Entries of a table; of more there are the first ones, and how many more.
const ROWS_MAX: usize = 200;
/// Functions, volumes and exports with bars of their own.
const BARS_MAX: usize = 12;

/// The page; nothing was seen when the server cannot be reached. `refreshing`: the browser loads it again by itself.
pub fn page(seen: Option<&Seen>, history: &History, refreshing: bool) -> String {
    let mut page =
        String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Diskside</title>");
    page +=
        "<meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">";
    if refreshing {
        let _ = write!(page, "<meta http-equiv=\"refresh\" content=\"{}\">", PERIOD.as_secs());
    }
    let _ =
        write!(page, "<style>{STYLE}</style></head><body><a class=\"skip\" href=\"#main\">To the content</a><header>");
    page += "<h1>Diskside</h1><nav aria-label=\"Page\">";
    page += match refreshing {
        true => "<a href=\"/still\">Stop reloading</a>",
        false => "<a href=\"/\">Reload every few seconds</a>",
    };
    page += "<a href=\"/metrics\">Metrics</a></nav></header><main id=\"main\">";
    match seen {
        Some(seen) => content(&mut page, seen, history),
        None => page += "<p role=\"alert\">The server did not answer.</p>",
    }
    page + "</main></body></html>\n"
}

fn content(page: &mut String, seen: &Seen, history: &History) {
    let told = &seen.page;
    let _ = write!(
        page,
        "<p>Up {}. Engines {} of {} busy, {} calls wait, {} open. Calls begun {}, ended well {}, failed {}.</p>",
        time(told.uptime_ms.get() / 1000 * 1_000_000),
        told.engines_busy.get(),
        told.engines.get(),
        told.queued.get(),
        told.tags_open.get(),
        told.started.get(),
        told.succeeded.get(),
        told.failed.get(),
    );
    charts(page, history);
    entries(
        page,
        "Functions",
        &["name", "program", "calls", "failed", "read", "written", "ran"],
        &seen.entries,
        |entry| {
            (entry.kind == statistics_kind::FUNCTION).then(|| {
                let program = entry_program(entry).unwrap_or_default();
                [vec![entry_name(entry), program], counted(entry)].concat()
            })
        },
    );
    let places = [
        statistics_kind::VOLUME,
        statistics_kind::EXPORT,
        statistics_kind::VOLUME_BY_FUNCTIONS,
        statistics_kind::EXPORT_BY_FUNCTIONS,
    ];
    entries(
        page,
        "Volumes and exports",
        &["name", "of", "operations", "failed", "read", "written", "busy"],
        &seen.entries,
        |entry| {
            let is_place = places.contains(&entry.kind);
            is_place.then(|| [vec![entry_name(entry), kind_name(entry.kind).to_owned()], counted(entry)].concat())
        },
    );
    let disks = seen.disks().into_iter().map(|disk| {
        let errors = disk.errors.map_or_else(String::new, |errors| errors.to_string());
        let waits = if disk.waiting == 0 { String::new() } else { time(disk.oldest_ms * 1000) };
        vec![disk.name, disk.kind.to_owned(), disk.waiting.to_string(), waits, errors]
    });
    table(page, "Disks", &["name", "of", "operations that wait", "the oldest since", "failed"], disks);
    quota_tables(page, &seen.entries);
    let most = |most: Option<u64>, shown: fn(u64) -> String| most.map_or_else(String::new, shown);
    let rows: Vec<Vec<String>> = held(&seen.entries)
        .map(|held| {
            let size = |len: u64| bytes(len as f64);
            let (size_max, files_max) = (most(held.bytes_max, size), most(held.files_max, |files| files.to_string()));
            vec![held.host, held.export, bytes(held.bytes as f64), size_max, held.files.to_string(), files_max]
        })
        .collect();
    if !rows.is_empty() {
        let columns = ["host", "export", "bytes", "at most", "files", "at most"];
        table(page, "Held in exports", &columns, rows.into_iter());
    }
    if let Some(inside) = &seen.inside {
        of_inside(page, inside, &seen.entries);
    }
    let rows = [
        ("Kept of volumes for later calls", told.cache_len.get(), told.cache_len_max.get()),
        (
            "Memory of hosts, calls and what waits",
            told.calls_memory.get() + told.kept_memory.get(),
            told.memory_max.get(),
        ),
    ];
    let rows = rows.map(|(what, now, most)| vec![what.to_owned(), bytes(now as f64), bytes(most as f64)]);
    table(page, "Memory", &["what", "now", "at most"], rows.into_iter());
}

/// The effects of quotas: by limit, or by host if the server does not list limits.
fn quota_tables(page: &mut String, all: &[StatisticsEntry]) {
    let mut limits = quotas(all).peekable();
    if limits.peek().is_some() {
        let columns = ["host", "quota", "used", "at most", "refused", "pauses", "paused", "ran"];
        return table(page, "Quotas", &columns, limits.map(|quota| quota_row(&quota)));
    }
    entries(page, "Quotas", &["host", "pauses", "refused", "paused"], all, |entry| {
        (entry.kind == statistics_kind::QUOTA).then(|| {
            vec![
                entry_name(entry),
                entry.operations.get().to_string(),
                entry.failed.get().to_string(),
                time(entry.busy_us.get()),
            ]
        })
    });
}

fn quota_row(quota: &Quota) -> Vec<String> {
    let amount = |amount: u64| if quota.is_of_bytes() { bytes(amount as f64) } else { amount.to_string() };
    let shown = |value: Option<u64>, shown: &dyn Fn(u64) -> String| value.map_or_else(String::new, shown);
    let count = |count: u64| count.to_string();
    vec![
        quota.host.clone(),
        quota.quota.to_owned(),
        shown(quota.used, &amount),
        amount(quota.max),
        shown(quota.refusals, &count),
        shown(quota.pauses, &count),
        shown(quota.paused_us, &time),
        shown(quota.run_us, &time),
    ]
}

fn charts(page: &mut String, history: &History) {
    type Chart = (&'static str, fn(&Sample) -> f64, fn(f64) -> String);
    let charts: [Chart; 8] = [
        ("Calls of functions", |s| s.calls, per_second),
        ("Calls that failed", |s| s.failed, per_second),
        ("Bytes of hosts' own operations", |s| s.host_bytes, bytes_per_second),
        ("Bytes of functions", |s| s.function_bytes, bytes_per_second),
        ("Bytes of results", |s| s.result_bytes, bytes_per_second),
        ("Engines busy", |s| s.busy, number),
        ("Calls that wait", |s| s.queued, number),
        ("Memory of hosts", |s| s.memory_bytes, bytes),
    ];
    let window = 3600 / PERIOD.as_secs() as usize;
    *page += "<section aria-labelledby=\"hour\"><h2 id=\"hour\">The last hour</h2><div class=\"charts\">";
    for (title, field, shown) in charts {
        let values: Vec<f64> = history.samples().map(field).collect();
        let now = values.last().map_or(String::new(), |value| shown(*value));
        let _ = write!(
            page,
            "<figure><figcaption>{title} <b>{now}</b></figcaption>{}</figure>",
            line(title, &values, window, shown)
        );
    }
    *page += "</div></section>";
}

fn of_inside(page: &mut String, inside: &Inside, entries: &[StatisticsEntry]) {
    let stats = &inside.stats;
    let functions = entries.iter().filter(|entry| entry.kind == statistics_kind::FUNCTION);
    let functions = functions
        .filter_map(|entry| Some((format!("call of {}", entry_name(entry)), inside.calls.get(&entry.id.get())?)));
    let volumes = stats.volumes.iter().map(|(name, io)| (format!("command of volume {name}"), &io.latency));
    let exports = inside.exports.iter().map(|(name, times)| (format!("operation on export {name}"), times));
    let mut all: Vec<_> = functions.chain(volumes).chain(exports).collect();
    all.retain(|(_, times)| times.counts.iter().any(|count| *count > 0));
    all.sort_by_key(|(_, times)| std::cmp::Reverse(times.counts.iter().sum::<u64>()));
    if !all.is_empty() {
        *page += "<section aria-labelledby=\"took\"><h2 id=\"took\">How long it took</h2><div class=\"charts\">";
        for (what, times) in all.iter().take(BARS_MAX) {
            let count: u64 = times.counts.iter().sum();
            let mean = time(times.sum_us / count.max(1));
            let title = escaped(what);
            let _ = write!(
                page,
                "<figure><figcaption>{title} <b>{count}, mean {mean}</b></figcaption>{}</figure>",
                bars(what, times)
            );
        }
        *page += "</div></section>";
    }
    let io = |name: &String, io: &IoStats| {
        vec![
            name.clone(),
            io.reads.to_string(),
            bytes(io.read_bytes as f64),
            io.writes.to_string(),
            bytes(io.written_bytes as f64),
            io.errors.to_string(),
        ]
    };
    let did = |name: &String, did: &AccessStats| {
        vec![
            name.clone(),
            did.operations.to_string(),
            did.failed.to_string(),
            bytes(did.read_bytes as f64),
            bytes(did.written_bytes as f64),
            time(did.busy_us),
        ]
    };
    let failed = inside.failures.iter().map(|failure| {
        let ago = failure.at.elapsed().unwrap_or_default().as_secs() * 1_000_000;
        let function = failure.function.clone().unwrap_or_else(|| "(no function)".to_owned());
        vec![format!("{} ago", time(ago)), failure.host.clone(), function, failure.text.clone()]
    });
    table_of_texts(page, "Failed lately", &["when", "host", "function", "why"], failed);
    let reasons = inside.calls_by_reason.iter();
    let reasons = reasons.map(|(word, calls)| vec![word.clone(), calls.to_string(), explained(word)]);
    table_of_texts(page, "Why hosts chose this server", &["reason", "calls", "in words"], reasons);
    let head = ["host", "calls", "failed", "read", "results", "ran"];
    table(page, "Calls by host", &head, inside.host_calls.iter().map(|(name, calls)| did(name, calls)));
    let head = ["host", "operations", "failed", "read", "written", "busy"];
    table(page, "Files by host", &head, inside.host_files.iter().map(|(name, files)| did(name, files)));
    let head = ["host", "reads", "read", "writes", "written", "errors"];
    table(page, "Commands by host", &head, stats.hosts.iter().map(|(name, stats)| io(name, stats)));
    let reactors = stats.reactors.iter().enumerate().map(|(index, r)| {
        vec![
            index.to_string(),
            r.connections.to_string(),
            r.turns.to_string(),
            r.sleeps.to_string(),
            bytes(r.memory_in_flight_bytes as f64),
            r.memory_waits.to_string(),
            r.block_waits.to_string(),
            r.stalled_reads.to_string(),
        ]
    });
    let head = [
        "reactor",
        "connections",
        "turns",
        "sleeps",
        "in flight",
        "waits for memory",
        "waits for blocks",
        "stalled reads",
    ];
    table(page, "Reactors", &head, reactors);
    let rows = [
        ("Controllers", inside.controllers as u64),
        ("Connections not let in yet", stats.connections_half_open),
        ("Connections refused: too many", stats.connections_refused),
        ("Connections given up for others", stats.connections_given_up),
        ("Lines left out of the log", stats.log_lines_left_out),
        ("Lines left out of the audit file", stats.audit_lines_left_out),
    ];
    table(
        page,
        "Connections",
        &["what", "count"],
        rows.iter().map(|(what, count)| vec![(*what).to_owned(), count.to_string()]),
    );
}

fn counted(entry: &StatisticsEntry) -> Vec<String> {
    vec![
        entry.operations.get().to_string(),
        entry.failed.get().to_string(),
        bytes(entry.read.get() as f64),
        bytes(entry.written.get() as f64),
        time(entry.busy_us.get()),
    ]
}

fn entries(
    page: &mut String,
    title: &str,
    head: &[&str],
    entries: &[StatisticsEntry],
    row: impl Fn(&StatisticsEntry) -> Option<Vec<String>>,
) {
    table(page, title, head, entries.iter().filter_map(row));
}

/// What a reason of a host's dispatcher means.
fn explained(word: &str) -> String {
    let known = Reason::ALL.into_iter().find(|reason| reason.name() == word);
    known.map_or_else(String::new, |reason| reason.to_string())
}

/// A table of numbers, if it has rows. Its first column names the row.
fn table(page: &mut String, title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    table_in("table", page, title, head, rows);
}

/// The same of texts, which may be long.
fn table_of_texts(page: &mut String, title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    table_in("table texts", page, title, head, rows);
}

fn table_in(class: &str, page: &mut String, title: &str, head: &[&str], mut rows: impl Iterator<Item = Vec<String>>) {
    let mut shown: Vec<Vec<String>> = rows.by_ref().take(ROWS_MAX).collect();
    let more = rows.count();
    if shown.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<section class=\"{class}\" tabindex=\"0\" aria-label=\"{title}\"><table><caption>{title}</caption><thead><tr>"
    );
    for cell in head {
        let _ = write!(page, "<th scope=\"col\">{cell}</th>");
    }
    *page += "</tr></thead><tbody>";
    for row in &mut shown {
        *page += "<tr>";
        for (at, cell) in row.iter().enumerate() {
            let cell = escaped(cell);
            let _ = match at {
                0 => write!(page, "<th scope=\"row\">{cell}</th>"),
                _ => write!(page, "<td>{cell}</td>"),
            };
        }
        *page += "</tr>";
    }
    *page += "</tbody></table>";
    if more > 0 {
        let _ = write!(page, "<p>and {more} more: they are in the <a href=\"/metrics\">metrics</a>.</p>");
    }
    *page += "</section>";
}

fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut left = value;
    let mut unit = 0;
    while left >= 1024.0 && unit + 1 < units.len() {
        left /= 1024.0;
        unit += 1;
    }
    format!("{} {}", number(left), units[unit])
}

fn bytes_per_second(value: f64) -> String {
    format!("{}/s", bytes(value))
}

fn per_second(value: f64) -> String {
    format!("{}/s", number(value))
}

const STYLE: &str = "\
:root{--back:#fff;--text:#1a1d21;--soft:#57606a;--rule:#d0d7de;--mark:#0550ae}\
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--soft:#9aa4af;--rule:#30363d;--mark:#79c0ff}}\
body{margin:0;background:var(--back);color:var(--text);font:15px/1.45 system-ui,sans-serif}\
header,main{max-width:72rem;margin:0 auto;padding:0 1rem}header{display:flex;align-items:baseline;gap:1.5rem}\
h1{font-size:1.4rem}h2,caption{font-size:1.1rem;font-weight:600;text-align:left;margin:1.2rem 0 .4rem}\
a{color:var(--mark)}nav a{margin-right:1rem}a:focus-visible,section:focus-visible{outline:2px solid var(--mark);outline-offset:2px}\
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem}\
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(20rem,1fr));gap:.8rem 1.6rem}\
figure{margin:0}figcaption{color:var(--soft)}figcaption b{color:var(--text);font-weight:600}\
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:11px}svg .scale{text-anchor:end}\
.grid{stroke:var(--rule);fill:none}.line{stroke:var(--mark);stroke-width:1.6;fill:none}.bar{fill:var(--mark)}\
.table{overflow-x:auto;margin:1.2rem 0}table{border-collapse:collapse;min-width:100%}\
th,td{padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\
th[scope=row],th:first-child,caption,.texts th,.texts td{text-align:left}.texts td{white-space:normal}thead th{color:var(--soft);font-weight:500}tbody th{font-weight:400}";

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_server::stats::Stats;
    use diskside_wire::function::StatisticsPage;

    fn seen(functions: usize, hostile: &str) -> Seen {
        let mut entries: Vec<_> =
            (0..functions).map(|n| StatisticsEntry::new(statistics_kind::FUNCTION, n as u32 + 1, "f")).collect();
        entries.push(StatisticsEntry::new(statistics_kind::EXPORT, 0, hostile));
        let hosts = [(hostile.to_owned(), IoStats::default())].into();
        let inside = Inside { stats: Stats { hosts, ..Stats::default() }, controllers: 1, ..Inside::default() };
        Seen { page: StatisticsPage::new(), entries, inside: Some(inside) }
    }

    #[test]
    fn what_hosts_are_called_is_text_and_no_markup() {
        let text = page(Some(&seen(1, "<script>alert('x')</script>\"&")), &History::default(), true);
        assert!(!text.contains("<script"), "{text}");
        assert_eq!(text.matches("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;").count(), 2);
    }

    /// Nobody saw which limit a host had run into. A server of before tells no more than that it has.
    #[test]
    fn quotas_are_a_table_by_limit_or_by_host_if_the_server_is_older() {
        let limits = crate::seen::tests::limits();
        let table = |entries: Vec<StatisticsEntry>| {
            let seen = Seen { page: StatisticsPage::new(), entries, inside: None };
            let text = page(Some(&seen), &History::default(), false);
            let (_, rest) = text.split_once("<caption>Quotas</caption>").expect("the table");
            let (_, rows) = rest.split_once("<tbody>").expect("its rows");
            let rows = rows.split("</tbody>").next().expect("their end").replace("<tr>", "");
            let cell = |cell: &str| cell.rsplit('>').next().expect("its text").to_owned();
            let row = |row: &str| row.replace("</th>", "</td>").split_terminator("</td>").map(cell).collect::<Vec<_>>();
            rows.split_terminator("</tr>").map(row).collect::<Vec<_>>()
        };
        let older: Vec<_> = limits.iter().filter(|entry| entry.kind == statistics_kind::QUOTA).copied().collect();
        assert_eq!(table(older), [["ann", "7", "3", "2.50 ms"]]);
        assert_eq!(
            table(limits),
            [
                ["ann", "iops", "", "200", "", "7", "2.50 ms", ""],
                ["ann", "cpu_share", "", "50", "", "", "", "2.50 ms"],
                ["ann", "memory", "1 MiB", "128 MiB", "3", "", "", ""],
            ]
        );
    }

    #[test]
    fn a_page_stays_short_whatever_there_is_and_says_that_there_is_more() {
        let text = page(Some(&seen(1024, "data")), &History::default(), true);
        assert!(text.contains("and 824 more") && text.len() < 100_000, "{}", text.len());
    }

    #[test]
    fn loading_anew_can_be_stopped() {
        let (moving, still) = (page(None, &History::default(), true), page(None, &History::default(), false));
        assert!(moving.contains("http-equiv=\"refresh\"") && moving.contains("href=\"/still\""));
        assert!(!still.contains("http-equiv=\"refresh\"") && still.contains("did not answer"));
    }
}
