//! What each network interface can do, what it would gain, and what stands in the way.

use std::fs;
use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_cpu::cores;
use thalweg_io::{HAS_DPDK, Inspected, Interrupt, Setting};
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
    /// The memory node that its device is at (NUMA); absent if it is at none.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_node: Option<u32>,
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
    /// The cores that this program may use, in order; at least one.
    pub(super) cores: Vec<u32>,
    /// The cores of each memory node.
    pub(super) nodes: Vec<(u32, Vec<u32>)>,
    /// Whether the kernel uses an IOMMU.
    pub(super) has_iommu: bool,
}

impl Machine {
    fn core_count(&self) -> u32 {
        u32::try_from(self.cores.len()).unwrap_or(u32::MAX)
    }

    /// The cores near to a device: those of its memory node that this program may use; all if there are
    /// none.
    fn near(&self, node: Option<u32>) -> Vec<u32> {
        let of = self.nodes.iter().find(|(number, _)| Some(*number) == node);
        let is_near = |core: &u32| of.is_some_and(|(_, cores)| cores.contains(core));
        let near: Vec<_> = self.cores.iter().copied().filter(is_near).collect();
        if near.is_empty() { self.cores.clone() } else { near }
    }
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
            memory_node: found.node,
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
    let (can_dpdk, of_dpdk) = of_dpdk(found, machine);
    let gain = match &found.pci {
        Some(_) => "no kernel on the way, and no copy",
        None => "nothing over 'interface': the driver copies packets of a packet socket",
    };
    modes.push(mode("dpdk", Some(can_dpdk), &of_dpdk, gain));
    modes
}

