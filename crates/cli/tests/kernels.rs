//! Kernels: the same here and at a target, in each tier, however their accesses are made; and what goes wrong with them.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::diskside;
use diskside::sandbox::activation::Tier;
use diskside::session::{
    FailureKind, File, KernelRan, OpenMode, RunOptions, Session, SessionError, SessionKernel, SessionOptions, Side,
    Where,
};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use diskside::{DirectPolicy, Location, TierChoice};

const NQN: &str = "nqn.2026-11.org.example:kernels";

/// A target of a directory and of volumes, and a session with it.
struct World {
    running: Running,
    dir: tempfile::TempDir,
    sources: tempfile::TempDir,
    session: Session,
}

impl World {
    fn new() -> Self {
        let [dir, sources] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let mut target = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]);
        let volumes = [
            "disk=mem:1MiB,rw",
            "slow=mem:1MiB,rw,latency_us=100000",
            "fixed=mem:1MiB",
            "zeroes=mem:128KiB,latency_us=50",
        ];
        for volume in volumes {
            target = target.volume(volume.parse().expect("a volume"));
        }
        let running = target.export(ExportSpec::new("data", dir.path()).writable()).build().and_then(Target::start);
        let running = running.expect("it serves");
        Self { running, dir, sources, session: Session::new(SessionOptions::default()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("diskside://{}/data/{name}", self.running.handle().local_addresses()[0])
    }

    fn volume(&self, nsid: u32) -> String {
        format!("nvme-tcp://{}/{NQN}/{nsid}", self.running.handle().local_addresses()[0])
    }

    fn open(&self, name: &str, mode: OpenMode) -> File {
        let location = Location::try_from(name.as_ref()).expect("a location");
        self.session.open_as(&location, mode).expect("it opens")
    }

    fn source(&self, name: &str, body: &str) -> String {
        let path = self.sources.path().join(name);
        std::fs::write(&path, format!("#include \"isp_agent.h\"\n{body}")).expect("written");
        path.display().to_string()
    }

    fn kernel(&self, what: &str) -> SessionKernel {
        self.session.kernel(what).unwrap_or_else(|error| panic!("{error}"))
    }

    fn launch(
        &self,
        kernel: &SessionKernel,
        files: &[&str],
        writable: &[&str],
        args: &[u8],
        options: &RunOptions,
    ) -> Result<KernelRan, SessionError> {
        let files: Vec<File> = files.iter().map(|name| self.open(name, OpenMode::Read)).collect();
        let writable: Vec<File> = writable.iter().map(|name| self.open(name, OpenMode::Create)).collect();
        self.session.launch(&files, &writable, kernel, args, options).wait()
    }

    /// Launches one that is written as the body of a function, which returns a number; gives that.
    fn tell(&self, body: &str, files: &[&str], writable: &[&str]) -> Result<i64, SessionError> {
        let text = format!(
            "SEC(\"kernel/f\")\n__s64 f(struct ds_kernel *k, const void *args, __s64 *result) {{\n{body}\n}}\n\
             /* {} */",
            body.len()
        );
        let source = self.source(&format!("f{}.bpf.c", body.len()), &text);
        let ran = self.launch(&self.kernel(&source), files, writable, &[], &RunOptions::default())?;
        Ok(i64::from_le_bytes(ran.result[..8].try_into().expect("a number")))
    }
}

/// What mixed.bpf.c gives, and what it leaves of its file.
fn mixed(seed: u64, input: &[u8], out: &mut Vec<u8>) -> [u64; 3] {
    let mut x = seed;
    let mut next = move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x >> 33
    };
    let [mut digest, mut bytes, mut short] = [0_u64; 3];
    let mut read = |len: u64, offset: u64, counts: bool| {
        let start = (offset as usize).min(input.len());
        let got = &input[start..(offset + len).min(input.len() as u64).max(start as u64) as usize];
        digest = got.iter().fold(digest, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        bytes += got.len() as u64;
        short += u64::from(counts && (got.len() as u64) < len);
        got.to_vec()
    };
    let mut write = |bytes: &[u8], offset: u64| {
        let end = offset as usize + bytes.len();
        if !bytes.is_empty() {
            out.resize(out.len().max(end), 0);
            out[offset as usize..end].copy_from_slice(bytes);
        }
    };
    for i in 0..60 {
        let (mut len, mut offset) = (next() % 9000, next() % 70000);
        if i % 3 == 0 {
            (len, offset) = (len / 4096 * 4096, offset / 4096 * 4096);
        }
        write(&read(len, offset, true), offset + i % 3 * 13);
    }
    for round in 0..4 {
        for i in 0..8 {
            let len = if i % 2 == 0 { 8192 } else { next() % 9000 };
            let offset = if i % 2 == 0 { next() % 16 * 4096 } else { next() % 70000 };
            write(&read(len, offset, false), 80000 + (round * 8 + i) * 16384);
        }
    }
    [digest, bytes, short]
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed;
    let byte = |_| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    (0..len).map(byte).collect()
}

