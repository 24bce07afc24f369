//! What each network interface can do, what it would gain, and what stands in the way.

use std::fs;
use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_cpu::cores;
use thalweg_io::{Inspected, Setting};
use thalweg_source::visible;

use crate::report::{columns, plain_table, wrapped};

/// A network interface.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Interface {
    /// Its name.
    name: String,
    /// Its driver; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    /// The state of its link, in words.
    link: String,
    /// The kinds of ports that can have it, and how.
    modes: Vec<Mode>,
    /// What stands in the way, and how to mend it.
    obstacles: Vec<Obstacle>,
}

/// A way to receive and send packets by an interface.
#[derive(Debug, Serialize, JsonSchema)]
struct Mode {
    /// The keys of a port that request it: `interface`, `xdp, mode = "copy"`.
    port: &'static str,
    /// Whether the interface can do it; absent if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<bool>,
    /// Why, or what it needs.
    detail: String,
    /// What it gains.
    gain: &'static str,
}

/// Something that makes an interface slower than it could be, or that a port cannot have.
#[derive(Debug, Serialize, JsonSchema)]
struct Obstacle {
    /// What it is.
    what: String,
    /// What its removal gains.
    gain: &'static str,
    /// The command that removes it; or what to write in the chain file.
    command: String,
}

/// What this machine has in addition to its interfaces.
pub(super) struct Machine {
    /// Whether there are free huge pages.
    pub(super) has_huge_pages: bool,
    /// Whether the system permits to open interfaces.
    pub(super) may_open: Result<(), String>,
    /// The cores that this program may use.
    pub(super) cores: u32,
}

/// All interfaces but the loopback.
pub(super) fn interfaces(machine: &Machine) -> Vec<Interface> {
    let mut names = thalweg_io::interfaces();
    names.retain(|name| name != "lo");
    // One may be removed meanwhile.
    let found = names.iter().filter_map(|name| thalweg_io::inspect(name).ok());
    found.map(|found| Interface::of(&found, machine)).collect()
}

impl Interface {
    fn of(found: &Inspected, machine: &Machine) -> Self {
        let link = found.link.map(|link| link.to_string()).filter(|text| !text.is_empty());
        Self {
            name: found.name.clone(),
            driver: found.driver.clone(),
            link: link.unwrap_or_else(|| "state unknown".into()),
            modes: modes(found, machine),
            obstacles: obstacles(found, machine),
        }
    }
}

/// The kinds of ports that can have an interface.
fn modes(found: &Inspected, machine: &Machine) -> Vec<Mode> {
    let refused = machine.may_open.as_ref().err();
    let not_ethernet = (!found.is_ethernet).then(|| "its link is not Ethernet".to_owned());
    let obstacle = not_ethernet.or_else(|| refused.map(|why| format!("not permitted: {why}")));
    let mode = |port, available, detail: &str, gain| {
        let detail = obstacle.clone().unwrap_or_else(|| detail.to_owned());
        Mode { port, available: obstacle.as_ref().map_or(available, |_| Some(false)), detail, gain }
    };
    let redirects = found.xdp.map(|xdp| xdp.redirects);
    let of_driver = match redirects {
        Some(true) => "its driver runs XDP programs",
        Some(false) => "its driver has no XDP",
        None => "unknown: the kernel reports it since Linux 6.3",
    };
    let (zero_copy, of_zero_copy) = match found.xdp.map(|xdp| xdp.zero_copy) {
        Some(true) if machine.has_huge_pages => (Some(true), "its driver and huge pages"),
        Some(true) => (Some(false), "its driver can; there are no free huge pages"),
        Some(false) => (Some(false), "its driver cannot"),
        None => (None, "unknown: the kernel reports it since Linux 6.3"),
    };
    let mut modes = vec![
        mode(
            "interface",
            Some(true),
            "packet sockets",
            "super-packets; the kernel keeps its packets",
        ),
        mode("xdp, mode = \"generic\"", Some(true), "by the kernel's network stack", "any driver"),
        mode("xdp, mode = \"copy\"", redirects, of_driver, "no network stack on the way"),
        mode("xdp, mode = \"zero-copy\"", zero_copy, of_zero_copy, "no copy at all"),
    ];
    if found.is_tap {
        let detail = "its other end, unless another program has it";
        modes.push(mode("tap", Some(true), detail, "the host's own traffic"));
    }
    modes
}

