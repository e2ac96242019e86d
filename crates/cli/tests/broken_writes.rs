//! A target that is killed, and a host that vanishes, in the middle of a function: real processes, and every way of writing
//! a file. The function stops making output half-way, so that the middle is where it stays.

mod common;

use std::fs::{File, OpenOptions};
use std::future::Future as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{Server, until};
use diskside::ExportUrl;
use diskside::host::ConnectOptions;
use diskside::host::function::{
    CallOutcome, Endpoint, EndpointKind, FunctionError, FunctionKind, FunctionRequest, RemoteCall, RemoteFile,
};
use diskside::io::buffer::Buffer;
use diskside::session::{RunOptions, Session, SessionOptions, Where};
use diskside::wire::file::FileFlags;
use diskside::wire::function::Placement;

/// Output before the function stops making any: some of it is written by then.
const MADE: usize = 8 << 20;
/// So much of that is in the file, whatever is still collected.
const WRITTEN_MIN: u64 = 4 << 20;
const BEFORE: &[u8] = b"what was there before";

const SOURCE: &str = r#"
#include "diskside.h"
DS_SPLIT_RECORDS(8);
DS_OUTPUT(1, 1, 0);

/* Gives back its input, and from 8 MiB on nothing, without end. */
DS_CONCATENATE;

SEC("write/stalls")
__s64 stalls(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    while (call->in_offset >= 8 << 20)
        asm volatile("" ::: "memory");
    for (__u64 i = 0; i < in_len / 8; i++)
        out[i] = in[i];
    return in_len;
}
"#;

impl Server {
    /// Bytes of the files that it has open in this directory, the exported file among them.
    fn open_files(&self, dir: &Path) -> Vec<u64> {
        let dir = std::fs::canonicalize(dir).expect("it is there");
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.process.0.id())).expect("it runs");
        let paths = fds.filter_map(|fd| fd.ok().map(|fd| fd.path()));
        let inside =
            paths.filter(|fd| std::fs::read_link(fd).is_ok_and(|target| target.starts_with(&dir) && target != dir));
        inside.filter_map(|fd| std::fs::metadata(fd).ok()).map(|file| file.len()).collect()
    }
}

fn session() -> Session {
    // The test kills the target, and does not wait until it is given up.
    let connect = ConnectOptions { loss_timeout: Duration::from_millis(200), ..ConnectOptions::default() };
    Session::new(SessionOptions { connect, ..SessionOptions::default() })
}

/// A write, with the file open that it writes.
struct Write {
    call: RemoteCall,
    _file: RemoteFile,
}

impl Write {
    /// How it ended, if it has.
    fn ended(&mut self) -> Option<String> {
        match Pin::new(&mut self.call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => Some(format!("{ended:?}")),
            Poll::Pending => None,
        }
    }

    fn wait(self) -> Result<CallOutcome, FunctionError> {
        self.call.wait()
    }
}

/// Starts a write of the function's output into `out`.
fn write(session: &Session, url: &str, source: &Path, placement: Placement, offset: u64, input: &[u8]) -> Write {
    let sink = |file: &RemoteFile| Endpoint { placement, durable: true, ..file.endpoint(offset, Endpoint::TO_END) };
    write_to(session, url, source, sink, input)
}

/// The same into a sink.
fn write_to(
    session: &Session,
    url: &str,
    source: &Path,
    sink: impl FnOnce(&RemoteFile) -> Endpoint,
    input: &[u8],
) -> Write {
    let function = session.function(source).expect("it compiles");
    let url = format!("{url}/out").parse::<ExportUrl>().expect("a URL");
    let files = session.files(&url).expect("the target has exports");
    let file = files.open(b"data/out", FileFlags::READ_WRITE).expect("it is there");
    let program = files.compute().load(function.object()).expect("it is good");
    let request = FunctionRequest {
        program_id: function.hash(),
        chunk_len: 1 << 20,
        // It is to stay where it is until somebody ends it.
        budget: 1 << 60,
        sources: vec![Endpoint::whole(EndpointKind::HostStream)],
        sinks: vec![sink(&file)],
        ..FunctionRequest::new(FunctionKind::Write, program.index)
    };
    let call = files.compute().call_with(&request, vec![Buffer::copy_of(input)]);
    Write { call, _file: file }
}

