//! What `thalweg doctor` finds about network interfaces, in network namespaces of their own.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use laboratory::{folder, laboratory, read};
use serde_json::Value;

fn interface<'a>(doctor: &'a Value, name: &str) -> &'a Value {
    let all = doctor["interfaces"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {doctor}"))
}

fn mode<'a>(interface: &'a Value, port: &str) -> &'a Value {
    let all = interface["modes"].as_array().unwrap();
    all.iter().find(|mode| mode["port"] == port).unwrap_or_else(|| panic!("{port}: {interface}"))
}

/// The commands that remove what stands in the way.
fn commands(interface: &Value) -> Vec<&str> {
    let all = interface["obstacles"].as_array().unwrap().iter();
    all.map(|obstacle| obstacle["command"].as_str().unwrap()).collect()
}

/// Each command is carried out, and what it removes is found no more.
#[test]
fn what_stands_in_the_way_of_an_interface_is_mended_by_the_command_shown() {
    let folder = folder(&[]);
    let script = r"
mount -t sysfs none /sys 2> /dev/null || echo 'no sysfs'
ip link add near type veth peer name far
ip link set far up
ip tuntap add dev own mode tap
ip tuntap add dev tunnel mode tun
ip addr add 192.0.2.1/24 dev own
ip link set own up
ip route add default via 192.0.2.2
$THALWEG doctor --json > before.json
$THALWEG doctor > before.txt
ip link set dev near up
ip route del default
$THALWEG doctor --json > after.json
";
    let Some(printed) = laboratory(folder.path(), script) else { return };
    let [before, after] = ["before.json", "after.json"].map(|name| read(folder.path(), name));
    let (near, own) = (interface(&before, "near"), interface(&before, "own"));
    assert_eq!((&near["driver"], &own["driver"]), (&"veth".into(), &"tun".into()));
    assert_eq!(mode(near, "interface")["available"], true, "{near}");
    assert_eq!(mode(near, "xdp, mode = \"generic\"")["available"], true, "{near}");
    // Linux 6.3 reports what drivers can do; a veth has no zero copy.
    let is_there = |mode: &Value| mode["available"].as_bool();
    assert_ne!(is_there(mode(near, "xdp, mode = \"copy\"")), Some(false), "{near}");
    assert_ne!(is_there(mode(near, "xdp, mode = \"zero-copy\"")), Some(true), "{near}");
    assert_eq!(mode(own, "tap")["available"], true, "{own}");
    assert!(commands(own).contains(&"force = true in the port"), "{own}");
    assert!(!commands(interface(&after, "own")).contains(&"force = true in the port"), "{after}");
    if printed.is_empty() {
        // The state of a link is known where the file system of the namespace is there.
        assert!(commands(near).contains(&"ip link set dev near up"), "{near}");
        let near = interface(&after, "near");
        assert!(!commands(near).contains(&"ip link set dev near up"), "{near}");
        let tunnel = interface(&before, "tunnel");
        assert_eq!(mode(tunnel, "interface")["available"], false, "{tunnel}");
        assert!(commands(own).contains(&"start what has its other end"), "{own}");
    }
    let text = std::fs::read_to_string(folder.path().join("before.txt")).unwrap();
    for line in ["interface near: veth", "interface own: tun", "in the way"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// Sets whether the kernel merges packets of an interface, as `ethtool -K NAME gro on` does
/// (`ETHTOOL_SGRO`).
const SET_GRO: &str = "import array, fcntl, socket, struct, sys\n\
    value = array.array('I', [0x2c, int(sys.argv[2])])\n\
    request = struct.pack('16sP8x', sys.argv[1].encode(), value.buffer_info()[0])\n\
    fcntl.ioctl(socket.socket(), 0x8946, request)\n";

#[test]
fn offloads_are_those_that_are_set() {
    let folder = folder(&[("gro.py", SET_GRO)]);
    let script = r"
ip link add near type veth peer name far
python3 gro.py near 0
$THALWEG doctor --json > off.json
python3 gro.py near 1
$THALWEG doctor --json > on.json
";
    if laboratory(folder.path(), script).is_none() {
        return;
    }
    let shows = |file| {
        let doctor = read(folder.path(), file);
        commands(interface(&doctor, "near")).contains(&"ethtool -K near gro on")
    };
    assert!(shows("off.json") && !shows("on.json"));
}
