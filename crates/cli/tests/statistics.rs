//! What a target did, as `functions`, `top` and `metrics` tell it.

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use common::{Process, Server, good, json, numbers};

#[test]
fn a_target_tells_its_functions_and_what_it_did() {
    let server = Server::start("");
    server.file("n.u64", &numbers(1000));
    good(&["run", "stats64", &server.at("n.u64"), "--where", "device"]);
    let functions = json(&["functions", server.target()]);
    let programs = functions["programs"].as_array().expect("a list");
    assert!(programs.iter().any(|p| p["name"] == "stats64" && p["shipped"] == true), "{functions}");
    let top = json(&["top", server.target()]);
    assert!(top["succeeded"].as_u64() >= Some(1), "{top}");
    assert!(good(&["top", server.target()]).contains("engines"));
    server.file("text", b"some text");
    assert_eq!(good(&["cat", &server.at("text")]), "some text");
    let top = json(&["top", server.target()]);
    let entry = |kind: &str, field: &str| {
        let mut entries = top["entries"].as_array().expect("a list").iter();
        entries.find(|entry| entry["kind"] == kind).map(|entry| entry[field].clone())
    };
    assert_eq!(entry("export", "name").expect("an entry"), "data");
    assert_eq!(entry("export", "read_bytes").expect("an entry"), 9, "{top}");
    assert_eq!(entry("export, by functions", "read_bytes").expect("an entry"), 8000, "{top}");
    assert!(good(&["top", server.target()]).contains("export, by functions"));
}

/// A scraper asks, also after others that are none, and hears whether the target is there.
#[test]
fn prometheus_is_told_what_a_target_did() {
    let mut server = Server::start("");
    server.file("n.u64", &numbers(1000));
    good(&["run", "stats64", &server.at("n.u64"), "--where", "device"]);
    let by_functions = r#"diskside_operations_read_bytes_total{kind="export, by functions",id="0",name="data"} 8000"#;
    let once = good(&["metrics", server.target()]);
    assert!(once.contains(by_functions) && once.contains("\ndiskside_calls_succeeded_total 1\n"), "{once}");

    let (_exporter, url) = Process::start(&["metrics", server.target(), "--listen", "127.0.0.1:0"]);
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).expect("a URL");
    let ask = |request: &str| {
        let mut connection = TcpStream::connect(address).expect("it listens");
        connection.write_all(request.as_bytes()).expect("sent");
        let mut reply = String::new();
        connection.read_to_string(&mut reply).expect("text");
        reply
    };
    drop(TcpStream::connect(address).expect("it listens"));
    assert!(ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let scrape = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
    let reply = ask(scrape);
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.contains(by_functions), "{reply}");
    assert!(reply.contains("\ndiskside_up 1"), "{reply}");
    server.process.kill();
    assert!(ask(scrape).contains("\ndiskside_up 0"));
}
