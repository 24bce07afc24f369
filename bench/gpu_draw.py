#!/usr/bin/env python3
"""Draws figures of bench/gpu.py: reads a list of them as JSON, writes an SVG for each. Needs matplotlib.

    bench/gpu_draw.py FIGURES.json FOLDER
"""

import json
import re
import sys
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402, as the choice above comes first

from common import COLOURS  # noqa: E402

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "thalweg", "font.family": "sans-serif", "font.size": 9,
         "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#dddddd", "axes.axisbelow": True, "ytick.left": False,
         "xtick.bottom": False}


def draw_panel(axes, panel):
    """Lines over sizes, or groups of bars over names; error bars from the least to the most."""
    series = panel["series"]
    places = list(dict.fromkeys(str(p[0]) for points in series.values() for p in points))
    are_names = not all(place.isdigit() or place == "imix" for place in places)
    width = 0.8 / max(len(series), 1)
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        at = [places.index(str(x)) for x, *_ in points]
        medians = [median for _, median, _, _ in points]
        spread = [[max(median - least, 0) for _, median, least, _ in points],
                  [max(most - median, 0) for _, median, _, most in points]]
        if are_names:
            at = [x + width * (number - (len(series) - 1) / 2) for x in at]
            axes.bar(at, medians, width, yerr=spread, color=colour, label=name)
        else:
            axes.errorbar(at, medians, spread, color=colour, marker="o", markersize=3, label=name,
                          clip_on=False)
    axes.set_title(panel["title"], fontsize=10)
    axes.set_xticks(range(len(places)), [textwrap.fill(place, 11) for place in places])
    axes.set_xlabel(panel["x"])
    axes.set_ylabel(panel["y"])
    if panel["log"] and not are_names:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    else:
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))


def draw(figure, machine, path):
    panels = figure["panels"]
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    drawn, axes = pyplot.subplots(rows, columns, squeeze=False, figsize=(5.4 * columns, 3.4 * rows + 0.9),
                                  layout="constrained")
    for place in axes.flat[len(panels):]:
        place.axis("off")
    shared = all(list(panel["series"]) == list(panels[0]["series"]) for panel in panels)
    for place, panel in zip(axes.flat, panels):
        draw_panel(place, panel)
        if place is axes.flat[0] or not shared:
            place.legend(fontsize=7)
    wide = 80 * columns
    about = [f"{figure['title']} ({figure['name']})", machine, f"The paper: {figure['paper']}"]
    drawn.suptitle("\n".join(textwrap.fill(line, wide) for line in about), fontsize=9)
    drawn.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(drawn)
    path.write_text("".join(map(shorter, path.read_text().splitlines(keepends=True))))


def shorter(line):
    """A line of SVG without blanks around it and comments, and with coordinates to a tenth of a 72nd of an inch."""
    if line.lstrip().startswith("<!--"):
        return ""
    return line if "<text" in line else re.sub(r"(\.\d)\d+", r"\1", line.strip(" ").replace(" \n", "\n"))


def main():
    document, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    with pyplot.rc_context(STYLE):
        for figure in document["figures"]:
            draw(figure, document["machine"], folder / f"{figure['name']}.svg")


if __name__ == "__main__":
    main()
