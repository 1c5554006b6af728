#!/usr/bin/env python3
"""Makes empty stand-ins for the CUDA libraries that PyTorch links against and that are not here (cuBLAS, cuDNN, NCCL, ...): every function that
PyTorch wants of them answers 0, success.

    tests/oracle/stubs.py TORCH_LIB OUT [LIBRARY...]     OUT already has the fake libcudart (build.sh); LIBRARY: others that want them too"""

import re
import subprocess
import sys
from pathlib import Path

# PyTorch asks cuBLASLt for algorithms and gives up when there is none.
ONE_ALGORITHM = """int cublasLtMatmulAlgoGetHeuristic(void *a, void *b, void *c, void *d, void *e, void *f, void *g, int wanted, void *found, int *count) {
  *count = 1;
  return 0;
}
"""
# Each handle is another one: PyTorch keeps a workspace for each.
HANDLES = {"cublasCreate_v2", "cublasLtCreate", "cudnnCreate", "cusolverDnCreate", "cusparseCreate"}
HANDLE = """int {name}(void **handle) {{
  static char made[64];
  static int count;
  *handle = made + __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST) % 64;
  return 0;
}}
"""
SYSTEM = re.compile(r"lib(c|m|z|dl|rt|pthread|stdc\+\+|gcc_s|gomp|torch.*|c10.*|shm|caffe2.*|cudart|cuda)\.so.*|ld-linux.*")


def dynamic(library):
    text = subprocess.run(["readelf", "-W", "-d", "-V", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    versions, file = {}, None  # version -> the library that should have it
    wanted, defined = set(), set()
    for line in text.splitlines():
        if found := re.search(r"Version: \d+ +File: (\S+)", line):
            file = found[1]
        elif found := re.search(r"Name: (\S+) +Flags: ", line):
            versions[found[1]] = file
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":"):
            continue
        name, kind = fields[7], fields[4]
        if fields[6] == "UND":
            if kind != "WEAK":
                wanted.add(name)
        else:
            defined.add(name.split("@")[0])
    return needed, wanted, defined, versions


def function(name):
    if name == "cublasLtMatmulAlgoGetHeuristic":
        return ONE_ALGORITHM
    return HANDLE.format(name=name) if name in HANDLES else f"int {name}(void) {{ return 0; }}\n"


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    missing, wanted, defined, owner = set(), set(), set(), {}
    for library in [*sorted(folder.glob("*.so*")), *map(Path, sys.argv[3:])]:
        needs, wants, has, versions = dynamic(library)
        missing |= {n for n in needs if not SYSTEM.fullmatch(n)}
        wanted |= wants
        defined |= has
        owner |= versions
    for system in ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"):
        path = subprocess.run(["gcc", f"-print-file-name={system}"], capture_output=True, text=True, check=True).stdout.strip()
        defined |= dynamic(path)[2]
    plain = {w for w in wanted if "@" not in w and w not in defined and not w.startswith(("_ZN5torch", "_ZN3c10", "_ZN2at", "Py", "_Py"))}
    versioned = {version: set() for version, file in owner.items() if file in missing}
    for symbol in wanted:
        name, _, version = symbol.partition("@")
        if version.lstrip("@") in versioned:
            versioned[version.lstrip("@")].add(name)
    for count, soname in enumerate(sorted(missing)):
        groups = {version: names for version, names in versioned.items() if owner[version] == soname} or {soname: set()}
        if count == 0:
            groups.setdefault(soname, set()).update(plain)
        names = sorted(set().union(*groups.values()))
        source = "".join(function(n) for n in names)
        (out / "stub.map").write_text("".join(f"{v} {{ {''.join(n + '; ' for n in sorted(g))}}};\n" for v, g in groups.items()))
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{soname}", f"-Wl,--version-script,{out}/stub.map",
                        "-o", out / soname], input=source, text=True, check=True)
        print(f"{soname}: {len(names)} functions")


if __name__ == "__main__":
    main()