/// Whether DPDK can have an interface at this moment, and what is needed for that.
fn of_dpdk(found: &Inspected, machine: &Machine) -> (bool, String) {
    let Some(address) = &found.pci else {
        let device = format!("net_af_packet0,iface={}", found.name);
        return if HAS_DPDK {
            (true, device)
        } else {
            (false, format!("{device}, in a build with the feature dpdk"))
        };
    };
    let driver = found.driver.as_deref().unwrap_or("none");
    // Their drivers in DPDK leave the interface to the kernel.
    if matches!(driver, "mlx4_en" | "mlx5_core" | "mana") {
        let detail = format!("{address}, with the kernel's driver {driver}");
        return (HAS_DPDK, detail);
    }
    let mut detail = format!(
        "{address} is bound to {driver}, and not to vfio-pci: modprobe vfio-pci && dpdk-devbind.py \
         --bind=vfio-pci {address}; the kernel has no {} then",
        found.name
    );
    if !machine.has_iommu {
        detail += "; there is no IOMMU: modprobe vfio enable_unsafe_noiommu_mode=1 first, and the \
                   device can write to any memory";
    }
    (false, detail)
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
    for work in &found.offloads.idle {
        let (what, gain) = of_offload(work);
        add(what.into(), gain, format!("ethtool -K {name} {work} on"));
    }
    // A veth has the flag, and never takes it.
    let is_hardware = !found.interrupts.is_empty();
    if found.offloads.vlan == Some(true) && is_hardware {
        let what = "the hardware strips VLAN tags, which 'xdp' ports do not see".into();
        add(what, "VLAN tags in 'xdp' ports", format!("ethtool -K {name} rxvlan off"));
    }
    if let Some(queues) = found.queues {
        of_queues(name, queues, machine.core_count(), &mut add);
    }
    if let Some(Setting { now, most }) = found.receive_ring.filter(|ring| ring.now < ring.most) {
        let what = format!("its receive rings have {now} of {most} slots");
        add(what, "fewer losses in bursts", format!("ethtool -G {name} rx {most}"));
    }
    of_interrupts(found, machine, &mut add);
    of_steering(found, &machine.cores, &mut add);
    of_node(found, machine, &mut add);
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

/// What is off of the work that the driver or the kernel can do, and what it gains.
fn of_offload(work: &str) -> (&'static str, &'static str) {
    match work {
        "tx" => {
            ("checksums of sent packets are not left to it (tx)", "less work for each packet sent")
        }
        "rx" => ("it checks no checksums of received packets (rx)", "less work for the kernel"),
        "tso" => {
            ("TSO is off", "super-packets that 'interface' ports send, segmented by the hardware")
        }
        _ => ("GSO is off", "super-packets of hosts on this machine, which stay whole"),
    }
}

/// Those of the interrupts that received packets cause: as far as their names show it, not those of sending,
/// and of changes of the device.
fn of_receipt(interrupts: &[Interrupt]) -> Vec<&Interrupt> {
    const OTHERS: [&str; 8] =
        ["config", "control", "output", "async", "-tx-", "misc", "mgmt", "pages"];
    let is_other = |name: &str| OTHERS.iter().any(|other| name.contains(other));
    let named = interrupts.iter().filter(|one| !one.name.is_empty() && !is_other(&one.name));
    let named: Vec<_> = named.collect();
    if named.is_empty() { interrupts.iter().collect() } else { named }
}

/// Interrupts of several queues that go to fewer cores than they could, or to cores far from the device.
fn of_interrupts(found: &Inspected, machine: &Machine, add: &mut Add<'_>) {
    let near = machine.near(found.node);
    let interrupts = of_receipt(&found.interrupts);
    // Where the kernel picks one of several cores, it spreads them itself.
    let one_core = |one: &&Interrupt| one.cores.parse::<u32>().ok();
    let Some(at) = interrupts.iter().map(one_core).collect::<Option<Vec<_>>>() else { return };
    let mut used = at.clone();
    used.sort_unstable();
    used.dedup();
    let wanted = interrupts.len().min(near.len());
    let is_far = found.node.is_some()
        && near.len() < machine.cores.len()
        && used.iter().any(|core| !near.contains(core) && machine.cores.contains(core));
    let what = if used.len() < wanted {
        let (count, cores) = (interrupts.len(), cores::as_text(&used));
        format!("{count} interrupts of received packets go to core {cores}, of {wanted} that could")
    } else if is_far {
        let cores = cores::as_text(&used);
        let node = found.node.unwrap_or_default();
        format!("its interrupts go to core {cores}, and its device is at memory node {node}")
    } else {
        return;
    };
    let wanted = interrupts.iter().zip(near.iter().cycle()).zip(&at);
    let moved = wanted.filter(|((_, core), at)| core != at);
    let commands = moved.map(|((one, core), _)| {
        format!("echo {core} > /proc/irq/{}/smp_affinity_list", one.number)
    });
    let command = commands.collect::<Vec<_>>().join("; ");
    add(what, "the work of its queues on several cores, near to its device", command);
}

/// A device at a memory node where this program may use no core.
fn of_node(found: &Inspected, machine: &Machine, add: &mut Add<'_>) {
    let of = machine.nodes.iter().find(|(number, _)| Some(*number) == found.node);
    let Some((node, there)) = of.filter(|(_, there)| !there.is_empty()) else { return };
    if machine.nodes.len() < 2 || there.iter().any(|core| machine.cores.contains(core)) {
        return;
    }
    let list = cores::as_text(there);
    let what = format!("its device is at memory node {node}, where this program may use no core");
    let command = format!("taskset -c {list} thalweg run CHAIN, and cores = \"{list}\" in [run]");
    add(what, "packets in memory near to the device", command);
}

/// The mask of cores as the kernel reads it: words of 32 bits in hexadecimal, the highest first.
fn mask(cores: &[u32]) -> String {
    let highest = cores.iter().max().map_or(0, |core| core / 32);
    let word = |at: u32| {
        let of = cores.iter().filter(|core| *core / 32 == at);
        of.fold(0u32, |word, core| word | 1 << (core % 32))
    };
    let rest = (0..highest).rev().map(|at| format!(",{:08x}", word(at)));
    std::iter::once(format!("{:x}", word(highest))).chain(rest).collect()
}

/// One receive queue whose packets the kernel does not spread.
fn of_steering(found: &Inspected, cores: &[u32], add: &mut Add<'_>) {
    let is_none = |mask: &str| mask.bytes().all(|byte| matches!(byte, b'0' | b','));
    match &*found.steering {
        [(queue, present)] if is_none(present) && cores.len() > 1 && !found.is_tap => {
            let what =
                "its one receive queue has the kernel's work on one core (RPS is off)".into();
            let (mask, name) = (mask(cores), &found.name);
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

/// The cores that this program may use.
pub(super) fn permitted() -> Vec<u32> {
    let cores = cores::permitted();
    if cores.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        return (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
    }
    cores.to_vec()
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
        let mut parts = vec![driver, interface.link.clone()];
        parts.extend(interface.memory_node.map(|node| format!("at memory node {node}")));
        writeln!(out, "\n{}", wrapped(&lead, parts, ", ", columns()))?;
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
mod tests;
