"""A fleet on paper: what 100 million items take with 10 to 10 000 workers, and what bounds them.

    uv run --group benchmark python -m benchmarks.fleet [--measure] [--rounds N]

A discrete-event simulation (benchmarks/fleet_model.py) with the costs of `fleet_costs.json`.
`--measure` measures them here and checks the model with real runs of one, two and four workers:
exit code 1 if one differs by more than 15 %. Writes RESULTS.md and the plots of docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.fleet_measures import (
    AT_ONCE,
    LATENCY_S,
    LIVE_ITEMS,
    Measured,
    instant_cpu_s,
    measure,
)
from benchmarks.fleet_model import Prediction, simulate
from benchmarks.fleet_parameters import Costs, Fleet, StoreLimits
from benchmarks.fleet_plots import Line, draw
from benchmarks.measure import Row, machine, table, write_section
from evalcore.planning.shards import MAX_SHARDS

COSTS = Path(__file__).with_name("fleet_costs.json")
BOUND = 0.15
CHECKED_ITEMS = 60_000
CALM_STRETCH = 1.15
ITEMS = 100_000_000
WORKERS = (10, 30, 100, 300, 1_000, 3_000, 10_000)
SPOT_LIFE_S = 3_600.0
# Dollars: a core for an hour at spot prices; 1 000 requests of each kind at AWS.
CORE_HOUR, PUT_PRICE, GET_PRICE = 0.02, 0.005, 0.0004
WORK: Mapping[str, Mapping[str, float]] = {
    "given outputs": {},
    "calls of 1 s, 100 at once in each worker": {"latency_s": 1.0},
    "the same, provider allows 10 000 a second": {"latency_s": 1.0, "provider_per_s": 10_000.0},
}
FEW_SHARDS = "calls of 1 s, at most 2 000 shards (planned through Prefect)"


def dollars(prediction: Prediction, workers: int) -> float:
    """Return what machines and requests cost, without the provider's calls."""
    hours = (prediction.plan_s + prediction.report_s + workers * prediction.execute_s) / 3600
    requests = prediction.requests
    puts, gets = requests["PUT"] + requests["LIST"], requests["GET"] + requests["HEAD"]
    return hours * CORE_HOUR + (puts * PUT_PRICE + gets * GET_PRICE) / 1000


def predict(
    costs: Costs, workers: int, work: Mapping[str, float], shards: int | None = None
) -> Prediction:
    """Return the prediction for 100 million items on spot machines, of which 1 % are slow."""
    fleet = Fleet(ITEMS, workers, life_s=SPOT_LIFE_S, slow_share=0.01)
    return simulate(replace(fleet, **work, max_shards=shards), costs)


def predictions(costs: Costs) -> dict[str, dict[int, Prediction]]:
    """Return all predictions: by work and number of workers."""
    every = {
        name: {workers: predict(costs, workers, work) for workers in WORKERS}
        for name, work in WORK.items()
    }
    live = WORK["calls of 1 s, 100 at once in each worker"]
    every[FEW_SHARDS] = {workers: predict(costs, workers, live, MAX_SHARDS) for workers in WORKERS}
    return every


