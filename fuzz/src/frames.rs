//! Frames: parsing, what senders leave to hardware, checksums, header setters, and the stateless NFs.

use std::cell::RefCell;
use std::sync::Arc;

use thalweg_cpu::Isa;
use thalweg_io::offload::{Offload, Segmentation};
use thalweg_nf::{Context, Emitted, Kind, NetworkFunction};
use thalweg_packet::{
    Batch, Decapsulate, FlowKey, Lanes, MiniFlow, Nanoseconds, Pool, PortIndex, checksum, parse,
    write,
};

/// One instance of each NF whose packets come from strangers.
const CHAIN: &[(Kind, &str)] = &[
    (
        thalweg_filter::KIND,
        "rules = ['reject udp,tp_dst=53', 'drop tcp,tcp_flags=+syn-ack']\ndefault = 'reject'",
    ),
    (thalweg_acl::KIND, "rules = ['deny udp,tp_src=53', 'permit ip']"),
    (thalweg_nat::KIND, "inside = ['10.0.0.0/8']\nexternal = ['192.0.2.1']"),
    (thalweg_monitor::KIND, "max_flows = 64"),
    (thalweg_assets::KIND, "max_hosts = 64\nmax_conversations = 64"),
    (
        thalweg_tunnel::KIND,
        "[[tunnel]]\nname = 'v'\nprotocol = 'vxlan'\nid = 1\nlocal = '192.0.2.2'\n\
         remote = '192.0.2.1'\n[[tunnel]]\nname = 'n'\nprotocol = 'geneve'\nid = 1\n\
         local = '192.0.2.2'\nremote = '192.0.2.1'\n[[tunnel]]\nname = 'g'\nprotocol = 'gre'\n\
         local = '192.0.2.2'\nremote = '192.0.2.1'\nmatch = 'udp'\n[[tunnel]]\nname = 't'\n\
         protocol = 'gretap'\nid = 1\nlocal = '192.0.2.2'\nremote = '192.0.2.1'\nmatch = 'arp'",
    ),
    (
        thalweg_router::KIND,
        "routes = '@ROUTES@'\n[ports.out]\nmac = '02:00:00:00:00:01'\nip = '192.0.2.1'\n\
         ipv6 = '2001:db8::1'\nresolve = true\n",
    ),
    (
        thalweg_ipsec::KIND,
        "default_policy = 'bypass'\n[[sa]]\nname = 'x'\ndirection = 'in'\nspi = 4660\n\
         suite = 'aes128-gcm16'\nencryption_key = '000102030405060708090a0b0c0d0e0faabbccdd'\n\
         source = '192.0.2.1'\ndestination = '192.0.2.2'\n",
    ),
];

const ROUTES: &str = "192.0.2.0/24 direct out\n2001:db8::/64 direct out\n\
    0.0.0.0/0 192.0.2.7 out\n::/0 2001:db8::7 out\n";

thread_local! {
    static NFS: RefCell<Vec<Box<dyn NetworkFunction>>> = RefCell::new(build());
}

fn build() -> Vec<Box<dyn NetworkFunction>> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let routes = folder.path().join("routes.txt");
    std::fs::write(&routes, ROUTES).expect("the file can be written");
    let build = |(kind, text): &(Kind, &str)| {
        let text = text.replace("@ROUTES@", &routes.display().to_string());
        kind.build_alone(&text).expect("the configuration is right").instance()
    };
    CHAIN.iter().map(build).collect()
}

/// Whole packets and cut ones, so many that they are parsed together.
fn parses_alike_at_every_level(data: &[u8], decapsulate: Decapsulate) {
    let pool = Arc::new(Pool::anonymous(64, 4096).expect("there is memory"));
    for isa in Isa::available() {
        let mut batch = Batch::with_isa(pool.clone(), isa);
        for lane in 0..20 {
            // What lies behind a cut packet must not be read as part of it.
            let cut = &data[..data.len() - (lane % 10).min(data.len())];
            let _ = batch.push_bytes(cut);
        }
        batch.meta.in_port.fill(PortIndex(0));
        let lanes = batch.lanes();
        batch.parse(lanes, decapsulate);
        for lane in lanes {
            let (key, headers) = parse(batch.bytes(lane), PortIndex(0), decapsulate);
            assert_eq!((batch.key(lane), *batch.headers(lane)), (key, headers), "{isa}");
        }
    }
}

/// The segments of a long packet, of one in a tunnel too, have its payload, each behind a copy of its headers.
fn is_cut_into_as_much(offload: Offload, long: &[u8]) {
    offload.complete(&mut long.to_vec());
    let Some(mut segments) = offload.segments(long) else { return };
    let form = offload.division(long).expect("it can be segmented");
    let (_, headers) = parse(long, PortIndex(0), Decapsulate::No);
    let (mut all, mut first, mut count) = (0, 0, 0);
    while let Some(len) = segments.next_len() {
        segments.write_next(long, &mut vec![0; len]);
        if count == 0 {
            first = len;
        }
        (all, count) = (all + len, count + 1);
    }
    let end = usize::from(headers.end);
    if count == 1 {
        assert_eq!(all, end);
    } else {
        let copied = first - usize::from(form.segment_size);
        assert_eq!(all, count * copied + end - copied);
    }
    if form.inner_len == 0 {
        assert!(Segmentation::of(long, form.segment_size).is_some());
    }
}

/// Parses a frame, and sends it through the NFs.
pub fn frames(data: &[u8]) {
    for decapsulate in [Decapsulate::No, Decapsulate::Yes, Decapsulate::Nested] {
        let (key, headers) = parse(data, PortIndex(0), decapsulate);
        assert!(headers.end as usize <= data.len() && headers.payload <= headers.end);
        assert!(headers.l4 == 0 || headers.l3 < headers.l4 && headers.l4 <= headers.payload);
        assert_eq!(FlowKey::from(&MiniFlow::from(&key)), key);
        parses_alike_at_every_level(data, decapsulate);
        let mut copy = data.to_vec();
        checksum::fill(&mut copy, &headers);
        assert_ne!(checksum::verify(&copy, &headers), checksum::ChecksumStatus::BadHeader);
        write::decrement_ttl(&mut copy, &headers);
        write::set_ipv4_src(&mut copy, &headers, [1, 2, 3, 4].into());
        write::set_src_port(&mut copy, &headers, 7);
        write::set_icmp_id(&mut copy, &headers, 7);
    }
    if let Some((header, packet)) = data.split_first_chunk() {
        is_cut_into_as_much(Offload::read(*header), packet);
    }
    NFS.with_borrow_mut(|nfs| {
        let pool = Arc::new(Pool::anonymous(64, 4096).expect("there is memory"));
        let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool.clone()));
        for nf in nfs {
            let Some(lane) = batch.push_bytes(data) else { return };
            batch.parse(Lanes::one(lane), Decapsulate::No);
            let mut context = Context::new(Nanoseconds(1), &mut emitted, None);
            nf.process(&mut batch, Lanes::one(lane), &mut context);
            if context.dropped().is_empty() {
                batch.parse_changed();
                let now = parse(batch.bytes(lane), batch.meta.in_port[lane], Decapsulate::No);
                assert_eq!((batch.key(lane), *batch.headers(lane)), now, "it said what it changed");
            }
            batch.release(Lanes::ALL);
            emitted.hand_over(|_| {});
        }
        drop((batch, emitted));
        assert_eq!(pool.in_use(), 0);
    });
}
