//! Open vSwitch parses flows as we do, checked with `ovs-ofctl`.

#[path = "support/flows.rs"]
mod flows;

use std::fmt::Write as _;
use std::process::Command;

use thalweg_classify::flow_syntax::{self, Flow, FlowError};
use thalweg_testkit::peer;

/// Random flows given to the peer.
const FLOWS: u64 = 3000;

fn parse(text: &str) -> Result<Flow, FlowError> {
    flow_syntax::parse(text, &|_| None)
}

/// What Open vSwitch makes of a flow.
#[derive(Debug)]
enum Answer {
    /// The flow as it prints it.
    Accepted(String),
    /// It took the flow and threw parts away that had no meaning.
    Mended,
    Refused,
}

fn ask(flow: &str) -> Answer {
    let mut command = Command::new("ovs-ofctl");
    let out = command.args(["parse-flow", &format!("{flow},actions=drop")]).output().unwrap();
    if !out.status.success() {
        return Answer::Refused;
    }
    let printed = String::from_utf8_lossy(&out.stdout).lines().find_map(normal_form);
    let Some(printed) = printed else { return Answer::Refused };
    let log = String::from_utf8_lossy(&out.stderr).into_owned();
    if log.contains("normalization changed") {
        return Answer::Mended;
    }
    Answer::Accepted(printed)
}

/// The flow in a line such as `NXT_FLOW_MOD (xid=0x1): ADD tcp,tp_dst=80 actions=drop`.
fn normal_form(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("): ADD")?;
    Some(rest.trim().strip_suffix("actions=drop")?.trim().to_owned())
}

