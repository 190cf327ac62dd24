"""Draw every picture of ``RESULTS.md`` from the result files.

python benchmarks/plots.py      # benchmarks/results/*.json -> benchmarks/results/*.png; needs the extra ``plots``
"""

from __future__ import annotations

import ablation_plots
import accuracy_plots
import speed_plots
import whitening_plots


def main() -> None:
    """Write all pictures whose results are there."""
    for module in (accuracy_plots, speed_plots, whitening_plots, ablation_plots):
        module.draw()


if __name__ == "__main__":
    main()
