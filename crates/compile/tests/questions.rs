//! Ten everyday questions over a log, a CSV file and a binary table, written as the documents show it: each compiles, and
//! gives in every tier what awk says.
#![cfg(feature = "llvm-tests")]

mod run;

use run::{TIERS, compiled};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn log() -> String {
    let mut numbers = Numbers(1);
    let mut text = String::new();
    for _ in 0..3000 {
        let (host, hour, minute, page) = (numbers.below(90), numbers.below(24), numbers.below(60), numbers.below(40));
        let status = [200, 200, 200, 304, 404, 500][numbers.below(6) as usize];
        let bytes = numbers.below(90_000);
        let request = format!("\"GET /p{page} HTTP/1.1\" {status} {bytes}");
        let _ = writeln!(text, "10.0.0.{host} - - [22/Nov/2026:{hour:02}:{minute:02}:00 +0000] {request}");
    }
    text
}

fn sales() -> String {
    let mut numbers = Numbers(2);
    let mut text = String::new();
    for sale in 0..2000 {
        let city = ["Aarhus", "Berlin", "Cork", "\"Ely\"", "Faro"][numbers.below(5) as usize];
        // No two prices are the same, so that the dearest have one order.
        let cents = numbers.below(100_000) * 2000 + sale;
        let _ = writeln!(text, "s{sale},{city},{}.{:02},{}", cents / 100, cents % 100, numbers.below(9));
    }
    text
}

fn visits() -> String {
    let mut numbers = Numbers(3);
    let mut second = 0;
    let mut text = String::new();
    for _ in 0..2000 {
        second += numbers.below(90);
        let _ = writeln!(text, "u{},{second}", numbers.below(60));
    }
    text
}

/// What awk prints.
fn awk(program: &str, input: &str) -> String {
    let mut awk = Command::new("sh")
        .arg("-c")
        .arg("LC_ALL=C; export LC_ALL; awk \"$0\"")
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("awk is here");
    let mut stdin = awk.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = awk.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads all");
    assert!(output.status.success(), "{program}");
    String::from_utf8(output.stdout).expect("text")
}

/// Rows of a name and a number, as awk prints them here.
fn shown(output: &[u8]) -> String {
    let mut text = String::new();
    for row in output.chunks_exact(32) {
        let name: Vec<u8> = row[..24].iter().copied().take_while(|b| *b != 0).collect();
        let value = f64::from_le_bytes(row[24..].try_into().expect("eight bytes"));
        let _ = writeln!(text, "{} {value:.6}", String::from_utf8(name).expect("text"));
    }
    text
}

/// The answers of all tiers to a question are those of awk over the same input as text.
fn ask(source: &str, input: &[u8], as_text: &str, program: &str) {
    let expected = awk(program, as_text);
    assert!(!expected.is_empty(), "awk says nothing");
    for (tier, output) in TIERS.iter().zip(compiled(source).run(input, (1 << 20) + 4 * input.len())) {
        assert_eq!(shown(&output), expected, "{tier}: {source}");
    }
}

#[test]
fn over_a_log() {
    let log = log();
    let ask = |source, program| ask(source, log.as_bytes(), &log, program);
    ask(
        include_str!("questions/statuses.bpf.c"),
        r#"{ n[$9]++ } END { for (s = 100; s < 600; s++) if (s in n) printf "%s %.6f\n", s, n[s] }"#,
    );
    ask(
        include_str!("questions/hours.bpf.c"),
        r#"{ n[substr($4, 14, 2) + 0]++ } END { for (h = 0; h < 24; h++) printf "%02d %.6f\n", h, n[h] }"#,
    );
    ask(
        include_str!("questions/visitors.bpf.c"),
        r#"$9 == 404 { if (!($1 in n)) count++; n[$1] } END { printf "addresses %.6f\n", count }"#,
    );
    ask(
        include_str!("questions/percentiles.bpf.c"),
        r#"{ c[$10]++; n++ }
           END {
               m = int(n / 2); p = int(n * 99 / 100)
               for (v = 0; v < 90000; v++) {
                   a = seen; seen += c[v]
                   if (a <= m && m < seen) printf "median %.6f\n", v
                   if (a <= p && p < seen) printf "p99 %.6f\n", v
               }
           }"#,
    );
}

#[test]
fn over_a_table_of_text() {
    let sales = sales();
    let plain = sales.replace('"', "");
    let ask = |source, program| ask(source, sales.as_bytes(), &plain, program);
    ask(
        include_str!("questions/cities.bpf.c"),
        r#"BEGIN { FS = ","; k = split("Aarhus,Berlin,Cork,Ely,Faro", name) }
           { n[$2] += $3 * $4 }
           END { for (i = 1; i <= k; i++) printf "%s %.6f\n", name[i], n[name[i]] }"#,
    );
    ask(
        include_str!("questions/dearest.bpf.c"),
        r#"BEGIN { FS = "," }
           { v[$1] = $3 }
           END {
               for (i = 0; i < 5; i++) {
                   best = ""
                   for (s in v) if (best == "" || v[s] + 0 > v[best] + 0) best = s
                   printf "%s %.6f\n", best, v[best]
                   delete v[best]
               }
           }"#,
    );
}

#[test]
fn over_visits() {
    let visits = visits();
    ask(
        include_str!("questions/sessions.bpf.c"),
        visits.as_bytes(),
        &visits,
        r#"BEGIN { FS = "," }
           { if (!($1 in n) || $2 - last[$1] > 1800) n[$1]++; last[$1] = $2 }
           END { for (u in n) printf "%s %.6f\n", u, n[u] | "sort" }"#,
    );
}

#[test]
fn over_binary_tables() {
    let mut numbers = Numbers(4);
    let values: Vec<f64> = (0..2000).map(|_| numbers.below(1 << 30) as f64 / 4096.0 - 1000.0).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let text: String = values.iter().fold(String::new(), |text, v| text + &format!("{v}\n"));
    ask(
        include_str!("questions/average.bpf.c"),
        &bytes,
        &text,
        r#"{ v[NR] = $1; sum += $1; if (NR > 7) sum -= v[NR - 7]; printf "mean %.6f\n", sum / (NR < 7 ? NR : 7) }"#,
    );
    ask(
        include_str!("questions/deviation.bpf.c"),
        &bytes,
        &text,
        r#"{ v[NR] = $1; sum += $1 }
           END {
               m = sum / NR
               for (i = 1; i <= NR; i++) q += (v[i] - m) * (v[i] - m)
               printf "mean %.6f\ndeviation %.6f\n", m, sqrt(q / (NR - 1))
           }"#,
    );
    let rows: Vec<[u32; 2]> = (0..4000).map(|_| [numbers.below(50) as u32, numbers.below(10_000) as u32]).collect();
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let text: String = rows.iter().fold(String::new(), |text, [shop, cents]| text + &format!("{shop} {cents}\n"));
    ask(
        include_str!("questions/join.bpf.c"),
        &bytes,
        &text,
        r#"BEGIN { r[3] = r[40] = "north"; r[5] = r[8] = "south"; r[13] = "west" }
           $1 in r { n[r[$1]] += $2 }
           END { printf "north %.6f\nsouth %.6f\nwest %.6f\n", n["north"], n["south"], n["west"] }"#,
    );
}
