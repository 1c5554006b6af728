"""Shared by the benchmarks in Python: what a figure was measured on, and the marked sections of docs/performance.md.

A section is what stands between two lines of the document,

    <!-- begin: NAME (COMMAND) -->
    ...
    <!-- end -->

and is written by the command that it names, never by hand.
"""

import os
import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/performance.md"


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def core_count():
    return len(os.sched_getaffinity(0))


def available_bytes():
    for line in open("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def total_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def find(value, key, kinds):
    """The first member called `key` of one of these types, anywhere inside a JSON value; None without."""
    if isinstance(value, dict):
        if isinstance(value.get(key), kinds):
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            if (found := find(item, key, kinds)) is not None:
                return found
    return None


def machine_text(program, versions=()):
    """One line: where, when and with which versions."""
    version = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False).stdout
    parts = [f"{cpu_name()}, {core_count()} cores, {total_bytes() / 2**30:.0f} GiB", time.strftime("%Y-%m-%d"),
             " ".join(version.split("\n")[0].split()) or "headroom", f"commit {commit.strip()}" if commit else "", *versions]
    return "; ".join(part for part in parts if part)


def command_text(name, arguments):
    """The command of a section, without options that name places of one machine."""
    words, places = [], ("--program", "--scratch", "--json")
    for before, word in zip(["", *arguments], arguments):
        if before not in places and word not in places:
            words.append(word)
    return " ".join(["./dev bench", name, *words])


def replace_section(name, command, body, path=DOCUMENT):
    """Puts `body` between the marks of section `name`, and the command into the first of them."""
    text = path.read_text()
    marks = re.compile(r"<!-- begin: " + re.escape(name) + r" \([^\n]*-->\n.*?<!-- end -->", re.DOTALL)
    section = f"<!-- begin: {name} ({command}) -->\n{body.strip()}\n<!-- end -->"
    text, count = marks.subn(lambda _: section, text)
    if count != 1:
        raise SystemExit(f"{path.relative_to(ROOT)} has {count} sections '{name}'; it needs one: <!-- begin: {name} () --> ... <!-- end -->")
    path.write_text(text)
