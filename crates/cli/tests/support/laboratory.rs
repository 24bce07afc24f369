//! A laboratory of network namespaces, in which Linux hosts are at the other ends of interfaces.
#![allow(dead_code)] // each test file uses a part

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use thalweg_testkit::peer;

use crate::support::write;

/// `host NAME NUMBER [QUEUES]` makes an interface NAME that leads to a host NAME with the addresses
/// 10.NUMBER.0.2 and fd0NUMBER::2; both ends have so many queues. `opened NUMBER` waits until that many packet
/// sockets are bound, `redirected NUMBER` until that many interfaces have an XDP program. `halt PROCESS` stops a
/// process and waits until no thread of it runs: kill(1) only sends the signal. `pinged HOST COUNT ARGUMENTS...`
/// pings from a host, and prints how many answers have arrived there: ping itself waits for the last one no
/// longer than twice the longest round trip so far, which on a busy machine may be too short.
const PRELUDE: &str = r#"
PATH=$PATH:/usr/sbin:/sbin
mount -t tmpfs none /run
sysctl -qw net.ipv6.conf.default.disable_ipv6=1
ip link set lo up
host() {
    ip netns add $1
    local queues=${3:+numrxqueues $3 numtxqueues $3}
    ip link add $1 $queues type veth peer name eth0 netns $1 $queues
    ip link set $1 up
    ip netns exec $1 sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0
    ip -n $1 link set lo up
    ip -n $1 link set eth0 up
    ip -n $1 addr add 10.$2.0.2/24 dev eth0
    ip -n $1 addr add fd0$2::2/64 dev eth0 nodad
    ip -n $1 route add default via 10.$2.0.1
    ip -n $1 route add default via fd0$2::1
}
halt() {
    kill -STOP $1
    while grep -h ^State: /proc/$1/task/*/status | grep -qv 'T (stopped)'; do sleep 0.01; done
}
answers() {
    ip netns exec $1 cat /proc/net/snmp /proc/net/snmp6 | awk '
        $1 == "Icmp:" { if (at) sum += $at; else for (n = 1; n <= NF; n++) if ($n == "InEchoReps") at = n }
        $1 == "Icmp6InEchoReplies" { sum += $2 }
        END { print sum + 0 }'
}
pinged() {
    local host=$1 count=$2 before=$(answers $1)
    shift 2
    ip netns exec $host ping -q -c $count -W 2 "$@" > pings || true
    for _ in $(seq 40); do
        [ $(($(answers $host) - before)) -lt $count ] || break
        sleep 0.05
    done
    echo "$(($(answers $host) - before)) received"
}
opened() {
    for _ in $(seq 100); do
        [ $(awk 'NR > 1 && $5 > 0' /proc/net/packet | wc -l) -lt $1 ] || return 0
        sleep 0.1
    done
    echo "the sockets are not bound" >&2
    return 1
}
redirected() {
    for _ in $(seq 100); do
        [ $(ip link | grep -c 'xdp') -lt $1 ] || { sleep 0.2; return 0; }
        sleep 0.1
    done
    echo 'no program is attached' >&2
    return 1
}
"#;

/// A chain that routes between the hosts `left` (1) and `right` (2), its table of routes, and its way.
pub const ROUTER: &str = "routes = 'routes.csv'\n[input.left]\ninterface = 'left'\n\
    [input.right]\ninterface = 'right'\n[output.left]\ninterface = 'left'\n\
    [output.right]\ninterface = 'right'\n[nf.edge]\nkind = 'router'\nroutes = 'table.txt'\n\
    [nf.edge.ports.left]\nmac = '02:00:00:00:00:01'\nip = '10.1.0.1'\nipv6 = 'fd01::1'\n\
    resolve = true\n[nf.edge.ports.right]\nmac = '02:00:00:00:00:02'\nip = '10.2.0.1'\n\
    ipv6 = 'fd02::1'\nresolve = true\n";
pub const TABLE: &str = "10.1.0.0/24 direct left\n10.2.0.0/24 direct right\n\
    fd01::/64 direct left\nfd02::/64 direct right\n";
pub const WAY: &str = "*,ingress,edge\n*,edge,egress\n";

/// The unshare(1) command that creates namespaces as this user; a script that hangs fails after two
/// minutes, or `LABORATORY_SECONDS`.
pub fn namespaces() -> Command {
    let mut command = Command::new("timeout");
    let seconds = std::env::var("LABORATORY_SECONDS").unwrap_or_else(|_| "120".into());
    command.args(["--verbose", "--kill-after", "5", &seconds, "unshare"]);
    // All processes of a script end with it.
    command.args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    if !peer::is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
}

/// Whether namespaces are available. If not, prints that, and fails if `REQUIRE_PEERS` is set.
pub fn can_make_namespaces() -> bool {
    let try_it = "PATH=$PATH:/usr/sbin:/sbin\nmount -t tmpfs none /run\nip netns add a\nping -V";
    let can = namespaces().args(["bash", "-euc", try_it]).output();
    let can_it = can.as_ref().is_ok_and(|output| output.status.success());
    if !can_it {
        peer::missing(&format!("network namespaces: {can:?}"));
    }
    can_it
}

/// Whether this user may load programs into the kernel, which the root of another user namespace may
/// not.
pub fn can_use_xdp() -> bool {
    peer::has_root("AF_XDP")
}

/// The output of a script that runs in its own namespaces in `folder`; `None` if namespaces are
/// not available.
pub fn laboratory(folder: &Path, script: &str) -> Option<String> {
    if !can_make_namespaces() {
        return None;
    }
    let output = namespaces()
        .args(["bash", "-euo", "pipefail", "-c", &format!("{PRELUDE}{script}")])
        .current_dir(folder)
        .env("THALWEG", env!("CARGO_BIN_EXE_thalweg"))
        .env("NO_COLOR", "1")
        .output()
        .expect("unshare starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}{}", String::from_utf8_lossy(&output.stdout));
    Some(String::from_utf8(output.stdout).expect("the output is UTF-8"))
}

/// A folder with these files.
pub fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(folder.path(), name, text);
    }
    folder
}

/// The report in a file.
pub fn read(folder: &Path, name: &str) -> Value {
    let text = std::fs::read(folder.join(name)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The sum of a count over several parts of a report, and of their drops.
pub fn total(report: &Value, parts: &str, count: &str) -> (u64, u64) {
    let parts = report[parts].as_array().unwrap();
    let drops = parts.iter().flat_map(|part| part["drops"].as_object().unwrap().values());
    (
        parts.iter().map(|part| part[count].as_u64().unwrap()).sum(),
        drops.map(|drops| drops.as_u64().unwrap()).sum(),
    )
}

/// Checks that nothing failed, and that each packet is accounted for.
pub fn is_balanced(report: &Value) {
    assert_eq!(report["failures"], Value::Array(vec![]), "{report}");
    let (received, missed) = total(report, "inputs", "packets");
    let (sent, refused) = total(report, "outputs", "packets");
    let (generated, dropped) = total(report, "nfs", "generated");
    assert_eq!(received + generated, sent + missed + refused + dropped, "{report}");
}
