//! Compiles the C code that stands between us and libpcap or DPDK, if their features are on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "libpcap")]
    {
        println!("cargo::rerun-if-changed=src/filter/pcap.c");
        let built =
            cc::Build::new().file("src/filter/pcap.c").warnings(true).try_compile("thalweg_pcap");
        if let Err(error) = built {
            println!(
                "cargo::error=the feature libpcap needs libpcap and its headers (Debian: \
                 libpcap-dev): {error}"
            );
        }
        println!("cargo::rustc-link-lib=pcap");
    }
    #[cfg(feature = "dpdk")]
    build_dpdk();
}

/// Links the shared libraries: they load the drivers of devices themselves, as they are needed.
#[cfg(feature = "dpdk")]
fn build_dpdk() {
    const SOURCES: [&str; 2] = ["src/dpdk/mbufs.c", "src/dpdk/devices.c"];
    println!("cargo::rerun-if-changed=src/dpdk/mbufs.h");
    SOURCES.iter().for_each(|source| println!("cargo::rerun-if-changed={source}"));
    let needs = "the feature dpdk needs DPDK 22.11, its headers and pkg-config (Debian: libdpdk-dev, \
                 pkg-config)";
    let found = std::process::Command::new("pkg-config")
        .args(["--cflags", "libdpdk >= 22.11", "libdpdk < 22.12"])
        .output();
    let flags = match found {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            return println!("cargo::error={needs}: {}", why.trim().replace('\n', "; "));
        }
        Err(error) => return println!("cargo::error={needs}: pkg-config: {error}"),
    };
    let mut build = cc::Build::new();
    // Its headers are no part of what is warned of, as those of the system are not.
    let flags = flags.split_whitespace().map(|flag| match flag.strip_prefix("-I") {
        Some(folder) => format!("-isystem{folder}"),
        None => flag.to_owned(),
    });
    flags.for_each(|flag| {
        build.flag(flag);
    });
    if let Err(error) = build.files(SOURCES).warnings(true).try_compile("thalweg_dpdk") {
        println!("cargo::error={needs}: {error}");
    }
    for library in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"] {
        println!("cargo::rustc-link-lib={library}");
    }
}
