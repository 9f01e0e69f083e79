"""What PRIVIC prints: Tables 2 and 3, EMD in cells, cycles down, five rounds across."""

from __future__ import annotations

import numpy as np

from geoveil.arrays import FloatArray

# Cycle 1 is the uniform start itself; cycle 2 is the first collection. Means of the five rounds.
_PARIS_SHARP = """
0.27104 0.27796 0.28247 0.27758 0.26276
0.21916 0.23750 0.25035 0.25116 0.23241
0.19156 0.21115 0.21726 0.20913 0.20408
0.18241 0.19264 0.19570 0.19747 0.18728
0.16526 0.18020 0.174578 0.17310 0.17268
0.14643 0.18159 0.16092 0.17222 0.17139
0.13860 0.17605 0.15938 0.17078 0.16192
0.15047 0.16926 0.15153 0.17005 0.15266
0.14734 0.14825 0.14585 0.15001 0.15459
0.14227 0.14135 0.14326 0.13797 0.14507
0.13818 0.14448 0.14703 0.13589 0.14142
0.16111 0.13641 0.14893 0.14208 0.13808
0.13894 0.13111 0.14094 0.14199 0.14192
0.15106 0.14271 0.14601 0.13584 0.12413
"""
_PARIS_BLURRED = """
0.57738 0.57994 0.55791 0.60717 0.56880
0.51324 0.48295 0.47043 0.51285 0.45826
0.43184 0.42398 0.41040 0.45230 0.41119
0.39741 0.38771 0.37284 0.41176 0.36953
0.37818 0.35482 0.36039 0.36375 0.38045
0.35044 0.34383 0.34818 0.35760 0.36804
0.34086 0.32983 0.35769 0.34430 0.34780
0.33137 0.31749 0.34690 0.33840 0.34028
0.3170 0.32975 0.32772 0.34529 0.32670
0.31917 0.31851 0.32689 0.33667 0.32043
0.32137 0.32451 0.31843 0.32556 0.34014
0.31224 0.31219 0.31380 0.31515 0.31159
0.30883 0.30496 0.30578 0.30726 0.30282
0.29405 0.31198 0.30786 0.31167 0.30100
"""
_SAN_FRANCISCO_SHARP = """
0.37229 0.37038 0.36784 0.36949 0.36816
0.29828 0.298370 0.30017 0.29784 0.29859
0.26091 0.26029 0.26231 0.26180 0.26518
0.23472 0.23419 0.23337 0.23740 0.23897
0.21367 0.21432 0.21537 0.21777 0.21881
0.19612 0.19761 0.19904 0.20120 0.20067
0.18244 0.18412 0.18741 0.18724 0.18674
"""
_SAN_FRANCISCO_BLURRED = """
0.79621 0.80474 0.80219 0.80670 0.79940
0.64931 0.66292 0.65362 0.65950 0.65285
0.56896 0.57378 0.57338 0.57125 0.56618
0.51672 0.51710 0.51735 0.51880 0.51138
0.48194 0.48299 0.47992 0.48267 0.47791
0.45531 0.45861 0.45122 0.45732 0.45450
0.43588 0.43745 0.43558 0.43704 0.43584
"""


def _rounds(text: str) -> FloatArray:
    """(rounds, cycles from the second on)."""
    lines = [line.split() for line in text.strip().splitlines()]
    return np.array(lines, dtype=np.float64).T


PUBLISHED: dict[tuple[str, float], FloatArray] = {
    ("Paris", 1.0): _rounds(_PARIS_SHARP),
    ("Paris", 0.5): _rounds(_PARIS_BLURRED),
    ("San Francisco", 1.0): _rounds(_SAN_FRANCISCO_SHARP),
    ("San Francisco", 0.5): _rounds(_SAN_FRANCISCO_BLURRED),
}
"""EMD in cells by city and β per cell: one row a round, one column a cycle, from cycle 2 on."""

START = {"Paris": 2.02262, "San Francisco": 7.37595}
"""EMD of the uniform start in cells, cycle 1 of Tables 2 and 3."""


def spread(rounds: FloatArray) -> float:
    """How far the printed rounds of one β lie apart, in the cycle where they differ most."""
    return float(np.ptp(rounds, axis=0).max())
