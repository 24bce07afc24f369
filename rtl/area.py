#!/usr/bin/env python3
"""Gates and area of the synthesised accelerator, from what yosys counted.

    rtl/area.py STAT.json

Cells are weighed by their areas in the NanGate 45 nm Open Cell Library (smallest drive),
a flip-flop with enable as one with a multiplexer before it. 22 nm is taken as 45 nm shrunk
by the square of the ratio; seven tenths of a block's area are cells.
"""

import json
import sys
from pathlib import Path

NAND2, INV, AND2, OR2, XOR2, MUX2, DFF = 0.798, 0.532, 1.064, 1.064, 1.596, 1.862, 4.522
SHRINK = (22 / 45) ** 2
FILLED = 0.7
# The paper's figure for its accelerator (Table 4).
PART_OF_TILE = 0.012


def area(cell):
    """Square micrometres at 45 nm."""
    simple = {"$_NOT_": INV, "$_AND_": AND2, "$_OR_": OR2, "$_XOR_": XOR2, "$_MUX_": MUX2}
    if cell in simple:
        return simple[cell]
    if "DFF" not in cell:
        sys.exit(f"area: unknown kind of cell: {cell}")
    enable = MUX2 if "DFFE" in cell or "DFFCE" in cell else 0
    reset = AND2 if "SDFF" in cell else 0
    return DFF + enable + reset


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cells = json.loads(Path(sys.argv[1]).read_text())["design"]["num_cells_by_type"]
    flops = sum(n for cell, n in cells.items() if "DFF" in cell)
    square_um = sum(n * area(cell) for cell, n in cells.items())
    block = square_um * SHRINK / FILLED / 1e6
    print(f"{sum(cells.values())} cells, {flops} of them flip-flops; "
          f"{square_um / NAND2 / 1e3:.0f} thousand NAND2")
    print(f"about {block:.3f} mm2 at 22 nm ({square_um / 1e6:.3f} mm2 of cells at 45 nm); "
          f"the paper's 1.2 % of a tile, if the tile has {block / PART_OF_TILE:.1f} mm2")


if __name__ == "__main__":
    main()
