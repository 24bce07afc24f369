//! A router that follows the kernel's routes: each test has its own network namespaces.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use laboratory::{folder, is_balanced, laboratory, read};

const CHAIN: &str = "[input.left]\ninterface = 'left'\n[input.right]\ninterface = 'right'\n\
    [output.to-left]\ninterface = 'left'\n[output.to-right]\ninterface = 'right'\n\
    [[route]]\npath = ['ingress', 'edge', 'egress']\n\
    [nf.edge]\nkind = 'router'\nkernel_table = 254\n\
    [nf.edge.ports.to-left]\nmac = '02:00:00:00:00:01'\nip = '10.1.0.1'\nresolve = true\n\
    [nf.edge.ports.to-right]\nmac = '02:00:00:00:00:02'\nip = '10.2.0.1'\nresolve = true\n";

/// Hosts on both sides of a kernel that does not forward. The right one has two more addresses.
const HOSTS: &str = r#"
host left 1
host right 2
ip link set left address 02:00:00:00:00:01
ip link set right address 02:00:00:00:00:02
ip addr add 10.1.0.1/24 dev left
ip addr add 10.2.0.1/24 dev right
ip -n right addr add 10.99.0.1/32 dev lo
ip -n right addr add 10.97.0.1/32 dev lo
sysctl -qw net.ipv4.ip_forward=0
reaches() {
    ip netns exec left ping -q -c 1 -W 1 $1 > /dev/null
}
has() {
    until $THALWEG ctl nfs --json | grep -q "\"$1\": *$2\>"; do sleep 0.1; done
}
"#;

#[test]
fn routes_that_the_kernel_adds_changes_and_removes_are_followed_under_traffic() {
    let folder = folder(&[("chain.toml", CHAIN)]);
    let script = HOSTS.to_owned()
        + r#"
$THALWEG run chain.toml --json > report.json & run=$!
opened 4
until reaches 10.2.0.2; do :; done
echo connected
reaches 10.99.0.1 || echo without a route
ip route add 10.99.0.1/32 via 10.2.0.2
until reaches 10.99.0.1; do :; done
echo added
ip route replace blackhole 10.99.0.1/32
while reaches 10.99.0.1; do :; done
echo a black hole
ip route replace 10.99.0.1/32 via 10.2.0.2
until reaches 10.99.0.1; do :; done
echo replaced
batch() {
    for i in $(seq 0 79); do
        for j in $(seq 0 249); do echo "route $1 100.$i.$j.0/24 via 10.$2.0.2"; done
    done
}
batch add 1 > add
batch replace 2 > replace
batch del 2 | sed -n '1,10000p' > del
ip netns exec left ping -q -i 0.005 -c 400 -W 5 10.99.0.1 > pings & pings=$!
ip -batch add
ip -batch replace
ip -batch del
wait $pings
grep -o '400 received' pings
ip route add 10.97.0.1/32 via 10.2.0.2
until reaches 10.97.0.1; do :; done
# Two links, two hosts, and three addresses of the kernel's own.
has routes_v4 10007
kill -INT $run
wait $run
"#;
    let Some(told) = laboratory(folder.path(), &script) else { return };
    let expected = "connected\nwithout a route\nadded\na black hole\nreplaced\n400 received\n";
    assert_eq!(told, expected);
    let report = read(folder.path(), "report.json");
    is_balanced(&report);
    let figure = |name: &str| report["nfs"][0]["figures"][name].as_u64().unwrap();
    assert!(figure("kernel_dumps") >= 1, "{report}");
    // Messages that the socket had no room for are made up for by a dump.
    assert!(figure("kernel_changes") > 50_000 || figure("kernel_lost") > 0, "{report}");
    assert_eq!((figure("kernel_refused"), figure("kernel_errors")), (0, 0), "{report}");
}

#[test]
fn a_table_without_routes_is_a_warning_and_a_wrong_one_a_mistake() {
    let files = [
        ("empty.toml", CHAIN.replace("254", "77")),
        ("wrong.toml", CHAIN.replace("254", "0")),
        ("useless.toml", CHAIN.replace("kernel_table = 254\n", "")),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let folder = folder(&files);
    let script = HOSTS.to_owned()
        + "for name in empty wrong useless; do\n\
           $THALWEG check $name.toml > /dev/null 2> $name.err || echo $name\ndone\n";
    let Some(told) = laboratory(folder.path(), &script) else { return };
    assert_eq!(told, "wrong\nuseless\n");
    let error = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for (name, message) in [
        ("empty.err", "the kernel's table 77 has no routes yet"),
        ("wrong.err", "not the number of a table"),
        ("useless.err", "a router without routes"),
    ] {
        assert!(error(name).contains(message), "{}", error(name));
    }
}
