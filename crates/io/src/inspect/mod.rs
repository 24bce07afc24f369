//! What the network interfaces of this machine can do, for `thalweg doctor`.

mod ethtool;
mod features;

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::net::{AddressFamily, SocketType};

pub use ethtool::{Offloads, Setting};
pub use features::XdpFeatures;

use crate::host;
use crate::interface::{driver, index_of, link_of};
use crate::kind::Link;

/// Where the kernel reports interfaces.
const INTERFACES: &str = "/sys/class/net";

/// A network interface, as far as the system reports it.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// Its name.
    pub name: String,
    /// Its driver: `veth`, `mlx5_core`.
    pub driver: Option<String>,
    /// Whether its link is Ethernet, or the loopback.
    pub is_ethernet: bool,
    /// Whether it is the end of a TAP device.
    pub is_tap: bool,
    /// The state of its link.
    pub link: Option<Link>,
    /// Its pairs of queues.
    pub queues: Option<Setting>,
    /// The slots of each receive ring.
    pub receive_ring: Option<Setting>,
    /// The work that the driver or the kernel does on received packets.
    pub offloads: Offloads,
    /// What its driver can do with XDP; unknown before Linux 6.3.
    pub xdp: Option<XdpFeatures>,
    /// Its interrupts, and the cores that each goes to: `0-3`.
    pub interrupts: Vec<(u32, String)>,
    /// Its receive queues, and the mask of the cores to which the kernel passes packets on (RPS).
    pub steering: Vec<(String, String)>,
    /// What the host has it for, so that ports that take it need `force = true`.
    pub host_use: Option<String>,
}

/// Looks at the interface `name`.
///
/// # Errors
/// If there is none, or the system permits no socket.
pub fn inspect(name: &str) -> io::Result<Inspected> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let index = index_of(name).ok_or(io::ErrorKind::NotFound)?;
    let link = link_of(name);
    // The file system may be that of another network namespace.
    let folder = link.map(|_| Path::new(INTERFACES).join(name));
    let read = |file: &str| fs::read_to_string(folder.as_ref()?.join(file)).ok();
    let kind = read("type").and_then(|text| text.trim().parse::<u16>().ok());
    let driver = driver(&socket, name).ok().filter(|driver| !driver.is_empty());
    // Ethernet and the loopback (ARPHRD_ETHER, ARPHRD_LOOPBACK); where it is unknown, opening it shows it.
    let is_ethernet = kind.is_none_or(|kind| matches!(kind, 1 | 772));
    let is_tap = driver.as_deref() == Some("tun") && is_ethernet;
    Ok(Inspected {
        name: name.to_owned(),
        is_ethernet,
        is_tap,
        link,
        queues: ethtool::channels(&socket, name),
        receive_ring: ethtool::receive_ring(&socket, name),
        offloads: ethtool::offloads(&socket, name),
        xdp: features::xdp_features(index as u32),
        interrupts: folder.as_deref().map(interrupts).unwrap_or_default(),
        steering: folder.as_deref().map(steering).unwrap_or_default(),
        host_use: host::needs(name).ok().flatten(),
        driver,
    })
}

/// The names in a folder, sorted.
fn names(folder: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The interrupts of a device, and their cores.
fn interrupts(folder: &Path) -> Vec<(u32, String)> {
    let of = |name: String| {
        let number: u32 = name.parse().ok()?;
        let file = |file: &str| fs::read_to_string(format!("/proc/irq/{number}/{file}")).ok();
        let cores = file("effective_affinity_list").or_else(|| file("smp_affinity_list"))?;
        Some((number, cores.trim().to_owned()))
    };
    names(folder.join("device/msi_irqs")).into_iter().filter_map(of).collect()
}

/// The receive queues, and the masks of their packet steering.
fn steering(folder: &Path) -> Vec<(String, String)> {
    let folder = folder.join("queues");
    let queues = names(folder.clone()).into_iter().filter(|name| name.starts_with("rx-"));
    let of = |name: String| {
        let mask = fs::read_to_string(folder.join(&name).join("rps_cpus")).ok()?;
        Some((name, mask.trim().to_owned()))
    };
    queues.filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_an_interface_of_the_kernel_and_another_is_none() {
        let lo = inspect("lo").unwrap();
        assert!(lo.is_ethernet && !lo.is_tap && lo.interrupts.is_empty(), "{lo:?}");
        assert_eq!(lo.host_use, None);
        assert_eq!(inspect("nowhere0").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
