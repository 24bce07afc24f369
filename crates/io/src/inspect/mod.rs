//! What the network interfaces of this machine can do, for `thalweg doctor`.

mod ethtool;
mod features;
mod sysfs;

use std::path::Path;
use std::{fs, io};

use rustix::net::{AddressFamily, SocketType};

pub use ethtool::{Offloads, Setting};
pub use features::XdpFeatures;
pub use sysfs::{Interrupt, PciDevice, has_iommu, pci_network_devices};

use crate::host;
use crate::interface::{driver, index_of, link_of};
use crate::kind::Link;

/// Where the kernel reports interfaces.
const INTERFACES: &str = "/sys/class/net";
/// Where it reports interrupts.
const IRQS: &str = "/proc/irq";

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
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
    /// The memory node that its device is at (NUMA); `None` if it is at none.
    pub node: Option<u32>,
    /// The PCI address of its device.
    pub pci: Option<String>,
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
        interrupts: folder.as_deref().map(|at| sysfs::interrupts(at, IRQS)).unwrap_or_default(),
        node: folder.as_deref().and_then(sysfs::node),
        pci: folder.as_deref().and_then(sysfs::pci_address),
        steering: folder.as_deref().map(sysfs::steering).unwrap_or_default(),
        host_use: host::needs(name).ok().flatten(),
        driver,
    })
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
