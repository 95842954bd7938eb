"""Time of the whole pipeline on real response files, with one worker process and with two.

    python tests/benchmarks/real_data.py [file ...]

Runs ``irt-dask run pipelines/large_assessment.toml`` on each file; without arguments, on those of
../shared/data.  Times of stages are those of the run's own record; the total is that of the
command, the start of Python and of the workers included.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PIPELINE = ROOT / "pipelines" / "large_assessment.toml"
WORKERS = (1, 2)


def run(source, workers, folder):
    """Return seconds by stage, and of the command."""
    cluster = folder / f"workers-{workers}.toml"
    cluster.write_text(f'[cluster]\nkind = "local"\nworkers = {workers}\n')
    out = folder / f"{source.name}-{workers}"
    options = ["--source", source, "--out", out, "--cluster", cluster, "--quiet"]
    command = [sys.executable, "-m", "irt_dask.cli", "run", PIPELINE, *options]
    begun = time.perf_counter()
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    total = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{source.name} with {workers} worker(s) failed:\n{done.stderr}")
    stages = json.loads((out / "run.json").read_bytes())["stages"]
    return {name: stage["seconds"] for name, stage in stages.items()} | {"total": total}


def main():
    sources = [Path(name).resolve() for name in sys.argv[1:]] or sorted(DATA.glob("*.csv.gz"))
    if not sources:
        raise SystemExit(f"there are no files in {DATA}: name some")
    with tempfile.TemporaryDirectory() as name:
        rows = [(source, w, run(source, w, Path(name))) for source in sources for w in WORKERS]
    stages = list(dict.fromkeys(stage for *_, seconds in rows for stage in seconds))
    print(f"{'file':<28} {'workers':>7} " + " ".join(f"{stage:>9}" for stage in stages))
    for source, workers, seconds in rows:
        cells = " ".join(f"{seconds.get(stage, float('nan')):>9.2f}" for stage in stages)
        print(f"{source.name:<28} {workers:>7} {cells}")


if __name__ == "__main__":
    main()
