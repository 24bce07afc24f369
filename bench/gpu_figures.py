"""The figures of bench/gpu.py: what each measures, as panels of points.

A figure is a dictionary: `name`, `title`, `paper` (what is known of the paper's value), `notes`, and `panels`.
A panel has a title, names and units of its axes, and `series`: by name, a list of points. A point is where it
is on the horizontal axis, and the median, the least and the most of all rounds."""

import collections
import statistics

import gpu_chains
import gpu_ways
from gpu_chains import ALL, FEW, HALF, MOST

MPPS = "million packets a second"
ABSTRACT = "abstract of the paper (IEEE Access, 2022)"
UNKNOWN = "not at hand: of the paper's evaluation, only its abstract is"
# What bench/gpu.py is to reach, on any device: docs/gpu-figures.md.
TRIVIAL_RATIO, LITERALS_MPPS, ESP_MPPS, OVERHEAD = 10, 4, 1, 0.15
PAPER_RATIO = "the paper: trivial function, of no known size"
# From this size on, the overhead counts.
LARGE = 512


def point(x, values):
    return x, statistics.median(values), min(values), max(values)


def sizes_of(options):
    return [64, 512] if options.quick else [64, 512, 1472, "imix"]


def ways(options):
    """Figure 3: the ways in which packets reach a function."""
    sizes = [64, 512] if options.quick else gpu_ways.SIZES
    shown = [way for way in gpu_ways.WAYS if way != "scalar"]
    times = gpu_ways.measure(options, sizes=sizes, ways=shown, work_groups=options.work_groups)
    panels = []
    for function in gpu_ways.FUNCTIONS:
        rates = {name_of(way): [point(size, [1e-6 / t for t in times[function, size, way]]) for size in sizes
                                if (function, size, way) in times] for way in shown}
        panels.append({"title": function, "x": "bytes of a packet", "y": MPPS, "log": True,
                       "series": {name: points for name, points in rates.items() if points}})
    rate = lambda function: 1e-6 / statistics.median(times[function, 64, "resident"])
    facts = [bar("literals (nids), 64 bytes, Mpps", rate("literals"), LITERALS_MPPS),
             bar("esp (ipsec), 64 bytes, Mpps", rate("esp"), ESP_MPPS)]
    figure = {"name": "figure-3", "title": "Resident kernel with shared memory against launches",
              "paper": "see figure-3-ratios", "notes": facts, "panels": panels}
    return [figure, *ratios(sizes, times)]


def name_of(way):
    if way == "resident":
        return "resident, shared memory"
    transfer, batch = way.split()
    return f"launch of {batch}, {transfer}"


def ratios(sizes, times):
    """Figure 3 again: how many times the rate of launches with copies a resident kernel has."""
    panels, facts = [], []
    for way in ["copied 32", "copied 1024"]:
        series = {}
        for function in gpu_ways.FUNCTIONS:
            points = [point(size, [launch / resident for launch, resident in zip(
                          times[function, size, way], times[function, size, "resident"])])
                      for size in sizes if (function, size, way) in times]
            if points:
                series[function] = points
        if series:
            panels.append({"title": f"resident, times a {name_of(way)}", "x": "bytes of a packet", "y": "times",
                           "log": True, "series": {**series, PAPER_RATIO: [(size, 10, 10, 10) for size in sizes]}})
        if way == "copied 32" and "reflect" in series:
            facts.append(bar("trivial function, 64 bytes, times a launch of 32, copied", series["reflect"][0][1],
                             TRIVIAL_RATIO))
    return [{"name": "figure-3-ratios", "title": "How many times as fast as launches a resident kernel is",
             "paper": "10 times as fast as launches with copies, for a trivial function (our notes on the paper); "
                      "sizes and other functions: not at hand", "notes": facts, "panels": panels}] if panels else []


def bar(what, value, least):
    verdict = "holds" if value >= least else f"fails by {1 - value / least:.0%}"
    return f"{what}: {value:.2f}, to be at least {least}: {verdict}"


