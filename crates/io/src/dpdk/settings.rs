//! What a port is configured with.

use std::fs;

use crate::kind::Refusal;

/// A device of DPDK: which, and how.
///
/// An input and an output of one program with the same device share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DpdkSettings {
    pub(super) device: Device,
    /// Queues in each direction.
    pub(super) queues: u16,
    /// Descriptors of each queue.
    pub(super) descriptors: u16,
    /// The MTU in bytes; `None`: as it is.
    pub(super) mtu: Option<u16>,
    pub(super) promiscuous: bool,
    /// Whether packets of which the device finds a checksum wrong are dropped.
    pub(super) drop_bad_checksums: bool,
    /// Whether to complete checksums that a sender has left to hardware; `None`: of a veth.
    pub(super) complete_checksums: Option<bool>,
    /// How long a thread sleeps while no packets come, in microseconds; 0: it does not.
    pub(super) idle_sleep_us: u32,
    /// Whether to take an interface by which the host is reached.
    pub(super) force: bool,
}

impl DpdkSettings {
    /// The frames that its queues hold to receive into.
    pub(super) fn frames(&self) -> usize {
        usize::from(self.queues) * usize::from(self.descriptors)
    }

    /// Checks that it can have the device of `other` together with that, which messages name `named` and
    /// whose direction is the same or not.
    pub(super) fn check_device(
        &self,
        other: &Self,
        named: &str,
        same_direction: bool,
    ) -> Result<(), Refusal> {
        if same_direction {
            return Err(Refusal::taken(&["dpdk"], named, "device"));
        }
        let options: [(_, &[_]); 8] = [
            (self.device == other.device, &["dpdk"]),
            (self.queues == other.queues, &["queues"]),
            (self.descriptors == other.descriptors, &["descriptors"]),
            (self.mtu == other.mtu, &["mtu"]),
            (self.promiscuous == other.promiscuous, &["promiscuous"]),
            (self.drop_bad_checksums == other.drop_bad_checksums, &["drop_bad_checksums"]),
            (self.complete_checksums == other.complete_checksums, &["complete_checksums"]),
            (self.idle_sleep_us == other.idle_sleep_us, &["idle_sleep_us"]),
        ];
        Refusal::unless_same(&options, named, "device")
    }

    /// Of messages: `DPDK net_ring0`.
    pub(super) fn title(&self) -> String {
        format!("DPDK {}", self.device.name)
    }
}

/// A device as DPDK's options name it: a name, and arguments of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// `net_af_packet0`, or the PCI address `0000:01:00.0`.
    pub(super) name: String,
    /// The arguments in their order.
    pub(super) arguments: Vec<(String, String)>,
    pub(super) is_pci: bool,
}

/// The longest name (`RTE_DEV_NAME_MAX_LEN`, with a zero).
const LONGEST: usize = 63;

