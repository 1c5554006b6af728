#!/usr/bin/env bash
# cuda.sh --cublas FOLDER: compares src/gpu/cublas.h with cublasLt.h, cublas_api.h and library_types.h there (they come with cuBLAS).
# cuda.sh [--record] [--for 80,90] [FILE ...]: compiles the CUDA kernels (src/ops/*/cuda*.cu, or those named) with nvcc 13 for every
# generation that is supported (or those behind --for), as machine code and, for the newest ones to come, PTX; warnings are errors. Nothing
# is run: no card is needed. Objects, build/cuda/libheadroom-cuda.so and build/cuda/kernels.tsv (registers, bytes of shared memory and of
# stack, spills of each kernel and generation) are left behind.
# --record writes the table of docs/cuda-kernels.md anew. nvcc is that of PATH, of NVCC, or comes as wheels (scripts/cuda.txt).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C
supported=(80 86 89 90 100 120)
read -r -a generations <<<"${HRI_CUDA_GENERATIONS:-${supported[*]}}" # of a script that calls itself for each file
out=build/cuda

# src/ops/attention/cuda_backward.cu: attention_backward.
family_of() {
  local name
  name=$(basename "$1" .cu)
  echo "$(basename "$(dirname "$1")")${name#cuda}"
}

# One file: its objects, what ptxas says of it, and the seconds of processor that it took.
compile() {
  local nvcc=$1 file=$2 name arguments=() generation shared=compute_80
  name=$(family_of "$file")
  # Those without instructions of their own that we use share the front end's work.
  for generation in "${generations[@]}"; do
    if ((generation >= 90)); then arguments+=(-gencode "arch=compute_$generation,code=sm_$generation"); else shared+=,sm_$generation; fi
  done
  arguments+=(-gencode "arch=compute_80,code=[$shared]")
  TIMEFORMAT='%3U %3S'
  if ! { time "$nvcc" -std=c++17 -O3 -DNDEBUG -Iinclude -Isrc "${arguments[@]}" -Werror all-warnings -Xcompiler -Wall,-Wextra,-fPIC \
    -Xptxas -v -c "$file" -o "$out/$name.o" >"$out/$name.log" 2>&1; } 2>"$out/$name.seconds"; then
    grep -v '^ptxas info' "$out/$name.log" >&2
    echo "cuda: nvcc refused $file" >&2
    return 1
  fi
}