def overhead(options):
    """The work of both sides of the queues, against the function's own."""
    sizes = [64, 512] if options.quick else gpu_ways.SIZES
    is_opencl = options.device.startswith("opencl:")
    wanted = ["resident", "syncer", *(["shared 32", "shared 1024"] if is_opencl else ["scalar"])]
    # What else runs on the machine takes no processor time of ours; a device that is no processor has none.
    is_processor = options.kind == "cpu"
    times = gpu_ways.measure(options, functions=["esp", "literals"], sizes=sizes, ways=wanted,
                             time="cpu_seconds" if is_processor else "seconds")
    if not is_processor:
        times |= gpu_ways.measure(options, functions=["esp", "literals"], sizes=sizes, ways=["syncer"],
                                  time="cpu_seconds")
    panels, notes = [], []
    for function in ["esp", "literals"]:
        shares, costs = collections.defaultdict(list), collections.defaultdict(list)
        for size in sizes:
            of = lambda way: times[function, size, way]
            # What a launch costs is in both, and is taken off.
            own = ([(1024 * large - 32 * small) / (1024 - 32)
                    for large, small in zip(of("shared 1024"), of("shared 32"))] if is_opencl else of("scalar"))
            resident, host = of("resident"), of("syncer")
            device = [(whole - alone) / alone for whole, alone in zip(resident, own)]
            processor = [work / alone for work, alone in zip(host, own)]
            both = [a + b for a, b in zip(device, processor)]
            for name, values in [("processor's side", processor), ("device's side", device), ("both", both)]:
                shares[name].append(point(size, [100 * value for value in values]))
            for name, values in [("function alone", own), ("device with a resident kernel", resident),
                                 ("processor's side", host)]:
                costs[name].append(point(size, [1e9 * value for value in values]))
            if size >= LARGE:
                share = statistics.median(both)
                verdict = "holds" if share < OVERHEAD else f"fails by {100 * (share - OVERHEAD):.1f} points"
                notes.append(f"{function}, {size} bytes: overhead of both sides {share:.1%}, to be below "
                             f"{OVERHEAD:.0%}: {verdict}")
        panels.append({"title": f"{function}: overhead", "x": "bytes of a packet", "log": False,
                       "y": "% of the function's own time", "series": dict(shares)})
        panels.append({"title": f"{function}: times", "x": "bytes of a packet", "log": True,
                       "y": "nanoseconds a packet", "series": dict(costs)})
    return [{"name": "overhead", "title": "Overhead of the syncers", "paper": UNKNOWN, "notes": notes,
             "panels": panels}]


def rounds(options, sizes, cases, measure):
    """Measures each case of each size, all cases of a size in turn in each round; by size and case: a list."""
    values = collections.defaultdict(list)
    for size in sizes:
        gpu_chains.generate(options.program[0], size)
        for _ in range(options.rounds):
            for case in cases:
                values[size, case].append(measure(case))
    return values


def syncers(options):
    """Figure 4: input cores and syncers."""
    cases = [(workers, groups) for groups in [1, 2] for workers in [1, 2]]
    sizes = [64] if options.quick else [64, 512, 1472]
    panels = []
    for nf in ["vpn", "ids"]:
        def measure(case):
            workers, groups = case
            chain = gpu_chains.write(options, {nf: groups}, workers=workers)
            return gpu_chains.measure(options, chain, groups)["rate"]
        rates = rounds(options, sizes, cases, measure)
        name = lambda workers, groups: f"input cores {workers}, syncers {min(workers, groups)}, work-groups {groups}"
        series = {name(*case): [point(size, [rate / 1e6 for rate in rates[size, case]]) for size in sizes]
                  for case in cases}
        panels.append({"title": nf, "x": "bytes of a packet", "y": MPPS, "log": True, "series": series})
    return [{"name": "figure-4", "title": "Input cores and syncers", "paper": UNKNOWN, "panels": panels, "notes": [
        "each worker receives packets and serves a syncer; a syncer has a work-group at least"]}]


def places(options):
    """Figures 5 and 8: single NFs, on the processor and on the device."""
    placement = gpu_chains.place(options, [64] if options.quick else [64, 512, 1472], 1 if options.quick else
                                 options.rounds, round(1000 * options.seconds))
    rates, costs, energy = {}, {}, {}
    for one in placement["measurements"]:
        if one["at"] not in ["cpu", options.device]:
            continue
        if "failure" in one:
            raise SystemExit(f"{one['nf']} at {one['at']}: {one['failure']}")
        size = "imix" if one["traffic"] == "own" else int(one["traffic"])
        median, (least, most) = one["packets_per_second"], one["packets_per_second_spread"]
        of = lambda table: table.setdefault(one["nf"], {}).setdefault(f"at {one['at']}", [])
        of(rates).append((size, median / 1e6, least / 1e6, most / 1e6))
        # These are those of the median sample.
        of(costs).append((size, *[1e3 / one["cpu_ns_per_packet"]] * 3))
        if "joules_per_packet" in one:
            of(energy).append((size, *[1e-6 / one["joules_per_packet"]] * 3))
    panels = lambda table, y: [
        {"title": nf, "x": "bytes of a packet", "y": y, "log": True, "series": by_size(series)}
        for nf, series in table.items()]
    single = {"name": "figure-5", "title": "Single NFs on the processor and on the device", "paper": UNKNOWN,
              "panels": panels(rates, MPPS),
              "notes": ["by thalweg place --measure: one worker, and one work-group on the device"]}
    why = placement.get("without_joules")
    note = f"packets a joule are unavailable: {why}" if why else f"sensors: {', '.join(placement['sensors'])}"
    cost = {"name": "figure-8", "title": "Packets by processor time and by energy", "notes": [note],
            "paper": "6 times the throughput a core and 3.5 times the throughput a unit of energy of the state of "
                     f"the art, for chains; {ABSTRACT}. By NF and size: not at hand",
            "panels": panels(costs, "million packets a processor second") +
                      panels(energy, "million packets a joule")}
    return single, cost


