#!/usr/bin/env bash
# Runs programs in an emulated PC that has AVX-512, whatever this one has: Bochs, a Linux kernel
# of Debian's, and a disc with the programs on it. Slow, and no measure of anything's speed.
#
#   scripts/emulate.sh install                  gets the emulator and the kernel (setup.sh calls it)
#   scripts/emulate.sh start                    begins an empty list of programs
#   scripts/emulate.sh put PROGRAM [ARGUMENT]   adds one with tests, for the level THALWEG_ISA
#   scripts/emulate.sh run                      runs all; fails if one fails
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
kept=${XDG_CACHE_HOME:-$HOME/.cache}/thalweg/emulator
work=$repo/target/emulated
# Later ones wait in the boot for a clock whose rate is not what they say; so one of those before,
# with what they have.
processor='model=corei3_cnl, add_features="gfni vaes_vpclmulqdq avx512vpopcnt", ips=200000000'
minutes=30
# What takes minutes, or asks cargo, and is not about vectors.
left_out='^(traps|masks|architecture)-'

fail() {
    echo "emulate: $*" >&2
    exit 1
}

# Lists of packages beside the system's: of Debian 12 for the kernel, and of Debian 13 for Bochs, the
# first version that has what we use.
own_lists() {
    local mirror key=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Identifier: Packages' |
        sed -n 's/^Debian \(.*debian\/\)$/\1/p' | head -n 1)
    [ -n "$mirror" ] || fail "apt-get knows no mirror of Debian's"
    mkdir -p lists/partial archives/partial
    cat >sources <<LIST
deb [arch=amd64 signed-by=$key] $mirror bookworm main
deb-src [signed-by=$key] $mirror trixie main
LIST
    cat >apt.conf <<CONF
Dir::Etc::SourceList "$PWD/sources";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$PWD/lists";
Dir::Cache "$PWD";
APT::Sandbox::User "root";
CONF
    export APT_CONFIG=$PWD/apt.conf
    apt-get update -qq
}

# Bochs 3.0 refuses valid gathers whose index is a register above 15: it takes the uppermost bit of
# that number for a source that the instruction does not have.
build_bochs() {
    apt-get source -qq --download-only --tar-only bochs/trixie
    mkdir source
    tar -xf bochs_*.orig.tar.xz -C source --strip-components 1
    cd source
    sed -i 's/i->setSibIndex(i->sibIndex() | (vvv & 0x10));/&\n      vvv \&= 0xf;/' \
        cpu/decoder/fetchdecode32.cc
    grep -q 'vvv &= 0xf;' cpu/decoder/fetchdecode32.cc || fail "Bochs is not as it was"
    CXXFLAGS=-O2 ./configure --enable-x86-64 --enable-cpu-level=6 --enable-avx --enable-evex \
        --enable-all-optimizations --disable-large-ramfile --disable-docbook --with-nogui >../log
    make -j"$(nproc)" >>../log 2>&1 || fail "Bochs does not build; see $PWD/../log"
    cd ..
    mv source/bochs .
    rm -rf source
}

unpack_kernel() {
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 |
        sed -n 's/.*Depends: \(linux-image-[^ ]*\)$/\1/p')
    apt-get download -qq "$package"
    dpkg-deb --extract "$package"_*.deb kernel
    mv kernel/boot/vmlinuz-* vmlinuz
    rm -rf kernel ./*.deb
}

install() {
    [ ! -e "$kept/vmlinuz" ] || return 0
    rm -rf "$kept"
    mkdir -p "$kept"
    cd "$kept"
    echo "emulate: building Bochs, and fetching a kernel for it, in $kept" >&2
    own_lists
    build_bochs
    unpack_kernel
    rm -rf lists archives ./*.tar.xz ./*.bin
}

start() {
    rm -rf "$work"
    mkdir -p "$work"/{root/{bin,proc,tests,tmp},iso/isolinux}
    cat >"$work/root/init" <<'GUEST'
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc none /proc
cd /tmp
failed=
run() {
    level=$1 name=$2
    shift 2
    # Some hundred times slower than outside: so of properties of crates as a whole, whose tests
    # count what they have seen, all cases are tried, and of units a few.
    case $name in thalweg_*) export PROPTEST_CASES=32 ;; *) unset PROPTEST_CASES ;; esac
    echo "emulate: $name at $level"
    THALWEG_ISA=$level REQUIRE_ISA=$level "/tests/$name" --test-threads 1 "$@" || failed=yes
}
GUEST
}

# Copies the libraries that a program is linked with.
put_libraries() {
    local library
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        mkdir -p "$work/root${library%/*}"
        cp -L "$library" "$work/root$library"
    done
}

put() {
    local program=$1 name=${1##*/}
    shift
    [[ ! $name =~ $left_out ]] || return 0
    if [ ! -e "$work/root/tests/$name" ]; then
        strip "$program" -o "$work/root/tests/$name"
        put_libraries "$program"
    fi
    printf '%q ' run "$THALWEG_ISA" "$name" "$@" >>"$work/root/init"
    echo >>"$work/root/init"
}

# The disc: a boot loader, the kernel, and what is in `root` as its first file system.
make_disc() {
    cp /bin/busybox root/bin/
    put_libraries /bin/busybox
    chmod +x root/init
    (cd root && find . | cpio --quiet -o -H newc) >iso/initrd
    cp "$kept/vmlinuz" iso/
    cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 iso/isolinux/
    cat >iso/isolinux/isolinux.cfg <<'BOOT'
default tests
label tests
kernel /vmlinuz
initrd /initrd
append console=ttyS0 quiet nosmp nokaslr mitigations=off lsm=lockdown
BOOT
    xorriso -as mkisofs -quiet -o disc -b isolinux/isolinux.bin -c isolinux/boot.cat \
        -no-emul-boot -boot-load-size 4 -boot-info-table iso
}

run() {
    cd "$work"
    grep -q '^run ' root/init || fail "nothing to run"
    cat >>root/init <<'GUEST'
[ -n "$failed" ] || echo "emulate: all passed"
# The console is slow, and cut off with the power.
sleep 1
poweroff -f
GUEST
    make_disc
    cat >machine <<MACHINE
cpu: $processor
megs: 2048
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=cdrom, path="$work/disc", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev="$work/console"
display_library: nogui
log: "$work/log"
panic: action=fatal
MACHINE
    timeout ${minutes}m "$kept/bochs" -q -f machine </dev/null >bochs 2>&1 || true
    tr -d '\r' <console
    grep -q '^emulate: all passed' console || fail "FAILED; see $work"
}

case ${1:-} in
install | start | run) "$1" ;;
put)
    shift
    put "$@"
    ;;
*) fail "expected install, start, put or run" ;;
esac
