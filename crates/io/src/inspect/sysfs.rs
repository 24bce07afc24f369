//! What the kernel reports of devices as files, below `/sys` and `/proc/irq`.

use std::fs;
use std::path::{Path, PathBuf};

/// An interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The cores that it goes to: `0-3`.
    pub cores: String,
    /// What its driver calls it, such as `virtio0-input.0`; empty while the driver does not use it.
    pub name: String,
}

/// A network device on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// Its address: `0000:01:00.0`.
    pub address: String,
    /// The driver that it is bound to.
    pub driver: Option<String>,
    /// Whether an IOMMU translates its addresses, so that `vfio-pci` is safe.
    pub has_iommu: bool,
}

impl PciDevice {
    /// Whether it is bound to a driver by which programs have devices.
    pub fn is_for_programs(&self) -> bool {
        matches!(self.driver.as_deref(), Some("vfio-pci" | "uio_pci_generic" | "igb_uio"))
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn text(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

/// The device of an interface, and the one that it is a function of: a virtio device has its PCI device
/// above it.
fn devices(interface: &Path) -> impl Iterator<Item = PathBuf> {
    let device = fs::canonicalize(interface.join("device")).ok();
    let parent = device.as_deref().and_then(Path::parent).map(Path::to_owned);
    device.into_iter().chain(parent)
}

/// The interrupts of the device of an interface, as the folder `irqs` has them.
pub(super) fn interrupts(interface: &Path, irqs: &str) -> Vec<Interrupt> {
    let of = |number: String| {
        let folder = Path::new(irqs).join(&number);
        let list = |name: &str| text(&folder.join(name)).filter(|cores| !cores.is_empty());
        let cores = list("effective_affinity_list").or_else(|| list("smp_affinity_list"))?;
        // The folder has one of the name of each handler.
        let name = names(&folder).into_iter().find(|name| folder.join(name).is_dir());
        Some(Interrupt { number: number.parse().ok()?, cores, name: name.unwrap_or_default() })
    };
    let numbers = devices(interface).map(|device| names(&device.join("msi_irqs")));
    let numbers = numbers.into_iter().find(|numbers| !numbers.is_empty()).unwrap_or_default();
    let mut all: Vec<_> = numbers.into_iter().filter_map(of).collect();
    all.sort_by_key(|one| one.number);
    all
}

/// The memory node that the device of an interface is at.
pub(super) fn node(interface: &Path) -> Option<u32> {
    // -1 where there is none.
    devices(interface).find_map(|device| text(&device.join("numa_node"))?.parse().ok())
}

/// The PCI address of the device of an interface.
pub(super) fn pci_address(interface: &Path) -> Option<String> {
    let is_pci = |device: &Path| {
        let bus = fs::canonicalize(device.join("subsystem")).ok();
        bus.is_some_and(|bus| bus.file_name().is_some_and(|name| name == "pci"))
    };
    let device = devices(interface).find(|device| is_pci(device))?;
    device.file_name()?.to_str().map(str::to_owned)
}

/// The receive queues, and the masks of their packet steering.
pub(super) fn steering(interface: &Path) -> Vec<(String, String)> {
    let folder = interface.join("queues");
    let queues = names(&folder).into_iter().filter(|name| name.starts_with("rx-"));
    queues
        .filter_map(|name| Some((name.clone(), text(&folder.join(name).join("rps_cpus"))?)))
        .collect()
}

/// The network devices on the PCI bus.
pub fn pci_network_devices() -> Vec<PciDevice> {
    network_devices(Path::new("/sys/bus/pci/devices"))
}

fn network_devices(folder: &Path) -> Vec<PciDevice> {
    // Class 0x02: network controllers.
    let is_network = |address: &String| {
        let class = text(&folder.join(address).join("class"));
        class.is_some_and(|class| class.starts_with("0x02"))
    };
    let of = |address: String| {
        let device = folder.join(&address);
        let driver = fs::read_link(device.join("driver")).ok();
        let driver = driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let has_iommu = device.join("iommu_group").exists();
        PciDevice { address, driver, has_iommu }
    };
    names(folder).into_iter().filter(is_network).map(of).collect()
}

/// Whether this machine has an IOMMU that the kernel uses.
pub fn has_iommu() -> bool {
    !names(Path::new("/sys/class/iommu")).is_empty()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A made-up `/sys` and `/proc/irq`, with a virtio interface of two queues, and a NIC for programs.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let write = |path: &str, content: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), content).unwrap();
        };
        let card = "devices/pci0000:00/0000:00:03.0";
        for irq in [24, 25, 26] {
            write(&format!("{card}/msi_irqs/{irq}"), "msix\n");
        }
        write(&format!("{card}/numa_node"), "1\n");
        write(&format!("{card}/class"), "0x020000\n");
        fs::create_dir_all(at(&format!("{card}/virtio0/net/eth0/queues/rx-0"))).unwrap();
        fs::create_dir_all(at(&format!("{card}/iommu_group"))).unwrap();
        write(&format!("{card}/virtio0/net/eth0/queues/rx-0/rps_cpus"), "0\n");
        let link = |target: &str, name: &str| {
            fs::create_dir_all(at(target)).unwrap();
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            symlink(at(target), at(name)).unwrap();
        };
        link("bus/virtio", &format!("{card}/virtio0/subsystem"));
        link("bus/pci", &format!("{card}/subsystem"));
        link(&format!("{card}/virtio0"), &format!("{card}/virtio0/net/eth0/device"));
        link("bus/pci/drivers/virtio-pci", &format!("{card}/driver"));
        let other = "devices/pci0000:00/0000:00:04.0";
        write(&format!("{other}/class"), "0x020000\n");
        link("bus/pci/drivers/vfio-pci", &format!("{other}/driver"));
        write("devices/pci0000:00/0000:00:05.0/class", "0x010000\n");
        for device in [card, other, "devices/pci0000:00/0000:00:05.0"] {
            let name = device.rsplit('/').next().unwrap();
            link(device, &format!("bus/pci/devices/{name}"));
        }
        for (irq, name) in [(24, "virtio0-config"), (25, "virtio0-input.0"), (26, "")] {
            fs::create_dir_all(at(&format!("irq/{irq}/{name}"))).unwrap();
            write(&format!("irq/{irq}/smp_affinity_list"), "0-3\n");
        }
        write("irq/25/effective_affinity_list", "2\n");
        write("irq/26/effective_affinity_list", "\n");
        folder
    }

    #[test]
    fn the_device_of_a_virtio_interface_is_above_it() {
        let folder = tree();
        let eth0 = folder.path().join("devices/pci0000:00/0000:00:03.0/virtio0/net/eth0");
        let found = interrupts(&eth0, folder.path().join("irq").to_str().unwrap());
        let found: Vec<_> = found.iter().map(|i| (i.number, &*i.cores, &*i.name)).collect();
        let expected =
            [(24, "0-3", "virtio0-config"), (25, "2", "virtio0-input.0"), (26, "0-3", "")];
        assert_eq!(found, expected);
        assert_eq!((node(&eth0), pci_address(&eth0).as_deref()), (Some(1), Some("0000:00:03.0")));
        assert_eq!(steering(&eth0), [("rx-0".to_owned(), "0".to_owned())]);
        let none = folder.path().join("nowhere");
        assert_eq!((node(&none), pci_address(&none)), (None, None));
    }

    #[test]
    fn network_devices_have_drivers_and_iommus() {
        let found = network_devices(&tree().path().join("bus/pci/devices"));
        let of = |device: &PciDevice| {
            (device.address.clone(), device.is_for_programs(), device.has_iommu)
        };
        let expected = [("0000:00:03.0".into(), false, true), ("0000:00:04.0".into(), true, false)];
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expected);
        assert_eq!(found[0].driver.as_deref(), Some("virtio-pci"));
    }
}
