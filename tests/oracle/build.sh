#!/usr/bin/env bash
# Builds the fake CUDA libraries and the recorder for one PyTorch version.
#   tests/oracle/build.sh TORCH_DIR CUDA_INCLUDE OUT [LIBRARY...]
# TORCH_DIR has include/ and lib/ of a CUDA wheel; CUDA_INCLUDE the headers of the CUDA version that the wheel was made for; LIBRARY is one
# that is not PyTorch's and wants the runtime too.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$3"
torch=$(realpath "$1") cuda=$(realpath "$2") out=$(realpath "$3") # the recorder remembers where its libraries lie
shift 3
soname=$(readelf -d "$torch/lib/libc10_cuda.so" | sed -n 's/.*\[\(libcudart[^]]*\)\].*/\1/p')
# The headers that name the version have moved (torch/headeronly/version.h in 2.13); this file has stayed.
version=$(sed -n "s/^__version__ = '\([0-9]*\)\.\([0-9]*\).*/\1 \2/p" "$torch/version.py")
read -r major minor <<<"$version"
[[ $major && $minor ]] || { echo "$torch/version.py names no version" >&2 && exit 1; }
printf '%s { global: *; };\n' "$soname" >"$out/version.map"
gcc -O2 -Wall -Wextra -fPIC -I"$cuda" -c "$here/fake_cuda.c" -o "$out/fake_cuda.o"
# Whatever else PyTorch's libraries ask of the runtime does nothing and answers 0, success; the rest of the driver is not supported.
{
  nm -D --undefined-only "$torch"/lib/*.so "$@" | sed -n "s/^ *U \(.*\)@$soname\$/\1/p"
  sed -n 's/.*_(\(cu[A-Z][A-Za-z0-9_]*\)[,)].*/\1/p' "$torch/include/c10/cuda/driver_api.h"
  if [[ -f $torch/lib/libtorch_cuda.so ]]; then # it looks driver functions up by name
    grep -aoE '\bcu(Ctx|Device|Module|Launch|Func|Mem|Pointer|Link|Occupancy|Tensor|Get)[A-Z][A-Za-z0-9_]*' "$torch/lib/libtorch_cuda.so"
  fi
} | sort -u >"$out/wanted"
nm --defined-only "$out/fake_cuda.o" | sed -n 's/.* T //p' | sort -u >"$out/written"
comm -23 "$out/wanted" "$out/written" | sed 's/^cu[A-Z].*/int &(void) { return 801; }/; s/^cuda.*/int &(void) { return 0; }/; s/^_.*/int &(void) { return 0; }/' >"$out/rest.c"
gcc -O2 -w -shared -fPIC "$out/fake_cuda.o" "$out/rest.c" -Wl,-soname,"$soname" -Wl,--version-script,"$out/version.map" -o "$out/$soname"
# Older versions look the driver up in libcuda itself; a library that needs ours passes the lookup on.
for name in libcuda.so.1 libnvidia-ml.so.1; do
  gcc -shared -fPIC -x c /dev/null -x none -Wl,--no-as-needed "$out/$soname" -Wl,-soname,$name -Wl,-rpath,'$ORIGIN' -o "$out/$name"
done
abi=1
if (($(nm -D "$torch/lib/libc10.so" | grep -c "_ZN3c105ErrorC.*cxx11") == 0)); then abi=0; fi
g++ -std=c++20 -O1 -w -D_GLIBCXX_USE_CXX11_ABI=$abi -DTORCH=$((major * 100 + minor)) -I"$cuda" -I"$torch/include" -I"$here" \
  "$here/record.cpp" -Wl,--no-as-needed "$out"/lib*.so.* -L"$torch/lib" -lc10_cuda -lc10 -Wl,-rpath,"$out:$torch/lib" -Wl,--disable-new-dtags -o "$out/record"
