"""One seed, told step by step: `python -m tests.storage.simulation SEED [--events N]`."""

from __future__ import annotations

import argparse
import sys

from tests.storage.simulation.world import EVENTS, Failed, World


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--events", type=int, default=EVENTS)
    arguments = parser.parse_args()
    world = World(arguments.seed, print)
    try:
        world.run(arguments.events)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    print(f"all well: {world.crashes} starts, {world.groups_read} groups read by replicas")
    return 0


sys.exit(main())