fn words(len: usize) -> Vec<u8> {
    (0..len as u64 / 8).flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("it is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether the file system has files without a name: where it has none, one of them can be left by a kill.
fn has_nameless_files(dir: &Path) -> bool {
    const O_TMPFILE: i32 = 0o20_200_000;
    OpenOptions::new().write(true).custom_flags(O_TMPFILE).open(dir).is_ok()
}

struct Place {
    dir: tempfile::TempDir,
    source: std::path::PathBuf,
    sources: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let sources = tempfile::tempdir().expect("a temporary directory");
        let source = sources.path().join("stalls.bpf.c");
        std::fs::write(&source, SOURCE).expect("written");
        // Not in /tmp, which may be memory.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
        std::fs::write(dir.path().join("out"), BEFORE).expect("written");
        Self { dir, source, sources }
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("out")).expect("it is there")
    }

    fn len(&self) -> u64 {
        File::open(self.dir.path().join("out")).and_then(|file| file.metadata()).expect("it is there").len()
    }

    /// Waits until a part of the output is in a file.
    fn await_part(&self, server: &Server, placement: Placement, mut ended: impl FnMut() -> Option<String>) {
        until("some of the output is written", || {
            let ended = ended();
            assert_eq!(ended, None, "{placement:?}: the call has ended");
            match placement {
                Placement::Replace => server.open_files(self.dir.path()).iter().any(|len| *len >= WRITTEN_MIN),
                Placement::Append => self.len() >= (BEFORE.len() + MADE) as u64,
                Placement::InPlace => self.len() >= WRITTEN_MIN,
            }
        });
    }
}

/// The host hears that the connection was lost, durable bytes stay, and a file that was to be replaced is whole.
#[test]
fn a_target_that_is_killed_leaves_whole_files_and_nothing_else() {
    for placement in [Placement::Replace, Placement::Append, Placement::InPlace] {
        let place = Place::new();
        let dir = place.dir.path();
        let mut server = Server::of(dir, "", &[]);
        let (host, input) = (session(), words(MADE + (1 << 20)));
        let mut expected = BEFORE.to_vec();
        let mut offset = 0;
        if placement == Placement::InPlace {
            // What a call said to be durable, and another one behind it.
            let first = write(&host, &server.url, &place.source, placement, 0, &input[..4096]).wait().expect("it ends");
            assert_eq!((first.trailer.media_written, first.trailer.durable), (4096, 4096));
            (expected, offset) = (input[..4096].to_vec(), 4096);
        }
        let mut call = write(&host, &server.url, &place.source, placement, offset, &input);
        place.await_part(&server, placement, || call.ended());
        server.process.kill();
        let error = call.wait().expect_err("it cannot have ended");
        assert!(error.is_loss(), "{placement:?}: {error}");
        let said = error.to_string();
        assert!(said.contains("the connection was lost before the command completed"), "{placement:?}: {said}");

        let content = place.content();
        assert!(content.starts_with(&expected), "{placement:?}: what was there, or durable, is there");
        let part = &content[expected.len()..];
        assert!(input.starts_with(part), "{placement:?}: behind it is a part of the output, from its start");
        match placement {
            Placement::Replace => assert_eq!(part.len(), 0, "the old content, whole"),
            Placement::Append | Placement::InPlace => assert!(part.len() as u64 >= WRITTEN_MIN - 4096),
        }
        let left = names(dir);
        let allowed = |name: &String| name == "out" || !has_nameless_files(dir) && name.starts_with(".diskside-");
        assert!(left.iter().all(allowed), "{placement:?}: {left:?}");

        let server = Server::of(dir, "", &[]);
        let again = write(&session(), &server.url, &place.source, Placement::Replace, 0, &input[..MADE]).wait();
        assert_eq!(again.expect("it ends").trailer.durable, MADE as u64);
        assert!(place.content() == input[..MADE], "{placement:?}: the same target, started again, writes it");
        drop(server);
        assert!(place.sources.path().exists());
    }
}

