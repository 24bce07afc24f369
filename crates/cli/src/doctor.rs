//! `thalweg doctor`: what this machine has for packet processing, and what each part gains.

mod interfaces;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_accel::Listing;
use thalweg_cpu::cores;
use thalweg_io::PciDevice;
use thalweg_source::visible;

use crate::args;
use crate::errors::Failure;
use crate::report::{plain_table, write_json};
use crate::sandbox::{Means, findings};
use interfaces::{Interface, Machine};

/// What this machine has.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Diagnosis {
    #[schemars(extend("const" = "thalweg.doctor/1"))]
    schema: &'static str,
    version: &'static str,
    architecture: &'static str,
    findings: Vec<Finding>,
    /// The network interfaces but the loopback.
    interfaces: Vec<Interface>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Finding {
    group: &'static str,
    name: &'static str,
    found: bool,
    detail: String,
    gain: &'static str,
}

/// Examines the machine and prints the findings.
pub fn doctor(options: &args::Doctor) -> Result<(), Failure> {
    let mut findings = processor();
    findings.extend(memory());
    findings.extend(libraries());
    findings.extend(devices());
    findings.extend(sandbox());
    let diagnosis = Diagnosis {
        schema: "thalweg.doctor/1",
        version: env!("CARGO_PKG_VERSION"),
        architecture: std::env::consts::ARCH,
        findings,
        interfaces: interfaces::interfaces(&Machine {
            has_huge_pages: memory_value("HugePages_Free").is_some_and(|free| free > 0),
            may_open: thalweg_io::may_use_interfaces().map_err(|e| e.to_string()),
            cores: interfaces::permitted(),
            nodes: cores::nodes(),
            has_iommu: thalweg_io::has_iommu(),
        }),
    };
    let mut out = io::stdout().lock();
    if options.json {
        write_json(&mut out, &diagnosis)?;
    } else {
        show(&mut out, &diagnosis)?;
    }
    Ok(())
}

fn show(out: &mut impl Write, diagnosis: &Diagnosis) -> io::Result<()> {
    writeln!(out, "thalweg {} on {}", diagnosis.version, diagnosis.architecture)?;
    let mut table = plain_table(&["", "", "found", "detail", "what it gains"]);
    let mut group = "";
    for f in &diagnosis.findings {
        let heading = if f.group == group { "" } else { f.group };
        group = f.group;
        table.add_row([
            heading,
            f.name,
            if f.found { "yes" } else { "no" },
            &visible(&f.detail),
            f.gain,
        ]);
    }
    writeln!(out, "{table}")?;
    interfaces::show(out, &diagnosis.interfaces)
}

fn processor() -> Vec<Finding> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown", |(_, name)| name.trim());
    let permitted = cores::permitted();
    let number = std::thread::available_parallelism().map_or(1, usize::from);
    let list = if permitted.is_empty() {
        String::new()
    } else {
        format!(" ({})", cores::as_text(permitted))
    };
    let mut findings = vec![Finding {
        group: "processor",
        name: "cores",
        found: true,
        detail: format!("{number}{list}, {model}"),
        gain: "a worker on each: [run] workers and cores in the chain file",
    }];
    findings.extend(governor());
    findings.extend(vector_levels().into_iter().map(|(name, found, gain)| Finding {
        group: "processor",
        name,
        found,
        detail: String::new(),
        gain,
    }));
    findings
}

/// What sets the clocks of the processor, where the kernel does.
fn governor() -> Option<Finding> {
    let governors = interfaces::governors();
    let found = governors.iter().all(|governor| governor == "performance");
    (!governors.is_empty()).then(|| Finding {
        group: "processor",
        name: "governor performance",
        found,
        detail: governors.join(", "),
        gain: "full speed after a pause: cpupower frequency-set -g performance",
    })
}

