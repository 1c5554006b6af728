#!/usr/bin/env bash
# pack.sh [--for GENERATIONS]: everything that the scripts of bench/gpu need on a machine with a card, in build/card: the program, the
# tests of kernels and the timings built for a card, libheadroom-cuda.so, and the libraries that they were linked with, which that machine
# may not have. It needs nvcc 13 and what the build needs, and no card. The machine with the card needs a driver, python3 and CUDA's
# libraries (a toolkit, or Python packages); it may be another one: take the working tree there, build/card with it.
# --for 90 (H100, H200) compiles less; default: all generations.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
generations=()
if [[ ${1:-} == --for ]]; then
  generations=(--for "${2:?pack.sh: --for needs generations, such as 90}")
elif (($#)); then
  echo "pack.sh: unknown option $1 (--for 80,90)" >&2
  exit 2
fi
target=build/card
work=build/card-build
fragments=build/cuda/fragments/libfragments.so

library=build/cuda/libheadroom-cuda.so
if ((${#generations[@]})) || [[ ! -f $library || -n $(find src include scripts/cuda.sh \( -name '*.cu*' -o -name '*.h' -o -name cuda.sh \) -newer "$library" -print -quit) ]]; then
  ./dev build cuda "${generations[@]}"
fi
nvcc=${NVCC:-$(command -v nvcc || echo build/cuda-tools/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)}
mkdir -p "$(dirname "$fragments")" "$target/lib"
"$nvcc" -std=c++17 -O3 -Iinclude -Isrc -Itests -gencode "arch=compute_80,code=[sm_80,compute_80]" -gencode arch=compute_90,code=sm_90 \
  -Werror all-warnings -Xcompiler -Wall,-Wextra,-fPIC -shared -Xlinker -z,defs -o "$fragments" tests/gpu/fragments.cu
cmake -S . -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DHR_CUDA_LIBRARIES=$PWD/$library;$PWD/$fragments" >"$target/configure.log"
programs=(headroom card_cuda_kernels card_cuda_attention card_cuda_columns card_cuda_decode card_cuda_optim card_cuda_quant card_fragments
  card_kernels bench_gpu_kernels test_gemm test_attention bench_gemm bench_yardstick)
ninja -C "$work" -j "${DEV_JOBS:-$(nproc)}" "${programs[@]}"
for name in "${programs[@]}"; do
  cp "$work/$name" "$target/"
done
cp "$library" "$fragments" build/cuda/kernels.tsv "$target/lib/"
# Not libc and what belongs to it, nor the driver's and CUDA's own: these are the other machine's.
for name in "${programs[@]}"; do ldd "$work/$name"; done |
  awk '$2 == "=>" && $3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux.*|libcuda|libcu.*|libheadroom-cuda|libfragments)\.so/ { print $3 }' |
  sort -u | xargs -r cp -L -t "$target/lib"
missing=$(for name in "${programs[@]}"; do LD_LIBRARY_PATH=$target/lib ldd "$target/$name" | grep 'not found' || true; done)
if [[ -n $missing ]]; then
  printf 'pack.sh: libraries are missing:\n%s\n' "$missing" >&2
  exit 1
fi
du -sh "$target" >&2