fn beside(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).display().to_string()
}

#[test]
fn a_kernel_gives_the_same_here_and_at_a_target_however_it_is_run() {
    let world = World::new();
    let (input, old) = (noise(66_001, 1), noise(10_000, 2));
    std::fs::write(world.path("in"), &input).expect("written");
    let kernel = world.kernel(&beside("mixed.bpf.c"));
    let (local_in, local_out) = (world.path("in").display().to_string(), world.path("out").display().to_string());
    let (remote_in, remote_out) = (world.url("in"), world.url("out"));
    let places = [
        (&local_in, &local_out, Where::Auto, Side::Host),
        (&remote_in, &remote_out, Where::Auto, Side::Device),
        (&remote_in, &remote_out, Where::Host, Side::Host),
        // Files of both sides: the data of one has to travel.
        (&local_in, &remote_out, Where::Auto, Side::Host),
    ];
    let mut seed = 0;
    for (from, to, place, side) in places {
        for tier in [Tier::Interpreter, Tier::Cranelift] {
            let all = [
                (DirectPolicy::Possible, 4096),
                (DirectPolicy::Off, 4096),
                (DirectPolicy::All, 4096),
                (DirectPolicy::Possible, 65536),
            ];
            // Over the network each access is a round trip.
            let travels = side == Side::Host && to == &remote_out;
            for (direct, slice) in all.into_iter().take(if travels { 1 } else { all.len() }) {
                seed += 1;
                std::fs::write(world.path("out"), &old).expect("written");
                let options = RunOptions {
                    place,
                    tier: TierChoice::Only(tier),
                    direct,
                    chunk_len: Some(slice),
                    ..RunOptions::default()
                };
                let args = u64::to_le_bytes(seed);
                let ran = world.launch(&kernel, &[from], &[to], &args, &options);
                let ran = ran.unwrap_or_else(|error| panic!("{place:?} {tier:?} {direct:?} {slice}: {error}"));
                let mut left = old.clone();
                let told = mixed(seed, &input, &mut left);
                let result: Vec<u8> = told.into_iter().flat_map(u64::to_le_bytes).collect();
                let what = format!("{place:?} {tier:?} {direct:?} {slice}");
                assert_eq!((ran.side, &ran.result), (side, &result), "{what}");
                assert!(std::fs::read(world.path("out")).expect("read") == left, "{what}: what it wrote");
                assert!(ran.read_bytes > 0 && ran.written_bytes >= told[1], "{what}: {ran:?}");
            }
        }
    }
}

/// Blocks of a volume are held while a kernel has them: byte by byte, its own accesses among each other too.
#[test]
fn a_kernel_reads_and_writes_volumes_byte_by_byte() {
    let world = World::new();
    let input = noise(1 << 20, 3);
    let disk = world.open(&world.volume(1), OpenMode::Write);
    disk.pwrite(0, input[..512 << 10].to_vec(), false).wait().expect("written");
    let (kernel, volume) = (world.kernel(&beside("mixed.bpf.c")), world.volume(1));
    let mut left = input[..512 << 10].to_vec();
    left.resize(1 << 20, 0);
    for direct in [DirectPolicy::Possible, DirectPolicy::All, DirectPolicy::Off] {
        let options = RunOptions { direct, place: Where::Device, ..RunOptions::default() };
        let ran = world.launch(&kernel, &[&world.volume(4)], &[&volume], &7_u64.to_le_bytes(), &options);
        let ran = ran.unwrap_or_else(|error| panic!("{direct:?}: {error}"));
        let told = mixed(7, &[0; 1 << 17], &mut left);
        assert_eq!(ran.result, told.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>(), "{direct:?}");
        assert!(disk.pread(0, 1 << 20).wait().expect("read")[..] == left, "{direct:?}: what it wrote");
        disk.pwrite(0, input[..512 << 10].to_vec(), false).wait().expect("written");
        left[..512 << 10].copy_from_slice(&input[..512 << 10]);
    }
    // A file and a volume of one server are reached in two ways, so they are not of one target.
    std::fs::write(world.path("in"), &input[..66_001]).expect("written");
    let options = RunOptions { place: Where::Device, ..RunOptions::default() };
    let both = world.launch(&kernel, &[&world.url("in")], &[&volume], &7_u64.to_le_bytes(), &options);
    assert_eq!(both.expect_err("no device has both").kind(), FailureKind::Usage);
    // Past its end there is nothing, and nothing can be written: it does not grow.
    let body = "char *b = malloc_ik(8192);\n\
        result[0] = pread_ik(0, b, 8192, (1 << 20) - 100) == 100 && pread_ik(0, b, 10, 1 << 20) == 0\n\
            && pwrite_ik(0, b, 200, (1 << 20) - 100) == -DS_ENOSPC && pwrite_ik(0, b, 4096, 1 << 20) == -DS_ENOSPC\n\
            && pwrite_begin_ik(0, b, 4096, 1 << 20, 5) == 0 && wait_ik(5) == -DS_ENOSPC\n\
            && pwrite_ik(0, \"abc\", 3, 4095) == 3 && pread_ik(0, b, 4, 4094) == 4 && b[1] == 'a' && b[3] == 'c';\n\
        return 8;";
    assert_eq!(world.tell(body, &[], &[&world.volume(1)]).expect("it runs"), 1);
    let read = disk.pread(4090, 12).wait().expect("read");
    assert_eq!(&read[5..8], b"abc");
}