/// What stands in the way.
fn obstacles(found: &Inspected, machine: &Machine) -> Vec<Obstacle> {
    let name = &*found.name;
    let mut all = Vec::new();
    let mut add = |what: String, gain, command: String| all.push(Obstacle { what, gain, command });
    let link = found.link.unwrap_or_default();
    if link.up == Some(false) {
        add("it is down".into(), "packets", format!("ip link set dev {name} up"));
    }
    if link.carrier == Some(false) {
        let command =
            if found.is_tap { "start what has its other end" } else { "connect its peer" };
        add("it has no carrier".into(), "packets", command.into());
    }
    if let Some(use_) = &found.host_use {
        let what = format!("it has {use_}");
        add(what, "outputs and xdp ports, at your own risk", "force = true in the port".into());
    }
    if found.offloads.lro == Some(true) {
        let gain = "packets that can be forwarded as they were";
        add("LRO merges packets".into(), gain, format!("ethtool -K {name} lro off"));
    }
    if found.offloads.gro == Some(false) {
        let gain = "super-packets for 'interface' ports, so fewer packets";
        add("GRO is off".into(), gain, format!("ethtool -K {name} gro on"));
    }
    // A veth has the flag, and never takes it.
    let is_hardware = !found.interrupts.is_empty();
    if found.offloads.vlan == Some(true) && is_hardware {
        let what = "the hardware strips VLAN tags, which 'xdp' ports do not see".into();
        add(what, "VLAN tags in 'xdp' ports", format!("ethtool -K {name} rxvlan off"));
    }
    if let Some(queues) = found.queues {
        of_queues(name, queues, machine.cores, &mut add);
    }
    if let Some(Setting { now, most }) = found.receive_ring.filter(|ring| ring.now < ring.most) {
        let what = format!("its receive rings have {now} of {most} slots");
        add(what, "fewer losses in bursts", format!("ethtool -G {name} rx {most}"));
    }
    of_interrupts(found, machine.cores, &mut add);
    of_steering(found, machine.cores, &mut add);
    let can_zero_copy = found.xdp.is_some_and(|xdp| xdp.zero_copy);
    if can_zero_copy && !machine.has_huge_pages {
        let command = "sysctl vm.nr_hugepages=64, and huge_pages = true in [memory]".into();
        add("there are no free huge pages".into(), "mode = \"zero-copy\"", command);
    }
    all
}

type Add<'a> = dyn FnMut(String, &'static str, String) + 'a;

/// Fewer queues than cores, though the driver has more.
fn of_queues(name: &str, Setting { now, most }: Setting, cores: u32, add: &mut Add<'_>) {
    let wanted = most.min(cores);
    if now < wanted {
        let what = format!("{now} of its {most} queues are in use, for {cores} cores");
        add(what, "a core more for each queue", format!("ethtool -L {name} combined {wanted}"));
    }
}

/// Interrupts of several queues that all go to one core.
fn of_interrupts(found: &Inspected, cores: u32, add: &mut Add<'_>) {
    let [(first, core), rest @ ..] = &*found.interrupts else { return };
    let is_one = core.parse::<u32>().is_ok();
    if cores < 2 || rest.is_empty() || !is_one || rest.iter().any(|(_, other)| other != core) {
        return;
    }
    let last = rest.last().map_or(first, |(number, _)| number);
    let what = format!("its interrupts {first} to {last} all go to core {core}");
    let command = "echo CORE > /proc/irq/NUMBER/smp_affinity_list, for each; or irqbalance".into();
    add(what, "the work of its queues on several cores", command);
}

/// One receive queue whose packets the kernel does not spread.
fn of_steering(found: &Inspected, cores: u32, add: &mut Add<'_>) {
    let is_none = |mask: &str| mask.bytes().all(|byte| matches!(byte, b'0' | b','));
    match &*found.steering {
        [(queue, mask)] if is_none(mask) && cores > 1 && !found.is_tap => {
            let what =
                "its one receive queue has the kernel's work on one core (RPS is off)".into();
            let mask = format!("{:x}", (1_u128 << cores.min(64)) - 1);
            let name = &found.name;
            let command = format!("echo {mask} > /sys/class/net/{name}/queues/{queue}/rps_cpus");
            add(what, "that work on several cores, for 'interface' ports", command);
        }
        [_, _, ..] => {
            if let Some((queue, _)) = found.steering.iter().find(|(_, mask)| !is_none(mask)) {
                let what = format!("RPS spreads the packets of {queue} again");
                let command =
                    format!("echo 0 > /sys/class/net/{}/queues/{queue}/rps_cpus", found.name);
                add(what, "no interrupts between cores", command);
            }
        }
        _ => {}
    }
}

