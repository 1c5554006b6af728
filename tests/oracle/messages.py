#!/usr/bin/env python3
"""The text of out-of-memory errors, as each version words it: the first of four scripts.

    tests/oracle/messages.py OUT VERSION=RECORDER..."""

import subprocess
import sys
import tempfile
from pathlib import Path

import scripts

NAMES = ("fragmented", "fraction-0.33", "pools-tight", "throw-on-oom")


def main():
    known = {name: (oldest, text) for name, oldest, text in scripts.scripts()}
    lines = []
    for argument in sys.argv[2:]:
        version, recorder = argument.split("=")
        major, minor = (int(part) for part in version.split(".")[:2])
        for name in NAMES:
            oldest, text = known[name]
            if oldest > 100 * major + minor:
                continue
            with tempfile.NamedTemporaryFile() as file:
                subprocess.run([recorder, "/dev/stdin", file.name], input=text, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
                messages = Path(file.name).read_text(encoding="utf-8").splitlines()
            if messages:
                lines.append(f"{version} {name}: {messages[0]}\n")
    Path(sys.argv[1]).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