#[test]
fn what_is_wrong_with_a_file_is_told_to_the_kernel() {
    let world = World::new();
    std::fs::write(world.path("in"), [1; 100]).expect("written");
    let file = world.url("in");
    let body = "char *b = malloc_ik(8192), *big = malloc_ik(600000), stack[16];\n\
        result[0] = pread_ik(1, b, 1, 0) == -DS_EBADF && pread_ik(~0u, b, 1, 0) == -DS_EBADF\n\
            && pwrite_ik(0, b, 1, 0) == -DS_EBADF && fsync_ik(0) == -DS_EBADF && filesize_ik(7) == -DS_EBADF\n\
            && pwrite_begin_ik(0, b, 1, 0, 1) == -DS_EBADF && pread_begin_ik(3, b, 1, 0, 1) == -DS_EBADF\n\
            && pread_ik(0, b, 1, 1ull << 63) == -DS_EINVAL && pread_ik(0, b, 8192, 96) == 4\n\
            && pread_ik(0, b, 0, 0) == 0 && pread_ik(0, b, 5, 1ull << 40) == 0\n\
            && pread_begin_ik(0, big, 524289, 0, 1) == -DS_EINVAL && pread_ik(0, big, 600000, 0) == 100\n\
            && wait_ik(1) == -DS_ENOENT && pread_ik(0, stack, 16, 0) == 16 && filesize_ik(0) == 100;\n\
        return 8;";
    assert_eq!(world.tell(body, &[&file], &[]).expect("it runs"), 1);
    // As many as may be are under way; the next one waits its turn.
    let body = "char *b = malloc_ik(16 * 8); __s64 n = 0;\n\
        while (n < 1000 && pread_begin_ik(0, b, 8, 0, n) == 0) n++;\n\
        result[0] = n; return 8;";
    assert_eq!(world.tell(body, &[&file], &[]).expect("it runs"), 16);
    // Memory is checked as everywhere: what is wrong there traps.
    for (body, told) in [
        (
            "char *b = malloc_ik(64); return pread_ik(0, b, 65, 0);",
            "ds_pread: called here: out-of-bounds write of 65 bytes",
        ),
        ("char b[8]; return pread_begin_ik(0, b, 8, 0, 1);", "ds_submit_read: its bytes come later"),
        ("char **b = malloc_ik(64); return pwrite_ik(0, b[1], 4, 0);", "nothing is mapped"),
        ("return -DS_ESTALE;", "kernel/f returned -116"),
        ("return k->result_cap + 1;", "its output holds"),
    ] {
        let error = world.tell(body, &[&file], &[]).expect_err(body);
        assert!(error.to_string().contains(told), "{body}: {error}");
    }
    // Those that have no files ask for none.
    let source = "SEC(\"read/f\")\n__s64 f(char *out, const char *in, __u64 n, const void *a, const struct ds_call *c)\n\
        { return ds_pread(0, out, 1, 0); }\n";
    let (code, out, _) = diskside(&["verify", &world.source("read.bpf.c", source)]);
    let said = String::from_utf8_lossy(&out);
    assert!(
        code == 3 && said.contains("V0611") && said.contains("`ds_pread` is for programs of kind kernel"),
        "{said}"
    );
}