/// The number of cores that this program may use.
pub(super) fn permitted() -> u32 {
    let cores = cores::permitted().len();
    u32::try_from(cores).unwrap_or(u32::MAX).max(1)
}

/// The governors that set the clocks of the permitted cores; empty where the kernel sets none.
pub(super) fn governors() -> Vec<String> {
    let of = |core: &u32| {
        let file = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
        fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
    };
    let mut all: Vec<_> = cores::permitted().iter().filter_map(of).collect();
    all.sort();
    all.dedup();
    all
}

/// Writes interfaces as text.
pub(super) fn show(out: &mut impl Write, interfaces: &[Interface]) -> io::Result<()> {
    for interface in interfaces {
        let lead = format!("interface {}: ", visible(&interface.name));
        let driver = visible(interface.driver.as_deref().unwrap_or("no driver")).into_owned();
        writeln!(out, "\n{}", wrapped(&lead, [&driver, &interface.link], ", ", columns()))?;
        let mut table = plain_table(&["port", "can", "because", "what it gains"]);
        for Mode { port, available, detail, gain } in &interface.modes {
            let can = available.map_or("?", |available| if available { "yes" } else { "no" });
            table.add_row([*port, can, detail, *gain]);
        }
        writeln!(out, "{table}")?;
        if interface.obstacles.is_empty() {
            continue;
        }
        let mut table = plain_table(&["in the way", "what mending it gains", "by"]);
        for Obstacle { what, gain, command } in &interface.obstacles {
            table.add_row([&**what, *gain, command]);
        }
        writeln!(out, "{table}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use thalweg_io::{Offloads, XdpFeatures, kind::Link};

    use super::*;

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
            offloads: Offloads { lro: Some(true), gro: Some(false), vlan: Some(true) },
            xdp: Some(XdpFeatures { redirects: true, zero_copy: true }),
            interrupts: vec![(40, "0".into()), (41, "0".into())],
            steering: vec![("rx-0".into(), "0000,00000000".into())],
            host_use: Some("the host's default route".into()),
        }
    }

    fn machine(has_huge_pages: bool) -> Machine {
        Machine { has_huge_pages, may_open: Ok(()), cores: 8 }
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
            "echo CORE > /proc/irq/NUMBER/smp_affinity_list, for each; or irqbalance",
            "echo ff > /sys/class/net/eth1/queues/rx-0/rps_cpus",
            "sysctl vm.nr_hugepages=64, and huge_pages = true in [memory]",
        ] {
            assert!(commands.contains(&command), "{command}: {commands:?}");
        }
        assert_eq!(commands.len(), 10);
        let mended = Inspected {
            link: Some(Link { up: Some(true), carrier: Some(true), ..Link::default() }),
            queues: Some(Setting { now: 8, most: 63 }),
            receive_ring: Some(Setting { now: 8192, most: 8192 }),
            offloads: Offloads { lro: Some(false), gro: Some(true), vlan: Some(false) },
            interrupts: vec![(40, "0".into()), (41, "1".into())],
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
        assert_eq!(can(&card(), &machine(true)), [yes, yes, yes, yes]);
        assert_eq!(can(&card(), &machine(false)), [yes, yes, yes, no]);
        let unknown = Inspected { xdp: None, ..card() };
        assert_eq!(can(&unknown, &machine(true)), [yes, yes, None, None]);
        let tap = Inspected { is_tap: true, ..unknown };
        assert_eq!(can(&tap, &machine(true)).len(), 5);
        let tunnel = Inspected { is_ethernet: false, ..card() };
        assert_eq!(can(&tunnel, &machine(true)), [no, no, no, no]);
        let refused = Machine { may_open: Err("no".into()), ..machine(true) };
        assert_eq!(can(&card(), &refused), [no, no, no, no]);
        assert_eq!(modes(&card(), &refused)[0].detail, "not permitted: no");
    }
}
