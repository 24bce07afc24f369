"""What the bench commands share: running programs, medians, pictures."""

import json
import os
import shlex
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SETUP = HERE.parent / "scripts/setup.sh"
THALWEG = HERE.parent / "target/release/thalweg"
# Colours that those who see few can tell apart (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#999999"]

# Where scripts/setup.sh may install Rust.
os.environ["PATH"] = f"{Path.home()}/.cargo/bin:{os.environ['PATH']}"


def setup(*goal):
    """Installs what `goal` of scripts/setup.sh lacks here; ends the bench where it cannot."""
    if subprocess.run([SETUP, *goal], stdout=sys.stderr).returncode != 0:
        sys.exit(1)  # The script named the package and how to get it.


def need(*what):
    """Installs each of `what` that this system lacks, such as "rust" or "dpdk"."""
    setup("bench", *what)


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def work_folder():
    work = Path(os.environ.get("THALWEG_BENCH_DIR", tempfile.gettempdir())) / "thalweg-bench"
    work.mkdir(parents=True, exist_ok=True)
    return work


def built(program):
    """`program`; ends the bench where there is none."""
    if shutil.which(program) is None:
        sys.exit(f"{program}: no such program" + ("; run make build" if str(program) == str(THALWEG) else ""))
    return program


def run(program, *arguments, core=None, environment=None):
    """Standard output of the program; ends the bench when it fails."""
    command = [str(built(program)), *map(str, arguments)]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    env = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def enter_namespaces():
    """Runs the program again in network, mount and process namespaces of its own, unless it runs there."""
    if os.environ.get("THALWEG_BENCH_INSIDE") is None:
        os.environ["THALWEG_BENCH_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc",
                              "--kill-child", sys.executable, *sys.argv])
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)


def write_capture(path, packets):
    """A capture in libpcap's format of Ethernet frames, a microsecond apart."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(packets):
            out.write(struct.pack("<IIII", 1, number, len(frame), len(frame)) + frame)


def build_bench(folder, *options):
    """Builds the bench program in `folder` and gives its path."""
    manifest = HERE / folder / "Cargo.toml"
    run("cargo", "build", "--release", "--locked", "--manifest-path", manifest, *options)
    metadata = json.loads(run("cargo", "metadata", "--format-version", 1, "--no-deps",
                              "--manifest-path", HERE / folder / "Cargo.toml"))
    return Path(metadata["target_directory"]) / f"release/thalweg-bench-{folder}"


def build_peer(name, *flags):
    """Builds bench/peers/`name`.c and gives its path."""
    source, program = HERE / f"peers/{name}.c", work_folder() / name
    run("cc", "-O3", "-march=native", source, "-o", program, *flags)
    return program


def build_dpdk_peer(name):
    """Builds bench/peers/`name`.c, which needs libdpdk-dev, and gives its path."""
    return build_peer(name, *shlex.split(run("pkg-config", "--cflags", "--libs", "libdpdk")))


def huge_pages(memory_mb):
    """Whether there are huge pages enough for DPDK and a place to get them from, and its options
    then (files that keep pages are unlinked, so that the next run finds them free) or otherwise."""
    mounted = any(line.split()[2] == "hugetlbfs" for line in Path("/proc/mounts").read_text().splitlines())
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free_kb = int(fields["HugePages_Free"]) * int(fields["Hugepagesize"].split()[0])
    enough = mounted and free_kb >= memory_mb << 10
    return enough, "--huge-unlink" if enough else "--no-huge"


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def measure(program, chain, packets, core=None, environment=None):
    """The report of a run of `packets` packets."""
    text = run(program, "run", chain, "--json", "--count", packets, core=core, environment=environment)
    report = json.loads(text)
    if report["packets_in"] < packets or not report["conserved"]:
        sys.exit(f"{chain}: {report['packets_in']} packets received, conserved: {report['conserved']}")
    return report


def spread(values):
    values = sorted(values)
    return {"median": statistics.median(values), "least": values[0], "most": values[-1]}


def lines_svg(title, x_name, y_name, series, labels=None):
    """A line chart: `series` is name -> [(x, y)]; with `labels`, x counts them."""
    width, height, left, bottom, top = 760, 440, 70, 60, 50
    points = [p for line in series.values() for p in line]
    most_x, least_x = max(x for x, _ in points), min(x for x, _ in points)
    most_y = max(y for _, y in points) * 1.1
    at_x = lambda x: left + (x - least_x) / max(most_x - least_x, 1e-9) * (width - left - 180)
    at_y = lambda y: height - bottom - y / most_y * (height - bottom - top)
    text = lambda x, y, s, anchor="middle", extra="": (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" {extra}>{s}</text>')
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           text(width / 2, 24, title, extra='font-size="16"')]
    for step in range(6):
        y = most_y * step / 5
        out.append(f'<path d="M{left} {at_y(y):.1f}H{width - 180}" stroke="#ddd"/>')
        out.append(text(left - 8, at_y(y) + 4, f"{y:.3g}", "end"))
    for x in sorted({x for x, _ in points}):
        out.append(text(at_x(x), height - bottom + 18, labels[x] if labels else f"{x:g}"))
    out.append(text((left + width - 180) / 2, height - 18, x_name))
    out.append(text(20, height / 2, y_name, extra=f'transform="rotate(-90 20 {height / 2})"'))
    for n, (name, line) in enumerate(series.items()):
        colour = COLOURS[n % len(COLOURS)]
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in line:
            out.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>')
        out.append(f'<rect x="{width - 168}" y="{top + 20 * n}" width="12" height="12" fill="{colour}"/>')
        out.append(text(width - 150, top + 20 * n + 11, name, "start"))
    return "\n".join(out) + "\n</svg>\n"