/// Operations that a kernel has begun and never waits for end before the kernel is reported as ended.
#[test]
fn what_was_begun_is_done_and_a_failure_that_nobody_heard_is_one() {
    let world = World::new();
    let body = "char *b = malloc_ik(4096);\n\
        for (__u64 i = 0; i < 8; i++) { ds_memset(b, 'a' + i, 4096); pwrite_begin_ik(0, b, 4096, i * 4096, i); }\n\
        pread_begin_ik(0, b, 4096, 0, 99); result[0] = 1; return 8;";
    assert_eq!(world.tell(body, &[], &[&world.url("made")]).expect("it runs"), 1);
    let made = std::fs::read(world.path("made")).expect("made");
    assert!(made.chunks(4096).zip(b'a'..).all(|(page, byte)| page == [byte; 4096]) && made.len() == 8 * 4096);
    let body = "char *b = malloc_ik(4096); pwrite_begin_ik(0, b, 4096, 1 << 20, 1); result[0] = 1; return 8;";
    let error = world.tell(body, &[], &[&world.volume(1)]).expect_err("it fails");
    assert!(error.to_string().contains("kernel/f did not wait for a write of disk, which failed"), "{error}");
    assert_eq!(error.kind(), FailureKind::Environment);
}

#[test]
fn a_kernel_that_waits_is_stopped_by_whoever_launched_it_and_by_its_deadline() {
    let world = World::new();
    let endless = world.source(
        "endless.bpf.c",
        "SEC(\"kernel/f\")\n__s64 f(struct ds_kernel *k) { char *b = malloc_ik(4096); for (;;) { \
         for (int i = 0; i < 4; i++) pwrite_begin_ik(0, b, 4096, i * 4096, i); for (int i = 0; i < 4; i++) wait_ik(i); } }\n",
    );
    let slow = world.volume(2);
    let kernel = world.session.kernel(&endless).expect("it loads");
    let file = world.open(&slow, OpenMode::Write);
    let began = Instant::now();
    let pending = world.session.launch(&[], std::slice::from_ref(&file), &kernel, &[], &RunOptions::default());
    // It waits for writes that take a tenth of a second each.
    while file.pread(0, 1).wait().is_err() {}
    pending.cancel();
    let error = pending.wait().expect_err("it was cancelled");
    assert_eq!(error.kind(), FailureKind::Cancelled, "{error}");
    let mut options = RunOptions::default();
    options.limits.deadline = Some(Duration::from_millis(50));
    let error = world.session.launch(&[], &[file], &kernel, &[], &options).wait().expect_err("too late");
    assert_eq!(error.kind(), FailureKind::Deadline, "{error}");
    assert!(began.elapsed() < Duration::from_secs(20));
    options.limits.deadline = None;
    options.limits.budget = Some(100);
    let spins = world.source(
        "spins.bpf.c",
        "SEC(\"kernel/f\")\n__s64 f(struct ds_kernel *k) { char *b = malloc_ik(8); for (;;) pread_ik(0, b, 1, 0); }\n",
    );
    for name in [&world.volume(1), &beside("mixed.bpf.c")] {
        let error =
            world.launch(&world.kernel(&spins), &[name], &[], &[], &options).expect_err("it has no budget left");
        assert_eq!(error.kind(), FailureKind::Budget, "{error}");
    }
}

/// A kernel that computed after it had begun a read kept everybody from writing there, for as long as it liked.
#[test]
fn a_kernel_that_computes_keeps_nobody_from_what_it_has_read() {
    let world = World::new();
    let computes = world.source(
        "computes.bpf.c",
        "SEC(\"kernel/f\")\n__s64 f(struct ds_kernel *k) { char *b = malloc_ik(8192); volatile __u64 n = 0;\n\
         pwrite_begin_ik(0, b, 4096, 0, 1); pread_begin_ik(0, b, 4096, 4096, 2); for (;;) n++; }\n",
    );
    let kernel = world.kernel(&computes);
    let file = world.open(&world.volume(2), OpenMode::Write);
    let mut options = RunOptions::default();
    options.limits.budget = Some(u64::MAX);
    let pending = world.session.launch(&[], std::slice::from_ref(&file), &kernel, &[], &options);
    for round in 0..4 {
        file.pwrite(0, vec![round; 8192], false).wait().expect("written");
    }
    assert!(!pending.is_done(), "it goes on");
    pending.cancel();
    assert_eq!(pending.wait().expect_err("it was cancelled").kind(), FailureKind::Cancelled);
}

