"""Draw the bars of benchmarks.peers; runs where matplotlib is: python plot.py RESULTS_JSON PNG."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

with open(sys.argv[1]) as file:
    groups = json.load(file)
figure, axes = plt.subplots(1, len(groups), figsize=(6.5 * len(groups), 3.6))
for axis, group in zip(axes, groups, strict=True):
    bars = sorted(group["bars"], key=lambda bar: bar["seconds"], reverse=True)
    colours = ["#2563eb" if bar["name"].startswith("evalcore") else "#9ca3af" for bar in bars]
    drawn = axis.barh(
        [bar["name"] for bar in bars], [bar["seconds"] for bar in bars], color=colours
    )
    axis.bar_label(drawn, [bar["label"] for bar in bars], padding=4, fontsize=9)
    axis.set_title(group["title"], fontsize=10)
    axis.set_xlabel("seconds, the whole command")
    axis.margins(x=0.25)
    if group.get("ideal"):
        axis.axvline(group["ideal"], color="#16a34a", linestyle="--", linewidth=1)
    axis.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
figure.savefig(sys.argv[2], dpi=110)