def fleet_table(every: Mapping[str, Mapping[int, Prediction]]) -> str:
    """Return the predictions as a Markdown table."""
    lines = [
        "| work | workers | plan (h) | execute (h) | report (h) | idle | executed again | "
        "requests (million) | store's limit | $ | first bottleneck |",
        f"|---|{'---:|' * 9}---|",
    ]
    for name, by_workers in every.items():
        for workers, outcome in by_workers.items():
            cells = (
                name,
                f"{workers:,}".replace(",", " "),
                *(f"{s / 3600:.2f}" for s in (outcome.plan_s, outcome.execute_s, outcome.report_s)),
                f"{outcome.idle_share:.0%}",
                f"{outcome.again_items / ITEMS:.1%}",
                f"{Counter(outcome.requests).total() / 1e6:.1f}",
                f"{outcome.busiest_store:.0%}",
                f"{dollars(outcome, workers):.0f}",
                outcome.bottleneck,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def check_rows(measured: Measured, items: int) -> list[Row]:
    """Return the lines that compare the model with real workers on two cores."""
    rows = []
    reference = Fleet(0, 0, store=StoreLimits(latency_s=0))
    cores = os.cpu_count() or 1
    instant = {"items": items}
    live = {"items": LIVE_ITEMS, "latency_s": LATENCY_S, "at_once": AT_ONCE}
    compared = (
        (f"{items} given outputs", instant, measured.instant_s),
        (f"{LIVE_ITEMS} calls of {LATENCY_S * 1000:.0f} ms", live, measured.live_s),
    )
    for what, work, seconds_by_workers in compared:
        for workers, seconds in seconds_by_workers.items():
            fleet = replace(reference, workers=workers, **work)
            costs = measured.costs.stretched(_stretch(measured, workers, cores))
            predicted = simulate(fleet, costs).execute_s
            rows.append(_check_row(f"{what}, workers: {workers}", seconds, predicted))
    for workers, cpu_s in measured.instant_cpu_s.items():
        predicted = instant_cpu_s(measured.costs, items, workers)
        if workers >= cores:
            predicted *= measured.crowding
        what = f"processor time of {items} given outputs, workers: {workers}"
        rows.append(_check_row(what, cpu_s, predicted))
    return rows


def _stretch(measured: Measured, workers: int, cores: int) -> float:
    """Return how long a second of a worker's processor time takes beside the others."""
    if measured.stretch > CALM_STRETCH:
        # So many others want a core all the time.
        busy = measured.stretch * cores - 1
        return max(1.0, (busy + workers) / cores)
    if workers < cores:
        return measured.stretch
    return measured.crowding * workers / cores


def _check_row(what: str, seconds: float, predicted: float) -> Row:
    off = predicted / seconds - 1
    missed = f"{off:+.0%} beyond {BOUND:.0%}" if abs(off) > BOUND else ""
    return Row((what, f"{seconds:.2f}", f"{predicted:.2f}", f"{off:+.1%}"), missed)


def draw_all(every: Mapping[str, Mapping[int, Prediction]]) -> None:
    """Write the plots of docs/scale.md."""

    def lines(value: str) -> Sequence[Line]:
        return [
            Line(name, [(workers, _values(by[workers], workers)[value]) for workers in by])
            for name, by in every.items()
        ]

    draw(
        "fleet-hours",
        lines("hours"),
        title="100 million items: hours from the start of planning to the report",
        value="hours",
    )
    draw(
        "fleet-store",
        lines("store"),
        title="100 million items: requests in relation to the limits of one prefix",
        value="share of the limit",
        bound=1.0,
    )
    draw(
        "fleet-dollars",
        lines("dollars"),
        title="100 million items: dollars for machines and requests, without the calls",
        value="dollars",
    )


def _values(outcome: Prediction, workers: int) -> dict[str, float]:
    return {
        "hours": outcome.wall_s / 3600,
        "store": max(outcome.busiest_store, 1e-3),
        "dollars": dollars(outcome, workers),
    }


def main() -> int:
    """Predict, draw, write into RESULTS.md; with `--measure` check the model first."""
    parser = argparse.ArgumentParser(description="Predict what a fleet of workers takes.")
    parser.add_argument("--measure", action="store_true", help="measure the costs, check the model")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--items", type=int, default=CHECKED_ITEMS, help="of the runs that check")
    options = parser.parse_args()
    rows: list[Row] = []
    if options.measure:
        load = os.getloadavg()[0]
        measured = measure(options.rounds, options.items)
        rows = check_rows(measured, options.items)
        COSTS.write_text(json.dumps(asdict(measured.costs), indent=2) + "\n")
        header = ("workers", "measured (s)", "predicted (s)", "difference")
        text = (
            "## The model of a fleet, checked\n\n`uv run --group benchmark python -m "
            f"benchmarks.fleet --measure`, worker processes from their start to the last commit, "
            f"median of {options.rounds} each in turn, {machine()}, load {load:.1f} when it began "
            "(other work ran beside it: a second of a worker's processor time took "
            f"{measured.stretch:.2f} s, and as many workers as cores took {measured.crowding:.2f} "
            f"times the processor time). Bound: {BOUND:.0%}.\n\n{table(header, rows)}"
        )
        print(text)
        write_section("fleet-check", text)
    costs = Costs(**json.loads(COSTS.read_text()))
    every = predictions(costs)
    facts = ", ".join(f"{name} {value:.3g}" for name, value in asdict(costs).items())
    text = (
        f"## A fleet, predicted\n\n`uv run --group benchmark python -m benchmarks.fleet`: "
        f"{ITEMS:,} items, spot machines that live an hour on average, 1 % of them five times as "
        f"slow, S3 with 50 ms, 3 500 PUT/s and 5 500 GET/s. Costs measured here: {facts}.\n\n"
        f"{fleet_table(every)}"
    )
    print(text)
    write_section("fleet", text)
    draw_all(every)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