#[test]
fn who_may_not_write_does_not() {
    let world = World::new();
    let fixed = world.volume(3);
    let file = world.session.open_as(&Location::try_from(fixed.as_ref()).expect("a location"), OpenMode::Write);
    let kernel = world.session.kernel("ndp_filter").expect("it is shipped");
    let error = world.session.launch(&[], &[file.expect("opened")], &kernel, &[0; 88], &RunOptions::default()).wait();
    let error = error.expect_err("it is read-only");
    assert!(error.to_string().contains("volume fixed is read-only"), "{error}");
    let (code, _, said) = diskside(&["launch", "stats64", &world.url("in")]);
    assert!(code == 3 && said.contains("`read/stats64` is of kind `read`"), "{code}: {said}");
    let (code, _, said) = diskside(&["launch", "ndp_filter", &world.url("missing"), "--arg", "pattern=x"]);
    assert!(code == 4 && said.contains("missing"), "{code}: {said}");
    let (code, _, said) = diskside(&["launch", "ndp_filter", "/dev/null", "--arg", "pattern=x"]);
    assert!(code == 4 && said.contains("a kernel reads and writes at positions"), "{code}: {said}");
}

#[test]
fn the_shipped_kernels_find_and_sum_what_is_there() {
    let world = World::new();
    let mut input = noise(300_000, 4);
    for at in (0..300_000).step_by(70_000) {
        input[at..at + 6].copy_from_slice(b"needle");
    }
    std::fs::write(world.path("in"), &input).expect("written");
    let (here, there) = (world.path("in").display().to_string(), world.url("in"));
    for (unit, share, overlap) in [(4096, 25, 1), (16384, 50, 3), (1000, 100, 64)] {
        let sum = |unit: &[u8]| {
            let words = unit[..unit.len() * share / 100].chunks_exact(8);
            words.fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(word.try_into().expect("8 bytes"))))
        };
        let rows: Vec<[u64; 2]> = input.chunks(unit).zip(0..).map(|(it, n)| [n * unit as u64, sum(it)]).collect();
        let found: Vec<u8> =
            input.chunks(unit).filter(|it| it.windows(6).any(|at| at == b"needle")).flatten().copied().collect();
        let args = [format!("unit={unit}"), format!("share={share}"), format!("overlap={overlap}")];
        for file in [&here, &there] {
            let [unit, share, overlap] = &args;
            let aggregate = ["launch", "ndp_aggregate", file, "--arg", unit, "--arg", share, "--arg", overlap];
            let (code, out, said) = diskside(&[&aggregate[..], &["--json"]].concat());
            assert_eq!(code, 0, "{said}");
            let told: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
            let told: Vec<[u64; 2]> = told["rows"]
                .as_array()
                .expect("rows")
                .iter()
                .map(|row| [row["offset"].as_u64().expect("a number"), row["sum"].as_u64().expect("a number")])
                .collect();
            assert!(told == rows, "{args:?}");
            let filter = ["launch", "ndp_filter", file, "--arg", unit, "--arg", overlap, "--arg", "pattern=needle"];
            let (code, out, said) = diskside(&filter);
            assert!(code == 0 && out == found, "{args:?}: {said}");
            // The same into a file of the same side.
            let to = file.replace("in", "out");
            let _ = std::fs::remove_file(world.path("out"));
            let (code, out, said) = diskside(&[&filter[..], &["--write", &to, "--stats"]].concat());
            assert!(code == 0 && out.is_empty() && said.contains("ndp_filter: "), "{args:?}: {said}");
            assert!(std::fs::read(world.path("out")).expect("made") == found, "{args:?}");
            let (code, _, said) = diskside(&[&aggregate[..], &["--write", &to]].concat());
            assert_eq!(code, 0, "{said}");
            let words: Vec<u8> = rows.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
            let written = std::fs::read(world.path("out")).expect("written");
            assert!(written[..words.len()] == words, "{args:?}");
        }
    }
    // With as many writes under way as may be, it had no place left for its next read, and failed.
    let (to, all) = (world.url("out"), "pattern=\u{1}");
    let few = ["launch", "ndp_filter", &there, "--arg", "unit=512", "--arg", all, "--write", &to, "--depth", "2"];
    let (code, _, said) = diskside(&few);
    assert_eq!(code, 0, "{said}");
    let (code, _, said) = diskside(&["launch", "ndp_filter", &there]);
    assert!(
        code == 2 && said.contains("argument `pattern` (text of at most 64 bytes) must be given"),
        "{code}: {said}"
    );
    let (code, _, said) = diskside(&["launch", "ndp_filter", &there, "--arg", "pattern="]);
    assert!(code == 1 && said.contains("there is no pattern"), "{code}: {said}");
    let small = ["launch", "ndp_filter", &there, "--arg", "pattern=needle", "--result", "1KiB"];
    let (code, _, said) = diskside(&small);
    assert!(code == 1 && said.contains("ask for more with --result"), "{code}: {said}");
}
