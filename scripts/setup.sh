#!/usr/bin/env bash
# Installs what building, testing, CI or the benches need and this system lacks.
# Says what it does; run twice, it does nothing the second time.
#
#   scripts/setup.sh build|test|ci
#   scripts/setup.sh bench [rust|python3|hyperscan|dpdk|testpmd|ipsec-mb|ovs|iperf3|matplotlib...]
#                                installs what benches need: these, or all of them
#   scripts/setup.sh features    says what of our features this system can have
set -euo pipefail

MIN_RUST=1.89
goal=${1:-build}
case $goal in build | test | ci | bench | features) ;; *)
    echo "setup: unknown goal '$goal'; expected build, test, ci, bench or features" >&2
    exit 2
    ;;
esac
export PATH="$HOME/.cargo/bin:$PATH"

# libipsec-mb is x86-64's alone; libpcap is wherever it is installed or can be; nDPI has to be 4.2,
# which is Debian 12's. DPDK is large, so that only tests and CI install it; where it is installed in the
# version of Debian 12, the program is made with it.
features() {
    if [ -n "${FEATURES+chosen}" ]; then
        echo "$FEATURES"
        return
    fi
    local chosen=()
    # The compiler of CUDA's kernels comes from PyPI for x86-64; building needs nothing of CUDA.
    [ "$(uname -m)" != x86_64 ] || chosen+=(ipsec-mb cuda)
    if [ -e /usr/include/pcap/pcap.h ] || command -v apt-get >/dev/null 2>&1; then
        chosen+=(libpcap)
    fi
    if [ "$(grep -shcE 'NDPI_(MAJOR_RELEASE "4"|MINOR_RELEASE "2")' /usr/include/ndpi/ndpi_config.h)" = 2 ] ||
        grep -qsx 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"' /etc/os-release; then
        chosen+=(ndpi)
    fi
    if pkg-config --exists 'libdpdk >= 22.11' 'libdpdk < 22.12' 2>/dev/null; then
        chosen+=(dpdk)
    fi
    echo "${chosen[*]}"
}
if [ "$goal" = features ]; then
    features
    exit
fi

say() { printf 'setup: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif have sudo; then sudo "$@"
    else
        say "need root for: $*"
        say "run that as root, then this again"
        exit 1
    fi
}