# Lines of ptxas become rows: family, kernel, generation, registers, shared, stack, spilled bytes.
table() {
  local log
  for log in "$out"/*.log; do
    c++filt <"$log" | awk -v family="$(basename "$log" .log)" '
      /Compiling entry function/ {
        match($0, /\047[^\047]*\047/); name = substr($0, RSTART + 1, RLENGTH - 2)
        match($0, /for \047sm_[0-9]+/); generation = substr($0, RSTART + 8, RLENGTH - 8)
        sub(/^void /, "", name); gsub(/\([a-z_]+\)/, "", name); sub(/\(.*$/, "", name); stack = spill = 0 }
      /bytes stack frame/ { stack = $1; spill = $5 + $9 }
      /Used [0-9]+ registers/ {
        match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
        shared = 0
        if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH - 11)
        print family "\t" name "\t" generation "\t" registers "\t" shared "\t" stack "\t" spill }'
  done | sort -t $'\t' -k1,1 -k2,2 -k3,3n
}

# Of each kernel the most of any generation.
record() {
  awk -F '\t' '
    { key = $1 " | `" $2 "`"; if (!(key in registers)) order[++count] = key
      if ($4 + 0 >= registers[key] + 0) registers[key] = $4
      if ($5 + 0 > shared[key] + 0) shared[key] = $5
      if ($6 + 0 > stack[key] + 0) stack[key] = $6
      if ($7 + 0 > spill[key] + 0) spill[key] = $7 }
    END { for (i = 1; i <= count; i++) { k = order[i]
      printf "| %s | %d | %d | %d | %d |\n", k, registers[k], shared[k], stack[k], spill[k] } }' "$out/kernels.tsv"
}

# cuda.c names functions of the driver that it was not compiled against: cuda.h must declare them, or map a name to them.
check_driver() {
  local header=$1 name
  grep -oE '"cu[A-Z][A-Za-z0-9_]+"' src/gpu/cuda.c | tr -d '"' | sort -u | while read -r name; do
    if ! grep -qE "CUDAAPI $name\(|define +[A-Za-z0-9]+ +(__CUDA_API_PT[DS]+Z\()?$name(\)|$)" "$header"; then
      echo "src/gpu/cuda.c: cuda.h has no $name"
    elif grep -qE "define +$name +" "$header" && ! grep -qE "define +$name +__CUDA_API_PT[DS]+Z\($name\)" "$header"; then
      echo "src/gpu/cuda.c: cuda.h maps $name to another version"
    fi
  done
}

# The same for cublas.h: functions of cuBLASLt, and numbers of its enumerators, in the headers of a folder.
check_cublas() {
  local include=$1 name value
  grep -oE '"cublasLt[A-Za-z]+"' src/gpu/cublas.h | tr -d '"' | sort -u | while read -r name; do
    if ! grep -qE "CUBLASWINAPI $name\(" "$include/cublasLt.h"; then echo "src/gpu/cublas.h: cublasLt.h has no $name"; fi
  done
  grep -oE 'HRI_CU[A-Z0-9_]+ = [0-9]+( \| [0-9]+)*' src/gpu/cublas.h | sed 's/^HRI_//; s/ = / /' | while read -r name value; do
    if ! grep -qE "(^|[^A-Z_])$name *= *${value// | / *\\| *} *(,|\$)" "$include"/{cublasLt,cublas_api,library_types}.h; then
      echo "src/gpu/cublas.h: $name is not $value"
    fi
  done
}

# Tables that launchers hand to kernels (the program does not show its own to a library that it loads), and what these call.
tables=(src/ops/optim/dynamic.c src/program/quantization.c src/program/job.c)

# All objects as the library that the backend loads, which has every launcher of its table and needs nothing of the program.
link_library() {
  local nvcc=$1 library=$out/libheadroom-cuda.so missing file objects=()
  for file in "${tables[@]}"; do
    objects+=("$out/tables/$(basename "$file" .c).o")
    mkdir -p "$out/tables"
    "${CC:-gcc}" -std=c11 -O2 -DNDEBUG -fPIC -fvisibility=hidden -ffunction-sections -Iinclude -Isrc -c "$file" -o "${objects[-1]}"
  done
  "$nvcc" -shared -Xlinker -z,defs,--gc-sections -o "$library" "$out"/*.o "${objects[@]}"
  missing=$(comm -23 <(grep -oE 'X\([a-z_]+\)' src/backend/cuda/kernels.h | sed -E 's/X\((.*)\)/hri_cuda_\1/' | grep -v '^hri_cuda_name$' | sort -u) \
    <(nm -D --defined-only "$library" | awk '{ print $3 }' | sort -u))
  if [[ -n $missing ]]; then
    printf 'cuda: %s has no %s\n' "$library" "$missing" >&2
    return 1
  fi
  echo "cuda: $library has all launchers of the backend"
}

if [[ ${1:-} == --cublas ]]; then # the folder of cublasLt.h: only this comparison
  wrong=$(check_cublas "$2")
  if [[ -n $wrong ]]; then
    echo "$wrong" >&2
    exit 1
  fi
  echo "cuda: names and numbers of cuBLASLt are those of $2/cublasLt.h"
  exit
fi
if [[ ${1:-} == --link ]]; then
  link_library "$2"
  exit
fi
if [[ ${1:-} == --compile ]]; then
  compile "$2" "$3"
  exit
fi
recording=no
while [[ ${1:-} == --* ]]; do
  case $1 in
    --record) recording=yes ;;
    --for)
      if [[ -z ${2:-} ]]; then
        echo "cuda: --for needs generations, such as --for 80,90" >&2
        exit 2
      fi
      read -r -a generations <<<"${2//,/ }"
      shift ;;
    *)
      echo "cuda: unknown option $1 (--record, --for 80,90, --cublas FOLDER)" >&2
      exit 2 ;;
  esac
  shift
done
for generation in "${generations[@]}"; do
  if [[ " ${supported[*]} " != *" $generation "* ]]; then
    echo "cuda: sm_$generation is not supported: bf16 products of tensor cores begin with sm_80 (supported: ${supported[*]})" >&2
    exit 2
  fi
done
if [[ $recording == yes && ("${generations[*]}" != "${supported[*]}" || $# -gt 0) ]]; then
  echo "cuda: --record needs all files for all generations" >&2
  exit 2
fi
export HRI_CUDA_GENERATIONS="${generations[*]}"
nvcc=${NVCC:-$(command -v nvcc || true)}
if [[ -z $nvcc || $("$nvcc" --version) != *"release 13."* ]]; then
  scripts/setup.sh cuda
  nvcc=$(echo build/cuda-tools/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)
fi
mkdir -p "$out"
if (($#)); then files=("$@"); else files=(src/ops/*/cuda*.cu); fi
begin=$SECONDS
printf '%s\n' "${files[@]}" | xargs -P "${DEV_JOBS:-$(nproc)}" -I{} scripts/cuda.sh --compile "$nvcc" {}
echo "cuda: ${#files[@]} files for sm_${generations[*]} and PTX of compute_80 in $((SECONDS - begin)) s, no warnings"
for file in "${files[@]}"; do
  echo "$file $(<"$out/$(family_of "$file").seconds")"