impl Device {
    /// Reads `NAME[,ARGUMENT=VALUE...]`; `None` if the name is that of no Ethernet device.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let name = parts.next()?.trim();
        let has_control = text.chars().any(char::is_control);
        let virtual_name = name.strip_prefix("net_").is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        let address = pci_address(name);
        if has_control || name.len() > LONGEST || (!virtual_name && address.is_none()) {
            return None;
        }
        let arguments = parts.map(|part| match part.split_once('=') {
            Some((key, value)) => (key.trim().to_owned(), value.trim().to_owned()),
            None => (part.trim().to_owned(), String::new()),
        });
        let is_pci = address.is_some();
        let name = address.unwrap_or_else(|| name.to_owned());
        Some(Self { name, arguments: arguments.collect(), is_pci })
    }

    /// As DPDK reads it.
    pub(super) fn text(&self) -> String {
        let arguments = self.arguments.iter().map(|(key, value)| match value.as_str() {
            "" => format!(",{key}"),
            value => format!(",{key}={value}"),
        });
        std::iter::once(self.name.clone()).chain(arguments).collect()
    }

    /// Whether its driver is this one: `net_af_packet`.
    pub(super) fn is_of(&self, driver: &str) -> bool {
        let number = self.name.strip_prefix(driver);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// The value of an argument.
    pub(super) fn argument(&self, key: &str) -> Option<&str> {
        let found = self.arguments.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// The interface of this machine that its packets pass.
    pub(super) fn interface(&self) -> Option<&str> {
        ["iface", "rx_iface", "tx_iface"].iter().find_map(|key| self.argument(key))
    }

    /// The interfaces of this machine whose packets it may take or send, and of which the kernel may have
    /// some: those that its arguments name, also those of devices within it (`net_bonding`,
    /// `net_failsafe`), and those of a PCI device whose driver shares it with DPDK.
    pub(super) fn all_interfaces(&self) -> Vec<String> {
        const KEYS: [&str; 4] = ["iface", "rx_iface", "tx_iface", "remote"];
        let named = self.arguments.iter().filter_map(|(key, value)| {
            let key = key.rsplit('(').next().unwrap_or_default();
            KEYS.contains(&key).then(|| value.trim_end_matches(')').to_owned())
        });
        let folder = self.is_pci.then(|| format!("/sys/bus/pci/devices/{}/net", self.name));
        let entries = folder.into_iter().flat_map(fs::read_dir).flatten().flatten();
        named.chain(entries.filter_map(|entry| entry.file_name().into_string().ok())).collect()
    }

    /// The same as [`interface`](Self::interface), if it must exist: the driver of TAP devices makes its own.
    pub(super) fn existing_interface(&self) -> Option<&str> {
        self.interface().filter(|_| !self.is_of("net_tap"))
    }
}

/// A PCI address with its domain; `None` if the text is none.
fn pci_address(text: &str) -> Option<String> {
    let is_number = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let (front, function) = text.split_once('.')?;
    let mut parts = front.rsplit(':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0000"));
    let is_good = parts.next().is_none()
        && is_number(domain, 4)
        && is_number(bus, 2)
        && is_number(device, 2)
        && matches!(function.as_bytes(), [b'0'..=b'7']);
    is_good.then(|| format!("{domain}:{bus}:{device}.{function}").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_virtual_ones_or_pci_addresses() {
        let device = Device::read("net_af_packet0,iface=eth1, qpairs=2,flag").unwrap();
        assert!(!device.is_pci && device.is_of("net_af_packet") && !device.is_of("net_af"));
        assert_eq!((device.name.as_str(), device.interface()), ("net_af_packet0", Some("eth1")));
        assert_eq!(device.text(), "net_af_packet0,iface=eth1,qpairs=2,flag");
        let device = Device::read("01:0A.7,a=b").unwrap();
        assert!(device.is_pci && device.interface().is_none());
        assert_eq!(device.text(), "0000:01:0a.7,a=b");
        let device = Device::read("net_tap0,iface=x").unwrap();
        assert_eq!((device.interface(), device.existing_interface()), (Some("x"), None));
        let device =
            Device::read("net_failsafe0,dev(net_af_packet0,iface=eth1),dev(x,remote=eth2)");
        assert_eq!(device.unwrap().all_interfaces(), ["eth1", "eth2"]);
        let device = Device::read("net_pcap0,rx_pcap=a,tx_iface=eth3").unwrap();
        assert_eq!(device.all_interfaces(), ["eth3"]);
        for wrong in [
            "",
            "net_",
            "eth1",
            "net_a b",
            "crypto_null0",
            "1:00.0",
            "0000:01:00.8",
            "00000:01:00.0",
            "0:0000:01:00.0",
            "01:00",
            "net_ring0\n",
            ",iface=eth1",
            "net_ring0,a=\0",
        ] {
            assert_eq!(Device::read(wrong), None, "{wrong:?}");
        }
        assert_eq!(Device::read(&format!("net_{}", "a".repeat(60))), None);
    }
}
