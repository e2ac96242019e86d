//! Tests of a page as Prometheus gets it, and of the names and explanations in it.

use diskside_server::stats::{IoStats, ReactorStats, Stats};
use diskside_volume::health::{Below, HealthStats};
use diskside_volume::stats::{AccessStats, LatencyStats};
use diskside_wire::function::{StatisticsEntry, StatisticsPage, statistics_kind};

use super::page;
use crate::seen::{Inside, Seen};

#[test]
fn a_page_has_what_the_server_told_with_units_and_labels() {
    let mut told = StatisticsPage::new();
    told.sent.set(12);
    told.uptime_ms.set(1500);
    let mut entry = StatisticsEntry::new(statistics_kind::EXPORT, 3, "a\"b\n");
    entry.read.set(4096);
    let mut function = StatisticsEntry::new(statistics_kind::FUNCTION, 7, "mine");
    function.program_id.set(0xab);
    let rest = StatisticsEntry::new(statistics_kind::FUNCTION, 0, "");
    let mut times = LatencyStats::default();
    [5, 30, 120_000_000].into_iter().for_each(|us| times.count(us));
    let reactor = ReactorStats { stalled_reads: 4, memory_waits: 9, ..ReactorStats::default() };
    let disk = HealthStats { below: Below::Export, name: "logs".to_owned(), waiting: 3, oldest_ms: 7250, errors: 2 };
    let stats = Stats {
        hosts: [("nqn.h".to_owned(), IoStats { reads: 6, ..IoStats::default() })].into(),
        volumes: [("disk".to_owned(), IoStats { latency: times, ..IoStats::default() })].into(),
        reactors: vec![reactor],
        disks: vec![disk],
        ..Stats::default()
    };
    let (calls, exports) = ([(7, times)].into(), [("logs".to_owned(), times)].into());
    let did = |operations| [("nqn.h".to_owned(), AccessStats { operations, busy_us: 1500, ..AccessStats::default() })];
    let (host_calls, host_files) = (did(4).into(), did(9).into());
    let calls_by_reason = [("faster".to_owned(), 5)].into();
    let inside =
        Inside { stats, calls, exports, host_calls, host_files, calls_by_reason, controllers: 2, failures: Vec::new() };
    let inside = Some(inside);
    let text = page(Some(&Seen { page: told, entries: vec![entry, function, rest], inside }));
    for line in [
        "# TYPE diskside_sent_bytes counter",
        "diskside_sent_bytes_total 12",
        "diskside_up 1.0",
        "diskside_uptime_seconds 1.5",
        r#"diskside_operations_read_bytes_total{kind="export",id="3",name="a\"b\n"} 4096.0"#,
        r#"diskside_operations_total{kind="function",id="7",name="mine",program="00000000000000ab"} 0.0"#,
        r#"diskside_operations_total{kind="function",id="0",name="(others)"} 0.0"#,
        r#"diskside_media_oldest_seconds{kind="export",name="logs"} 7.25"#,
        r#"diskside_media_waiting{kind="export",name="logs"} 3.0"#,
        r#"diskside_media_errors_total{kind="export",name="logs"} 2"#,
        r#"diskside_reactor_stalled_reads_total{reactor="0"} 4"#,
        r#"diskside_reactor_memory_waits_total{reactor="0"} 9"#,
        r#"diskside_host_reads_total{host="nqn.h"} 6"#,
        r#"diskside_host_calls_total{host="nqn.h"} 4"#,
        r#"diskside_host_calls_run_seconds_total{host="nqn.h"} 0.0015"#,
        r#"diskside_host_file_operations_total{host="nqn.h"} 9"#,
        r#"diskside_calls_placed_total{reason="faster"} 5"#,
        "# TYPE diskside_call_duration_seconds histogram",
        r#"diskside_call_duration_seconds_bucket{le="0.00001",id="7",name="mine",program="00000000000000ab"} 1"#,
        r#"diskside_volume_command_duration_seconds_bucket{le="0.0001",volume="disk"} 2"#,
        r#"diskside_volume_command_duration_seconds_bucket{le="+Inf",volume="disk"} 3"#,
        r#"diskside_export_operation_duration_seconds_count{export="logs"} 3"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    // The dashboard asks for what is there.
    let dashboard = include_str!("../../../../packaging/grafana.json");
    let mut asked =
        dashboard.split("diskside_").skip(1).filter_map(|rest| rest.split(['{', '[', ')', ',', ' ', '"']).next());
    let missing = asked.find(|name| !text.contains(&format!("\ndiskside_{name}")));
    assert!(missing.is_none() && dashboard.matches("diskside_").count() > 20, "{missing:?}");
}

/// Pauses and refusals were one number for a host, whichever of its limits they were of. A limit of a later server, which has no
/// name here, is left out.
#[test]
fn quotas_are_listed_by_limit_and_each_has_what_it_can_have() {
    let entries = crate::seen::tests::limits();
    let text = page(Some(&Seen { page: StatisticsPage::new(), entries, inside: None }));
    let mut found: Vec<&str> = text.lines().filter(|line| line.starts_with("diskside_quota_")).collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            r#"diskside_quota_max{host="ann",id="4",quota="cpu_share"} 50.0"#,
            r#"diskside_quota_max{host="ann",id="4",quota="iops"} 200.0"#,
            r#"diskside_quota_max{host="ann",id="4",quota="memory"} 134217728.0"#,
            r#"diskside_quota_paused_seconds_total{host="ann",id="4",quota="iops"} 0.0025"#,
            r#"diskside_quota_pauses_total{host="ann",id="4",quota="iops"} 7"#,
            r#"diskside_quota_refusals_total{host="ann",id="4",quota="memory"} 3"#,
            r#"diskside_quota_run_seconds_total{host="ann",id="4",quota="cpu_share"} 0.0025"#,
            r#"diskside_quota_used{host="ann",id="4",quota="memory"} 1048576.0"#,
        ]
    );
    let sums = text.lines().filter(|line| line.starts_with("diskside_operations_total"));
    assert_eq!(sums.collect::<Vec<_>>(), [r#"diskside_operations_total{kind="quota",id="4",name="ann"} 7.0"#]);
}

/// Prometheus shows the HELP of one metric at a time, beside nothing else.
#[test]
fn names_follow_the_conventions_and_help_stands_alone() {
    let (page_, stats) = (StatisticsPage::new(), Stats { reactors: vec![ReactorStats::default()], ..Stats::default() });
    let inside = Some(Inside { stats, controllers: 0, ..Inside::default() });
    let text = page(Some(&Seen { page: page_, entries: crate::seen::tests::limits(), inside }));
    let mut names = std::collections::BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').expect("a help");
        assert!(names.insert(name.to_owned()), "{name} twice");
        assert!(name.starts_with("diskside_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert!(help.len() > 20 && help.split(' ').count() > 3, "{name}: {help}");
        let alone = ["They", "Those", "Them", "It", "Both", "Same"];
        assert!(!alone.contains(&help.split(' ').next().expect("a word")), "{name}: {help}");
    }
    assert!(names.len() > 40, "{names:?}");
}

#[test]
fn a_server_that_cannot_be_reached_is_down() {
    let text = page(None);
    assert!(text.contains("\ndiskside_up 0.0\n") && !text.contains("calls"), "{text}");
}