done | awk '{ printf "cuda: %s: %.1f s of processor\n", $1, $2 + $3; sum += $2 + $3 } END { printf "cuda: %.1f s of processor in all\n", sum }'
table >"$out/kernels.tsv"
echo "cuda: $(cut -f2 "$out/kernels.tsv" | sort -u | wc -l) kernels, $(awk -F '\t' '$7 > 0' "$out/kernels.tsv" | cut -f2 | sort -u | wc -l) of them spill ($out/kernels.tsv)"
# Attention at head sizes of 64 and 128 has to find room in registers.
spilling=$(awk -F '\t' '$7 > 0 && $1 ~ /^attention/ && $2 ~ /, (64|128)>$/ { print $2 " on " $3 ": " $7 " bytes" }' "$out/kernels.tsv")
if [[ -n $spilling ]]; then
  printf 'cuda: registers are spilled: %s\n' "$spilling" >&2
  exit 1
fi
# The driver is told how deep stacks have to be before bytes are counted (gpu/runtime.h).
stack=$(sed -nE 's/.*HRI_GPU_STACK_BYTES = ([0-9]+).*/\1/p' src/gpu/runtime.h)
deep=$(awk -F '\t' -v most="$stack" '$6 > most { print $2 " on " $3 ": " $6 " bytes" }' "$out/kernels.tsv")
if [[ -z $stack || -n $deep ]]; then
  printf 'cuda: deeper stacks than HRI_GPU_STACK_BYTES (%s): %s\n' "$stack" "$deep" >&2
  exit 1
fi
if ((${#files[@]} == $(ls src/ops/*/cuda*.cu | wc -l))); then link_library "$nvcc"; fi
header=$("$nvcc" -x cu -M -include cuda.h /dev/null 2>/dev/null | tr -d '\\' | tr ' ' '\n' | grep '/cuda\.h$' | head -n 1 || true)
if [[ -n $header ]]; then
  wrong=$(check_driver "$header")
  if [[ -n $wrong ]]; then
    echo "$wrong" >&2
    exit 1
  fi
  echo "cuda: the driver's functions are those of cuda.h"
fi
if [[ $recording == yes ]]; then
  page=docs/cuda-kernels.md
  { sed '/^| family/q' "$page"
    echo '|---|---|---|---|---|---|'
    record; } >"$out/page.md"
  cp "$out/page.md" "$page"
fi