#[cfg(target_arch = "x86_64")]
fn vector_levels() -> Vec<(&'static str, bool, &'static str)> {
    use std::arch::is_x86_feature_detected as has;
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq");
    let by_64 = has!("avx512vbmi") && has!("gfni");
    vec![
        ("AVX2", has!("avx2"), "hashes of classification; nids: pattern search; ipsec: hashes"),
        ("AVX-512", avx512, "parsing, classification, router and ipsec on 8 to 32 packets at once"),
        ("VBMI, GFNI", avx512 && by_64, "nids: pattern search 64 bytes at a time"),
        ("AES-NI", has!("aes"), "ipsec: hardware AES"),
        ("VAES", has!("vaes"), "ipsec: AES on two to four packets at once"),
        ("PCLMULQDQ", has!("pclmulqdq"), "ipsec: hardware GHASH for AES-GCM"),
        ("SHA", has!("sha"), "ipsec: hardware SHA-1"),
    ]
}

#[cfg(target_arch = "aarch64")]
fn vector_levels() -> Vec<(&'static str, bool, &'static str)> {
    use std::arch::is_aarch64_feature_detected as has;
    vec![
        ("NEON", has!("neon"), "nids: vector pattern search"),
        ("AES", has!("aes"), "ipsec: hardware AES"),
        ("SHA-1", has!("sha2"), "ipsec: hardware SHA-1"),
    ]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn vector_levels() -> Vec<(&'static str, bool, &'static str)> {
    Vec::new()
}

/// A number of `/proc/meminfo`.
fn memory_value(name: &str) -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn memory() -> Vec<Finding> {
    let huge = memory_value("HugePages_Free").unwrap_or(0);
    let size = memory_value("Hugepagesize").unwrap_or(0);
    let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let thp = thp.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(m, _)| m);
    let nodes = cores::nodes().into_iter();
    let nodes: Vec<_> = nodes.map(|(node, on)| (node, cores::as_text(&on))).collect();
    let of_node = |(node, on): &(u32, String)| format!("node {node}: cores {on}");
    let available = memory_value("MemAvailable").unwrap_or(0) / 1024;
    vec![
        Finding {
            group: "memory",
            name: "memory",
            found: true,
            detail: format!("{available} MiB available"),
            gain: "frames: [memory] frames and frame_size in the chain file",
        },
        Finding {
            group: "memory",
            name: "memory nodes (NUMA)",
            found: nodes.len() > 1,
            detail: nodes.iter().map(of_node).collect::<Vec<_>>().join("; "),
            gain: "packets in the memory of their worker's node: [run] cores",
        },
        Finding {
            group: "memory",
            name: "huge pages",
            found: huge > 0,
            detail: format!("{huge} free, {size} KiB each"),
            gain: "fewer TLB misses in packet memory: [memory] huge_pages = true",
        },
        Finding {
            group: "memory",
            name: "transparent huge pages",
            found: thp == "always" || thp == "madvise",
            detail: thp.into(),
            gain: "fewer TLB misses in large tables, when 'always'",
        },
    ]
}

/// Libraries that the loader knows; this version needs none of them.
fn libraries() -> Vec<Finding> {
    const IPSEC_MB: &str = if cfg!(feature = "ipsec-mb") {
        "ipsec: GCM and ChaCha20-Poly1305 many packets at once"
    } else {
        "nothing: this build lacks the feature ipsec-mb"
    };
    const LIBPCAP: &str = if thalweg_io::HAS_FILTERS {
        "packet filters: --filter, and filter of an input"
    } else {
        "nothing: this build lacks the feature libpcap"
    };
    const NDPI: &str = if cfg!(feature = "ndpi") {
        "l7fw: recognises applications"
    } else {
        "nothing: this build lacks the feature ndpi"
    };
    const DPDK: &str = if cfg!(feature = "dpdk") {
        "ports over its drivers: dpdk of an input or output"
    } else {
        "nothing: this build lacks the feature dpdk"
    };
    const LIBRARIES: [(&str, &str, &str); 7] = [
        ("libIPSec_MB", "libIPSec_MB.so", IPSEC_MB),
        ("libpcap", "libpcap.so", LIBPCAP),
        (
            "Vectorscan/Hyperscan",
            "libhs.so",
            "bench/nids.py compares with it; nids uses its own matcher",
        ),
        ("nDPI", "libndpi.so", NDPI),
        ("DPDK", "librte_eal.so", DPDK),
        ("libxdp", "libxdp.so", "nothing: AF_XDP ports do without it"),
        ("OpenCL", "libOpenCL.so", "NFs on its devices: at = \"opencl:0\" in an NF"),
    ];
    let known = ["ldconfig", "/sbin/ldconfig"]
        .iter()
        .find_map(|program| Command::new(program).arg("-p").output().ok())
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let find = |file: &str| {
        let line = known.lines().find(|l| l.trim_start().starts_with(file))?;
        Some(line.rsplit(' ').next()?.to_owned())
    };
    let finding = |(name, file, gain)| {
        let path = find(file);
        let found = path.is_some();
        Finding { group: "libraries", name, found, detail: path.unwrap_or_default(), gain }
    };
    LIBRARIES.into_iter().map(finding).collect()
}

