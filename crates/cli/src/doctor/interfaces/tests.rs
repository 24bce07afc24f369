//! Obstacles and modes of made-up interfaces.

use thalweg_io::{Offloads, XdpFeatures, kind::Link};

use super::*;

fn interrupts(all: &[(u32, &str, &str)]) -> Vec<Interrupt> {
    let one = |(number, cores, name): &(u32, &str, &str)| Interrupt {
        number: *number,
        cores: (*cores).into(),
        name: (*name).into(),
    };
    all.iter().map(one).collect()
}

/// A NIC as it comes, of which nothing is set well.
fn card() -> Inspected {
    Inspected {
        name: "eth1".into(),
        driver: Some("mlx5_core".into()),
        is_ethernet: true,
        is_tap: false,
        link: Some(Link { up: Some(false), ..Link::default() }),
        queues: Some(Setting { now: 1, most: 63 }),
        receive_ring: Some(Setting { now: 1024, most: 8192 }),
        offloads: Offloads {
            lro: Some(true),
            gro: Some(false),
            vlan: Some(true),
            idle: vec!["tx", "tso"],
        },
        xdp: Some(XdpFeatures { redirects: true, zero_copy: true }),
        interrupts: interrupts(&[(40, "0", "eth1-0"), (41, "0", "eth1-1")]),
        node: Some(0),
        pci: Some("0000:01:00.0".into()),
        steering: vec![("rx-0".into(), "0000,00000000".into())],
        host_use: Some("the host's default route".into()),
    }
}

fn machine(has_huge_pages: bool) -> Machine {
    let (cores, nodes) = ((0..8).collect(), vec![(0, (0..8).collect())]);
    Machine { has_huge_pages, may_open: Ok(()), cores, nodes, has_iommu: true }
}

#[test]
fn each_obstacle_has_a_command_that_removes_it() {
    let of = Interface::of(&card(), &machine(false));
    let commands: Vec<_> = of.obstacles.iter().map(|found| &*found.command).collect();
    for command in [
        "ip link set dev eth1 up",
        "force = true in the port",
        "ethtool -K eth1 lro off",
        "ethtool -K eth1 gro on",
        "ethtool -K eth1 rxvlan off",
        "ethtool -L eth1 combined 8",
        "ethtool -G eth1 rx 8192",
        "ethtool -K eth1 tx on",
        "ethtool -K eth1 tso on",
        "echo 1 > /proc/irq/41/smp_affinity_list",
        "echo ff > /sys/class/net/eth1/queues/rx-0/rps_cpus",
        "sysctl vm.nr_hugepages=64, and huge_pages = true in [memory]",
    ] {
        assert!(commands.contains(&command), "{command}: {commands:?}");
    }
    assert_eq!(commands.len(), 12);
    let mended = Inspected {
        link: Some(Link { up: Some(true), carrier: Some(true), ..Link::default() }),
        queues: Some(Setting { now: 8, most: 63 }),
        receive_ring: Some(Setting { now: 8192, most: 8192 }),
        offloads: Offloads {
            lro: Some(false),
            gro: Some(true),
            vlan: Some(false),
            idle: Vec::new(),
        },
        interrupts: interrupts(&[(40, "0", ""), (41, "1", "")]),
        steering: vec![("rx-0".into(), "00".into()), ("rx-1".into(), "00".into())],
        host_use: None,
        ..card()
    };
    assert!(Interface::of(&mended, &machine(true)).obstacles.is_empty());
}

#[test]
fn modes_are_those_of_the_driver_and_the_machine() {
    let can = |found: &Inspected, machine: &Machine| -> Vec<_> {
        modes(found, machine).iter().map(|mode| mode.available).collect()
    };
    let (yes, no) = (Some(true), Some(false));
    let dpdk = Some(HAS_DPDK);
    assert_eq!(can(&card(), &machine(true)), [yes, yes, yes, yes, dpdk]);
    assert_eq!(can(&card(), &machine(false)), [yes, yes, yes, no, dpdk]);
    let unknown = Inspected { xdp: None, ..card() };
    assert_eq!(can(&unknown, &machine(true)), [yes, yes, None, None, dpdk]);
    let tap = Inspected { is_tap: true, ..unknown };
    assert_eq!(can(&tap, &machine(true)).len(), 6);
    let tunnel = Inspected { is_ethernet: false, ..card() };
    assert_eq!(can(&tunnel, &machine(true)), [no; 5]);
    let refused = Machine { may_open: Err("no".into()), ..machine(true) };
    assert_eq!(can(&card(), &refused), [no; 5]);
    assert_eq!(modes(&card(), &refused)[0].detail, "not permitted: no");
}

