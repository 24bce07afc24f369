//! Chains over AF_XDP, with Linux hosts at their other ends.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use laboratory::{TABLE, can_use_xdp, folder, is_balanced, laboratory, read};

const CHAIN: &str = "routes = 'routes.csv'\n[input.left]\nxdp = 'left'\n[input.right]\nxdp = 'right'\n\
    [output.left]\nxdp = 'left'\n[output.right]\nxdp = 'right'\n[nf.edge]\nkind = 'router'\n\
    routes = 'table.txt'\n[nf.edge.ports.left]\nmac = '02:00:00:00:00:01'\nip = '10.1.0.1'\n\
    ipv6 = 'fd01::1'\nresolve = true\n[nf.edge.ports.right]\nmac = '02:00:00:00:00:02'\n\
    ip = '10.2.0.1'\nipv6 = 'fd02::1'\nresolve = true\n";

/// Pings and downloads between two hosts, forwarded in the frames that received them. A first ping
/// resolves the neighbors, which may take a second on a busy machine. The hosts leave
/// checksums to hardware that does not exist; the driver has them segment packets themselves.
#[test]
fn hosts_reach_each_other_by_af_xdp() {
    if !can_use_xdp() {
        return;
    }
    for workers in [1, 2] {
        let files = [
            ("chain.toml", CHAIN),
            ("table.txt", TABLE),
            ("routes.csv", "*,ingress,edge\n*,edge,egress\n"),
        ];
        let folder = folder(&files);
        let script = format!(
            "host left 1; host right 2\n\
             $THALWEG run chain.toml --workers {workers} --json > report.json & run=$!\nredirected 2\n\
             for to in 10.2.0.2 fd02::2; do\n\
                 for _ in $(seq 20); do\n\
                     ip netns exec left ping -q -c 1 -W 1 $to > /dev/null && break\n\
                 done\n\
                 pinged left 50 -i 0.01 -s 1000 $to\n\
             done\n\
             head -c 5000000 /dev/urandom > blob\n\
             ip netns exec right python3 -m http.server --bind :: 8000 > /dev/null 2>&1 & server=$!\n\
             for host in 10.2.0.2 [fd02::2]; do\n\
                 for _ in $(seq 50); do\n\
                     ip netns exec left curl -s -m 20 http://$host:8000/blob > got && break\n\
                     sleep 0.1\n\
                 done\n\
                 cmp blob got && echo same\n\
             done\n\
             kill $server\n\
             $THALWEG ctl ports --json > ports.json\n\
             kill -INT $run\nwait $run\nip link | grep -c xdp || true\n"
        );
        let Some(told) = laboratory(folder.path(), &script) else { return };
        assert_eq!(told, "50 received\n50 received\nsame\nsame\n0\n");
        let report = read(folder.path(), "report.json");
        is_balanced(&report);
        assert!(report["packets_out"].as_u64().unwrap() >= 200, "{report}");
        assert_eq!(report["leaked_frames"].as_u64().unwrap_or(0), 0, "{report}");
        let ports = read(folder.path(), "ports.json");
        for port in ports["ports"].as_array().unwrap() {
            assert_eq!(port["kind"], "xdp", "{port}");
            let mode = port["mode"].as_str().unwrap();
            assert!(mode.starts_with("AF_XDP, copy, rings with 2048 slots"), "{mode}");
        }
    }
}

