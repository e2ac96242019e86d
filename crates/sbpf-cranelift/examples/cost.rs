//! The cost of loading, stage by stage, for programs that are long to compile: `cost [SHAPE [SIZE]]`. Each shape runs
//! in a process of its own, so that its memory is its own.

#[path = "../tests/shapes/mod.rs"]
mod shapes;

use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::Kind;
use diskside_sbpf::ir::lower::lower;
use diskside_sbpf::opt::optimise;
use diskside_sbpf::verify::verify;
use diskside_sbpf::work::Work;
use diskside_sbpf_cranelift::{Effort, Options, compile};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::process::Command;
use std::sync::Arc;

fn main() {
    let mut args = std::env::args().skip(1);
    let (name, size) = (args.next(), args.next());
    match name {
        Some(name) => {
            let shape = shapes::SHAPES.iter().find(|s| s.name == name).expect("a shape's name");
            let size = size.map_or(shape.size, |s| s.parse().expect("a number"));
            measure(&(shape.text)(size));
        }
        None => {
            for shape in shapes::SHAPES {
                print!("{:18} {:5}: ", shape.name, shape.size);
                let me = std::env::current_exe().expect("this program");
                let out = Command::new("timeout").arg("60").arg(me).arg(shape.name).output().expect("it starts");
                println!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr).trim());
            }
        }
    }
}

fn measure(text: &str) {
    let helpers = Arc::new(diskside_sbpf::helpers::standard());
    let image = Arc::new(assemble(text).expect("assembles").into_image(Kind::Read, &helpers).expect("links"));
    print!("{:6} KiB", image.code.len() * 8 / 1024);
    let rss = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default().to_owned();
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    let mut at = cpu_micros();
    let mut stage = |name: &str| {
        print!(", {name} {:.1} ms {} MiB", (cpu_micros() - at) as f64 / 1e3, rss());
        let _ = std::io::stdout().flush();
        at = cpu_micros();
    };
    let verified = verify(&image, 0, &helpers);
    stage("verify");
    let Ok(verified) = verified else { return println!(": refused: {}", verified.expect_err("it is")[0]) };
    let plain = lower(&verified, &helpers);
    stage("lower");
    let work = Work::default();
    let optimised = optimise(&plain, &work);
    stage("optimise");
    print!(" ({} units)", work.spent());
    let efforts =
        [("quick", &plain, Effort::Quick), ("plain", &plain, Effort::Full), ("full", &optimised, Effort::Full)];
    for (name, module, effort) in efforts {
        let result = compile(module, &Options { effort: Some(effort), ..Options::default() });
        stage(name);
        match result {
            Err(e) => print!(" ({e})"),
            Ok(code) => print!(" ({:?})", code.cost()),
        }
    }
}

/// Processor time of this thread: other programs do not count.
fn cpu_micros() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}
