//! Tunnels to the kernel's own devices, and between two runs: super-packets go through the tunnel NF whole.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use std::path::Path;

use laboratory::{ROUTER, TABLE, folder, is_balanced, laboratory, read};
use serde_json::Value;

/// Tunnels to the left host: by VXLAN on a port that is not its own, and by VXLAN over IPv6.
const TUNNELS: &str = "[nf.overlay]\nkind = 'tunnel'\n\
    [[nf.overlay.tunnel]]\nname = 'vxlan'\nprotocol = 'vxlan'\nid = 7\nport = 8472\n\
    local = '10.1.0.1'\nremote = '10.1.0.2'\nmatch = 'ip,nw_dst=10.9.0.2'\n\
    [[nf.overlay.tunnel]]\nname = 'vxlan6'\nprotocol = 'vxlan'\nid = 8\n\
    local = 'fd01::1'\nremote = 'fd01::2'\nmatch = 'ip,nw_dst=10.7.0.2'\n";
const WAY: &str = "*,ingress,overlay\n*,overlay,edge\n*,edge,egress\n";

/// The left host reaches each of two addresses of the right one by another tunnel. A VXLAN device has
/// the MAC address of the router's interface, to which the right host sends.
const HOSTS: &str = r#"
host left 1; host right 2
ip -n right addr add 10.2.0.3/24 dev eth0
in=(ip -n left)
vxlan() {
    "${in[@]}" link add $1 address 02:00:00:00:00:02 mtu $2 type vxlan id $3 local $4 remote $5 dstport $6
    "${in[@]}" addr add $7.2/24 dev $1
    "${in[@]}" link set $1 up
    "${in[@]}" neigh add $7.1 lladdr 02:00:00:00:00:09 dev $1
    "${in[@]}" route add $8 via $7.1 dev $1
}
vxlan vx 1450 7 10.1.0.2 10.1.0.1 8472 10.9.0 10.2.0.2
vxlan vx6 1430 8 fd01::2 fd01::1 4789 10.7.0 10.2.0.3
"#;

/// 20 MB to and from each address, compared; prints what has arrived as it was sent.
const TRANSFERS: &str = r#"
head -c 20000000 /dev/urandom > blob
cat > server.py <<'END'
import socket, threading
blob = open("blob", "rb").read()
def serve(connection):
    got = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    connection.sendall(b"same " if got == blob else b"other")
    connection.sendall(blob)
    connection.close()
server = socket.create_server(("", 8000))
while True:
    threading.Thread(target=serve, args=[server.accept()[0]]).start()
END
cat > client.py <<'END'
import socket, sys, time
blob = open("blob", "rb").read()
for _ in range(50):
    try:
        connection = socket.create_connection((sys.argv[1], 8000), 20)
        break
    except OSError:
        time.sleep(0.1)
connection.sendall(blob)
connection.shutdown(socket.SHUT_WR)
got = b"".join(iter(lambda: connection.recv(1 << 20), b""))
print(got[:5].decode().strip(), "same" if got[5:] == blob else "other")
END
ip netns exec right python3 server.py & server=$!
for host in $to; do ip netns exec left python3 client.py $host; done
kill $server
for each in $run; do kill -INT $each; done
for each in $run; do wait $each; done
"#;

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Lets both hosts exchange data by all tunnels; returns the report.
fn transfer(more: &str, workers: u32) -> Option<Value> {
    let chain = [ROUTER, TUNNELS, more].concat();
    let folder = folder(&[("chain.toml", &chain), ("table.txt", TABLE), ("routes.csv", WAY)]);
    let script = format!(
        "{HOSTS}$THALWEG run chain.toml --workers {workers} --json > report.json & run=$!\nopened 4\n\
         to='10.2.0.2 10.2.0.3'\n{TRANSFERS}"
    );
    let output = laboratory(folder.path(), &script)?;
    assert_eq!(output, "same same\n".repeat(2));
    Some(report(folder.path(), "report.json"))
}

/// The report of a run that lost none of its packets without a count.
fn report(folder: &Path, name: &str) -> Value {
    let report = read(folder, name);
    is_balanced(&report);
    assert_eq!(
        (&report["conserved"], &report["leaked_frames"]),
        (&true.into(), &0.into()),
        "{report}"
    );
    report
}

