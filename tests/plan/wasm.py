"""wasm.py MODULE [arguments]: runs a WASI program under wasmtime, with this terminal and no files; exits as it does."""

import sys

import wasmtime


def main() -> int:
    config = wasmtime.WasiConfig()
    config.argv = sys.argv[1:]
    config.inherit_stdout()
    config.inherit_stderr()
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    store.set_wasi(config)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[1]))
    try:
        instance.exports(store)["_start"](store)
    except wasmtime.ExitTrap as exit_of_program:
        return exit_of_program.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