/// What runs are confined by.
fn sandbox() -> impl Iterator<Item = Finding> {
    let finding = |Means { name, found, detail, gain }| Finding {
        group: "sandbox",
        name,
        found,
        detail,
        gain,
    };
    findings().into_iter().map(finding)
}

fn devices() -> Vec<Finding> {
    let mut interfaces = thalweg_io::interfaces();
    interfaces.retain(|name| name != "lo");
    let allowed = thalweg_io::may_use_interfaces();
    let mut detail = interfaces.join(", ");
    if let Err(e) = &allowed {
        detail = format!("{detail}: {e}");
    }
    let interfaces = Finding {
        group: "devices",
        name: "network interfaces",
        found: !interfaces.is_empty() && allowed.is_ok(),
        detail,
        gain: "live inputs and outputs, as root or with CAP_NET_RAW",
    };
    let mut all = vec![interfaces];
    all.extend(for_dpdk(&thalweg_io::pci_network_devices()));
    all.push(accelerators());
    all
}

/// What DPDK needs for hardware.
fn for_dpdk(devices: &[PciDevice]) -> [Finding; 3] {
    let vfio = Path::new("/dev/vfio/vfio").exists();
    let of = |device: &PciDevice| {
        let driver = device.driver.as_deref().unwrap_or("no driver");
        let iommu = if device.has_iommu { "" } else { ", no IOMMU" };
        format!("{} ({driver}{iommu})", device.address)
    };
    [
        Finding {
            group: "devices",
            name: "IOMMU",
            found: thalweg_io::has_iommu(),
            detail: String::new(),
            gain: "vfio-pci keeps devices to the memory of their program: intel_iommu=on or \
                   amd_iommu=on at boot",
        },
        Finding {
            group: "devices",
            name: "VFIO",
            found: vfio,
            detail: if vfio { String::new() } else { "modprobe vfio-pci".into() },
            gain: "hardware for DPDK ports: devices that are bound to vfio-pci",
        },
        Finding {
            group: "devices",
            name: "PCI devices for DPDK",
            found: devices.iter().any(PciDevice::is_for_programs),
            detail: devices.iter().map(of).collect::<Vec<_>>().join(", "),
            gain: "dpdk = \"ADDRESS\"; dpdk-devbind.py --bind=vfio-pci ADDRESS takes one from the kernel",
        },
    ]
}

/// What NFs can run on in addition to the cores, as `thalweg devices` finds it.
fn accelerators() -> Finding {
    let Listing { devices, without_opencl, without_cuda } = thalweg_accel::devices();
    let gpus = devices.iter().filter(|device| device.kind == "gpu");
    let gpus: Vec<_> = gpus.map(|gpu| format!("{} {}", gpu.place, gpu.name)).collect();
    let others = devices.iter().filter(|device| device.kind != "gpu");
    let others: Vec<_> = others.map(|device| device.place.as_str()).collect();
    let detail = if gpus.is_empty() {
        let why = [without_opencl, without_cuda].into_iter().flatten();
        let why = why.map(|why| why.to_string()).collect::<Vec<_>>().join("; ");
        let why = if why.is_empty() { why } else { format!(": {why}") };
        format!("only {}{why}", others.join(", "))
    } else {
        gpus.join(", ")
    };
    Finding {
        group: "devices",
        name: "GPU",
        found: !gpus.is_empty(),
        detail,
        gain: "NFs ipsec, nids and router on it: at = \"gpu\"; thalweg devices shows what it can",
    }
}
