"""run.py DIRECTORY PROGRAM.wasm [ARGUMENT ...]: runs a WASI program that sees DIRECTORY as its root, with wasmtime."""
import sys

import wasmtime

directory, program, *arguments = sys.argv[1:]
engine = wasmtime.Engine()
linker = wasmtime.Linker(engine)
linker.define_wasi()
store = wasmtime.Store(engine)
wasi = wasmtime.WasiConfig()
wasi.argv = [program, *arguments]
wasi.inherit_stdout()
wasi.inherit_stderr()
wasi.preopen_dir(directory, "/")
store.set_wasi(wasi)
start = linker.instantiate(store, wasmtime.Module.from_file(engine, program)).exports(store)["_start"]
try:
    start(store)
except wasmtime.ExitTrap as stop:
    sys.exit(stop.code)
