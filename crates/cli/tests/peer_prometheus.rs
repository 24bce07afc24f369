//! A real Prometheus scrapes a run over TLS.

#[path = "support/controlled.rs"]
mod controlled;
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use controlled::{Controlled, ENDLESS};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;
use support::write;
use thalweg_testkit::peer;

/// Writes an authority, and a certificate for a server and a client.
fn certify(folder: &Path) {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(folder.join("authority.pem"), authority.pem()).unwrap();
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".into()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A Prometheus, which is killed when it is dropped.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    fn start(folder: &Path, target: u16) -> Self {
        let config = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\n\
             scrape_configs:\n- job_name: thalweg\n  scheme: https\n  tls_config:\n    \
             ca_file: authority.pem\n    cert_file: client.pem\n    key_file: client.key\n  \
             static_configs:\n  - targets: ['127.0.0.1:{target}']\n"
        );
        write(folder, "prometheus.yml", &config);
        let port = free_port();
        let log = fs::File::create(folder.join("prometheus.log")).unwrap();
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, port }
    }

    /// The values of a query, an empty list while Prometheus starts.
    fn query(&self, query: &str) -> Vec<f64> {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return vec![] };
        let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let answer: Value = serde_json::from_str(body).unwrap_or_default();
        let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        let value = |series: &Value| series["value"][1].as_str().and_then(|v| v.parse().ok());
        series.iter().filter_map(value).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_a_run_over_tls() {
    if !peer::is_there("prometheus", &["--version"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    write(folder.path(), "chain.toml", ENDLESS);
    let target = free_port();
    let address = format!("--control-tcp=127.0.0.1:{target}");
    let files = [
        "--control-cert=server.pem",
        "--control-key=server.key",
        "--control-clients=authority.pem",
    ];
    let arguments = [&["--control=edge", &*address], &files[..]].concat();
    let mut run = Controlled::start(folder.path(), "edge", "chain.toml", &arguments);
    assert!(!run.has_ended(), "{}", run.messages());
    let prometheus = Prometheus::start(folder.path(), target);
    let start = Instant::now();
    // Two scrapes, between which packets were received.
    let changes = || prometheus.query("changes(thalweg_received_packets_total[1m])");
    while changes().first().is_none_or(|changes| *changes < 2.0) {
        let log = fs::read_to_string(folder.path().join("prometheus.log")).unwrap();
        assert!(start.elapsed() < Duration::from_secs(30), "{log}{:?}", prometheus.query("up"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(prometheus.query("up"), [1.0]);
    assert_eq!(prometheus.query("count(thalweg_nf_packets_total)"), [2.0]);
    // A scrape is of one moment: what was received was transmitted or dropped.
    let unaccounted = "sum(thalweg_received_packets_total)-sum(thalweg_transmitted_packets_total)\
                       -sum(thalweg_dropped_packets_total)";
    assert_eq!(prometheus.query(unaccounted), [0.0]);
    run.succeeds(&["stop"]);
    assert_eq!(run.end()["conserved"], true);
}