def by_size(series):
    """Points in the order of their sizes, `imix` last."""
    order = lambda point: (isinstance(point[0], str), point[0])
    return {name: sorted(points, key=order) for name, points in series.items()}


def partitions(options):
    """Figure 6: NFs share the device by work-groups, or one of them has all of it; and, for figure 8, what a
    chain costs."""
    groups = max(options.work_groups, 2)
    cases = {"processor alone": (0, 0), "both on the device": (groups - groups // 2, groups // 2),
             "vpn on the device, ids on the processor": (0, groups),
             "ids on the device, vpn on the processor": (groups, 0)}
    sizes = sizes_of(options)

    def measure(case):
        ids, vpn = cases[case]
        chain = gpu_chains.write(options, {"ids": ids, "vpn": vpn, "edge": 0})
        return gpu_chains.measure(options, chain, ids + vpn, cost=True)
    values = rounds(options, sizes, cases, measure)
    known = lambda which, size, case: [value[which] / 1e6 for value in values[size, case] if which in value]
    series = lambda which: {case: [point(size, known(which, size, case)) for size in sizes
                                   if known(which, size, case)] for case in cases}
    title = f"ids, vpn, edge: {groups} work-groups"
    panel = {"title": title, "x": "bytes of a packet", "log": True}
    figure = {"name": "figure-6", "title": "A shared device against device and processor", "paper": UNKNOWN,
              "panels": [{**panel, "y": MPPS, "series": series("rate")}],
              "notes": ["one worker; edge, a router, is on the processor"]}
    return figure, {**panel, "y": "million packets a processor second", "series": series("per_core")}


BOTH, VPN, IDS = ["ids", "vpn", "edge"], ["vpn", "edge"], ["ids", "edge"]
# By name: the share of flows of type `two`, and the ways of the types.
MIXES = {
    "all: ids, vpn": (ALL, BOTH, BOTH),
    "50/50: vpn or ids": (HALF, VPN, IDS),
    "93/7: vpn or ids": (FEW, VPN, IDS),
    "7/93: vpn or ids": (MOST, VPN, IDS),
    "50/50: both orders": (HALF, BOTH, ["vpn", "ids", "edge"]),
}


def mixes(options):
    """Figure 7: packets of several types take different ways."""
    panels = []
    sizes = [64] if options.quick else [64, 512]
    cases = [(mix, place) for mix in MIXES for place in ["processor", "device"]]
    dummies = collections.defaultdict(list)

    def measure(case):
        (share, one, two), groups = MIXES[case[0]], 1 if case[1] == "device" else 0
        chain = gpu_chains.write(options, {"ids": groups, "vpn": groups, "edge": 0},
                                 ways={"one": one, "two": two}, share=share)
        measured = gpu_chains.measure(options, chain, 2 * groups)
        dummies[case[0]].append(measured["dummies"])
        return measured["rate"]
    for size in sizes:
        dummies.clear()
        rates = rounds(options, [size], cases, measure)
        series = {f"vpn and ids on the {place}": [point(mix, [rate / 1e6 for rate in rates[size, (mix, place)]])
                                                  for mix in MIXES] for place in ["processor", "device"]}
        panels.append({"title": f"{size} bytes", "x": "flows and their ways", "y": MPPS, "log": False,
                       "series": series})
        shares = {nf: [point(mix, [100 * share[nf] for share in dummies[mix] if nf in share]) for mix in MIXES]
                  for nf in ["vpn", "ids"]}
        panels.append({"title": f"{size} bytes: dummies", "x": "flows and their ways", "y": "% of slots",
                       "log": False, "series": shares})
    return [{"name": "figure-7", "title": "Ways that change from packet to packet", "paper": UNKNOWN,
             "panels": panels, "notes": ["one worker; one work-group for each NF on the device"]}]


def all_of(options):
    """The figures that `options` wants."""
    wants = lambda *names: any(name in options.only for name in names)
    figures = []
    if wants("3"):
        gpu_ways.build()
        figures += ways(options)
    if wants("overhead"):
        gpu_ways.build()
        figures += overhead(options)
    if wants("4", "5", "6", "7", "8"):
        gpu_chains.prepare()
    if wants("4"):
        figures += syncers(options)
    single, cost = places(options) if wants("5", "8") else (None, None)
    shared, of_chain = partitions(options) if wants("6", "8") else (None, None)
    figures += [figure for name, figure in [("5", single), ("6", shared)] if wants(name)]
    if wants("7"):
        figures += mixes(options)
    if wants("8"):
        cost["panels"].insert(0, of_chain)
        figures.append(cost)
    return sorted(figures, key=lambda figure: figure["name"])