apt_updated=
apt_try() {
    if [ -z "$apt_updated" ]; then
        say "refreshing the package lists"
        # With the old lists too, packages may install.
        as_root apt-get update -qq || true
        apt_updated=yes
    fi
    say "installing $*"
    # In this run level no package starts a service.
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

apt_install() {
    if ! have apt-get; then
        say "missing: $*; this system has no apt-get: install by hand"
    elif [ "$(id -u)" -ne 0 ] && ! have sudo; then
        say "missing: $*; as root, run: apt-get install $*"
    elif apt_try "$@"; then
        return
    else
        say "missing: $*; apt-get failed: install by hand, then run this again"
    fi
    exit 1
}

# Is the version $1 at least $2?
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
rust_version() { rustc --version 2>/dev/null | awk '{print $2}'; }
rust_ok() { have cargo && have rustc && at_least "$(rust_version)" "$MIN_RUST"; }

need_compiler() {
    have cc || apt_install gcc libc6-dev
    # cargo fetches crates over TLS.
    [ -e /etc/ssl/certs/ca-certificates.crt ] || ! have apt-get || apt_install ca-certificates
}

# The libraries that our features are made with.
need_libraries() {
    [[ " $(features) " != *" ipsec-mb "* ]] || [ -e /usr/include/intel-ipsec-mb.h ] || apt_install libipsec-mb-dev
    [[ " $(features) " != *" libpcap "* ]] || [ -e /usr/include/pcap/pcap.h ] || apt_install libpcap-dev
    [[ " $(features) " != *" ndpi "* ]] || [ -e /usr/include/ndpi/ndpi_api.h ] || apt_install libndpi-dev
}

# Debian 12 keeps a current Rust beside its old one, as rustc-web and cargo-web.
need_rust() {
    rust_ok && return
    if have apt-get; then
        apt_try rustc-web cargo-web || true
        hash -r
        rust_ok && return
    fi
    if have curl; then
        say "installing Rust by rustup into ~/.cargo"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c rustfmt -c clippy
        hash -r
        rust_ok && return
    fi
    say "no Rust $MIN_RUST or later, and no way found to install it; see https://rustup.rs"
    exit 1
}

# Keeps the service of the package $1 from starting with the system: only its programs are wanted.
without_service() {
    local unit=/etc/systemd/system/$1.service
    [ -e "$unit" ] || { as_root mkdir -p "${unit%/*}" && as_root ln -s /dev/null "$unit"; }
}

# The compiler of CUDA as a library: 90 MB, which has no device to run on here.
need_nvrtc() {
    [[ " $(features) " == *" cuda "* ]] || return 0
    "$tools/bin/python3" -c 'import nvidia.cuda_nvrtc' 2>/dev/null && return
    say "installing nvidia-cuda-nvrtc-cu12"
    need_tools && "$tools/bin/pip" install --quiet nvidia-cuda-nvrtc-cu12 && return
    say "missing: nvidia-cuda-nvrtc-cu12; pip failed: see above, then run this again"
    exit 1
}

# Does the loader find the library $1?
has_library() { ldconfig -p | grep -F "$1 " >/dev/null; }

# The programs that tests hold our output against.
need_peers() {
    local missing=()
    have tshark || missing+=(tshark)
    # For hosts at live interfaces; an ordinary user's path may lack some.
    local PATH=$PATH:/usr/sbin:/sbin
    have ip || missing+=(iproute2)
    have ping || missing+=(iputils-ping)
    have sysctl || missing+=(procps)
    have ovs-ofctl || missing+=(openvswitch-common)
    # An OpenCL device on the processor, and the library that finds it, on which Debian's package does not depend.
    has_library libOpenCL.so.1 || missing+=(ocl-icd-libopencl1)
    [ -e /etc/OpenCL/vendors/pocl.icd ] || missing+=(pocl-opencl-icd)
    have dot || missing+=(graphviz)
    /usr/bin/python3 -c 'import scapy.all, cryptography, jsonschema' 2>/dev/null ||
        missing+=(python3 python3-scapy python3-cryptography python3-jsonschema)
    # librte_ipsec is held against ours; and for the feature dpdk.
    pkg-config --exists libdpdk 2>/dev/null || missing+=(libdpdk-dev pkg-config)
    # For dpdk-testpmd, the peer of memif.
    have dpdk-testpmd || { without_service dpdk && missing+=(dpdk-dev); }
    have prads || { without_service prads && missing+=(prads); }
    # For promtool, and for a real Prometheus in a test.
    have promtool || { without_service prometheus && missing+=(prometheus); }
    # For systemd-analyze.
    have systemd-analyze || missing+=(systemd)
    /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || missing+=(python3-prometheus-client)
    [[ " $(features) " != *" libpcap "* ]] || have tcpdump || missing+=(tcpdump)
    [[ " $(features) " != *" ndpi "* ]] || have ndpiReader || missing+=(libndpi-bin)
    [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
    need_nvrtc
}

# Can the compiler include the header $1?
has_header() { cc -E -x c -include "$1" /dev/null >/dev/null 2>&1; }

# What benches are built with, run by, and measured against.
need_for_benches() {
    local need missing=() known=(rust python3 hyperscan dpdk testpmd ipsec-mb ovs iperf3 matplotlib)
    [ $# -ne 0 ] || set -- "${known[@]}"
    for need in "$@"; do
        case $need in
            rust) ;;
            python3) have python3 || missing+=(python3) ;;
            hyperscan) has_header hs/hs.h || missing+=(libhyperscan-dev) ;;
            iperf3) have iperf3 || missing+=(iperf3) ;;
            matplotlib) need_matplotlib ;;
            dpdk) pkg-config --exists libdpdk 2>/dev/null || missing+=(libdpdk-dev pkg-config) ;;
            testpmd) have dpdk-testpmd || { without_service dpdk && missing+=(dpdk-dev); } ;;
            ipsec-mb) has_header intel-ipsec-mb.h || missing+=(libipsec-mb-dev) ;;
            # The scripts that run it are not ours: bench/ovs.py --peer names their folder.
            ovs)
                [ -x /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk ] ||
                    missing+=(openvswitch-switch openvswitch-switch-dpdk)
                ;;
            *)
                say "unknown need '$need' of a bench; expected some of: ${known[*]}"
                exit 2
                ;;
        esac
    done
    [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
    [[ " $* " != *" rust "* ]] || need_rust
    say "ready: $*"
}

