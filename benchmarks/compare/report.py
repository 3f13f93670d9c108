"""Tables of what compare.py measured, in Markdown."""
from bounds import geometric_mean, mean_bounds, verdict
from rows import MEAN_BAR, OWN_BARS, PEAK_BAR, START_BAR_SECONDS

PARTS = ["compute", "communication", "pipeline_wait", "optimizer", "data", "other"]


def pairs_of(result, other="peer"):
    return list(zip(result["plait"]["steps"], result[other]["steps"]))


def speed_table(results):
    print("\n| row | best baseline | ratio (95 % bounds) | bar | | tokens/s plait, baseline | step ms plait, baseline | start s | memory MB sum "
          "| foreign cores |\n|---|---|---|---|---|---|---|---|---|---|")
    for r in results:
        a, b = r["plait"], r["peer"]
        both = lambda k, digits=0: f"{a[k]:.{digits}f}, {b[k]:.{digits}f}"
        print(f"| {r['row']} | {r['baseline']} | **{r['ratio']:.2f}** ({r['lower']:.2f}, {r['upper']:.2f}) | {r['bar']} | {verdict(r['upper'], r['bar'])} | "
              f"{both('tokens_per_second')} | {both('step_ms')} | {both('startup_seconds', 2)} | {both('memory_mb_sum')} | {r['foreign_cores']:.2f} |")
    if len(results) > 1:
        mean, lower, upper = mean_bounds([pairs_of(r) for r in results])
        print(f"\nGeometric mean of {len(results)} rows: **{mean:.2f}** ({lower:.2f}, {upper:.2f}), bar {MEAN_BAR}: {verdict(upper, MEAN_BAR)}")


def other_bars_table(results):
    """One process with two threads, start, share of the peak: bars that are not against a baseline."""
    lines = []
    for r in results:
        if "one_process" in r:
            o = r["one_process"]
            bar = OWN_BARS[r["workload"]]
            lines.append(f"| {r['row']}: tokens/s against plait's one process with 2 threads | {o['ratio']:.2f} ({o['lower']:.2f}, {o['upper']:.2f}), "
                         f"{r['plait']['step_ms']:.0f} against {o['step_ms']:.0f} ms | {bar} | {verdict(o['upper'], bar)} |")
        if r["workload"] == "W2" and r["layout"] == "dp2-tp2-pp2":
            seconds = r["plait"]["startup_seconds"]
            lines.append(f"| {r['row']}: start to the end of the first step | {seconds:.2f} s, baseline {r['peer']['startup_seconds']:.1f} s | "
                         f"{START_BAR_SECONDS} s | {'pass' if seconds < START_BAR_SECONDS else 'MISSED'} |")
        if r.get("mfu") and r["layout"] == "dp1" and r["workload"] in ("W1", "W4") and r["dtype"] == "fp32":
            lines.append(f"| {r['row']}: share of the rate of matrix products | {100 * r['mfu']:.0f} % | {100 * PEAK_BAR:.0f} % | "
                         f"{'pass' if r['mfu'] >= PEAK_BAR else 'MISSED'} |")
    if lines:
        print("\n| | measured | bar | |\n|---|---|---|---|\n" + "\n".join(lines))


def breakdown_table(results):
    """Where plait's step goes, on rank 0: the parts of metrics.jsonl, which add up to the step; hidden communication lies beside it."""
    rows = [r for r in results if "compute_seconds" in r["plait"]]
    if not rows:
        return
    print("\n| row | step ms (mean) | " + " | ".join(p.replace("_", " ") for p in PARTS) + " | hidden communication | share of the machine's matrix products |"
          "\n|---|---|" + "---|" * (len(PARTS) + 2))
    for r in rows:
        a = r["plait"]
        step = a["mean_step_seconds"]
        shares = [a[p + "_seconds"] / step for p in PARTS] + [a["hidden_communication_seconds"] / step]
        mfu = f"{100 * r['mfu']:.0f} %" if r.get("mfu") else ""
        print(f"| {r['row']} | {1e3 * step:.0f} | " + " | ".join(f"{100 * s:.0f} %" for s in shares) + f" | {mfu} |")


def qualifying_table(results):
    rows = [r for r in results if len(r["qualifying_step_ms"]) + len(r["not_run"]) > 1]
    if not rows:
        return
    print("\n| row | step ms of each baseline in one run; the fastest went on |\n|---|---|")
    for r in rows:
        times = ", ".join(f"{peer} {ms:.0f}" for peer, ms in sorted(r["qualifying_step_ms"].items(), key=lambda x: x[1]))
        print(f"| {r['row']} | {times}" + "".join(f"; {peer}: {why}" for peer, why in r["not_run"].items()) + " |")


def print_all(results):
    speed_table(results)
    other_bars_table(results)
    breakdown_table(results)
    qualifying_table(results)


__all__ = ["print_all", "geometric_mean", "pairs_of"]
