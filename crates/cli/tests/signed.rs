//! Signed programs: made by `diskside sign`, demanded by a server, and refused without.

mod common;

use std::path::Path;

use common::{Server, diskside, good};

const SOURCE: &str = "#include \"diskside.h\"\nSEC(\"read/length\")\n\
    __s64 length(__u64 *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
    *out = in_len;\nreturn 8;\n}\n";

/// A directory with an object and two keys; gives their public halves.
struct World {
    dir: tempfile::TempDir,
    ann: String,
    bob: String,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("length.bpf.c");
        std::fs::write(&source, SOURCE).expect("written");
        good(&["build", text(&source), "-o", text(&dir.path().join("length.o"))]);
        let new = |name: &str| {
            let key = dir.path().join(name);
            let made = good(&["sign", "--new-key", "--key", text(&key)]);
            let public = made.lines().last().expect("the public key").to_owned();
            assert_eq!(good(&["sign", "--show", "--key", text(&key)]).trim_end(), public);
            public
        };
        let (ann, bob) = (new("ann"), new("bob"));
        Self { dir, ann, bob }
    }

    fn path(&self, name: &str) -> String {
        text(&self.dir.path().join(name)).to_owned()
    }

    /// The object, signed with a key.
    fn signed(&self, key: &str) -> String {
        let signed = self.path(&format!("{key}.o"));
        good(&["sign", &self.path("length.o"), "--key", &self.path(key), "--out", &signed]);
        signed
    }

    /// A server with this configuration, and a file of eight bytes.
    fn server(&self, config: &str) -> Server {
        let file = self.path("diskside.toml");
        std::fs::write(&file, config).expect("written");
        let server = Server::start_with("", &["--config", &file]);
        server.file("f", b"eight...");
        server
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn run(server: &Server, object: &str) -> (i32, String) {
    let (code, _, said) = diskside(&["run", object, &server.at("f"), "--where", "device"]);
    (code, said)
}

#[test]
fn a_server_that_demands_signatures_runs_what_is_signed_and_says_what_else_lacks() {
    let world = World::new();
    let (ann, bob) = (world.signed("ann"), world.signed("bob"));
    assert_eq!(good(&["sign", "--check", &ann]).trim_end(), world.ann);
    let server = world.server(&format!("[security]\nrequire_signed_by = [\"{}\"]\n", world.ann));
    assert_eq!(run(&server, &ann), (0, String::new()));
    // What comes with the server needs none.
    good(&["run", "wc", &server.at("f")]);
    let (code, said) = run(&server, &world.path("length.o"));
    assert!(code != 0 && said.contains("nobody signed this one (diskside sign)"), "{said}");
    let (code, said) = run(&server, &bob);
    assert!(code != 0 && said.contains("does not know who signed this program"), "{said}");
    let mut changed = std::fs::read(&ann).expect("there");
    let at = changed.len() - 60;
    changed[at] ^= 1;
    std::fs::write(world.path("changed.o"), changed).expect("written");
    let (code, said) = run(&server, &world.path("changed.o"));
    assert!(code != 0 && said.contains("changed after it was signed: sign it again"), "{said}");
    let (code, _, said) = diskside(&["sign", "--check", &world.path("changed.o")]);
    assert!(code == 3 && said.contains("changed after it was signed"), "{said}");
    // A program is known by the SHA-256 of its file.
    let listed = good(&["functions", server.target(), "--json"]);
    assert!(!listed.contains(&sha256(&bob)), "it was refused");
}

/// An operator reads who tried to run what nobody answers for. No test looked whether refusals were told.
#[test]
fn each_refusal_for_want_of_a_signature_leaves_a_line_in_the_audit_file() {
    let world = World::new();
    let (ann, bob) = (world.signed("ann"), world.signed("bob"));
    let mut bytes = std::fs::read(&ann).expect("there");
    let at = bytes.len() - 60;
    bytes[at] ^= 1;
    let changed = world.path("changed.o");
    std::fs::write(&changed, bytes).expect("written");
    let config = format!("[security]\naudit = \"audit.jsonl\"\nrequire_signed_by = [\"{}\"]\n", world.ann);
    let server = world.server(&config);
    let unsigned = world.path("length.o");
    let told = [
        (&ann, ""),
        (&unsigned, "this target takes signed programs alone, and nobody signed this one"),
        (&bob, "this target does not know who signed this program"),
        (&changed, "the program was changed after it was signed"),
    ];
    for (object, why) in told {
        assert_eq!(run(&server, object).0 == 0, why.is_empty(), "{object}");
    }
    let loads = || {
        let text = std::fs::read_to_string(world.path("audit.jsonl")).expect("the audit file");
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        lines.filter(|line| line["event"] == "program.load").collect::<Vec<_>>()
    };
    common::until("all are told", || loads().len() >= told.len());
    let loads = loads();
    assert_eq!(loads.len(), told.len(), "{loads:?}");
    for (line, (object, why)) in loads.iter().zip(told) {
        assert_eq!(line["program"]["sha256"], sha256(object), "{line}");
        assert!(line["host"].as_str().is_some_and(|host| host.starts_with("nqn.")), "{line}");
        let reason = line["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with(why) && reason.is_empty() == why.is_empty(), "{line}");
    }
}

#[test]
fn a_grant_names_who_signs() {
    let world = World::new();
    let (ann, bob) = (world.signed("ann"), world.signed("bob"));
    let config =
        format!("[[grant]]\nto = [\"*\"]\nexports = {{ data = \"r\" }}\nfunctions = [\"signed:{}\"]\n", world.bob);
    let server = world.server(&config);
    assert_eq!(run(&server, &bob), (0, String::new()));
    for object in [&ann, &world.path("length.o")] {
        let (code, said) = run(&server, object);
        assert!(code != 0 && said.contains("this host may not run this program"), "{said}");
    }
}

#[test]
fn what_is_no_key_and_no_object_says_what_to_do() {
    let world = World::new();
    let source = world.path("length.bpf.c");
    let (code, _, said) = diskside(&["sign", &source, "--key", &world.path("ann")]);
    assert!(code == 2 && said.contains("is no object: make one with `diskside build`"), "{said}");
    let (code, _, said) = diskside(&["sign", &world.path("length.o"), "--key", &world.path("none")]);
    assert!(code == 4 && said.contains("`diskside sign --new-key` makes one"), "{said}");
    let (code, _, said) = diskside(&["sign", "--new-key", "--key", &world.path("ann")]);
    assert!(code == 4 && said.contains("it exists"), "{said}");
    let (code, _, said) = diskside(&["sign", "--check", &world.path("length.o")]);
    assert!(code == 3 && said.contains("nobody signed it"), "{said}");
    std::fs::write(world.path("c.toml"), "[security]\nrequire_signed_by = [\"12\"]\n").expect("written");
    let (code, _, said) = diskside(&["serve", "--config", &world.path("c.toml"), "--print-config"]);
    assert!(code == 2 && said.contains("security.require_signed_by: a signer is the 64 hexadecimal digits"), "{said}");
}

fn sha256(path: &str) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().expect("sha256sum runs");
    String::from_utf8_lossy(&output.stdout).split_whitespace().next().expect("a hash").to_owned()
}
