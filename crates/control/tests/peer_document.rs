//! The OpenAPI document, and whether the API keeps to it, by programs of others.

mod common;

use std::collections::BTreeSet;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;

use common::start;
use thalweg_api::Limits;
use thalweg_testkit::peer;

/// Checks the document on standard input.
const VALIDATE: &str = "
import json, sys, openapi_spec_validator
openapi_spec_validator.validate(json.load(sys.stdin))
print('valid')
";

#[test]
fn the_openapi_document_is_valid() {
    let document = thalweg_control::document();
    assert_eq!(document["openapi"], "3.1.0");
    let operations: Vec<_> = document["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|item| item.as_object().unwrap().values())
        .collect();
    let ids: BTreeSet<_> = operations.iter().map(|o| o["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), operations.len());
    assert!(ids.len() >= 13 && operations.iter().all(|o| o["summary"].is_string()));
    let events = &document["paths"]["/v1/events"]["get"]["parameters"];
    assert_eq!((&events[0]["name"], &events[0]["required"]), (&"every".into(), &false.into()));
    let reload = &document["paths"]["/v1/reload"]["post"]["requestBody"]["content"];
    assert!(reload["application/json"]["schema"]["required"].is_null(), "{reload}");
    if let Some(said) = peer::python("openapi_spec_validator", VALIDATE, &document.to_string()) {
        assert_eq!(said, "valid\n");
    }
}

#[test]
fn the_document_that_is_served_is_that_of_the_program() {
    let run = start(1, Limits::default());
    assert_eq!(run.json("/v1/openapi.json"), thalweg_control::document());
}

/// A TCP port whose connections end at the unix socket `path`, for clients that know no other.
fn relay(path: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let path = path.to_owned();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = UnixStream::connect(&path) else { return };
            pass(client, server);
        }
    });
    address
}

/// Passes bytes in both directions until each end has closed.
fn pass(client: TcpStream, server: UnixStream) {
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (server, client);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Requests of all kinds, valid or not, for `SCHEMATHESIS_SECONDS`, else some for each operation: each
/// is answered, as the document has it and without an error of the server, and packets pass
/// meanwhile.
#[test]
fn the_api_keeps_to_its_document() {
    let Some(schemathesis) = peer::tool("schemathesis", &["--version"]) else { return };
    // A number of requests takes long on a busy machine, and a time has none there.
    let extent = match std::env::var("SCHEMATHESIS_SECONDS") {
        Ok(seconds) => ["--max-time".to_owned(), seconds],
        Err(_) => ["--max-examples".to_owned(), "5".to_owned()],
    };
    let run = start(1, Limits::default());
    let address = relay(&run.path);
    let output = Command::new(schemathesis)
        .args(["run", &format!("http://{address}/v1/openapi.json")])
        .args(["--url", &format!("http://{address}")])
        .args(extent)
        // Events, traces and dropped packets last, and a run that stops is the last test.
        .args(["--exclude-path", "/v1/events", "--exclude-path", "/v1/stop"])
        .args(["--exclude-path", "/v1/trace", "--exclude-path", "/v1/drops"])
        .args(["--max-response-time", "5", "--seed", "7", "--no-color"])
        .current_dir(run.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{error}");
    let counted = run.counted();
    assert!(counted.requests > 100, "{counted:?}");
    assert_eq!((counted.panics, counted.timed_out), (0, 0), "{counted:?}");
    let report = run.end();
    assert!(report.conserved && !report.failed(), "{:?}", report.failures);
}