#[test]
fn open_vswitch_reads_random_flows_as_we_do() {
    if !peer::is_there("ovs-ofctl", &["--version"]) {
        return;
    }
    let flows: Vec<String> = (0..FLOWS).map(flows::random_flow).collect();
    let mut file = String::new();
    for flow in &flows {
        writeln!(file, "{flow},actions=drop").unwrap();
    }
    let path = std::env::temp_dir().join(format!("thalweg-flows-{}", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let out = Command::new("ovs-ofctl").arg("parse-flows").arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let log = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{log}");
    let text = String::from_utf8_lossy(&out.stdout);
    let answers: Vec<String> = text.lines().filter_map(normal_form).collect();
    assert_eq!(answers.len(), flows.len());
    for (flow, answer) in flows.iter().zip(&answers) {
        let (ours, theirs) = (parse(flow), parse(answer));
        assert!(ours.is_ok(), "{flow}: {ours:?}");
        assert_eq!(ours, theirs, "{flow} became {answer}");
    }
    println!("{} flows agree", answers.len());
}

/// Taken by both, with the same meaning.
const BOTH: &[&str] = &[
    "",
    "eth",
    "ip",
    "ip4",
    "ipv4",
    "priority=0x10,ip",
    "tcp tp_dst=80",
    "tp_src=80,tcp",
    "nw_proto=6,ip,tp_dst=1",
    "dl_type=0x0806,arp_spa=1.2.3.4",
    "arp,nw_src=10.0.0.1",
    "arp,nw_proto=1",
    "rarp,nw_dst=10.0.0.1",
    "ip,nw_tos=184",
    "ip,nw_frag=later",
    "dl_src=1:2:3:4:5:6",
    "dl_type=0x5ff",
    "icmp6,icmp_type=135,nd_target=fe80::1",
    "tcp,nw_dst=10.1.2.3/16",
    "ip,nw_src=10.0.0.0/255.0.255.0",
    "ip,nw_src=10.0.0.1/0",
    "tcp,tp_dst=80/0xfff0",
    "tcp,tp_src=0/0",
    "tcp,tcp_flags=+[200]",
    "tcp,tcp_flags=0x802/0x802",
    "in_port=0",
    "tunnel_id=7",
    "vlan_pcp=3",
    "eth_type=0x800,ip_proto=17,udp_dst=53",
];

/// Refused by both, or thrown away by them for want of a prerequisite.
const NEITHER: &[&str] = &[
    "bogus=1",
    "bogus",
    "tcp4",
    "tcp,tp_dst=65536",
    "tcp,tp_dst=-1",
    "tcp,tp_dst=080",
    "tcp, tp_dst = 80",
    "tp_dst=80",
    "ip,tp_src=4",
    "ip,nw_proto=50,tp_src=4",
    "nw_src=10.0.0.1",
    "ipv6,nw_src=1.2.3.4",
    "tcp6,nw_dst=1.2.3.4",
    "ipv6,arp_sha=02:00:00:00:00:01",
    "nw_proto=6",
    "arp,nw_ttl=3",
    "mpls_label=3",
    "ip,icmp_type=3",
    "icmp6,nd_target=fe80::1",
    "icmp6,icmpv6_type=136,nd_sll=02:00:00:00:00:01",
    "icmp,icmp_type=300",
    "icmp,icmp_type=8/0xf",
    "arp,arp_op=1/1",
    "ip,nw_ttl=64/0xf0",
    "ip,nw_ttl=256",
    "ip,nw_proto=6/0xf",
    "ip,nw_proto=300",
    "ip,nw_tos=0xb8/0xfc",
    "mpls,mpls_label=100/0xff",
    "ip,ip_frag=bogus",
    "ip,ip_frag=1",
    "tcp6,ip_frag=later,tp_dst=80",
    "tcp,tcp_flags=+syn+syn",
    "tcp,tcp_flags=0x1000",
    "tcp,tcp_flags=+bogus",
    "dl_type=ip",
    "dl_type=0x10000",
    "dl_src=1:2:3:4:5",
    "dl_src=01:02:03:04:05:06/24",
    "ip,nw_src=10.1/16",
    "ip,nw_src=1.2.3.4/33",
    "ipv6,ipv6_src=::/129",
    "ipv6,ipv6_label=0x100000",
    "in_port=70000",
    "priority=65536,ip",
];

/// Taken by Open vSwitch, which guesses, cuts values, lets the last of two
/// win, or has more fields; refused by us.
const STRICTER: &[&str] = &[
    "tcp,udp",
    "tp_dst",
    "tcp,udp_dst=80",
    "udp,tcp_flags=+syn",
    "icmp,tp_src=8",
    "icmp,icmpv6_type=3",
    "tcp,tp_dst=80,tp_dst=81",
    "tcp,tp_dst=*",
    "priority=1,priority=2,ip",
    "dl_vlan=010",
    "dl_vlan=4096",
    "vlan_vid=10",
    "vlan_tci=0x600a",
    "dl_vlan=0xffff,dl_vlan_pcp=2",
    "arp,arp_op=256",
    "icmp,ip_frag=later,icmp_type=8",
    "ip,nw_tos=3",
    "ip,nw_ecn=4",
    "mpls,mpls_bos=2",
    "mpls,mpls_label=0x100000",
    "ip,nw_src=010.1.1.1",
    "metadata=0x1ffffffff",
    "ct_state=+new",
    "tun_flags=oam",
    "in_port=LOCAL",
    "table=1,ip",
    "cookie=7,ip",
    "idle_timeout=60,ip",
];

#[test]
fn open_vswitch_and_we_accept_the_same_or_we_are_stricter_on_purpose() {
    if !peer::is_there("ovs-ofctl", &["--version"]) {
        return;
    }
    for flow in BOTH {
        let ours = parse(flow).unwrap_or_else(|e| panic!("{flow}: {e}"));
        let Answer::Accepted(theirs) = ask(flow) else { panic!("{flow}: {:?}", ask(flow)) };
        assert_eq!(parse(&theirs), Ok(ours), "{flow} became {theirs}");
        // They read what we print as what we meant.
        let ours_printed = format!("priority={},{}", ours.priority, ours.pattern);
        let Answer::Accepted(theirs) = ask(&ours_printed) else { panic!("{ours_printed}") };
        assert_eq!(parse(&theirs), Ok(ours), "{ours_printed} became {theirs}");
    }
    for flow in NEITHER {
        assert!(parse(flow).is_err(), "{flow}");
        assert!(matches!(ask(flow), Answer::Refused | Answer::Mended), "{flow}: {:?}", ask(flow));
    }
    for flow in STRICTER {
        assert!(parse(flow).is_err(), "{flow}");
        assert!(matches!(ask(flow), Answer::Accepted(_)), "{flow}: {:?}", ask(flow));
    }
}