/// A volume is written in place: it has the start of the output, and behind it what was there.
#[test]
fn a_target_that_is_killed_leaves_a_volume_with_the_start_of_the_output() {
    const LEN: usize = 16 << 20;
    const KEPT: usize = 1 << 20;
    let place = Place::new();
    let dir = place.dir.path();
    let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary file");
    std::fs::write(image.path(), vec![0x55; LEN]).expect("written");
    let volume = format!("out={},rw", image.path().display());
    let serve = || Server::of(dir, "", &["--volume", &volume]);
    let sink = |offset| Endpoint { durable: true, ..Endpoint::new(EndpointKind::Volume(1), offset, Endpoint::TO_END) };
    let content = || std::fs::read(image.path()).expect("it is there");

    let (mut server, host, input) = (serve(), session(), words(MADE + (1 << 20)));
    let first = write_to(&host, &server.url, &place.source, |_| sink(0), &input[..KEPT]).wait().expect("it ends");
    assert_eq!((first.trailer.media_written, first.trailer.durable), (KEPT as u64, KEPT as u64));
    let mut call = write_to(&host, &server.url, &place.source, |_| sink(KEPT as u64), &input);
    until("some of the output is written", || {
        assert_eq!(call.ended(), None, "the call has ended");
        content()[KEPT..].starts_with(&input[..WRITTEN_MIN as usize])
    });
    server.process.kill();
    let error = call.wait().expect_err("it cannot have ended");
    assert!(error.is_loss(), "{error}");

    let after = content();
    assert_eq!(after.len(), LEN);
    assert!(after[..KEPT] == input[..KEPT], "what was durable is there");
    let written = after[KEPT..].iter().zip(&input).take_while(|(is, made)| is == made).count();
    assert!((WRITTEN_MIN as usize..=MADE).contains(&written), "{written}");
    assert!(after[KEPT + written..].iter().all(|byte| *byte == 0x55), "behind it is what was there");

    let server = serve();
    let again = write_to(&session(), &server.url, &place.source, |_| sink(0), &input[..MADE]).wait().expect("it ends");
    assert_eq!(again.trailer.durable, MADE as u64);
    assert!(content().starts_with(&input[..MADE]), "the same target, started again, writes it");
}

/// A function without effects that was under way when its target was killed runs again when that is back: over the file as
/// it is then, and nothing of before is in its result.
#[test]
fn a_read_goes_on_at_a_target_that_was_killed_and_is_back() {
    const BODY: &str = r#"
#include "diskside.h"
/* Gives the first number of the file, and never ends if that is 0. */
SEC("read/first")
__s64 first(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    while (*in == 0)
        asm volatile("" ::: "memory");
    *out = *in;
    return 8;
}
"#;
    let place = Place::new();
    let (dir, source) = (place.dir.path(), place.sources.path().join("first.bpf.c"));
    std::fs::write(&source, BODY).expect("written");
    std::fs::write(dir.join("out"), 0_u64.to_le_bytes()).expect("written");
    let mut server = Server::of(dir, "", &[]);
    let address = server.url.split('/').nth(2).expect("an address").to_owned();
    let connect = ConnectOptions { loss_timeout: Duration::from_secs(100), ..ConnectOptions::default() };
    let host = Session::new(SessionOptions { connect, ..SessionOptions::default() });
    let file = host.open(&format!("{}/out", server.url)).expect("it is there");
    let function = host.function(&source).expect("it compiles");
    let mut options = RunOptions { place: Where::Device, ..RunOptions::default() };
    options.limits.budget = Some(1 << 60);
    let ran = file.fold_fn(&function, &[], &options);
    let compute = host.compute(&server.url.parse::<ExportUrl>().expect("a URL").target()).expect("functions");
    until("it runs", || compute.statistics().expect("statistics").0.engines_busy.get() > 0);
    assert!(!ran.is_done());
    server.process.kill();
    std::fs::write(dir.join("out"), 7_u64.to_le_bytes()).expect("written");
    let _server = Server::listening(&address, dir, "", &[]);
    assert_eq!(ran.wait().expect("the target is back").result, 7_u64.to_le_bytes());
}

/// Nobody is there to be told anything, and what can be taken back is.
#[test]
fn a_host_that_vanishes_leaves_no_half_of_a_file_to_others() {
    if let Ok(told) = std::env::var("WRITES_AND_VANISHES") {
        return vanishing_host(&told);
    }
    for placement in [Placement::Replace, Placement::Append, Placement::InPlace] {
        let place = Place::new();
        let dir = place.dir.path();
        let server = Server::of(dir, "", &[]);
        let mut host = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "a_host_that_vanishes_leaves_no_half_of_a_file_to_others"])
            .env("WRITES_AND_VANISHES", format!("{} {} {}", server.url, place.source.display(), placement as u8))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program runs");
        place.await_part(&server, placement, || host.try_wait().expect("it is ours").map(|status| status.to_string()));
        host.kill().expect("it runs");
        host.wait().expect("it is ours");
        until("its files are closed", || server.open_files(dir).is_empty());
        match placement {
            Placement::Replace | Placement::Append => assert!(place.content() == BEFORE, "{placement:?}: taken back"),
            // Others have seen it come, and it stays: from its start, as far as the host's input came.
            Placement::InPlace => {
                let content = place.content();
                assert!(content.len() as u64 >= WRITTEN_MIN && words(MADE).starts_with(&content));
            }
        }
        assert_eq!(names(dir), ["out"], "{placement:?}");
        let again = write(&session(), &server.url, &place.source, placement, 0, &words(4096)).wait();
        assert_eq!(again.expect("it ends").trailer.durable, 4096, "{placement:?}: the target serves others");
    }
}