# A Python of our own, for programs from PyPI.
tools=$HOME/.cache/thalweg/tools
need_tools() {
    [ ! -e "$tools/bin/pip" ] || return 0
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || apt_try python3-venv || true
    /usr/bin/python3 -m venv "$tools"
}

# Debian's matplotlib comes with dozens of packages, that of PyPI with ten.
need_matplotlib() {
    local python
    for python in python3 /usr/bin/python3 "$tools/bin/python3"; do
        "$python" -c 'import matplotlib' 2>/dev/null && return
    done
    say "installing matplotlib"
    need_tools && "$tools/bin/pip" install --quiet matplotlib && return
    say "missing: matplotlib; pip failed: see above, then run this again"
    exit 1
}

# Cargo's tools: built ones from PyPI take a second, building them here takes minutes.
need_cargo_tool() {
    PATH=$tools/bin:$PATH
    have "$1" && return
    say "installing $1"
    if need_tools && "$tools/bin/pip" install --quiet "astral-dev-toolchain-$1" && have "$1"; then
        return
    fi
    say "no built $1 found: building it from crates.io"
    cargo install --locked --quiet "$1"
}

# Programs that the API is tested with.
need_api_tools() {
    "$tools/bin/python3" -c 'import schemathesis, openapi_spec_validator' 2>/dev/null && return
    say "installing schemathesis and openapi-spec-validator"
    need_tools && "$tools/bin/pip" install --quiet schemathesis openapi-spec-validator && return
    say "missing: schemathesis, openapi-spec-validator; pip failed: see above, then run this again"
    exit 1
}

# Levels of vector instructions that this processor lacks are tested in an emulated one.
need_emulator() {
    [ -n "$("${0%/*}/levels.sh" missing)" ] || return 0
    local missing=()
    [ -e /bin/busybox ] || missing+=(busybox-static)
    have cpio || missing+=(cpio)
    have make || missing+=(make)
    have strip || missing+=(binutils)
    have xorriso || missing+=(xorriso)
    have xz || missing+=(xz-utils)
    [ -e /usr/lib/ISOLINUX/isolinux.bin ] || missing+=(isolinux)
    [ -e /usr/lib/syslinux/modules/bios/ldlinux.c32 ] || missing+=(syslinux-common)
    [ -e /usr/share/bochs/BIOS-bochs-latest ] || missing+=(bochsbios)
    [ -e /usr/share/vgabios/vgabios.bin ] || missing+=(vgabios)
    [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
    "${0%/*}/emulate.sh" install
}

need_ci_tools() {
    cargo fmt --version >/dev/null 2>&1 || { have rustup && rustup component add rustfmt; } || apt_install rustfmt-web
    cargo clippy --version >/dev/null 2>&1 || { have rustup && rustup component add clippy; } || {
        say "no clippy for this Rust; install Rust by rustup"
        exit 1
    }
    have c++ || apt_install g++
    local missing=()
    have verilator || missing+=(verilator make)
    have yosys || missing+=(yosys)
    [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
    need_emulator
    need_cargo_tool cargo-deny
    need_api_tools
}

need_compiler
if [ "$goal" = bench ]; then
    need_for_benches "${@:2}"
    exit
fi
need_libraries
need_rust
if [ "$goal" != build ]; then need_peers; fi
if [ "$goal" = ci ]; then need_ci_tools; fi
say "ready: $(rustc --version)"
