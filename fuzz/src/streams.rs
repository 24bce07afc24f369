//! Conversations: TCP streams put together, the messages in them, and rules about both; and
//! what they tell of hosts.

use std::sync::Arc;

use thalweg_nf::{Blueprint, Context, Emitted};
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{Batch, Decapsulate, Nanoseconds, Pool};

const RULES: &str = "\
    alert http any any -> any any (msg:\"u\"; http.uri; content:\"/a\"; pcre:\"/b.*c/U\"; sid:1;)\n\
    alert http any any -> any any (msg:\"f\"; file_data; content:\"x\"; isdataat:4,relative; sid:2;)\n\
    alert http any any -> any any (msg:\"h\"; http.header; content:\"e\"; http.host; content:\"h\"; sid:3;)\n\
    alert dns any any -> any any (msg:\"d\"; dns.query; content:\"w\"; sid:4;)\n\
    alert tls any any -> any any (msg:\"t\"; tls.sni; content:\"h\"; sid:5;)\n\
    alert tls any any -> any any (msg:\"c\"; tls.cert_issuer; content:\"C\"; tls.cert_subject; content:\"C\"; sid:6;)\n\
    alert ssh any any -> any any (msg:\"s\"; ssh.software; content:\"s\"; sid:7;)\n\
    alert tcp any any -> any any (msg:\"r\"; content:\"a\"; byte_extract:1,0,n,relative; content:\"b\"; distance:n; base64_decode:relative; base64_data; content:\"x\"; sid:8;)\n\
    alert pkthdr any any -> any any (msg:\"e\"; decode-event:tcp.opt_invalid_len; sid:9;)\n";

/// An intrusion detection and an asset detection.
fn build() -> [Box<dyn Blueprint>; 2] {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("t.rules");
    std::fs::write(&path, RULES).expect("the file can be written");
    let rules = format!("rules = ['{}']\nunsupported = 'refuse'\nmidstream = true", path.display());
    let assets =
        "max_hosts = 8\nmax_conversations = 8\nmax_services = 4\nmemory_mib = 1".to_owned();
    [(thalweg_nids::KIND, rules), (thalweg_assets::KIND, assets)]
        .map(|(kind, options)| kind.build_alone(&options).expect("the options are right"))
}

thread_local! {
    static NFS: [Box<dyn Blueprint>; 2] = build();
    static POOL: Arc<Pool> = Arc::new(Pool::anonymous(64, 4096).expect("there is memory"));
}

/// A segment or a datagram: a byte of how, one of where, one of how long, and its payload.
fn packet(how: u8, place: u8, payload: &[u8]) -> Vec<u8> {
    let to_server = how & 1 == 0;
    let ports = if how & 2 == 0 { (1000, 80) } else { (1000, 53) };
    let ((from, sport), (to, dport)) = if to_server {
        (([10, 0, 0, 1], ports.0), ([192, 0, 2, 1], ports.1))
    } else {
        (([192, 0, 2, 1], ports.1), ([10, 0, 0, 1], ports.0))
    };
    let builder = PacketBuilder::new([2; 6], [4; 6]).ip(from.into(), to.into());
    if how & 4 != 0 {
        return builder.udp(sport, dport).build(payload);
    }
    let flags = [24, 24, 24, 2, 18, 16, 17, 4][usize::from(how >> 5)];
    let segment = TcpSegment {
        src_port: sport,
        dst_port: dport,
        seq: 1000 + u32::from(place) * if how & 8 == 0 { 1 } else { 64 },
        ack: 1000 + u32::from(how & 16) * 8,
        flags,
        window: u16::MAX,
    };
    builder.tcp(segment).build(payload)
}

/// Sends the packets of a few conversations to a `nids` and an `assets`.
pub fn streams(data: &[u8]) {
    let mut nfs = NFS.with(|nfs| nfs.each_ref().map(|nf| nf.instance()));
    let mut rest = data;
    while let [how, place, length, behind @ ..] = rest {
        let (payload, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        let pool = POOL.with(Arc::clone);
        let mut batch = Batch::new(pool.clone());
        if batch.push_bytes(&packet(*how, *place, payload)).is_none() {
            return;
        }
        let lanes = batch.lanes();
        batch.parse(lanes, Decapsulate::No);
        let mut emitted = Emitted::new(pool);
        for nf in &mut nfs {
            let mut context = Context::new(Nanoseconds(1), &mut emitted, None);
            nf.process(&mut batch, lanes, &mut context);
        }
        batch.release(lanes);
    }
    for (name, value) in nfs.iter().flat_map(|nf| nf.figures()) {
        assert!(name != "stream_memory" || value < 64 << 20);
        assert!(name != "host_memory" || value < 1 << 20);
        assert!(name != "hosts" || value <= 8);
    }
}