/// The host of the test above, in a process of its own: it is killed.
fn vanishing_host(told: &str) {
    let told: Vec<&str> = told.split(' ').collect();
    let placement = [Placement::Replace, Placement::Append, Placement::InPlace];
    let placement = placement.into_iter().find(|placement| (*placement as u8).to_string() == told[2]);
    let source = Path::new(told[1]);
    let input = words(MADE + (1 << 20));
    let written = write(&session(), told[0], source, placement.expect("one of them"), 0, &input).wait();
    panic!("it ended: {written:?}");
}

/// `--out` whose output passes through the host left half of it at the target, under a name of its own, when the host was
/// killed.
#[test]
fn a_killed_host_leaves_nothing_of_an_output_that_passes_through_it() {
    let place = Place::new();
    let dir = place.dir.path();
    let server = Server::of(dir, "", &[]);
    let source = place.sources.path().join("drips.bpf.c");
    std::fs::write(&source, SOURCE.replace("write/stalls", "read/stalls")).expect("written");
    let input = place.sources.path().join("in");
    std::fs::write(&input, words(MADE + (1 << 20))).expect("written");
    for before in [Some(BEFORE), None] {
        let out = dir.join("out");
        let began = match before {
            Some(_) => vec!["out".to_owned()],
            None => std::fs::remove_file(&out).map(|()| Vec::new()).expect("removed"),
        };
        let mut host = Command::new(env!("CARGO_BIN_EXE_diskside"))
            .args(["run", "--budget", &u64::MAX.to_string(), "--out", &format!("{}/out", server.url)])
            .args([&source, &input])
            .stdout(Stdio::null())
            .spawn()
            .expect("diskside runs");
        until("some of the output is at the target", || {
            assert_eq!(host.try_wait().expect("it is ours"), None, "it has ended");
            server.open_files(dir).iter().any(|len| *len >= WRITTEN_MIN)
        });
        if has_nameless_files(dir) {
            assert_eq!(names(dir), began, "nobody else sees it");
        }
        host.kill().expect("it runs");
        host.wait().expect("it is ours");
        until("the target has given it up", || server.open_files(dir).is_empty() && names(dir) == began);
        assert_eq!(std::fs::read(&out).ok().as_deref(), before, "what was there stays, and no more");
    }
    // The target serves others, and the same output may come.
    std::fs::write(dir.join("out"), BEFORE).expect("written");
    std::fs::write(&input, words(4096)).expect("written");
    let ran = Command::new(env!("CARGO_BIN_EXE_diskside"))
        .args(["run", "--out", &format!("{}/out", server.url)])
        .args([&source, &input])
        .output()
        .expect("diskside runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(place.content() == words(4096) && names(dir) == ["out"]);
}

/// A host that writes a file without a name at a target that is killed hears that it is gone: another file has its name
/// by then.
#[test]
fn an_output_that_went_with_its_target_is_not_taken_for_another_file() {
    let place = Place::new();
    let dir = place.dir.path();
    let mut server = Server::of(dir, "", &[]);
    let url = format!("{}/out", server.url).parse::<ExportUrl>().expect("a URL");
    let session = Session::new(SessionOptions::default());
    let mut writer = diskside::session::FileWriter::create(&session, &url).expect("it begins");
    std::io::Write::write_all(&mut writer, &words(1 << 20)).expect("taken");
    let port = server.url.split(':').nth(2).and_then(|rest| rest.split('/').next()).expect("a port").to_owned();
    server.process.kill();
    server = Server::listening(&format!("127.0.0.1:{port}"), dir, "", &[]);
    let copy = session.function(&place.source).expect("it compiles");
    let options = RunOptions::default();
    let error = writer.file().pwrite_fn(0, words(4096), &copy, &[], &options).wait().unwrap_err().to_string();
    assert!(error.contains("had no name yet and went with the connection"), "{error}");
    assert!(writer.publish().is_err());
    assert_eq!((place.content(), names(dir)), (BEFORE.to_vec(), vec!["out".to_owned()]));
    drop(server);
}
