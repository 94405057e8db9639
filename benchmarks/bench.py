"""Run every benchmark and write RESULTS.md beside this file, with the machine and the date."""

import datetime
import platform
from importlib.metadata import version
from pathlib import Path

import live
import speed

RESULTS = Path(__file__).with_name("RESULTS.md")
SECTIONS = {
    "Simulation beside its peers": speed.peers,
    "Simulation of the paper's algorithms": speed.private,
    "Growth": speed.growth,
    "Scale": speed.scale,
    "Live decisions": live.table,
}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")


def main() -> None:
    versions = ", ".join(f"{name} {version(name)}" for name in ("whitelie", "numba", "numpy"))
    parts = [
        "# Benchmarks",
        f"Made by `make bench` on {datetime.date.today()}: {processor()}, "
        f"Python {platform.python_version()}, {versions}.",
    ]
    for title, section in SECTIONS.items():
        print(f"{title} …", flush=True)
        parts.append(f"## {title}\n\n{section()}")
    RESULTS.write_text("\n\n".join(parts) + "\n")
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
