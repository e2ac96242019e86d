//! Over files of a mounted ext4 whose volume a target serves. Needs root.

#[path = "../../../layout/tests/lab/mod.rs"]
mod lab;

use crate::kept;
use diskside::target::Target;
use diskside::target::config::{Size, VolumeSpec};
use diskside_oracle::case::{self, Case};
use diskside_oracle::world::World;
use diskside_oracle::{Oracle, draw};
use lab::{Kind, Lab};

const NQN: &str = "nqn.2026-11.org.example:oracle";
/// Generated cases.
const CASES: u64 = 40;

#[test]
fn a_function_over_a_mounted_file_gives_the_same_everywhere() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let volume = VolumeSpec::new("data", lab.image.to_str().expect("a path")).writable();
    let builder = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]);
    // The kernel writes the image itself, past the target: this one keeps nothing of what it read.
    let builder = builder.compute(|compute| compute.cache = Size::from_bytes(0)).volume(volume);
    let target = builder.build().expect("a target").start().expect("started");
    let url = format!("nvme-tcp://{}/{NQN}/1", target.handle().local_addresses()[0]).parse().expect("a URL");
    let oracle = Oracle::over(World::mounted(target, &url, &lab.mount), &kept());
    let shipped = case::parse(
        "function wc\ninput lines:20011:1\nchunk 1000\n\nfunction stats64\ninput words:20004:1\nchunk 1000\n\n\
         function filter_u32\nargs op=lt lo=2000\ninput words:20004:1\nchunk 1000\n",
    );
    let mut cases = shipped.expect("cases");
    // A run that is not proved at the volume is repeated, so functions with effects run here alone.
    let is_pure = |case: &Case| oracle.load(case).expect("it loads").function.is_pure();
    cases.extend((0..CASES).map(|number| draw::case(2, number)).filter(is_pure));
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            case.inputs.iter().for_each(|input| {
                let path = oracle.world().url("", input);
                lab::until_nobody_writes(path.as_ref());
            });
            oracle.check(case).err().map(|difference| oracle.tell(&difference))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let at_volume = oracle.world().told.mounted_counters().at_volume();
    assert!(at_volume > CASES, "{at_volume} runs at the volume: it was mostly refused");
}