/// The packets that were encapsulated, and those that were decapsulated.
fn through_tunnels(report: &Value) -> (u64, u64) {
    let mut nfs = report["nfs"].as_array().unwrap().iter();
    let figures = &nfs.find(|nf| nf["name"] == "overlay").unwrap()["figures"];
    (count(&figures["encapsulated"]), count(&figures["decapsulated"]))
}

/// 80 MB in packets of 1,500 bytes at most.
const SEGMENTS: u64 = 80_000_000 / 1450;

#[test]
fn super_packets_go_through_tunnels_whole() {
    for workers in [1, 2] {
        let Some(report) = transfer("", workers) else { return };
        let (into, out) = through_tunnels(&report);
        assert!(into + out < SEGMENTS / 3, "{into} and {out} of {SEGMENTS}: {report}");
    }
}

#[test]
fn without_large_frames_their_segments_do() {
    let Some(report) = transfer("[memory]\nlarge_frames = 0\n", 1) else { return };
    let (into, out) = through_tunnels(&report);
    assert!(into + out > SEGMENTS, "{into} and {out} of {SEGMENTS}: {report}");
}

/// The end of a GRE tunnel towards a host and its network, with its table of routes.
fn end(host: &str, (network, other): (u8, u8), (local, remote): (u8, u8)) -> (String, String) {
    let middle = format!("middle{local}");
    let port = |name: &str| {
        format!("[input.{name}]\ninterface = '{name}'\n[output.{name}]\ninterface = '{name}'\n")
    };
    let chain = format!(
        "routes = 'routes.csv'\n{}{}[nf.edge]\nkind = 'router'\nroutes = 'table{local}.txt'\n\
         [nf.edge.ports.{host}]\nmac = '02:00:00:00:00:0{network}'\nip = '10.{network}.0.1'\nresolve = true\n\
         [nf.edge.ports.{middle}]\nmac = '02:00:00:00:05:0{local}'\nip = '10.5.0.{local}'\n\
         neighbors = {{ '10.5.0.{remote}' = '02:00:00:00:05:0{remote}' }}\n\
         [nf.overlay]\nkind = 'tunnel'\n[[nf.overlay.tunnel]]\nname = 'gre'\nprotocol = 'gre'\nid = 9\n\
         local = '10.5.0.{local}'\nremote = '10.5.0.{remote}'\nmatch = 'ip,nw_dst=10.{other}.0.0/24'\n",
        port(host),
        port(&middle),
    );
    (chain, format!("10.{network}.0.0/24 direct {host}\n10.5.0.0/24 direct {middle}\n"))
}

#[test]
fn two_runs_exchange_what_hosts_send_through_a_tunnel_between_them() {
    let (one, table_one) = end("left", (1, 2), (1, 2));
    let (two, table_two) = end("right", (2, 1), (2, 1));
    let folder = folder(&[
        ("one.toml", &one[..]),
        ("two.toml", &two[..]),
        ("table1.txt", &table_one[..]),
        ("table2.txt", &table_two[..]),
        ("routes.csv", WAY),
    ]);
    let script = format!(
        "host left 1; host right 2\nip link add middle1 type veth peer name middle2\n\
         ip link set middle1 up; ip link set middle2 up\n\
         for host in left right; do ip -n $host link set eth0 mtu 1400; done\n\
         $THALWEG run one.toml --json --no-control > one.json & run=$!\n\
         $THALWEG run two.toml --json --no-control > two.json & run=\"$run $!\"\nopened 8\nto=10.2.0.2\n{TRANSFERS}"
    );
    let Some(output) = laboratory(folder.path(), &script) else { return };
    assert_eq!(output, "same same\n");
    for name in ["one.json", "two.json"] {
        let report = report(folder.path(), name);
        let (into, out) = through_tunnels(&report);
        // Each encapsulates super-packets and acknowledgements of every second segment, and decapsulates segments.
        let segments = 20_000_000 / 1400;
        assert!(into < segments && out > segments, "{into} and {out} of {segments}: {report}");
    }
}