/// The commands that mend how the interrupts and the packets of a NIC are spread.
fn spread(found: &Inspected, machine: &Machine) -> Vec<String> {
    let all = Interface::of(found, machine).obstacles.into_iter();
    let of = |command: &String| command.starts_with("echo") || command.starts_with("taskset");
    all.map(|obstacle| obstacle.command).filter(of).collect()
}

#[test]
fn interrupts_of_received_packets_are_spread_over_the_cores_near_to_the_device() {
    let steering = vec![("rx-0".into(), "0".into()), ("rx-1".into(), "0".into())];
    let found = |list: &[(u32, &str, &str)], node| Inspected {
        interrupts: interrupts(list),
        node,
        steering: steering.clone(),
        ..card()
    };
    let nodes = vec![(0, vec![0, 1, 2, 3]), (1, vec![4, 5, 6, 7])];
    let machine = Machine { nodes, ..machine(true) };
    // Three queues on two cores; the interrupts of changes and of sending do not count.
    let virtio = [
        (24, "0", "virtio0-config"),
        (25, "0", "virtio0-input.0"),
        (26, "3", "virtio0-output.0"),
        (27, "1", "virtio0-input.1"),
        (28, "1", "virtio0-input.2"),
    ];
    let expected = ["echo 2 > /proc/irq/28/smp_affinity_list"];
    assert_eq!(spread(&found(&virtio, Some(0)), &machine), expected);
    // Each on a core of its own, at the other node.
    let far = [(40, "0", "eth1-0"), (41, "1", "eth1-1")];
    let expected =
        ["echo 4 > /proc/irq/40/smp_affinity_list; echo 5 > /proc/irq/41/smp_affinity_list"];
    assert_eq!(spread(&found(&far, Some(1)), &machine), expected);
    assert_eq!(spread(&found(&far, None), &machine), [""; 0]);
    // The kernel picks cores itself, and one queue needs one core.
    assert_eq!(spread(&found(&[(40, "0-3", ""), (41, "0-3", "")], Some(0)), &machine), [""; 0]);
    assert_eq!(spread(&found(&[(40, "2", "")], Some(0)), &machine), [""; 0]);
    let few = Machine { cores: vec![0, 1], ..machine };
    let expected = "taskset -c 4-7 thalweg run CHAIN, and cores = \"4-7\" in [run]";
    assert_eq!(spread(&found(&far, Some(1)), &few), [expected]);
}

#[test]
fn masks_are_those_of_the_permitted_cores_in_words() {
    assert_eq!(mask(&[0, 1, 5]), "23");
    assert_eq!(mask(&[33, 1]), "2,00000002");
    assert_eq!(mask(&[95]), "80000000,00000000,00000000");
    let few = Machine { cores: vec![2, 40], ..machine(true) };
    let command = "echo 100,00000004 > /sys/class/net/eth1/queues/rx-0/rps_cpus";
    assert!(spread(&card(), &few).contains(&command.to_owned()));
}

#[test]
fn dpdk_needs_a_driver_that_leaves_devices_to_programs() {
    let found = Inspected { driver: Some("ixgbe".into()), ..card() };
    let (can, detail) = of_dpdk(&found, &machine(true));
    assert!(!can && detail.contains("dpdk-devbind.py --bind=vfio-pci 0000:01:00.0"), "{detail}");
    assert!(!detail.contains("noiommu"), "{detail}");
    let bare = Machine { has_iommu: false, ..machine(true) };
    assert!(of_dpdk(&found, &bare).1.contains("enable_unsafe_noiommu_mode"));
    let veth = Inspected { pci: None, ..found };
    assert!(of_dpdk(&veth, &bare).1.starts_with("net_af_packet0,iface=eth1"));
}