/// The host's own address stays reachable by SSH, and by nothing else, while all packets go to the
/// chain.
#[test]
fn the_host_keeps_arp_and_ssh() {
    if !can_use_xdp() {
        return;
    }
    let chain = "[input.left]\nxdp = 'left'\nmode = 'generic'\n[output.o]\ndiscard = true\n\
        [[route]]\npath = ['ingress', 'egress']\n";
    let folder = folder(&[("chain.toml", chain)]);
    let script = "host left 1\nip addr add 10.1.0.1/24 dev left\n\
         for port in 22 23; do\n\
             python3 -m http.server --bind 10.1.0.1 $port > /dev/null 2>&1 &\n\
             until bash -c \"exec 3<>/dev/tcp/10.1.0.1/$port\" 2> /dev/null; do sleep 0.1; done\n\
         done\n\
         $THALWEG run chain.toml --json > report.json & run=$!\nredirected 1\n\
         reach() { ip netns exec left timeout 2 bash -c \"exec 3<>/dev/tcp/10.1.0.1/$1\" 2> /dev/null; }\n\
         reach 22 && echo ssh\nreach 23 || echo no telnet\n\
         kill -INT $run\nwait $run\nreach 23 && echo telnet\n";
    let Some(told) = laboratory(folder.path(), script) else { return };
    assert_eq!(told, "ssh\nno telnet\ntelnet\n");
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    assert!(report["packets_in"].as_u64().unwrap() > 0, "{report}");
}

/// A killed program leaves nothing behind, and one whose interface is removed under traffic ends.
#[test]
fn programs_end_cleanly() {
    if !can_use_xdp() {
        return;
    }
    let files = [
        ("chain.toml", CHAIN),
        ("table.txt", TABLE),
        ("routes.csv", "*,ingress,edge\n*,edge,egress\n"),
    ];
    let folder = folder(&files);
    let script = "host left 1; host right 2\n\
         $THALWEG run chain.toml > /dev/null & run=$!\nredirected 2\n\
         $THALWEG run chain.toml --no-control 2> taken.err || echo refused with $?\n\
         kill -KILL $run\nwait $run || true\n\
         timeout 20 $THALWEG run chain.toml --json > report.json & run=$!\nredirected 2\n\
         ip netns exec left ping -q -f -c 100000 -W 1 10.2.0.2 > /dev/null & ping=$!\n\
         sleep 1\nip link del right\nwait $run || echo ended with $?\n\
         kill $ping || true\n\
         setpriv --bounding-set=-all --inh-caps=-all $THALWEG run chain.toml 2> right.err ||\n\
         echo refused with $?\n";
    let Some(told) = laboratory(folder.path(), script) else { return };
    assert_eq!(told, "refused with 1\nended with 1\nrefused with 78\n");
    let text = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(
        text("taken.err").contains("another XDP program is attached to it"),
        "{}",
        text("taken.err")
    );
    assert!(text("right.err").contains("CAP_NET_RAW"), "{}", text("right.err"));
    let report = read(folder.path(), "report.json");
    let failures = report["failures"].as_array().unwrap();
    assert!(failures.iter().any(|f| f == "interface right: it was removed"), "{report}");
    assert_eq!(report["conserved"], true, "{report}");
    assert_eq!(report["leaked_frames"].as_u64().unwrap_or(0), 0, "{report}");
}

#[test]
fn mistakes_in_sections_are_named() {
    let chain = "routes = 'routes.csv'\n[input.a]\nxdp = 'nowhere0'\nring_size = 1000\nqueue = 1024\n\
        pass = ['arp', 'ftp']\n[input.b]\nxdp = 'lo'\nfilter = 'tcp'\n\
        [output.o]\nxdp = 'lo'\nmode = 'fast'\n";
    let folder = folder(&[("chain.toml", chain), ("routes.csv", "*,ingress,egress\n")]);
    let output = support::thalweg(folder.path(), &["check", "chain.toml"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{told}");
    for mistake in [
        "there is no interface 'nowhere0'",
        "'ring_size' is 1000",
        "a power of two from 64 to 32768",
        "'queue' is 1024",
        "unknown packets 'ftp'",
        "arp, ssh, icmp, tcp/PORT, udp/PORT, or ether/0xTYPE",
        "an interface by packet sockets: interface = \"NAME\"",
        "unknown variant `fast`",
    ] {
        assert!(told.contains(mistake), "{mistake}: {told}");
    }
}
